package segment

import "sync"

// FrameCache is a Cache that is emptied when it is full. It is for work on one segment, which reads
// neighbours together.
type FrameCache struct {
	most int64

	mu    sync.Mutex
	all   map[CacheKey]any
	bytes int64
}

// NewFrameCache returns a FrameCache that holds about so many bytes.
func NewFrameCache(most int64) *FrameCache { return &FrameCache{most: most, all: map[CacheKey]any{}} }

// Get implements Cache.
func (c *FrameCache) Get(key CacheKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.all[key]
	return v, ok
}

// Again implements Cache.
func (c *FrameCache) Again(key CacheKey) (any, bool) { return c.Get(key) }

// Add implements Cache.
func (c *FrameCache) Add(key CacheKey, value any, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += bytes; c.bytes > c.most {
		clear(c.all)
		c.bytes = bytes
	}
	c.all[key] = value
}
