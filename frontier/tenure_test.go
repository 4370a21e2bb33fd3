//go:build unix

package frontier_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// TestShardsAreKeptWhileOthersOpen opens eight shards that take longer together than one is owned
// without being renewed: all are served when the frontier begins, and from then on.
func TestShardsAreKeptWhileOthersOpen(t *testing.T) {
	c := newClock()
	o := options(t, c, 0)
	o.Shards, o.Own = 8, 5*time.Second // a machine that pauses for two must not end a tenure
	slow, cancel := context.WithTimeout(t.Context(), o.Own*5/4)
	defer cancel()
	var asked atomic.Int64
	o.Now = func() time.Time { // which is asked while a shard is opened, about twice
		if asked.Add(1) > int64(o.Shards) {
			<-slow.Done()
		}
		return c.now()
	}
	began := time.Now()
	f := start(t, testenv.NewRedis(t), o)
	if took := time.Since(began); took < o.Own {
		t.Fatalf("opening took %v, which shows nothing", took)
	}
	for time.Since(began) < 2*o.Own { // what was not renewed since the opening is over by then
		if n := f.Stats().Shards; n != o.Shards {
			t.Fatalf("%d shards are served, want %d", n, o.Shards)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
