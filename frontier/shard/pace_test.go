package shard

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFilesArePaced says when work on files rests.
func TestFilesArePaced(t *testing.T) {
	busy := false
	s, _, err := Open(filepath.Join(t.TempDir(), "shard"), Options{MemoryBytes: 1 << 20, Busy: func() bool { return busy }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		busy, rests bool
		memory      int
	}{{false, false, 0}, {true, true, 0}, {true, true, 2 << 20}, {true, false, 2<<20 + 1}} {
		busy, s.memory = c.busy, c.memory
		var rests []time.Duration
		p := &pacer{s: s, sleep: func(d time.Duration) { rests = append(rests, d) }}
		late := func() { p.began = time.Now().Add(-10 * time.Millisecond) }
		late()
		if n, err := p.writer(f).Write([]byte("text")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		late()
		for range stepsAtOnce {
			p.step()
		}
		if want := map[bool]int{true: 2}[c.rests]; len(rests) != want {
			t.Errorf("%+v: %v", c, rests)
		}
		for _, d := range rests {
			if d < 30*time.Millisecond || d > longestRest {
				t.Errorf("a rest of %v after a piece that took at least 10 ms", d)
			}
		}
		rests = nil
		p.began = time.Now().Add(time.Hour)
		if p.look(); len(rests) > 0 {
			t.Errorf("a rest of %v after a piece that has not taken its time", rests)
		}
	}
}
