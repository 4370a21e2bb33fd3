package shard

// muchMemory is how many times MemoryBytes are much more than that.
const muchMemory = 2

// unhurried says that requests come before files.
func (s *Shard) unhurried() bool { return s.o.Busy != nil && !s.Crowded() && s.o.Busy() }

// Crowded says whether much more is in memory than is to be, or the shard's files have failed.
func (s *Shard) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fuller(muchMemory) || s.failed != nil
}

// fuller says whether more is to be written to files than MemoryBytes, times a number.
func (s *Shard) fuller(times int) bool {
	limit := times * s.o.MemoryBytes
	return s.memory > limit || s.batch.seen.Len()*2*seenElement > limit || s.journal.Size() > int64(4*limit)
}
