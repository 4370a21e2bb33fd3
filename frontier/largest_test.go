//go:build unix

package frontier_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// counted counts the commands whose contexts have it.
type counted struct{ commands atomic.Int64 }

type countedKey struct{}

func (*counted) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(countedKey{}) != nil {
			c.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(countedKey{}) != nil {
			c.commands.Add(int64(len(cmds)))
		}
		return next(ctx, cmds)
	}
}

// TestAHotDomain lets a million URLs of one domain wait. Memory stays bounded, since they are in
// files; the claims of other domains take as many commands of Redis as they do without it, and each
// gets its turn; and the log and the list of the largest queues name it.
func TestAHotDomain(t *testing.T) {
	const hot, others = 1_000_000, 200
	// All of them take more than 100 MB. Some are added while files are written.
	const limit = int64(48 << 20)
	commands := map[bool]int64{}
	for _, isHot := range []bool{false, true} {
		server := testenv.NewRedis(t)
		opt, err := redis.ParseURL(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		opt.MaxRetries = -1
		client := redis.NewClient(opt)
		count := &counted{}
		client.AddHook(count)
		o := options(t, newClock(), time.Second)
		var log bytes.Buffer
		o.Log, o.AlarmWaiting = slog.New(slog.NewTextHandler(&log, nil)), hot/2
		c, err := coord.Open(t.Context(), client, "test", "node", o.Shards)
		if err != nil {
			t.Fatal(err)
		}
		f, err := frontier.New(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		most := int64(0)
		for n := 0; isHot && n < hot; n += 20_000 {
			urls := make([]frontier.URL, 20_000)
			for i := range urls {
				urls[i] = frontier.URL{URL: "https://hot.example/" + strconv.Itoa(n+i), Priority: 9}
			}
			add(t, f, frontier.Added, urls...)
			most = max(most, f.Stats().Memory)
			// URLs may come faster than a machine that pauses writes files.
			testenv.Until(t, "URLs are written to files", func() bool { return f.Stats().Memory <= limit/2 })
		}
		if most > limit {
			t.Errorf("waiting URLs took %d bytes of memory, want at most %d", most, limit)
		}
		var urls []frontier.URL
		for i := range others {
			urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://site%d.example/", i)})
		}
		add(t, f, frontier.Added, urls...)
		got := 0
		ctx := context.WithValue(t.Context(), countedKey{}, true)
		for got < others {
			claims, err := f.Claim(ctx, frontier.ClaimRequest{Max: 10})
			if err != nil || len(claims) == 0 {
				t.Fatalf("%d of %d others; %d claims, %v", got, others, len(claims), err)
			}
			for _, cl := range claims {
				if cl.Key != "hot.example" {
					got++
				}
			}
		}
		commands[isHot] = count.commands.Load()
		if isHot {
			top, large := f.Largest(2)
			if large != 1 || len(top) != 1 || top[0].Key != "hot.example" || top[0].Waiting != hot-1 {
				t.Errorf("the largest queues are %+v, and %d are too large", top, large)
			}
			if f.Stats().Runs == 0 {
				t.Error("nothing is in files")
			}
			if err := f.WarnOfLarge(t.Context()); err != nil || !strings.Contains(log.String(), "hot.example (crawl DEFAULT): 999999") {
				t.Errorf("%v: the log says %s", err, log.String())
			}
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	// The hot domain may take one place, so that one more claim asks each shard.
	if commands[true] > commands[false]+8 {
		t.Errorf("%d commands beside a hot domain, %d without", commands[true], commands[false])
	}
}

// TestLargest compares the largest queues with a sort of all.
func TestLargest(t *testing.T) {
	o := options(t, newClock(), 0)
	o.AlarmWaiting = 9
	f := start(t, testenv.NewRedis(t), o)
	var want []frontier.QueueSize
	var urls []frontier.URL
	for d := range 40 {
		q := frontier.QueueSize{Crawl: fmt.Sprint("c", d%3), Key: fmt.Sprintf("site%d.example", d/2), Waiting: int64(d * 7 % 12)}
		for i := range q.Waiting {
			urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://%s/%d", q.Key, i), Crawl: q.Crawl})
		}
		if q.Waiting > 0 {
			want = append(want, q)
		}
	}
	add(t, f, frontier.Added, urls...)
	slices.SortFunc(want, func(a, b frontier.QueueSize) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Crawl, b.Crawl), strings.Compare(a.Key, b.Key))
	})
	alarmed := 0
	for _, q := range want {
		if q.Waiting > 9 {
			alarmed++
		}
	}
	for _, n := range []int{1, 10, 100} {
		if got, large := f.Largest(n); large != alarmed || !slices.Equal(got, want[:min(n, len(want))]) {
			t.Errorf("%d: %v, %d above the alarm\nwant %v, %d", n, got, large, want, alarmed)
		}
	}
}
