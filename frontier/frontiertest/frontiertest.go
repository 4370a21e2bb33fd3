//go:build unix

// Package frontiertest serves a frontier to tests and benchmarks of what uses one.
package frontiertest

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/api"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
)

// Serve starts a frontier in this process, without delays and with a Redis of its own, and returns
// its URL. It runs until the test ends.
func Serve(tb testing.TB) (base string) {
	tb.Helper()
	opt, err := redis.ParseURL(testenv.NewRedis(tb).URL)
	if err != nil {
		tb.Fatal(err)
	}
	opt.MaxRetries = -1
	c := redis.NewClient(opt)
	web := httptest.NewUnstartedServer(nil)
	co, err := coord.Open(tb.Context(), c, "test", web.Listener.Addr().String()+"#1", 8)
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	f, err := frontier.New(tb.Context(), co, frontier.Options{
		Dir: tb.TempDir(), Shards: 8, Lease: time.Minute, Tries: 3, Own: time.Minute,
		Shard: shard.Options{Sync: true, MemoryBytes: 32 << 20}, Now: time.Now, Log: log,
	})
	if err != nil {
		tb.Fatal(err)
	}
	web.Config.Handler = api.New(f, log)
	web.Start()
	tb.Cleanup(func() {
		web.Close()
		if err := f.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return web.URL
}
