package api

// The bytes of answers that are asked for again and again are kept. A key has all that the bytes
// depend on, so an answer never gets old: with a new version or a takedown come new keys, and
// nobody asks by the old ones.

import (
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"unsafe"

	"github.com/urlake/urlake/serve/lru"
)

// cachedAnswer is what is sent for a request, besides what depends on the connection. It is shared
// and must not be changed.
type cachedAnswer struct {
	// Body is in the encoding Coding, "" for none.
	Body   []byte
	Coding string
	// ETag is the validator without quotes and without the suffix for the encoding.
	ETag string
	// Link is the header of that name.
	Link []string
	// Logged are for the access log.
	Logged []slog.Attr
	// Hot is the name that is counted as asked for, "" for none.
	Hot string
}

// size is the memory of an answer with its key, in bytes.
func (a *cachedAnswer) size(key string) int64 {
	n := overhead + len(key) + cap(a.Body) + len(a.ETag) + len(a.Hot) + int(unsafe.Sizeof(slog.Attr{}))*cap(a.Logged)
	for _, line := range a.Link {
		n += int(unsafe.Sizeof(line)) + len(line)
	}
	for _, attr := range a.Logged {
		if attr.Value.Kind() == slog.KindString {
			n += len(attr.Value.String())
		}
	}
	return int64(n)
}

const (
	// maxBody is the size of the largest body that is kept, in bytes. It has the answers for nearly
	// all domains and pages of some hundred URLs.
	maxBody = 64 << 10
	// maxKey is the length of the longest key with an answer, in bytes.
	maxKey = 2 << 10
	// overhead is the memory of an answer besides what its fields refer to, in bytes.
	overhead = 320
	// seenSlots is the number of keys that are remembered as asked for once.
	seenSlots = 1 << 14
)

// answerCache keeps the answers that were used last, up to a number of bytes. It is safe for
// concurrent use. Nil keeps nothing.
type answerCache struct {
	kept  *lru.Cache[string, *cachedAnswer]
	limit int64
	seed  maphash.Seed
	// seen has hashes of keys that were asked for once, the newest for each slot.
	seen [seenSlots]atomic.Uint64
}

// newAnswers returns a cache of at most so many bytes, nil if there are none.
func newAnswers(bytes int64) *answerCache {
	if bytes <= 0 {
		return nil
	}
	return &answerCache{kept: lru.New[string, *cachedAnswer](bytes), limit: bytes, seed: maphash.MakeSeed()}
}

// Get returns the answer of a key, nil if it is not kept.
func (c *answerCache) Get(key string) *cachedAnswer {
	if c == nil {
		return nil
	}
	a, _ := c.kept.Get(key)
	return a
}

// Wants reports whether an answer with a body of so many bytes should be kept. That of a key which
// was not asked for before is not, so that a walk through many domains does not drive out the ones
// that are in use.
func (c *answerCache) Wants(key string, bytes int) bool {
	if c == nil || bytes > maxBody || len(key) > maxKey || int64(overhead+len(key)+bytes) > c.limit/8 {
		return false
	}
	hash := maphash.String(c.seed, key)
	return c.seen[hash%seenSlots].Swap(hash) == hash
}

// Add keeps an answer, and drops those that were not used for longest beyond the limit.
func (c *answerCache) Add(key string, a *cachedAnswer) {
	if c != nil {
		c.kept.Add(key, a, a.size(key))
	}
}

// Stats returns the counters of the cache.
func (c *answerCache) Stats() lru.Stats {
	if c == nil {
		return lru.Stats{}
	}
	return c.kept.Stats()
}
