package shard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// checkHeads holds that the heads of queues are what a search in each run finds, unless they are to
// be made anew.
func (m *model) checkHeads() {
	m.t.Helper()
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := 0
	for q := range s.queues.all() {
		got := s.heads.appendAll(nil, q.heads)
		if nodes += len(got); q.generation != s.generation {
			continue
		}
		var want []ranked[runHead]
		for _, r := range s.waiting {
			i, ok := r.find(q.id)
			if !ok {
				continue
			}
			next, left := r.position(i)
			if left == 0 {
				continue
			}
			k, _, err := r.head(next)
			if err != nil {
				m.fatalf("%v", err)
			}
			want = append(want, ranked[runHead]{k, runHead{uint32(r.number), uint32(i)}})
		}
		sortRanked(got)
		sortRanked(want)
		if len(got) != len(want) || len(got) > 0 && got[0].rank != want[0].rank {
			m.fatalf("%q has heads %v, want %v", s.queues.name(q), got, want)
		}
		for _, h := range want { // of two runs with one entry, either may be the first
			if !slices.Contains(got, h) {
				m.fatalf("%q has heads %v, want %v", s.queues.name(q), got, want)
			}
		}
	}
	free := 0
	for n := s.heads.free; n != 0; n = s.heads.at(n).left {
		free++
	}
	if nodes+free != int(s.heads.last) {
		m.fatalf("%d heads and %d that are free, of %d", nodes, free, s.heads.last)
	}
}

// TestWriterKnowsHeads writes files again and again, and merges some. Afterwards every queue has to
// know its next entries, without having been asked for.
func TestWriterKnowsHeads(t *testing.T) {
	s := open(t, filepath.Join(tempDir(t), "shard"))
	const queues = 300
	behind := func() (n int) {
		for q := range s.queues.all() {
			if q.generation != s.generation {
				n++
			}
		}
		return n
	}
	for round := range 3 * maxRuns {
		var entries []Entry
		for i := range queues {
			if (i+round)%3 > 0 {
				name := QueueName("c", fmt.Sprintf("site%d.example", i))
				entries = append(entries, Entry{Queue: name, URL: fmt.Sprintf("https://site%d.example/%d", i, round)})
			}
		}
		if _, _, err := add(s, entries); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if n := behind(); n > 0 {
			t.Fatalf("round %d: %d queues do not know their next entries", round, n)
		}
		(&model{t: t, s: s}).checkHeads()
		if round%2 == 0 {
			continue
		}
		for i := range queues { // the first entries, of all files
			if _, _, err := s.Take(QueueName("c", fmt.Sprintf("site%d.example", i)), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedEntryTakesNoOther damages the third of four entries in a file. The first two come,
// then an error that names the file, as often as one asks; and the others when the file is whole
// again.
func TestDamagedEntryTakesNoOther(t *testing.T) {
	s := open(t, filepath.Join(tempDir(t), "shard"))
	name := QueueName("c", "site.example")
	var entries []Entry
	for i := range 4 {
		entries = append(entries, Entry{Queue: name, URL: fmt.Sprintf("https://site.example/%d", i)})
	}
	if _, _, err := add(s, entries); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	r := s.waiting[0]
	at := bytes.Index(r.data, []byte(entries[2].URL))
	flip := func() {
		f, err := os.OpenFile(r.name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{r.data[at] ^ 1}, int64(at))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	take := func(want string) {
		t.Helper()
		taken, _, err := s.Take(name, 1)
		if want == "" {
			var corrupt *codec.CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), r.name) {
				t.Fatalf("took %v, %v; want an error about %s", taken, err, r.name)
			}
			return
		}
		if err != nil || len(taken) != 1 || taken[0].URL != want {
			t.Fatalf("took %v, %v; want %s", taken, err, want)
		}
	}
	flip()
	take(entries[0].URL)
	take(entries[1].URL)
	take("")
	take("")
	flip()
	take(entries[2].URL)
	take(entries[3].URL)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
