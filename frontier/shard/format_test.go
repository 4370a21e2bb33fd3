package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/codec"
)

// writeFolder has TestFolder write a folder beside the earlier ones, which are never written again.
var writeFolder = flag.String("write-folder", "", "write frontier/shard/testdata/`NAME`")

const foldersOfShards = "testdata"

// exampleShard fills an empty folder with what a shard can have: entries in every state in files
// and in the journal, visits, and a queue that was deleted.
func exampleShard(t *testing.T, dir string) {
	t.Helper()
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	s, _, err := Open(dir, Options{MemoryBytes: 1 << 20, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := QueueName("c", "a.example"), QueueName("DEFAULT", "b.example")
	fill := func(part string) {
		t.Helper()
		entries := []Entry{{Queue: QueueName("c", "gone.example"), URL: "https://gone.example/" + part}}
		for i := range 6 {
			entries = append(entries,
				Entry{Queue: a, URL: fmt.Sprintf("https://a.example/%s/%d", part, i), Priority: uint16(i % 3), Depth: uint32(i), Metadata: []byte(`{"from":"x"}`)},
				Entry{Queue: b, URL: fmt.Sprintf("https://b.example/%s/%d", part, i), Due: now.UnixMilli() + int64(i%2)*3_600_000*int64(i)})
		}
		_, _, err := add(s, entries)
		check(err)
		taken, _, err := s.Take(a, 3)
		check(err)
		_, err = s.Done(taken[0].Seq, Visit{Time: now.UnixMilli(), Status: 200, Content: "s3://pages/1", Redirect: "https://a.example/"}, 0)
		check(err)
		_, _, err = s.Back(taken[1].Seq, 0)
		check(err)
		_, _, err = s.Import([]Entry{{Queue: a, URL: "https://a.example/imported/" + part, Depth: 4}}, []Visit{{Time: 1_700_000_000_000, Error: "timeout"}})
		check(err)
		_, err = s.Delete("c", QueueName("c", "gone.example"), 0)
		check(err)
		now = now.Add(time.Minute)
	}
	fill("files")
	check(s.Flush())
	fill("journal")
	check(s.Commit())
	check(s.Close())
}

// summary returns everything that a folder has, as sorted lines.
func summary(dir string) (text string, err error) {
	s, torn, err := Open(dir, Options{MemoryBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if torn != nil {
		return "", errors.New(torn.String())
	}
	if err := s.Resumed(); err != nil {
		return "", err
	}
	var lines []string
	for _, crawl := range s.Crawls() {
		list, _, err := s.List(crawl, "", Cursor{}, 1000)
		if err != nil {
			return "", err
		}
		for _, l := range list {
			lines = append(lines, fmt.Sprintf("url %q %s: entry %d, priority %d, depth %d, tries %d, due %d, created %d, metadata %s, state %d, fetched %d, status %d",
				l.Queue, l.URL, l.Seq, l.Priority, l.Depth, l.Tries, l.Due, l.Created, l.Metadata, l.State, l.Fetched, l.Status))
		}
	}
	_, err = s.Visits(0, 0, func(n int64, v Visit) bool {
		lines = append(lines, fmt.Sprintf("visit %d at %d of %q %s: status %d, depth %d, error %q, content %q, redirect %q",
			n, v.Time, v.Queue, v.URL, v.Status, v.Depth, v.Error, v.Content, v.Redirect))
		return true
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", err
}

// files returns the files of a folder by their names.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			all[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// different names the files that two folders do not have alike.
func different(a, b map[string][]byte) (names []string) {
	for name, data := range a {
		if other, ok := b[name]; !ok || !bytes.Equal(data, other) {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func folders(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(foldersOfShards, "*", "shard"))
	if err != nil || len(all) == 0 {
		t.Fatal("no folder in testdata", err)
	}
	return all
}

// copied returns a copy of a folder.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "shard")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestFolder opens the folders that earlier programs have written, and finds in them what they
// found. Today's program writes the newest of them just so: whoever changes a format gives it
// another number, reads the one before, and writes another folder, as docs/compatibility.md says.
func TestFolder(t *testing.T) {
	if *writeFolder != "" {
		dir := filepath.Join(foldersOfShards, *writeFolder)
		exampleShard(t, filepath.Join(dir, "shard"))
		text, err := summary(copied(t, filepath.Join(dir, "shard")))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "contents.txt"), []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := folders(t)
	for _, dir := range all {
		want, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "contents.txt"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := summary(copied(t, dir))
		if err != nil || got != string(want) {
			t.Errorf("%s: %v, contents\n%s\nwant\n%s", dir, err, got, want)
		}
		if n := strings.Count(got, "\n"); n < 30 {
			t.Errorf("%s has %d lines", dir, n)
		}
	}
	newest := files(t, all[len(all)-1])
	today := filepath.Join(t.TempDir(), "shard")
	exampleShard(t, today)
	if names := different(newest, files(t, today)); len(names) > 0 {
		t.Errorf("today's program writes %v otherwise", names)
	}
}

// TestNewerFolder raises the version of each file of a folder by one. It is refused by an error
// that names the file and what to do, and nothing in the folder is changed.
func TestNewerFolder(t *testing.T) {
	all := folders(t)
	newest := files(t, all[len(all)-1])
	kinds := map[string]bool{}
	for name, data := range newest {
		if strings.HasSuffix(name, ".journal") && len(data) < 20 {
			continue // it was made before it was needed
		}
		kinds[filepath.Ext(name)+filepath.Base(strings.TrimSuffix(name, filepath.Ext(name)))[:1]] = true
		dir := copied(t, all[len(all)-1])
		path := filepath.Join(dir, filepath.FromSlash(name))
		newer := bytes.Clone(data)
		version := binary.LittleEndian.Uint32(newer[4:])
		binary.LittleEndian.PutUint32(newer[4:], version+1)
		if name == checkpointName {
			newer = codec.AppendCRC32C(newer[:len(newer)-4])
		}
		if err := os.WriteFile(path, newer, 0o666); err != nil {
			t.Fatal(err)
		}
		// What no checkpoint names is deleted when a folder is opened, but not when it is refused.
		if err := os.WriteFile(filepath.Join(dir, "00000000000000ff.run"), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		before := files(t, dir)
		s, _, err := Open(dir, Options{MemoryBytes: 1 << 20})
		if err == nil {
			_ = s.Close()
		}
		want := fmt.Sprintf(": format %d, but this program knows formats up to %d; it needs a newer urlake", version+1, version)
		if !codec.IsFormat(err) || !strings.Contains(err.Error(), path+want) {
			t.Errorf("%s: %v, want %s%s", name, err, path, want)
		}
		if names := different(before, files(t, dir)); len(names) > 0 {
			t.Errorf("%s is newer, and %v are changed", name, names)
		}
	}
	if len(kinds) < 7 {
		t.Errorf("only %v were tried", kinds)
	}
}
