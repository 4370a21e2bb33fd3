package shard

// Expect says of which queues entries are taken next. It loads what Take looks at first, for all of
// them: these loads do not wait for each other, as they do when one queue after the other is taken
// from. With millions of queues each is a cache miss.
func (s *Shard) Expect(names []string) {
	ids := make([]QueueID, len(names))
	for i, name := range names {
		ids[i] = IDOfQueue(name)
	}
	lists := make([]*memoryQueue, 0, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := make([]*queue, len(ids))
	for i := range ids {
		queues[i] = s.queues[ids[i]]
	}
	for _, q := range queues {
		if q != nil && q.memory != nil {
			lists = append(lists, q.memory)
		}
	}
	some := lists[:0]
	for _, m := range lists {
		if len(m.classes) > 0 {
			some = append(some, m)
		}
	}
	for _, m := range some {
		s.touched += m.classes[0].class
	}
	for _, m := range some {
		c := &m.classes[0]
		s.touched += c.entries[c.head].seq
	}
	for _, m := range some {
		c := &m.classes[0]
		s.touched += uint64(c.entries[c.head].data[0])
	}
}
