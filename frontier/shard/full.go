package shard

// Full is the status of entries that were not added because as many wait in their queue as
// Options.Cap allows. Unknown is the status of entries that were not added because of
// Entry.OnlyKnown.
const Full, Unknown AddStatus = 128, 129

// full says that no new entry may be added to a queue.
func (s *Shard) full(id QueueID, queue string) bool {
	if s.o.Cap == nil {
		return false
	}
	limit := s.o.Cap(queue)
	if limit < 0 {
		return false
	}
	q := s.queues.get(&id)
	return limit == 0 || q != nil && q.has(waits) >= limit
}
