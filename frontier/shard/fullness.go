package shard

import "math"

// Fullness is how much is to be written to files, as a multiple of what makes the shard do so; it
// is infinite if the shard's files have failed.
func (s *Shard) Fullness() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return math.Inf(1)
	}
	return s.fullness()
}

func (s *Shard) fullness() float64 {
	most := max(s.memory, s.batch.seen.Len()*2*seenElement, int(s.journal.Size()/4))
	return float64(most) / float64(max(s.o.MemoryBytes, 1))
}
