package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// TestFindIDEqualsSearch looks for ids that are there and for others, in lists of any length, of
// ids that are hashes and of some that lie close together.
func TestFindIDEqualsSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 7))
	for _, n := range []int{0, 1, 2, 9, 10, 100, 3000} {
		for _, random := range []int{256, 2} {
			id := func() (id [16]byte) {
				for i := range id {
					id[i] = byte(rng.IntN(random))
				}
				return id
			}
			var ids [][16]byte
			for range n {
				ids = append(ids, id())
			}
			slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
			ids = slices.Compact(ids)
			var elements []byte
			for _, id := range ids {
				elements = append(append(elements, id[:]...), "data"...)
			}
			wanted := append([][16]byte{{}, {0: 255}, [16]byte(bytes.Repeat([]byte{255}, 16))}, ids...)
			for range 100 {
				wanted = append(wanted, id())
			}
			for _, id := range wanted {
				want := slices.Index(ids, id)
				if i, ok := findID(elements, 20, id); ok != (want >= 0) || ok && i != want {
					t.Fatalf("%x among %d: %d, %t; want %d", id, len(ids), i, ok, want)
				}
			}
		}
	}
}

// TestExpectChangesNothing expects queues that are in memory, in several files, in both, in none
// and emptied, and takes all there is. A closed shard expects nothing.
func TestExpectChangesNothing(t *testing.T) {
	s := open(t, filepath.Join(tempDir(t), "shard"))
	names := []string{QueueName("c", "none.example")}
	const queues, each = 100, 4
	for i := range queues {
		names = append(names, QueueName("c", fmt.Sprintf("site%d.example", i)))
	}
	for part := range each {
		var entries []Entry
		for i, name := range names[1:] {
			if i%each != part { // each is in all files but for one, or for memory
				entries = append(entries, Entry{Queue: name, URL: fmt.Sprintf("https://site%d.example/%d", i, part)})
			}
		}
		if _, _, err := add(s, entries); err != nil {
			t.Fatal(err)
		}
		if part < each-1 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var seqs []uint64
	for round := range each {
		s.Expect(names)
		s.ExpectEnds(append(seqs, 0, 1<<40))
		for i, name := range names {
			taken, left, err := s.Take(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			if i > 0 && round < each-1 {
				want = 1
			}
			if int64(len(taken)) != want || want > 0 && left != int64(each-2-round) {
				t.Fatalf("round %d: %d of %q, %d are left", round, len(taken), name, left)
			}
			for _, e := range taken {
				seqs = append(seqs, e.Seq)
			}
		}
	}
	for i, seq := range seqs {
		s.ExpectEnds(seqs) // some have ended
		if ok, err := s.Done(seq, Visit{Status: 200}, 0); !ok || err != nil {
			t.Fatalf("entry %d of %d: %t, %v", i, len(seqs), ok, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.ExpectEnds(seqs)
	s.Expect(names) // the files are not mapped any more
}
