//go:build linux

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/codec"
)

// reopen opens the journal, and returns what it holds.
func reopen(dir string, o Options) (j *Journal, torn *Torn, records []string, err error) {
	j, torn, err = Open(dir, o, func(_ uint64, record []byte) error {
		records = append(records, string(record))
		return nil
	})
	return j, torn, records, err
}

// TestTornTails cuts the last segment at every byte: the records before the cut are there, the rest
// is kept beside, and the journal goes on.
func TestTornTails(t *testing.T) {
	dir := t.TempDir()
	j, _, _, err := reopen(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("record %d", i))
		if err := j.Append([]byte(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(segmentFile(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	size := (len(whole) - headerSize) / 5
	for cut := range whole {
		dir := t.TempDir()
		if err := os.WriteFile(segmentFile(dir, 1), whole[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
		j, torn, got, err := reopen(dir, Options{})
		if err != nil {
			t.Fatal(cut, err)
		}
		n := max(0, cut-headerSize) / size
		if !slices.Equal(got, want[:n]) {
			t.Fatalf("cut at %d: %q", cut, got)
		}
		clean := cut >= headerSize && (cut-headerSize)%size == 0
		if clean != (torn == nil) {
			t.Fatalf("cut at %d: %v", cut, torn)
		}
		if torn != nil {
			kept, err := os.ReadFile(torn.File + ".torn")
			if err != nil || !bytes.Equal(kept, whole[torn.Offset:cut]) || torn.Bytes != int64(len(kept)) {
				t.Fatalf("cut at %d: %v, kept %q, %v", cut, torn, kept, err)
			}
		}
		if err := errors.Join(j.Append([]byte("more")), j.Close()); err != nil {
			t.Fatal(err)
		}
		j, torn, got, err = reopen(dir, Options{})
		if err != nil || torn != nil || !slices.Equal(got, append(slices.Clone(want[:n]), "more")) {
			t.Fatalf("cut at %d, again: %v, %q, %v", cut, torn, got, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamageInTheMiddle holds that a changed byte of a segment that is not the last is an error
// that names it, and a missing segment is one.
func TestDamageInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		j, _, _, err := reopen(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Append([]byte(fmt.Sprint("record ", i))), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(segmentFile(dir, 2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 4
		if err := os.WriteFile(segmentFile(dir, 2), changed, 0o666); err != nil {
			t.Fatal(err)
		}
		var corrupt *codec.CorruptError
		if _, _, _, err := reopen(dir, Options{}); !errors.As(err, &corrupt) && !codec.IsFormat(err) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	if err := os.Remove(segmentFile(dir, 2)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := reopen(dir, Options{}); !errors.Is(err, codec.ErrCorrupt) {
		t.Fatal(err)
	}
	// Those before the first that counts are deleted.
	j, _, got, err := reopen(dir, Options{First: 3})
	if err != nil || !slices.Equal(got, []string{"record 2"}) {
		t.Fatal(got, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(segmentFile(dir, 1)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// lastSegment has acknowledged records of some lengths.
func lastSegment(t *testing.T) (whole []byte, records []string, ends []int) {
	t.Helper()
	dir := t.TempDir()
	j, _, _, err := reopen(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	size := headerSize
	for i := range 6 {
		r := strings.Repeat(fmt.Sprint(i), 1+i*7)
		if err := errors.Join(j.Append([]byte(r)), j.Commit()); err != nil {
			t.Fatal(err)
		}
		size += frameSize + len(r)
		records, ends = append(records, r), append(ends, size)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if whole, err = os.ReadFile(segmentFile(dir, 1)); err != nil || len(whole) != size {
		t.Fatal(len(whole), size, err)
	}
	return whole, records, ends
}

// TestDamageInTheLastSegment flips a bit of each byte of a segment whose records were acknowledged.
// No record is dropped because an earlier one is damaged; the last record cannot be distinguished
// from a torn one.
func TestDamageInTheLastSegment(t *testing.T) {
	whole, records, ends := lastSegment(t)
	lastBegins := ends[len(ends)-2]
	for i := range whole {
		dir := t.TempDir()
		changed := bytes.Clone(whole)
		changed[i] ^= 1 << (i % 8)
		if err := os.WriteFile(segmentFile(dir, 1), changed, 0o666); err != nil {
			t.Fatal(err)
		}
		j, torn, got, err := reopen(dir, Options{})
		if i >= lastBegins {
			if err != nil || torn == nil || torn.Offset != int64(lastBegins) || !slices.Equal(got, records[:len(records)-1]) {
				t.Fatalf("byte %d of the last record: %v, %q, %v", i, torn, got, err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var corrupt *codec.CorruptError
		if !errors.As(err, &corrupt) {
			if i < headerSize && codec.IsFormat(err) {
				continue
			}
			t.Fatalf("byte %d: %v", i, err)
		}
		begin := headerSize
		for _, e := range ends {
			if i >= e {
				begin = e
			}
		}
		if i >= headerSize && (corrupt.Offset != int64(begin) || corrupt.File != segmentFile(dir, 1)) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if after, err := os.ReadFile(segmentFile(dir, 1)); err != nil || !bytes.Equal(after, changed) {
			t.Fatalf("byte %d: the segment was changed: %v", i, err)
		}
	}
}

// TestGarbageBehindTheLastRecord holds that what a torn write leaves is cut, however long it is.
func TestGarbageBehindTheLastRecord(t *testing.T) {
	whole, records, _ := lastSegment(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 7, 8, 9, 100, 4096, 2 << 20} {
		random := make([]byte, n)
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		for name, garbage := range map[string][]byte{"zeros": make([]byte, n), "random bytes": random, "another segment's": bytes.Repeat([]byte("\x01\x00\x00\x00abcde"), n/9+1)[:n]} {
			dir := t.TempDir()
			if err := os.WriteFile(segmentFile(dir, 1), append(bytes.Clone(whole), garbage...), 0o666); err != nil {
				t.Fatal(err)
			}
			j, torn, got, err := reopen(dir, Options{})
			if err != nil || torn == nil || torn.Offset != int64(len(whole)) || torn.Bytes != int64(n) || !slices.Equal(got, records) {
				t.Fatalf("%d %s: %v, %q, %v", n, name, torn, got, err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestOpenSyncsWhatItReads has a process die before it synced its writes: the next one answers from
// it only if it can sync it.
func TestOpenSyncsWhatItReads(t *testing.T) {
	whole, _, _ := lastSegment(t)
	dir := t.TempDir()
	if err := os.WriteFile(segmentFile(dir, 1), whole, 0o666); err != nil {
		t.Fatal(err)
	}
	var synced []string
	failing := errors.New("the disk fails")
	syncData = func(f *os.File) error {
		synced = append(synced, f.Name())
		return failing
	}
	defer func() { syncData = (*os.File).Sync }()
	if _, _, _, err := reopen(dir, Options{Sync: true}); !errors.Is(err, failing) || !slices.Equal(synced, []string{segmentFile(dir, 1)}) {
		t.Errorf("%v; synced %q", err, synced)
	}
}

// TestFullDisk holds that a commit that fails is an error, as is everything after it, and that what
// was committed before is there.
func TestFullDisk(t *testing.T) {
	disk := testenv.SmallDisk(t, 1<<20)
	dir := filepath.Join(disk, "journal")
	j, _, _, err := reopen(dir, Options{Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	record := bytes.Repeat([]byte("r"), 10_000)
	committed := 0
	for err == nil {
		if err = errors.Join(j.Append(record), j.Commit()); err == nil {
			committed++
		}
	}
	if err := j.Append(record); err == nil {
		t.Error("a journal that failed takes records")
	}
	if committed == 0 {
		t.Fatal(err)
	}
	if err := j.Close(); err == nil {
		t.Error("closed without the error")
	}
	elsewhere := t.TempDir()
	if err := os.CopyFS(elsewhere, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	j, _, got, err := reopen(elsewhere, Options{})
	if err != nil || len(got) != committed {
		t.Fatalf("%d records, want %d, %v", len(got), committed, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRotate appends around the beginning of segments, and dies at any moment: what was committed
// is there, in order, and the end of a segment is cut although the next one was made before.
func TestRotate(t *testing.T) {
	for _, sync := range []bool{false, true} {
		dir := t.TempDir()
		j, _, _, err := reopen(dir, Options{Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		committed := 0
		put := func() {
			want = append(want, fmt.Sprintf("record %d", len(want)))
			if err := j.Append([]byte(want[len(want)-1])); err != nil {
				t.Fatal(err)
			}
		}
		check := func() {
			t.Helper()
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			again, torn, got, err := reopen(copied, Options{})
			if err != nil || torn != nil || !slices.Equal(got, want[:committed]) {
				t.Fatalf("%q, %v, %v, want %q", got, torn, err, want[:committed])
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for step := range 60 {
			put()
			switch step % 5 {
			case 1:
				if err := j.Commit(); err != nil {
					t.Fatal(err)
				}
				committed = len(want)
			case 2:
				if err := j.Prepare(); err != nil {
					t.Fatal(err)
				}
			case 3:
				if _, err := j.Rotate(); err != nil {
					t.Fatal(err)
				}
			case 4:
				if err := j.Sync(); err != nil {
					t.Fatal(err)
				}
				committed = len(want)
			}
			check()
		}
		put()
		number, err := j.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Commit(), j.Prepare()); err != nil {
			t.Fatal(err)
		}
		// As if the machine had died while the record was written.
		name := segmentFile(dir, number-1)
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Close(), os.Truncate(name, st.Size()-1)); err != nil {
			t.Fatal(err)
		}
		j, torn, got, err := reopen(dir, Options{})
		if err != nil || torn == nil || torn.File != name || !slices.Equal(got, want[:len(want)-1]) {
			t.Fatalf("%q, %v, %v", got, torn, err)
		}
		// Now it has a record after it, so its end must be whole.
		if err := errors.Join(j.Append([]byte("more")), j.Close(), os.Truncate(name, st.Size()-3)); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := reopen(dir, Options{}); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatal(err)
		}
	}
}
