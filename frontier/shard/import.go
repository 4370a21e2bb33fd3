package shard

import (
	"fmt"
)

// Import notes visits that others have made, one for each entry: the URL of the entry is settled,
// whether it was known, waits or is leased. A URL that was fetched at the time of its visit or
// later, to the second, is Known, so that a visit that is imported twice is noted once. A visit
// without a time, or with one that lies ahead, is one of now; without a time it is Known if the URL
// was fetched at all. Nothing of it is certain before Commit has returned.
func (s *Shard) Import(entries []Entry, visits []Visit) (statuses []AddStatus, done Change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, done, s.failed
	}
	if len(entries) != len(visits) {
		return nil, done, fmt.Errorf("%s: %d visits of %d entries", s.dir, len(visits), len(entries))
	}
	statuses = make([]AddStatus, len(entries))
	now := s.o.Now()
	for i := range entries {
		e, visit := &entries[i], &visits[i]
		id := s.idOf(e.Queue, []byte(e.URL))
		old, known := s.known(id)
		switch {
		case visit.Time == 0 && known && old.Time > 0:
			statuses[i] = Known
			continue
		case visit.Time == 0 || visit.Time > now.UnixMilli():
			visit.Time = now.UnixMilli()
		}
		if known && old.Time > 0 && uint32(visit.Time/1000) <= old.Time {
			statuses[i] = Known
			continue
		}
		statuses[i], e.Created, e.Due, e.Tries = Added, uint32(now.Unix()), 0, 0
		if known {
			e.Created = old.Created
			leased, err := s.leasedEntry(old.Seq)
			if err != nil {
				return nil, done, err
			}
			if leased != nil {
				done.Ended = append(done.Ended, leased)
			}
		}
		if err := s.number(e); err != nil {
			return nil, done, err
		}
		c := change{entry: e, id: id, old: old, known: known, settled: true, visit: visit}
		if err := s.record(&c); err != nil {
			return nil, done, err
		}
		s.apply(&c)
	}
	return statuses, done, nil
}
