package shard

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConcurrentUse adds, takes, settles, updates, lists and deletes from several goroutines while
// files are written and merged. Each has queues of its own, so what is left of them is known; those
// of the last one come and go.
func TestConcurrentUse(t *testing.T) {
	dir := filepath.Join(tempDir(t), "shard")
	s := open(t, dir)
	const workers, rounds, each = 4, 200, 20
	now := time.Now().UnixMilli()
	var stop atomic.Bool
	var background, working sync.WaitGroup
	background.Go(func() {
		for !stop.Load() {
			if err := s.Flush(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	background.Go(func() {
		for !stop.Load() {
			for _, crawl := range s.Crawls() {
				if _, _, err := s.List(crawl, "", Cursor{}, 1000); err != nil {
					t.Error(err)
				}
				s.Queues(crawl, func(string, Counts) bool { return true })
			}
			if _, err := s.Visits(0, 0, func(int64, Visit) bool { return true }); err != nil {
				t.Error(err)
			}
			if _, _, err := s.Promote(now, 1); err != nil {
				t.Error(err)
			}
			s.Stats()
		}
	})
	settled := make([]int64, workers)
	for w := range workers {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(w)))
			queue := QueueName("c", fmt.Sprintf("w%d.example", w))
			for round := range rounds {
				entries := make([]Entry, each)
				for i := range entries {
					entries[i] = Entry{Queue: queue, URL: fmt.Sprintf("https://w%d.example/%d/%d", w, round, i), Priority: uint16(rng.IntN(3))}
					if i == 0 {
						entries[i].Due = now + 1<<40
					}
				}
				if _, _, err := add(s, entries); err != nil {
					t.Error(err)
				}
				taken, _, err := s.Take(queue, 7)
				if err != nil {
					t.Error(err)
				}
				for i, e := range taken {
					switch i % 3 {
					case 0:
						if ok, err := s.Done(e.Seq, Visit{Time: now, Status: 200}, 0); !ok || err != nil {
							t.Error(ok, err)
						}
						settled[w]++
					case 1:
						if _, ok, err := s.Back(e.Seq, 0); !ok || err != nil {
							t.Error(ok, err)
						}
					default:
						u := e
						u.Update = true
						if got, done, err := add(s, []Entry{u}); err != nil || got[0] != Updated || len(done.Ended) != 1 {
							t.Error(got, done, err)
						}
					}
				}
				found, ok, err := s.Find(queue, fmt.Sprintf("https://w%d.example/%d/0", w, round))
				if !ok || err != nil || found.State != Later {
					t.Errorf("%+v, %v, %v", found, ok, err)
				}
				if w == workers-1 && round%9 == 8 {
					want := int64(each * 9)
					if got, err := s.Delete("c", queue, 0); err != nil || got.URLs != want {
						t.Errorf("deleted %d, %v, want %d", got.URLs, err, want)
					}
					settled[w] = 0
				}
				if err := s.Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	stop.Store(true)
	background.Wait()
	for range 2 {
		for w := range workers {
			queue := QueueName("c", fmt.Sprintf("w%d.example", w))
			all := int64(rounds * each)
			if w == workers-1 {
				all = rounds % 9 * each
			}
			c, _ := s.Count("c", queue)
			if c.All() != all || c.Done() != settled[w] || c.Leased() != 0 || c.Later() != all/each {
				t.Errorf("%q: %v, want %d, %d done", queue, c, all, settled[w])
			}
			list, _, err := s.List("c", queue, Cursor{}, int(all)+1)
			if err != nil || int64(len(list)) != all {
				t.Errorf("%q: %d URLs, %v, want %d", queue, len(list), err, all)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		if err := s.Resumed(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDeletedGivesSpaceBack holds that files are written anew once most of their URLs were deleted,
// that nothing is kept of these then, and that they can be added again.
func TestDeletedGivesSpaceBack(t *testing.T) {
	dir := filepath.Join(tempDir(t), "shard")
	s := open(t, dir)
	fill := func(crawl string, n int) {
		t.Helper()
		entries := make([]Entry, n)
		for i := range entries {
			entries[i] = Entry{Queue: QueueName(crawl, fmt.Sprintf("site%d.example", i%50)), URL: fmt.Sprintf("https://site%d.example/%d", i%50, i)}
			switch i % 3 {
			case 1:
				entries[i].Due = 1 << 50
			case 2:
				entries[i].Update, entries[i].Settled = true, true
			}
		}
		statuses, _, err := add(s, entries)
		if err != nil {
			t.Fatal(err)
		}
		for i, status := range statuses {
			if status != Added {
				t.Fatalf("%s: status %d", entries[i].URL, status)
			}
		}
	}
	bytes := func() (n int64) {
		for _, r := range s.runs() {
			n += int64(len(r.data))
		}
		for _, f := range s.seen {
			n += int64(len(f.data))
		}
		return n
	}
	fill("small", 300)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	small := bytes()
	fill("large", 40_000)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, inMemory := range []int{0, 30_000} {
		if inMemory > 0 {
			fill("large", inMemory)
		}
		if _, err := s.Delete("large", "", 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Upkeep(); err != nil {
			t.Fatal(err)
		}
		if got := bytes(); got > small+1000 || len(s.marks) > 0 {
			t.Errorf("%d bytes in files and %d marks, want about %d and none", got, len(s.marks), small)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		if c, _ := s.Count("small", ""); c != (Counts{100, 0, 100, 100}) {
			t.Errorf("%v", c)
		}
	}
	fill("large", 300)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
