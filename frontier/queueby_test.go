//go:build unix

package frontier_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// TestQueueByIsFixed holds that a frontier that queues by domain is not started to queue by host,
// neither beside another process nor after it: URLs that are settled would be new then.
func TestQueueByIsFixed(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	o.Log = slog.New(slog.DiscardHandler)
	byHost := o
	byHost.QueueBy = frontier.ByHost
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	defer client.Close()
	open := func(o frontier.Options) (*frontier.Frontier, error) {
		c, err := coord.Open(t.Context(), client, "test", "other", o.Shards)
		if err != nil {
			t.Fatal(err)
		}
		return frontier.New(t.Context(), c, o)
	}
	refused := func(when string, o frontier.Options, want string) {
		t.Helper()
		f, err := open(o)
		if err == nil {
			t.Fatalf("%s: it starts; %v", when, f.Close(t.Context()))
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", when, err, want)
		}
	}
	const fixed = `frontier "test" in Redis queues by domain, not by host`
	f := start(t, server, o)
	url := frontier.URL{URL: "http://www.k.example/"}
	add(t, f, frontier.Added, url)
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: claim(t, f, frontier.ClaimRequest{})[0].Lease, Status: 200})
	refused("beside another process", byHost, fixed)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("after it", byHost, fixed)
	f = start(t, server, o)
	add(t, f, frontier.Known, url)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A frontier of an earlier program has nothing noted. Its first start does that.
	if n, err := client.Del(t.Context(), "{test}:queue-by").Result(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	first, err := open(byHost)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("by domain", o, `queues by host, not by domain`)
}

// TestCanonicalKey holds which key a domain or a host in a path means.
func TestCanonicalKey(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	f := start(t, server, o)
	o.QueueBy, o.Dir = frontier.ByHost, t.TempDir()
	byHost := start(t, testenv.NewRedis(t), o)
	for text, want := range map[string][2]string{
		"K.Example.": {"k.example"}, "WWW.k.example": {"www.k.example", "k.example"}, "ä.com": {"xn--4ca.com"}, "192.0.2.1": {"192.0.2.1"},
		"github.io": {"github.io"}, "a.GitHub.io": {"a.github.io"}, "A key": {"A key"}, "A.com:8080": {"A.com:8080"}, "A.com/x": {"A.com/x"}, "": {""},
	} {
		if key, larger := f.CanonicalKey(text); key != want[0] || larger != want[1] {
			t.Errorf("%q by domain: %q, %q, want %q", text, key, larger, want)
		}
		if key, larger := byHost.CanonicalKey(text); key != want[0] || larger != "" {
			t.Errorf("%q by host: %q, %q, want %q", text, key, larger, want[0])
		}
	}
}
