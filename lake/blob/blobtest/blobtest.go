// Long file: the conformance suite is one list of properties, in the order of the store interface.

// Package blobtest helps to test stores and what uses them: the conformance suite of package blob's
// Store, which every store has to pass, and Faulty, a store that fails where a test tells it to.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// manyKeys is more than a page of a listing and a batch of a deletion have.
	manyKeys = 1010

	// largeObject is several parts of a multipart upload, the last one short.
	largeObject = 20<<20 + 12345
)

// Run runs the suite on stores that open returns. Each of them must be empty.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	tests := []struct {
		name string
		run  func(*testing.T, blob.Store)
	}{
		{"put objects can be read", testPut},
		{"missing objects are reported", testMissing},
		{"invalid keys are rejected everywhere", testInvalidKeys},
		{"odd but valid keys work", testOddKeys},
		{"a key cannot be a folder", testFolders},
		{"ranges are exact", testRanges},
		{"an etag changes with the content", testETags},
		{"a stream never mixes two objects", testReplacedStream},
		{"conditions are honoured", testConditions},
		{"conditions of large puts are honoured", testLargeCondition},
		{"one writer wins each round", testRaces},
		{"an object under creation is invisible", testCreate},
		{"a large object is read as written", testLarge},
		{"many writers at once", testManyWriters},
		{"a listing is in byte order", testListOrder},
		{"a listing has all pages", testListPages},
		{"a listing can end early", testListBreak},
		{"deletion removes only the given objects", testDelete},
		{"concurrent creation and deletion", testCreateDeleteRace},
		{"an ended context ends every operation", testContext},
		{"the probe succeeds and leaves nothing", testProbe},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func put(t *testing.T, s blob.Store, key, data string) blob.Info {
	t.Helper()
	info, err := s.Put(t.Context(), key, []byte(data), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func wantContent(t *testing.T, s blob.Store, key, want string) {
	t.Helper()
	got, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s holds %.40q, want %.40q", key, got, want)
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want one that is %q", what, got, want)
	}
}

func list(t *testing.T, s blob.Store, prefix string) []blob.Info {
	t.Helper()
	var infos []blob.Info
	for info, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	return infos
}

func keys(infos []blob.Info) []string {
	var keys []string
	for _, info := range infos {
		keys = append(keys, info.Key)
	}
	return keys
}

// each runs f for 0 ≤ i < n, eight at a time.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// noise returns n bytes that do not compress. They depend on the seed alone.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(b)
	return b
}

func testPut(t *testing.T, s blob.Store) {
	for _, size := range []int{0, 1, 4096, 100_001} {
		key := fmt.Sprintf("a/b/size-%d", size)
		data := noise(1, size)
		for range 2 { // the second one replaces
			data = append(data, noise(2, size/10)...)
			info, err := s.Put(t.Context(), key, data, blob.Condition{})
			if err != nil {
				t.Fatal(err)
			}
			if info.Key != key || info.Size != int64(len(data)) || info.ETag == "" {
				t.Errorf("Put of %d bytes: %+v", len(data), info)
			}
			stat, err := s.Stat(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(info, stat); diff != "" {
				t.Errorf("Stat differs from Put (-put +stat):\n%s", diff)
			}
			got, gotInfo, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, data) {
				t.Errorf("Get of %d bytes returned %d different ones", len(data), len(got))
			}
			if diff := cmp.Diff(info, gotInfo); diff != "" {
				t.Errorf("Get differs from Put (-put +get):\n%s", diff)
			}
			if diff := cmp.Diff([]blob.Info{info}, list(t, s, key)); diff != "" {
				t.Errorf("List differs from Put (-put +list):\n%s", diff)
			}
		}
	}
	data := []byte("the caller's")
	if _, err := s.Put(t.Context(), "k", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	copy(data, "XXXXXX")
	got, _, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "YYYYYY")
	wantContent(t, s, "k", "the caller's")
}

func testMissing(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "dir/object", "x")
	for _, key := range []string{"absent", "dir", "dir/other", "dir/object/below", "no/such/folder"} {
		_, err := s.Stat(ctx, key)
		wantError(t, "Stat "+key, err, blob.ErrNotExist)
		_, _, err = s.Get(ctx, key)
		wantError(t, "Get "+key, err, blob.ErrNotExist)
		for _, n := range []int64{0, 1} {
			_, err = s.ReadRange(ctx, key, 0, n)
			wantError(t, "ReadRange "+key, err, blob.ErrNotExist)
		}
		_, err = s.Open(ctx, key, 0, -1)
		wantError(t, "Open "+key, err, blob.ErrNotExist)
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete of a missing object: %v", err)
		}
	}
	wantContent(t, s, "dir/object", "x")
	for _, prefix := range []string{"absent", "absent/", "dir/object/", "dirx"} {
		if got := list(t, s, prefix); len(got) != 0 {
			t.Errorf("List(%q) = %v", prefix, got)
		}
	}
	if err := s.Delete(ctx); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
}

func testInvalidKeys(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "kept", "x")
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../kept", "a/.", "./a", "\x00", "a\nb", "a\x7f", "\xff",
		".tmp", ".tmp/x", strings.Repeat("x", blob.MaxElement+1), strings.Repeat("x/", blob.MaxKey/2) + "x",
	} {
		_, err := s.Stat(ctx, key)
		wantError(t, "Stat", err, blob.ErrInvalidKey)
		_, _, err = s.Get(ctx, key)
		wantError(t, "Get", err, blob.ErrInvalidKey)
		_, err = s.ReadRange(ctx, key, 0, 1)
		wantError(t, "ReadRange", err, blob.ErrInvalidKey)
		_, err = s.Open(ctx, key, 0, -1)
		wantError(t, "Open", err, blob.ErrInvalidKey)
		_, err = s.Put(ctx, key, nil, blob.Condition{})
		wantError(t, "Put", err, blob.ErrInvalidKey)
		_, err = s.Create(ctx, key)
		wantError(t, "Create", err, blob.ErrInvalidKey)
		wantError(t, "Delete", s.Delete(ctx, "kept", key), blob.ErrInvalidKey)
		if l, ok := blob.AsLocalFiler(s); ok {
			_, err = l.LocalPath(key)
			wantError(t, "LocalPath", err, blob.ErrInvalidKey)
		}
	}
	for _, prefix := range []string{"/", "a//", "../", "a/../", "\x00"} {
		for _, err := range s.List(ctx, prefix) {
			wantError(t, fmt.Sprintf("List(%q)", prefix), err, blob.ErrInvalidKey)
		}
	}
	if diff := cmp.Diff([]string{"kept"}, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func testOddKeys(t *testing.T, s blob.Store) {
	want := []string{
		" ", "!", "%2F", "+", "...", ".tmpx", ".hidden/.tmp", "=", "?a=b&c", "#", "a b/c d", "\"quoted\"", "<xml>&amp;", "back\\slash",
		"ünïcödé/日本語", "dataset_id=1/domain_prefix=ff/part.parquet", "~tilde", "'apos'", "*", "a:b", "x,y;z", "😀", "\u00a0",
		strings.Repeat("n", 200), strings.Repeat("deep/", 40) + "x",
	}
	for _, key := range want {
		put(t, s, key, "in "+key)
	}
	for _, key := range want {
		wantContent(t, s, key, "in "+key)
		if info, err := s.Stat(t.Context(), key); err != nil || info.Key != key {
			t.Errorf("Stat(%q) = %+v, %v", key, info, err)
		}
		if b, err := s.ReadRange(t.Context(), key, 0, 2); err != nil || string(b) != "in" {
			t.Errorf("ReadRange(%q) = %q, %v", key, b, err)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if err := s.Delete(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	if left := list(t, s, ""); len(left) > 0 {
		t.Errorf("left after deletion: %v", left)
	}
}

// A store may hold both an object and a folder of one name, as S3 does.
func testFolders(t *testing.T, s blob.Store) {
	put(t, s, "a/b", "below")
	put(t, s, "c", "object")
	write := map[string]func(key string) error{
		"Put": func(key string) error {
			_, err := s.Put(t.Context(), key, []byte("new"), blob.Condition{})
			return err
		},
		"Finish": func(key string) error {
			w, err := s.Create(t.Context(), key)
			if err != nil {
				return err
			}
			if _, err := w.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
			_, err = w.Finish()
			return err
		},
	}
	for name, write := range write {
		for _, key := range []string{"a", "c/d", "c/d/e"} {
			if err := write(key); err != nil {
				wantError(t, name+" "+key, err, blob.ErrInvalidKey)
			}
		}
	}
	wantContent(t, s, "a/b", "below")
	wantContent(t, s, "c", "object")
	// A folder that is empty again does not prevent an object of its name.
	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "object now")
	wantContent(t, s, "a", "object now")
}

func testRanges(t *testing.T, s blob.Store) {
	ctx := t.Context()
	data := noise(3, 1000)
	put(t, s, "k", string(data))
	put(t, s, "empty", "")
	size := int64(len(data))
	for _, r := range [][2]int64{
		{0, 0}, {0, 1}, {0, size}, {size - 1, 1}, {size, 0}, {17, 500}, {999, 0},
		{0, size + 1}, {size, 1}, {size + 1, 0}, {size - 1, 2}, {5000, 5}, {5000, 0},
		{-1, 1}, {-1, 0}, {0, math.MaxInt64}, {1, math.MaxInt64}, {math.MaxInt64, 1}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, 1},
	} {
		off, n := r[0], r[1]
		inside := off >= 0 && n <= size && off <= size-n
		got, err := s.ReadRange(ctx, "k", off, n)
		if !inside {
			wantError(t, fmt.Sprintf("ReadRange(%d, %d)", off, n), err, blob.ErrRange)
		} else if err != nil || !bytes.Equal(got, data[off:off+n]) {
			t.Errorf("ReadRange(%d, %d) = %d bytes, %v", off, n, len(got), err)
		}
		stream, err := s.Open(ctx, "k", off, n)
		if !inside {
			wantError(t, fmt.Sprintf("Open(%d, %d)", off, n), err, blob.ErrRange)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err = io.ReadAll(stream)
		if err != nil || !bytes.Equal(got, data[off:off+n]) {
			t.Errorf("Open(%d, %d) gave %d bytes, %v", off, n, len(got), err)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.ReadRange(ctx, "k", 0, -1)
	wantError(t, "ReadRange of -1 bytes", err, blob.ErrRange)
	for _, off := range []int64{0, 1, 500, size - 1, size} {
		stream, err := s.Open(ctx, "k", off, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(stream)
		stream.Close()
		if err != nil || !bytes.Equal(got, data[off:]) {
			t.Errorf("Open(%d) gave %d bytes, %v", off, len(got), err)
		}
	}
	for _, off := range []int64{size + 1, -1, math.MaxInt64} {
		_, err := s.Open(ctx, "k", off, -1)
		wantError(t, fmt.Sprintf("Open(%d)", off), err, blob.ErrRange)
	}
	if got, err := s.ReadRange(ctx, "empty", 0, 0); err != nil || len(got) != 0 {
		t.Errorf("ReadRange of an empty object = %q, %v", got, err)
	}
	stream, err := s.Open(ctx, "empty", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stream); err != nil || len(got) != 0 {
		t.Errorf("an empty object streams %q, %v", got, err)
	}
	stream.Close()
	_, err = s.Open(ctx, "empty", 0, 1)
	wantError(t, "Open of a byte of an empty object", err, blob.ErrRange)
	_, err = s.ReadRange(ctx, "empty", 0, 1)
	wantError(t, "ReadRange of a byte of an empty object", err, blob.ErrRange)
}

// No ETag occurs twice among contents of one size that replace each other as fast as possible, or
// follow deletions.
func testETags(t *testing.T, s blob.Store) {
	seen := map[string]string{}
	for i := range 60 {
		content := fmt.Sprintf("%06d", i)
		info := put(t, s, "k", content)
		stat, err := s.Stat(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if stat.ETag != info.ETag {
			t.Fatalf("Stat has tag %s, Put had %s", stat.ETag, info.ETag)
		}
		if other, ok := seen[info.ETag]; ok {
			t.Fatalf("contents %s and %s have the same ETag %s", other, content, info.ETag)
		}
		seen[info.ETag] = content
		if i%3 == 0 {
			if err := s.Delete(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testReplacedStream(t *testing.T, s blob.Store) {
	ctx := t.Context()
	old := noise(4, 8<<20)
	write := func(data []byte) {
		w, err := s.Create(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	stream, err := s.Open(ctx, "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(stream, first); err != nil {
		t.Fatal(err)
	}
	write(noise(5, 8<<20))
	rest, err := io.ReadAll(stream)
	got := slices.Concat(first, rest)
	if err == nil && !bytes.Equal(got, old) || !bytes.HasPrefix(old, got) {
		t.Errorf("a stream of a replaced object returned %d bytes that are not the old object's; error %v", len(got), err)
	}
	if err != nil {
		wantError(t, "reading on", err, blob.ErrChanged)
	}
}

func testConditions(t *testing.T, s blob.Store) {
	ctx := t.Context()
	try := func(what string, data string, cond blob.Condition, want error) blob.Info {
		t.Helper()
		info, err := s.Put(ctx, "dir/k", []byte(data), cond)
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Fatalf("%s: got error %v, want %v", what, err, want)
		}
		return info
	}
	absent := blob.Condition{IfAbsent: true}
	try("IfMatch on nothing", "x", blob.Condition{IfMatch: "abc"}, blob.ErrPrecondition)
	a := try("IfAbsent on nothing", "a", absent, nil)
	try("IfAbsent on something", "x", absent, blob.ErrPrecondition)
	try("wrong tag", "x", blob.Condition{IfMatch: "abc"}, blob.ErrPrecondition)
	try("both conditions", "x", blob.Condition{IfAbsent: true, IfMatch: a.ETag}, blob.ErrPrecondition)
	wantContent(t, s, "dir/k", "a")
	b := try("right tag", "b", blob.Condition{IfMatch: a.ETag}, nil)
	try("stale tag", "x", blob.Condition{IfMatch: a.ETag}, blob.ErrPrecondition)
	wantContent(t, s, "dir/k", "b")
	c := try("no condition", "c", blob.Condition{}, nil)
	try("tag before that", "x", blob.Condition{IfMatch: b.ETag}, blob.ErrPrecondition)

	stat, err := s.Stat(ctx, "dir/k")
	if err != nil {
		t.Fatal(err)
	}
	try("tag from Stat", "d", blob.Condition{IfMatch: stat.ETag}, nil)
	_, got, err := s.Get(ctx, "dir/k")
	if err != nil {
		t.Fatal(err)
	}
	try("tag from Get", "e", blob.Condition{IfMatch: got.ETag}, nil)
	try("tag from List", "f", blob.Condition{IfMatch: list(t, s, "dir/")[0].ETag}, nil)
	w, err := s.Create(ctx, "dir/k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("g")); err != nil {
		t.Fatal(err)
	}
	fin, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	last := try("tag from Finish", "h", blob.Condition{IfMatch: fin.ETag}, nil)
	try("tag of an earlier object", "x", blob.Condition{IfMatch: c.ETag}, blob.ErrPrecondition)
	wantContent(t, s, "dir/k", "h")

	if err := s.Delete(ctx, "dir/k"); err != nil {
		t.Fatal(err)
	}
	try("tag of a deleted object", "x", blob.Condition{IfMatch: last.ETag}, blob.ErrPrecondition)
	if got := list(t, s, ""); len(got) != 0 {
		t.Fatalf("rejected puts left %v", got)
	}
	try("IfAbsent after deletion", "i", absent, nil)
}

func testLargeCondition(t *testing.T, s blob.Store) {
	data := noise(6, 6<<20)
	info, err := s.Put(t.Context(), "k", data, blob.Condition{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	data[0]++
	_, err = s.Put(t.Context(), "k", data, blob.Condition{IfAbsent: true})
	wantError(t, "a second IfAbsent", err, blob.ErrPrecondition)
	_, err = s.Put(t.Context(), "k", data, blob.Condition{IfMatch: "abc"})
	wantError(t, "a wrong tag", err, blob.ErrPrecondition)
	if _, err = s.Put(t.Context(), "k", data, blob.Condition{IfMatch: info.ETag}); err != nil {
		t.Error(err)
	}
	got, _, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("the object is not what the last successful put wrote")
	}
}

// In each round writers put concurrently with the same condition.
func testRaces(t *testing.T, s blob.Store) {
	const writers, rounds = 8, 50
	cond := blob.Condition{IfAbsent: true}
	for round := range rounds {
		var wins atomic.Int64
		var winner blob.Info
		var start, done sync.WaitGroup
		start.Add(1)
		for w := range writers {
			done.Go(func() {
				start.Wait()
				info, err := s.Put(t.Context(), "k", fmt.Appendf(nil, "%02d by %d", round, w), cond)
				switch {
				case err == nil:
					if wins.Add(1) == 1 {
						winner = info
					}
				case !errors.Is(err, blob.ErrPrecondition):
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		start.Done()
		done.Wait()
		got, err := s.Stat(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if wins.Load() != 1 || got != winner {
			t.Fatalf("round %d: %d winners, the object is %+v, the winner's %+v", round, wins.Load(), got, winner)
		}
		cond = blob.Condition{IfMatch: winner.ETag}
	}
}

func testCreate(t *testing.T, s blob.Store) {
	ctx := t.Context()
	create := func(key string) blob.Writer {
		t.Helper()
		w, err := s.Create(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := create("dir/k")
	for range 3 {
		if n, err := w.Write([]byte("part ")); n != 5 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if got := list(t, s, ""); len(got) != 0 {
		t.Errorf("visible before Finish: %v", got)
	}
	_, err := s.Stat(ctx, "dir/k")
	wantError(t, "Stat before Finish", err, blob.ErrNotExist)
	info, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := s.Stat(ctx, "dir/k")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(info, stat); diff != "" || info.Size != 15 || info.Key != "dir/k" {
		t.Errorf("Stat differs from Finish (-finish +stat):\n%s", diff)
	}
	w.Abort()
	wantContent(t, s, "dir/k", "part part part ")
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("Write after Finish succeeded")
	}
	if _, err := w.Finish(); err == nil {
		t.Error("a second Finish succeeded")
	}
	wantContent(t, s, "dir/k", "part part part ")

	// Abort leaves the old object if there is one, and nothing otherwise.
	for _, key := range []string{"dir/k", "other/k"} {
		w := create(key)
		if _, err := w.Write(noise(7, 200_000)); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		w.Abort()
		if _, err := w.Finish(); err == nil {
			t.Error("Finish after Abort succeeded")
		}
	}
	wantContent(t, s, "dir/k", "part part part ")
	if diff := cmp.Diff([]string{"dir/k"}, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}

	// Finish replaces, and an object may be empty.
	if _, err := create("dir/k").Finish(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, s, "dir/k", "")
}

func testLarge(t *testing.T, s blob.Store) {
	ctx := t.Context()
	data := noise(8, largeObject)
	rng := rand.New(rand.NewPCG(1, 2))
	w, err := s.Create(ctx, "large")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 1+rng.IntN(1<<20))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := s.Stat(ctx, "large")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(info, stat); diff != "" || info.Size != largeObject {
		t.Errorf("Stat differs from Finish (-finish +stat):\n%s", diff)
	}
	stream, err := s.Open(ctx, "large", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	h := sha256.New()
	if n, err := io.Copy(h, stream); err != nil || n != largeObject {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("read different bytes than written")
	}
	for range 20 {
		off := rng.Int64N(largeObject)
		n := rng.Int64N(min(largeObject-off, 100_000))
		got, err := s.ReadRange(ctx, "large", off, n)
		if err != nil || !bytes.Equal(got, data[off:off+n]) {
			t.Errorf("ReadRange(%d, %d): %d bytes, %v", off, n, len(got), err)
		}
	}
	if _, err := s.Put(ctx, "large", []byte("x"), blob.Condition{IfMatch: info.ETag}); err != nil {
		t.Errorf("the tag of a large object does not match: %v", err)
	}

	// An aborted large object leaves nothing.
	w, err = s.Create(ctx, "aborted")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if got := list(t, s, "aborted"); len(got) != 0 {
		t.Errorf("after Abort: %v", got)
	}
}

func testManyWriters(t *testing.T, s blob.Store) {
	const n = 100
	writers := make([]blob.Writer, n)
	for i := range writers {
		w, err := s.Create(t.Context(), fmt.Sprintf("parts/%02x/part", i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Abort)
		writers[i] = w
	}
	for round := range 3 {
		for i, w := range writers {
			if _, err := fmt.Fprintf(w, "%d:%d;", i, round); err != nil {
				t.Fatal(err)
			}
		}
	}
	each(t, n, func(i int) error {
		_, err := writers[i].Finish()
		return err
	})
	for i := range writers {
		wantContent(t, s, fmt.Sprintf("parts/%02x/part", i), fmt.Sprintf("%d:0;%d:1;%d:2;", i, i, i))
	}
}

func testListOrder(t *testing.T, s blob.Store) {
	all := []string{
		"a.b", "a-b", "a/b", "a/b.c", "a0", "a b/c", "a!", "A", "Z/z", "a/c/d", "a/c-d", "a/c.d/e", "a/c0", "b", "é", "z/é/1", "z/e/1", "z/e-",
		"batches/dataset_id=1/b/d.json", "batches/dataset_id=10/b/d.json", "batches/dataset_id=2/b/d.json",
	}
	for _, key := range all {
		put(t, s, key, key)
	}
	slices.Sort(all)
	prefixes := []string{"", "nothing", "a/c0/", ".tmp", ".tmp/", "a/b.", "é"}
	for _, key := range all {
		for i := 1; i <= len(key); i++ {
			if key[i-1] < 0x80 {
				prefixes = append(prefixes, key[:i])
			}
		}
	}
	slices.Sort(prefixes)
	each(t, len(slices.Compact(prefixes)), func(i int) error {
		var want []string
		for _, key := range all {
			if strings.HasPrefix(key, prefixes[i]) {
				want = append(want, key)
			}
		}
		var got []string
		for info, err := range s.List(t.Context(), prefixes[i]) {
			if err != nil {
				return err
			}
			if info.Size != int64(len(info.Key)) || info.ETag == "" {
				return fmt.Errorf("%+v", info)
			}
			got = append(got, info.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("List(%q) (-want +got):\n%s", prefixes[i], diff)
		}
		return nil
	})
}

// fill puts manyKeys objects in several folders and returns their keys in order.
func fill(t *testing.T, s blob.Store) []string {
	all := make([]string, manyKeys)
	for i := range all {
		all[i] = fmt.Sprintf("many/%d/%05d", i%7, i)
	}
	each(t, len(all), func(i int) error {
		_, err := s.Put(t.Context(), all[i], []byte("x"), blob.Condition{})
		return err
	})
	slices.Sort(all)
	return all
}

func testListPages(t *testing.T, s blob.Store) {
	put(t, s, "first", "x")
	put(t, s, "zlast", "x")
	want := fill(t, s)
	if diff := cmp.Diff(want, keys(list(t, s, "many/"))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	// Deletion in several batches, with a missing object.
	if err := s.Delete(t.Context(), append(want, "many/absent")...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first", "zlast"}, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects after deletion (-want +got):\n%s", diff)
	}
}

func testListBreak(t *testing.T, s blob.Store) {
	for i := range 20 {
		put(t, s, fmt.Sprintf("d%d/k", i%4+1)+fmt.Sprint(i), "x")
	}
	seen := 0
	for _, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 7 {
			break
		}
	}
	if seen != 7 {
		t.Errorf("saw %d objects", seen)
	}
}

func testDelete(t *testing.T, s blob.Store) {
	for _, key := range []string{"a/b/c/d", "a/b/x", "a/y", "z"} {
		put(t, s, key, key)
	}
	if err := s.Delete(t.Context(), "a/b/c/d", "a/b/c/d", "a/b/c", "absent/k", "z"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/b/x", "a/y"}, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	put(t, s, "a/b/c/d", "again")
	wantContent(t, s, "a/b/c/d", "again")
}

// Objects are created and deleted in the same folders, so folders are removed while others create
// objects in them.
func testCreateDeleteRace(t *testing.T, s blob.Store) {
	each(t, 80, func(i int) error {
		key := fmt.Sprintf("shared/%d/%d", i%3, i)
		w, err := s.Create(t.Context(), key)
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte("x")); err != nil {
			return err
		}
		if _, err := w.Finish(); err != nil {
			return err
		}
		if _, err := s.Stat(t.Context(), key); err != nil {
			return err
		}
		if err := s.Delete(t.Context(), key); err != nil {
			return err
		}
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, blob.ErrNotExist) {
			return fmt.Errorf("after deletion: %w", err)
		}
		for _, err := range s.List(t.Context(), "shared/") {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if got := list(t, s, ""); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func testContext(t *testing.T, s blob.Store) {
	put(t, s, "k", "old")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, "new")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	stream, err := s.Open(ctx, "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = w.Finish()
	wantError(t, "Finish", err, context.Canceled)
	_, err = io.ReadAll(stream)
	if err != nil { // buffered bytes may still be read
		wantError(t, "reading", err, context.Canceled)
	}
	stream.Close()
	_, err = s.Stat(ctx, "k")
	wantError(t, "Stat", err, context.Canceled)
	_, _, err = s.Get(ctx, "k")
	wantError(t, "Get", err, context.Canceled)
	_, err = s.ReadRange(ctx, "k", 0, 1)
	wantError(t, "ReadRange", err, context.Canceled)
	_, err = s.Open(ctx, "k", 0, -1)
	wantError(t, "Open", err, context.Canceled)
	_, err = s.Put(ctx, "k", []byte("new"), blob.Condition{})
	wantError(t, "Put", err, context.Canceled)
	_, err = s.Create(ctx, "k")
	wantError(t, "Create", err, context.Canceled)
	wantError(t, "Delete", s.Delete(ctx, "k"), context.Canceled)
	for _, err := range s.List(ctx, "") {
		wantError(t, "List", err, context.Canceled)
	}
	wantContent(t, s, "k", "old")
	if diff := cmp.Diff([]string{"k"}, keys(list(t, s, ""))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func testProbe(t *testing.T, s blob.Store) {
	each(t, 4, func(int) error { return blob.ProbeConditional(t.Context(), s, "index/probe") })
	if got := list(t, s, ""); len(got) != 0 {
		t.Errorf("the probe left %v", got)
	}
}
