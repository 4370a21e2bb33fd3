//go:build unix

package frontier_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestShardsAreOpenedWhileOthersGiveURLs opens shards again, with more to write to files than
// memory is to have, while URLs of the others are claimed and files are to be written slowly.
func TestShardsAreOpenedWhileOthersGiveURLs(t *testing.T) {
	o := options(t, newClock(), 0)
	o.Shard.MemoryBytes = 64 << 10
	f := start(t, testenv.NewRedis(t), o)
	var stop atomic.Bool
	var clients sync.WaitGroup
	clients.Go(func() {
		for n := 0; !stop.Load(); n += 1000 {
			urls := make([]frontier.URL, 1000)
			for i := range urls {
				urls[i].URL = fmt.Sprintf("https://site%d.example/%d", i%100, n+i)
			}
			if _, err := f.Add(t.Context(), urls); err != nil && !errors.Is(err, frontier.ErrElsewhere) {
				t.Error(err)
				return
			}
		}
	})
	clients.Go(func() {
		for !stop.Load() {
			if _, err := f.Claim(t.Context(), frontier.ClaimRequest{Max: 20}); err != nil && !errors.Is(err, frontier.ErrElsewhere) {
				t.Error(err)
				return
			}
		}
	})
	doubted := time.NewTicker(20 * time.Millisecond)
	defer doubted.Stop()
	for n := 0; f.Counts().Reopened < int64(3*o.Shards/testenv.Every(3)) && !t.Failed(); n++ {
		f.Doubt(n % o.Shards)
		<-doubted.C
	}
	stop.Store(true)
	clients.Wait()
}
