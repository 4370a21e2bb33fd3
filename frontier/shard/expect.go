package shard

// Expect says of which queues entries are taken next. It loads what Take looks at first, for all of
// them: these loads do not wait for each other, as they do when one queue after the other is taken
// from. With millions of queues each is a cache miss.
func (s *Shard) Expect(names []string) {
	ids := make([]QueueID, len(names))
	for i, name := range names {
		ids[i] = IDOfQueue(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ids {
		s.touched += s.queues.touch(&ids[i])
	}
	roots := make([]node, 0, len(ids))
	for i := range ids {
		if q := s.queues.get(&ids[i]); q != nil && q.memory[s.batch.side] != 0 {
			roots = append(roots, q.memory[s.batch.side])
		}
	}
	for _, root := range roots {
		s.touched += s.batch.waiting.at(root).seq
	}
	for _, root := range roots {
		s.touched += uint64(s.batch.texts.Get(s.batch.waiting.at(root).data)[0])
	}
}
