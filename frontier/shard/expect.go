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
	queues := make([]*queue, len(ids))
	for i := range ids {
		queues[i] = s.queues[ids[i]]
	}
	lists := listsOf(queues, make([]*memoryQueue, 0, len(queues)))
	for _, m := range lists {
		s.touched += m.classes[0].class
	}
	for _, m := range lists {
		c := &m.classes[0]
		s.touched += c.entries[c.head].seq
	}
	for _, m := range lists {
		c := &m.classes[0]
		s.touched += uint64(c.entries[c.head].data[0])
	}
}

// listsOf returns the lists in memory of those queues that have classes, in room. It loads all
// queues, then all lists, for the reason above.
func listsOf(queues []*queue, room []*memoryQueue) []*memoryQueue {
	for _, q := range queues {
		if q != nil && q.memory != nil {
			room = append(room, q.memory)
		}
	}
	lists := room[:0]
	for _, m := range room {
		if len(m.classes) > 0 {
			lists = append(lists, m)
		}
	}
	return lists
}
