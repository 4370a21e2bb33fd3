package shard

import (
	"cmp"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// waiting is what the test expects of an entry: a model without files.
type waiting struct {
	url      string
	priority uint16
	depth    uint32
	order    int // of its arrival in the queue
	due      int64
}

// TestShardEqualsModel adds, takes, settles and returns entries at random, writes files in between,
// and dies: the folder as it was after the last commit has to open to the same state.
func TestShardEqualsModel(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { equalsModel(t, seed) })
	}
}

func equalsModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	dir := filepath.Join(t.TempDir(), "shard")
	s := open(t, dir)
	pending := map[string][]waiting{}
	leased := map[uint64]waiting{}
	queueOf := map[uint64]string{}
	settled := map[string]uint16{}
	known := map[string]bool{}
	var visited []string
	now := int64(1_000_000)
	order := 0
	put := func(queue string, w waiting) {
		order++
		w.order = order
		pending[queue] = append(pending[queue], w)
	}
	step := 0
	act := func(action int) {
		if s.o.between == nil { // nothing becomes due while files are written
			now += int64(rng.IntN(50))
		}
		queue := QueueName([]string{"DEFAULT", "news"}[rng.IntN(2)], fmt.Sprintf("site%d.example", rng.IntN(12)))
		switch {
		case action < 35:
			var entries []Entry
			for range 1 + rng.IntN(20) {
				e := Entry{
					Queue: queue, URL: fmt.Sprintf("https://%s/%d", queue[len(crawlOf(queue))+1:], rng.IntN(4000)),
					Priority: uint16(rng.IntN(3)), Depth: uint32(rng.IntN(3)), Metadata: []byte("m"),
				}
				if rng.IntN(5) == 0 {
					e.Due = now + 1 + int64(rng.IntN(2000))
				}
				entries = append(entries, e)
			}
			statuses, _, err := s.Add(entries)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range entries {
				k := crawlOf(queue) + e.URL
				if (statuses[i] == Known) != known[k] {
					t.Fatalf("step %d: %s: status %d", step, e.URL, statuses[i])
				}
				if !known[k] {
					known[k] = true
					put(queue, waiting{url: e.URL, priority: e.Priority, depth: e.Depth, due: e.Due})
				}
			}
		case action < 60:
			s.Promote(now)
			taken, left, err := s.Take(queue, 1+rng.IntN(4))
			if err != nil {
				t.Fatal(err)
			}
			list := pending[queue]
			// An entry that has become due is behind those of its class that were there before; the
			// model takes them by arrival, so it is told which of equal ones came.
			for _, e := range taken {
				best := -1
				for i, w := range list {
					if w.due > now {
						continue
					}
					if best < 0 || cmp.Or(-cmp.Compare(w.priority, list[best].priority), cmp.Compare(w.depth, list[best].depth), cmp.Compare(w.order, list[best].order)) < 0 {
						best = i
					}
				}
				if best < 0 || list[best].url != e.URL || list[best].priority != e.Priority || string(e.Metadata) != "m" {
					t.Fatalf("step %d: %q: took %s, want %+v", step, queue, e.URL, list)
				}
				leased[e.Seq], queueOf[e.Seq] = list[best], queue
				list = slices.Delete(list, best, best+1)
			}
			pending[queue] = list
			due := 0
			for _, w := range list {
				if w.due <= now {
					due++
				}
			}
			if int64(due) != left {
				t.Fatalf("step %d: %q: %d are left, want %d", step, queue, left, due)
			}
		case action < 80:
			for seq, w := range leased {
				status := uint16(200 + rng.IntN(300))
				if ok, err := s.Done(seq, Visit{Time: now, Status: status}); !ok || err != nil {
					t.Fatalf("step %d: done %d: %v, %v", step, seq, ok, err)
				}
				if ok, err := s.Done(seq, Visit{Time: now}); ok || err != nil {
					t.Fatalf("step %d: done twice", step)
				}
				settled[crawlOf(queueOf[seq])+w.url] = status
				visited = append(visited, w.url)
				delete(leased, seq)
				break
			}
		default:
			for seq, w := range leased {
				w.due = []int64{0, now + 1 + int64(rng.IntN(500))}[rng.IntN(2)]
				if _, ok, err := s.Back(seq, w.due); !ok || err != nil {
					t.Fatalf("step %d: back %d: %v, %v", step, seq, ok, err)
				}
				put(queueOf[seq], w)
				delete(leased, seq)
				break
			}
		}
	}
	// The process dies, and the folder is as it was then. Who has the leases says which there are.
	die := func(as string) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		dir = as
		s = open(t, dir)
		byQueue := map[string][]uint64{}
		for seq, w := range leased {
			if rng.IntN(4) == 0 { // this lease was lost: it waits again, where it was
				delete(leased, seq)
				put(queueOf[seq], w)
				q := pending[queueOf[seq]]
				q[len(q)-1].order = w.order
				continue
			}
			byQueue[queueOf[seq]] = append(byQueue[queueOf[seq]], seq)
		}
		s.Promote(now)
		for queue, seqs := range byQueue {
			if unknown, err := s.Resume(queue, append(seqs, 1<<40)); err != nil || !slices.Equal(unknown, []uint64{1 << 40}) {
				t.Fatalf("step %d: unknown %v of %v, %v", step, unknown, seqs, err)
			}
		}
		s.Resumed()
	}
	snapshot := func() (copied string) {
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
		copied = filepath.Join(t.TempDir(), "shard")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		return copied
	}
	for ; step < 1200; step++ {
		switch action := rng.IntN(100); {
		case action < 92:
			act(action)
		case action < 96:
			// While files are written, the others go on, and sometimes the process dies.
			died := ""
			s.Promote(now)
			s.o.between = func() {
				for range rng.IntN(12) {
					if died == "" {
						act(rng.IntN(92))
					}
				}
				if died == "" && rng.IntN(8) == 0 {
					died = snapshot()
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			s.o.between = nil
			if died != "" {
				die(died)
			}
		default:
			die(snapshot())
		}
	}
	s.Promote(1 << 60)
	counts := map[string]int{}
	for queue, list := range pending {
		counts[queue] += len(list)
	}
	s.Queues(func(name string, pending, _ int64) bool {
		if int64(counts[name]) != pending {
			t.Errorf("%q: %d wait, want %d", name, pending, counts[name])
		}
		return true
	})
	for k := range known {
		crawl, url, _ := func() (string, string, bool) {
			for _, c := range []string{"DEFAULT", "news"} {
				if len(k) > len(c) && k[:len(c)] == c {
					return c, k[len(c):], true
				}
			}
			return "", "", false
		}()
		st, ok, err := s.Seen(crawl, url)
		if status, done := settled[k]; !ok || err != nil || st.Settled != done || done && st.Status != status {
			t.Fatalf("%s: %+v, %v, %v; want settled %v, %d", k, st, ok, err, done, status)
		}
	}
	var got []string
	if _, err := s.Visits(0, 0, func(_ int64, v Visit) bool { got = append(got, v.URL); return true }); err != nil || !slices.Equal(got, visited) {
		t.Errorf("%d visits, want %d, %v", len(got), len(visited), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *Shard {
	t.Helper()
	s, torn, err := Open(dir, Options{MemoryBytes: 1 << 20})
	if err != nil || torn != nil {
		t.Fatal(torn, err)
	}
	return s
}

// TestFlippedBits holds that a changed bit in any file is found, or changes nothing.
func TestFlippedBits(t *testing.T) {
	most := 600 // bytes of a file
	if testing.Short() {
		most = 60
	}
	dir := filepath.Join(t.TempDir(), "shard")
	s := open(t, dir)
	fill := func(from int) {
		var entries []Entry
		for i := range 20 {
			entries = append(entries, Entry{Queue: QueueName("c", "a.example"), URL: fmt.Sprintf("https://a.example/%d", from+i)})
		}
		if _, _, err := s.Add(entries); err != nil {
			t.Fatal(err)
		}
		taken, _, err := s.Take(entries[0].Queue, 3)
		if err != nil || len(taken) != 3 {
			t.Fatal(taken, err)
		}
		for _, e := range taken[:2] {
			if ok, err := s.Done(e.Seq, Visit{Time: 5, Status: 200}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	fill(0)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	fill(100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file := filepath.Join(dir, path)
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// Every byte of what is short.
		for i := 0; i < len(data); i += 1 + len(data)/most {
			copied := filepath.Join(t.TempDir(), "shard")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				return err
			}
			changed := slices.Clone(data)
			changed[i] ^= 1 << (i % 8)
			if err := os.WriteFile(filepath.Join(copied, path), changed, 0o666); err != nil {
				return err
			}
			got, err := contents(copied)
			if err == nil && got != want {
				t.Fatalf("%s: byte %d changes the contents:\n%s\nwant\n%s", path, i, got, want)
			}
			if err := os.RemoveAll(copied); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents returns everything that a shard has, as text. What Open has cut from a journal is an
// error: bits do not flip in what a dying process has written last.
func contents(dir string) (text string, err error) {
	s, torn, err := Open(dir, Options{MemoryBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if torn != nil {
		return "", fmt.Errorf("%s", torn)
	}
	s.Resumed()
	taken, _, err := s.Take(QueueName("c", "a.example"), 1000)
	if err != nil {
		return "", err
	}
	for _, e := range taken {
		text += fmt.Sprintf("%d %s %d %d\n", e.Seq, e.URL, e.Priority, e.Tries)
	}
	_, err = s.Visits(0, 0, func(n int64, v Visit) bool { text += fmt.Sprintf("%d %+v\n", n, v); return true })
	return text, err
}
