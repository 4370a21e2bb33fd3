package shard

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

// largeQueue returns a shard with a queue in files: so many URLs that are settled, and that wait,
// in two runs of each kind.
func largeQueue(tb testing.TB, queue string, settled, waiting int) *Shard {
	tb.Helper()
	s, _, err := Open(tb.TempDir(), Options{MemoryBytes: 64 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	for half := range 2 {
		var entries []Entry
		var visits []Visit
		for i := range settled / 2 {
			entries = append(entries, Entry{Queue: queue, URL: fmt.Sprintf("https://a.example/done/%d/%d", half, i)})
			visits = append(visits, Visit{Time: 1000, Status: 200})
		}
		if _, _, err := s.Import(entries, visits); err != nil {
			tb.Fatal(err)
		}
		entries = nil
		for i := range waiting / 2 {
			entries = append(entries, Entry{Queue: queue, URL: fmt.Sprintf("https://a.example/%d/%d", half, i), Depth: uint32(i % 7), Priority: uint16(i % 3)})
		}
		if _, _, err := add(s, entries); err != nil {
			tb.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// TestListGoesOn reads a large queue in parts. What is read of a file is not read again by the next
// part, and not even by one that goes on within the last: it is broken meanwhile.
func TestListGoesOn(t *testing.T) {
	queue := QueueName("c", "a.example")
	s := largeQueue(t, queue, 4000, 6000)
	whole, _, err := largeQueue(t, queue, 4000, 6000).List("c", queue, Cursor{}, 100_000)
	if err != nil || len(whole) != 10_000 {
		t.Fatal(len(whole), err)
	}
	var want, got []string
	for _, l := range whole {
		want = append(want, l.URL)
	}
	broken := 0
	for after := (Cursor{}); ; {
		list, next, err := s.List("c", queue, after, 300)
		if err != nil {
			t.Fatalf("after %d URLs: %v", len(got), err)
		}
		if len(list) == 0 {
			break
		}
		if len(got)%900 == 0 { // a reader that wants fewer
			list, next = list[:250], list[249].At
		}
		for _, l := range list {
			got = append(got, l.URL)
		}
		after = next
		for _, r := range slices.Concat(s.waiting, s.rest) {
			if oldest := r.listed[len(r.listed)-1]; oldest.at > uint64(runHeader)+100 {
				breakByte(t, r.name, int64(runHeader)+20)
				broken++
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d URLs in parts, which are not those of the list at once", len(got))
	}
	if _, _, err := s.List("c", queue, Cursor{}, 1); err == nil || broken == 0 {
		t.Error("nothing was broken")
	}
}

func breakByte(t *testing.T, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, at); err != nil {
		t.Fatal(err)
	}
}

// TestListWhileItChanges lists a crawl in parts while URLs are claimed, settled, returned, added
// and deleted between any two of them, and while files are merged. Every URL that nothing was done
// with comes once, and none twice that was not due later.
func TestListWhileItChanges(t *testing.T) {
	queue := QueueName("c", "a.example")
	s := largeQueue(t, queue, 2000, 3000)
	changes := QueueName("c", "b.example")
	var mixed []Entry
	for i := range 2000 {
		e := Entry{Queue: changes, URL: fmt.Sprintf("https://b.example/%d", i), Priority: uint16(i % 5)}
		if i%10 == 0 {
			e.Due = time.Now().UnixMilli() + 1
		}
		mixed = append(mixed, e)
	}
	if _, _, err := add(s, mixed); err != nil {
		t.Fatal(err)
	}
	touched := map[string]bool{}
	for _, e := range mixed {
		if e.Due > 0 {
			touched[e.URL] = true
		}
	}
	times := map[string]int{}
	round := 0
	for after := (Cursor{}); ; round++ {
		list, next, err := s.List("c", "", after, 97)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, l := range list {
			times[l.URL]++
		}
		after = next
		for _, q := range []string{queue, changes} {
			taken, _, err := s.Take(q, 5)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range taken {
				touched[e.URL] = true
				switch i % 3 {
				case 0:
					_, err = s.Done(e.Seq, Visit{Time: time.Now().UnixMilli(), Status: 200}, 0)
				case 1:
					_, _, err = s.Back(e.Seq, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			late := Entry{Queue: q, URL: fmt.Sprintf("https://late.example/%d", round)}
			touched[late.URL] = true
			if _, _, err := add(s, []Entry{late}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Promote(time.Now().UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
		if round%7 == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, _ := s.Count("c", "")
	still := 0
	for at := (Cursor{}); ; {
		list, next, err := s.List("c", "", at, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if n := times[l.URL]; !touched[l.URL] {
				if still++; n != 1 {
					t.Errorf("%s, which did not change, came %d times", l.URL, n)
				}
			}
		}
		if at = next; len(list) == 0 {
			break
		}
	}
	if still == 0 || int64(still) == all.All() || round < 20 {
		t.Errorf("%d of %d URLs did not change in %d rounds", still, all.All(), round)
	}
	maps.DeleteFunc(times, func(url string, n int) bool { return n == 1 || touched[url] })
	if len(times) > 0 {
		t.Errorf("%v", times)
	}
}

// BenchmarkList reads a queue of URLs in parts of 5,000.
func BenchmarkList(b *testing.B) {
	n := size(b, 100_000)
	queue := QueueName("c", "a.example")
	s := largeQueue(b, queue, n/2, n/2)
	for b.Loop() {
		all := 0
		for after := (Cursor{}); ; {
			list, next, err := s.List("c", queue, after, 5000)
			if err != nil {
				b.Fatal(err)
			}
			if all += len(list); len(list) == 0 {
				break
			}
			after = next
		}
		if all != n/2*2 {
			b.Fatalf("%d URLs", all)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/URL")
}
