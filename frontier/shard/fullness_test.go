package shard

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"
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

// TestPromoteWaitsForRoom: what is due stays until the memory has room for so many times its size.
func TestPromoteWaitsForRoom(t *testing.T) {
	s, _, err := Open(filepath.Join(t.TempDir(), "shard"), Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	queue := QueueName("c", "a.example")
	if _, _, err := add(s, []Entry{{Queue: queue, URL: "https://a.example/", Due: time.Now().UnixMilli() + 3_600_000}}); err != nil {
		t.Fatal(err)
	}
	s.memory = 2 << 20
	due := time.Now().UnixMilli() + 7_200_000
	if woken, more, err := s.Promote(due, 1); err != nil || len(woken) > 0 || !more {
		t.Errorf("without room: %q woken, more %v, %v", woken, more, err)
	}
	if woken, more, err := s.Promote(due, 3); err != nil || !slices.Equal(woken, []string{queue}) || more {
		t.Errorf("with room: %q woken, more %v, %v", woken, more, err)
	}
}
