package shard

import (
	"errors"
	"math"
	"path/filepath"
	"testing"
)

// TestFullness says how full a shard is.
func TestFullness(t *testing.T) {
	s, _, err := Open(filepath.Join(t.TempDir(), "shard"), Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for memory, want := range map[int]float64{1 << 20: 1, 3 << 19: 1.5, 4 << 20: 4} {
		if s.memory = memory; s.Fullness() != want {
			t.Errorf("%d bytes: %v, want %v", memory, s.Fullness(), want)
		}
	}
	if s.failed = errors.New("failed"); !math.IsInf(s.Fullness(), 1) {
		t.Error(s.Fullness())
	}
}
