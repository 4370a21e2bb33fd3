package shard

import (
	"encoding/binary"

	"github.com/urlake/urlake/lake/codec"
)

// lease notes that an entry of a queue is leased, of which it has the bytes.
func (s *Shard) lease(q *queue, encoded []byte) {
	s.text = append(binary.AppendUvarint(s.text[:0], uint64(q.number)), encoded...)
	s.leased.Add(seqOf(encoded), s.text)
}

// parseLease returns the queue and the bytes of a leased entry.
func (s *Shard) parseLease(b []byte) (q *queue, encoded []byte) {
	number, n := binary.Uvarint(b)
	return s.queues.at(uint32(number)), b[n:]
}

// Leased returns how many leases of a leased entry have ended without a result. It is false if the
// entry is not leased.
func (s *Shard) Leased(seq uint64) (tries uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.leased.Get(seq)
	if !ok {
		return 0, false
	}
	_, encoded := s.parseLease(b)
	d := codec.NewDecoder(encoded, "memory", "entry")
	for range 3 {
		d.Uvarint()
	}
	return uint32(d.Uvarint()), true
}

// leasedEntry returns a leased entry, nil if it is not leased.
func (s *Shard) leasedEntry(seq uint64) (*Entry, error) {
	b, ok := s.leased.Get(seq)
	if !ok {
		return nil, nil
	}
	q, encoded := s.parseLease(b)
	e, err := parseEntry(encoded, s.queues.name(q), "memory")
	return &e, err
}

// endLease begins a change of a leased entry: it gets the next number, and no due time. It is false
// if the entry is not leased. E is where the entry goes. Of the old state it sets only what says
// that the entry is leased.
func (s *Shard) endLease(seq uint64, e *Entry) (c change, ok bool, err error) {
	b, ok := s.leased.Get(seq)
	if !ok || s.failed != nil {
		return c, false, s.failed
	}
	q, encoded := s.parseLease(b)
	var url []byte
	if *e, url, e.Metadata, err = parseView(encoded, "memory"); err != nil {
		return c, false, err
	}
	name := s.queues.names.Get(q.name)
	c = change{entry: e, id: s.urlID(q.id, name, url), queue: q}
	text := string(s.text) // both names in one
	e.Queue, e.URL = text[:len(name)], text[len(name)+1:]
	e.Due = 0
	c.old, c.known = State{Seq: seq}, true
	return c, true, s.number(e)
}
