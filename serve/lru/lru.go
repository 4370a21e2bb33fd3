// Package lru keeps the values that were used last, in a bounded number of bytes.
package lru

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Cache keeps the most recently used values up to a number of bytes. It is safe for concurrent use.
// Values are shared and must not be changed.
//
// The cache is split into shards by the hash of the key, so that requests on several cores seldom
// wait for each other. Each shard has an equal share of the bytes. A value larger than that share
// is not kept.
type Cache[K comparable, V any] struct {
	seed   maphash.Seed
	shards []shard[K, V]

	hits, misses atomic.Int64
}

const (
	maxShards = 16
	// minShardBytes lets every shard keep a decoded block of the page index, the largest value that
	// is common.
	minShardBytes = 4 << 20
	// entryOverhead is the memory of an entry besides its value: map slot, key and links.
	entryOverhead = 160
)

type shard[K comparable, V any] struct {
	mu          sync.Mutex
	limit, used int64
	entries     map[K]*entry[K, V]
	// ring is the sentinel of a circular list from the newest entry to the oldest. ring.next is the
	// newest; the list wraps around, so ring.newer is the oldest.
	ring entry[K, V]
}

type entry[K comparable, V any] struct {
	key         K
	value       V
	bytes       int64
	newer, next *entry[K, V]
}

// New returns a cache of at most limit bytes. With a limit of 0 or less it keeps nothing.
func New[K comparable, V any](limit int64) *Cache[K, V] {
	return newShards[K, V](limit, min(max(limit/minShardBytes, 1), maxShards))
}

// NewWhole is New without shards, for values that may be as large as the cache and are rarely asked
// for.
func NewWhole[K comparable, V any](limit int64) *Cache[K, V] { return newShards[K, V](limit, 1) }

func newShards[K comparable, V any](limit, n int64) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), shards: make([]shard[K, V], n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.limit = max(limit, 0) / n
		s.entries = map[K]*entry[K, V]{}
		s.ring.newer, s.ring.next = &s.ring, &s.ring
	}
	return c
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%uint64(len(c.shards))]
}

// Get returns the value of key and makes it the newest.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	if value, ok = c.Again(key); ok {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return value, ok
}

// Again is Get for a key that was asked for a moment ago and counted then.
func (c *Cache[K, V]) Again(key K) (value V, ok bool) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return value, false
	}
	if s.ring.next != e {
		s.unlink(e)
		s.push(e)
	}
	return e.value, true
}

// Add stores value, whose size is bytes, under key, and evicts the oldest values beyond the limit.
func (c *Cache[K, V]) Add(key K, value V, bytes int64) {
	bytes += entryOverhead
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.entries[key]; ok {
		s.remove(old)
	}
	if bytes > s.limit {
		return
	}
	for s.used+bytes > s.limit {
		s.remove(s.ring.newer)
	}
	e := &entry[K, V]{key: key, value: value, bytes: bytes}
	s.entries[key] = e
	s.used += bytes
	s.push(e)
}

// Stats are the hits and misses since the cache was made, and its present entries and bytes.
type Stats struct {
	Hits, Misses, Entries, Bytes int64
}

// Stats returns the counters of the cache.
func (c *Cache[K, V]) Stats() Stats {
	st := Stats{Hits: c.hits.Load(), Misses: c.misses.Load()}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Entries += int64(len(s.entries))
		st.Bytes += s.used
		s.mu.Unlock()
	}
	return st
}

func (s *shard[K, V]) push(e *entry[K, V]) {
	e.newer, e.next = &s.ring, s.ring.next
	e.next.newer = e
	s.ring.next = e
}

func (s *shard[K, V]) unlink(e *entry[K, V]) {
	e.newer.next, e.next.newer = e.next, e.newer
}

func (s *shard[K, V]) remove(e *entry[K, V]) {
	s.unlink(e)
	delete(s.entries, e.key)
	s.used -= e.bytes
}
