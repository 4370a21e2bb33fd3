package lookup

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// cache keeps the most recently used values up to a number of bytes. It is safe for concurrent use.
// Values are shared and must not be changed.
//
// The cache is split into shards by the hash of the key, so that requests on several cores seldom
// wait for each other. Each shard has an equal share of the bytes. A value larger than that share
// is not kept.
type cache[K comparable] struct {
	seed   maphash.Seed
	shards []cacheShard[K]

	hits, misses atomic.Int64
}

const (
	maxCacheShards = 16
	// minShardBytes lets every shard keep a decoded block of the page index, the largest value that
	// is common.
	minShardBytes = 4 << 20
	// entryOverhead is the memory of an entry besides its value: map slot, key and links.
	entryOverhead = 160
)

type cacheShard[K comparable] struct {
	mu          sync.Mutex
	limit, used int64
	entries     map[K]*cacheEntry[K]
	// ring is the sentinel of a circular list from the newest entry to the oldest. ring.next is the
	// newest; the list wraps around, so ring.newer is the oldest.
	ring cacheEntry[K]
}

type cacheEntry[K comparable] struct {
	key         K
	value       any
	bytes       int64
	newer, next *cacheEntry[K]
}

// newCache returns a cache of at most limit bytes. With a limit of 0 or less it keeps nothing.
func newCache[K comparable](limit int64) *cache[K] {
	n := min(max(limit/minShardBytes, 1), maxCacheShards)
	c := &cache[K]{seed: maphash.MakeSeed(), shards: make([]cacheShard[K], n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.limit = max(limit, 0) / n
		s.entries = map[K]*cacheEntry[K]{}
		s.ring.newer, s.ring.next = &s.ring, &s.ring
	}
	return c
}

func (c *cache[K]) shard(key K) *cacheShard[K] {
	return &c.shards[maphash.Comparable(c.seed, key)%uint64(len(c.shards))]
}

// Get returns the value of key and makes it the newest.
func (c *cache[K]) Get(key K) (any, bool) {
	s := c.shard(key)
	s.mu.Lock()
	e, ok := s.entries[key]
	if !ok {
		s.mu.Unlock()
		c.misses.Add(1)
		return nil, false
	}
	if s.ring.next != e {
		s.unlink(e)
		s.push(e)
	}
	value := e.value
	s.mu.Unlock()
	c.hits.Add(1)
	return value, true
}

// Add stores value, whose size is bytes, under key, and evicts the oldest values beyond the limit.
func (c *cache[K]) Add(key K, value any, bytes int64) {
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
	e := &cacheEntry[K]{key: key, value: value, bytes: bytes}
	s.entries[key] = e
	s.used += bytes
	s.push(e)
}

// CacheStats are the hits and misses since the cache was made, and its present entries and bytes.
type CacheStats struct {
	Hits, Misses, Entries, Bytes int64
}

// Stats returns the counters of the cache.
func (c *cache[K]) Stats() CacheStats {
	st := CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load()}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Entries += int64(len(s.entries))
		st.Bytes += s.used
		s.mu.Unlock()
	}
	return st
}

func (s *cacheShard[K]) push(e *cacheEntry[K]) {
	e.newer, e.next = &s.ring, s.ring.next
	e.next.newer = e
	s.ring.next = e
}

func (s *cacheShard[K]) unlink(e *cacheEntry[K]) {
	e.newer.next, e.next.newer = e.next, e.newer
}

func (s *cacheShard[K]) remove(e *cacheEntry[K]) {
	s.unlink(e)
	delete(s.entries, e.key)
	s.used -= e.bytes
}
