package shard

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// copyLinked copies the bytes of linked files that belong to a snapshot.
func copyLinked(t *testing.T, from, to string, files []Linked) {
	t.Helper()
	for _, l := range files {
		name := filepath.Join(to, filepath.FromSlash(l.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(filepath.Join(from, filepath.FromSlash(l.Name)))
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, l.Size)
		if _, err := io.ReadFull(in, data); err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		_ = in.Close()
		if err := os.WriteFile(name, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshotIsOneMoment takes snapshots while others add URLs and settle them, and files are
// written. In each is what was certain before it was begun. Of what one worker did, one thing after
// the other, it has everything up to some point and nothing after that.
func TestSnapshotIsOneMoment(t *testing.T) {
	dir := filepath.Join(tempDir(t), "shard")
	s, _, err := Open(dir, Options{MemoryBytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	const workers = 4
	url := func(w, i int) string { return fmt.Sprintf("https://w%d.example/%d", w, i) }
	queue := func(w int) string { return QueueName("c", fmt.Sprintf("w%d.example", w)) }
	var certain [workers]atomic.Int64
	turns := make(chan struct{}, 300) // of the workers
	stop := make(chan struct{})
	var working, writing sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			i := 0
			for range turns {
				if _, _, err := add(s, []Entry{{Queue: queue(w), URL: url(w, i)}}); err != nil {
					t.Error(err)
				}
				taken, _, err := s.Take(queue(w), 1)
				if err != nil || len(taken) != 1 {
					t.Error(len(taken), err)
					continue
				}
				if ok, err := s.Done(taken[0].Seq, Visit{Status: 200}, 0); !ok || err != nil {
					t.Error(ok, err)
				}
				if err := s.Commit(); err != nil {
					t.Error(err)
				}
				i++
				certain[w].Store(int64(i))
			}
		})
	}
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Upkeep(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range 5 {
		for range 600 { // the last 300 are taken while the snapshot is made
			turns <- struct{}{}
		}
		var before [workers]int64
		for w := range workers {
			before[w] = certain[w].Load()
		}
		links, restored := filepath.Join(dir+"-links", fmt.Sprint(n)), filepath.Join(dir+"-copy", fmt.Sprint(n))
		files, err := s.Snapshot(links, nil)
		if err != nil {
			t.Fatal(err)
		}
		copyLinked(t, links, restored, files)
		got, torn, err := Open(restored, Options{MemoryBytes: 1 << 20})
		if err != nil || torn != nil {
			t.Fatal(torn, err)
		}
		for w := range workers {
			done, added := 0, 0
			for ; ; added++ {
				found, ok, err := got.Find(queue(w), url(w, added))
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if found.State == Done {
					done++
				}
			}
			c, _ := got.Count("c", queue(w))
			if int64(done) < before[w] || added-done > 1 || c.All() != int64(added) || c.Done() != int64(done) {
				t.Errorf("snapshot %d, worker %d: %d added and %d settled, want at least %d, and all: %v", n, w, added, done, before[w], c)
			}
		}
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(turns)
	working.Wait()
	close(stop)
	writing.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
