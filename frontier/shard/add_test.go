package shard

import (
	"fmt"
	"testing"
)

// TestTwiceInABatch adds URLs that one batch has twice, next to each other or far apart, to queues
// that are new or not.
func TestTwiceInABatch(t *testing.T) {
	s, _, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for round := range 3 {
		var entries []Entry
		for i := range 500 {
			for range 2 {
				entries = append(entries, Entry{Queue: QueueName("c", fmt.Sprint("q", i%7)), URL: fmt.Sprint("https://a/", round, i%350)})
			}
		}
		statuses, _, err := add(s, entries)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[2]string]bool{}
		ids := make([]ID, len(entries))
		for i, e := range entries {
			name := [2]string{e.Queue, e.URL}
			if got := statuses[i] == Added; got == seen[name] {
				t.Fatalf("entry %d: %d", i, statuses[i])
			}
			seen[name], ids[i] = true, IDOf(e.Queue+"\x00"+e.URL+"?"[:i%2], len(e.Queue))
		}
		next := 0
		s.SeenAll(ids, func(i int, st State, ok bool) {
			if i != next || ok != (i%2 == 0) || ok && st.Seq == 0 {
				t.Errorf("%d, after %d: %v, %+v", i, next, ok, st)
			}
			next++
		})
		if next != len(ids) {
			t.Errorf("%d of %d answers", next, len(ids))
		}
		if err := s.Flush(); err != nil { // so that the next round has them in a file
			t.Fatal(err)
		}
	}
	if c := s.Stats(); c.Pending != 3*350 {
		t.Errorf("%+v", c)
	}
}
