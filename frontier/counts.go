package frontier

import (
	"sync"
	"sync/atomic"

	"github.com/urlake/urlake/frontier/coord"
)

// maxCrawlsCounted bounds the crawls of which ready keys are counted.
const maxCrawlsCounted = 100

// counters are what happened in this process.
type counters struct {
	reopened, torn, expired atomic.Int64
	// crawls are those that were claimed from.
	crawls     sync.Map
	crawlCount atomic.Int64
}

func (c *counters) claimed(crawl string) {
	if _, ok := c.crawls.Load(crawl); ok || c.crawlCount.Load() >= maxCrawlsCounted {
		return
	}
	if _, was := c.crawls.LoadOrStore(crawl, true); !was {
		c.crawlCount.Add(1)
	}
}

// Counts are what happened in this process since it began.
type Counts struct {
	// Reopened counts shards that were opened again, because their files failed or because Redis
	// may have something or not. Torn counts journals whose end was cut, and Expired leases that
	// ended without a result.
	Reopened, Torn, Expired int64
	Redis                   coord.Counts
}

// Counts returns what happened in this process since it began.
func (f *Frontier) Counts() Counts {
	return Counts{f.counters.reopened.Load(), f.counters.torn.Load(), f.counters.expired.Load(), f.coord.Counts()}
}

// ReadyCount says of how many keys of a crawl something waits: of those that may be fetched from
// now, and of all.
type ReadyCount struct {
	Crawl      string
	Ready, All int64
}

// Ready counts keys of the shards of this process, for crawls that were claimed from, up to a
// hundred of them.
func (f *Frontier) Ready() (counts []ReadyCount) {
	now := f.now()
	f.counters.crawls.Range(func(k, _ any) bool {
		c := ReadyCount{Crawl: k.(string)}
		for _, s := range f.all() {
			ready, all := s.coord.Ready(c.Crawl, now)
			c.Ready, c.All = c.Ready+int64(ready), c.All+int64(all)
		}
		counts = append(counts, c)
		return true
	})
	return counts
}
