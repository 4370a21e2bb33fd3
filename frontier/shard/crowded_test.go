package shard

import (
	"path/filepath"
	"testing"
)

// TestUnhurried says when requests come before files.
func TestUnhurried(t *testing.T) {
	busy := false
	s, _, err := Open(filepath.Join(t.TempDir(), "shard"), Options{MemoryBytes: 1 << 20, Busy: func() bool { return busy }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		busy, want bool
		memory     int
	}{{false, false, 0}, {true, true, 0}, {true, true, 2 << 20}, {true, false, 2<<20 + 1}} {
		busy, s.memory = c.busy, c.memory
		if got := s.unhurried(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
