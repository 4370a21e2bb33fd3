//go:build unix

package frontier_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// losing makes one command of Redis fail, the next whose arguments match: before Redis gets it, or
// after, as if the reply had been lost.
type losing struct {
	what  atomic.Pointer[regexp.Regexp]
	after bool
}

var errLost = errors.New("the connection was lost")

func (l *losing) lose(text string) { l.what.Store(regexp.MustCompile(regexp.QuoteMeta(text))) }

// lost says that what was to be lost was.
func (l *losing) lost() bool { return l.what.Load() == nil }

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		what := l.what.Load()
		if what == nil || !what.MatchString(fmt.Sprint(cmd.Args())) {
			return next(ctx, cmd)
		}
		if l.after {
			if err := next(ctx, cmd); err != nil { // such as a script that Redis has not seen yet
				return err
			}
		}
		if l.what.CompareAndSwap(what, nil) {
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

// claimsSoon claims until a URL comes, or half a minute is over.
func claimsSoon(t *testing.T, f *frontier.Frontier) (claims []frontier.Claim) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); len(claims) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		claims = claim(t, f, frontier.ClaimRequest{Max: 10})
	}
	return claims
}

// TestLostLeases holds that URLs come again at once whose leases Redis did not get, or got
// unnoticed, and that nobody had them.
func TestLostLeases(t *testing.T) {
	for _, after := range []bool{false, true} {
		c, l := newClock(), &losing{after: after}
		o := options(t, c, 0)
		o.Shards = 1
		server := testenv.NewRedis(t)
		f := start(t, server, o, l)
		add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
		l.lose("{test:0}:grants {test:0}:times")
		if got, err := f.Claim(t.Context(), frontier.ClaimRequest{}); !errors.Is(err, errLost) {
			t.Fatal(got, err)
		}
		got := claimsSoon(t, f)
		if len(got) != 1 || got[0].Tries != 0 || f.Counts().Reopened != 0 {
			t.Fatalf("after the script: %v: %v", after, got)
		}
		// Whatever Redis has of the first lease, the second one counts, also for the next process.
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = start(t, server, o)
		if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
			t.Errorf("after the script: %v: the URL of a live lease is handed out", after)
		}
		settle(t, f, frontier.Settled, frontier.Outcome{Lease: got[0].Lease, Status: 200})
		c.pass(time.Hour)
		if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
			t.Errorf("after the script: %v: a settled URL is handed out", after)
		}
	}
}

// TestLostChanges holds that a pause, block or limit whose end has failed, since the reply of Redis
// was lost, holds until it is ended again, and that the queue is handed out of then.
func TestLostChanges(t *testing.T) {
	const settings = "{test:0}:opening {test:0}:domains"
	yes, no, hour, none := true, false, time.Hour, time.Duration(0)
	change := func(c frontier.DomainChange) func(*frontier.Frontier) error {
		return func(f *frontier.Frontier) error { return f.ChangeDomain(t.Context(), "a.example", c) }
	}
	limit := func(n int64) func(*frontier.Frontier) error {
		return func(f *frontier.Frontier) error { return f.SetLimit(t.Context(), "", "a.example", n) }
	}
	for _, test := range []struct {
		name, command string
		begin, end    func(*frontier.Frontier) error
	}{
		{"pause", settings, change(frontier.DomainChange{Pause: &yes}), change(frontier.DomainChange{Pause: &no})},
		{"block", settings, change(frontier.DomainChange{Block: &hour}), change(frontier.DomainChange{Block: &none})},
		{"limit", "{test:0}:limits", limit(1), limit(0)},
	} {
		l, o := &losing{after: true}, options(t, newClock(), 0)
		o.Shards = 1
		f := start(t, testenv.NewRedis(t), o, l)
		add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/1"}, frontier.URL{URL: "https://a.example/2"})
		settle(t, f, frontier.Settled, frontier.Outcome{Lease: claimsSoon(t, f)[0].Lease, Status: 200})
		if err := test.begin(f); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
			t.Fatal(test.name, got)
		}
		l.lose(test.command)
		if err := test.end(f); !errors.Is(err, errLost) {
			t.Fatal(test.name, err)
		}
		if test.name != "limit" { // of which the shard is opened again
			if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
				t.Errorf("%s: %v after a change that has failed", test.name, got)
			}
			if err := test.end(f); err != nil {
				t.Error(test.name, err)
			}
		}
		if got := claimsSoon(t, f); len(got) != 1 {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestLostWhileDeleting lets the shard be lost while its URLs are deleted. That is not the error
// after which the next process is asked: it would say that there was nothing to delete.
func TestLostWhileDeleting(t *testing.T) {
	const urls = 30_000
	for range 20 {
		o := options(t, newClock(), 0)
		o.Shards = 1
		f := start(t, testenv.NewRedis(t), o)
		addAll(t, f, pages("a.example", urls))
		time.AfterFunc(time.Millisecond, func() { f.Lapse(0) })
		n, err := f.DeleteQueue(t.Context(), "", "a.example")
		switch {
		case n == 0 && errors.Is(err, frontier.ErrElsewhere), n == urls && err == nil: // it was lost before, or after
			continue
		case n != urls || err == nil || errors.Is(err, frontier.ErrElsewhere):
			t.Errorf("%d URLs were deleted: %v", n, err)
		}
		if n, err = f.DeleteQueue(t.Context(), "", "a.example"); n != 0 || !errors.Is(err, frontier.ErrElsewhere) {
			t.Errorf("%d URLs were deleted of a shard that was lost: %v", n, err)
		}
		return
	}
	t.Error("the shard was never lost in between")
}

// TestLostReports holds that a URL whose outcome was reported is settled once, and is not handed
// out before its lease is over, if Redis or its reply was lost on the way.
func TestLostReports(t *testing.T) {
	for _, after := range []bool{false, true} {
		c, l := newClock(), &losing{after: after}
		o := options(t, c, 0)
		o.Shards = 1
		f := start(t, testenv.NewRedis(t), o, l)
		add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"}, frontier.URL{URL: "https://b.example/"})
		claims := claim(t, f, frontier.ClaimRequest{Max: 2})
		if len(claims) != 2 {
			t.Fatal(claims)
		}
		settle(t, f, frontier.Settled, frontier.Outcome{Lease: claims[1].Lease, Status: 200})
		// Redis is told of the time for which the server wants to be left alone.
		outcome := frontier.Outcome{Lease: claims[0].Lease, Status: 200, RetryAfter: time.Second}
		l.lose("{test:0}:opening {test:0}:domains")
		settle(t, f, frontier.Elsewhere, outcome)
		if !l.lost() {
			t.Fatalf("after the script: %v: nothing was lost", after)
		}
		if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
			t.Errorf("after the script: %v: the URL of a live lease is handed out", after)
		}
		settle(t, f, frontier.Settled, outcome)
		// Redis was not told of the ends of the leases, and the files have them.
		f.Doubt(0)
		served(t, f)
		for _, claimed := range claims {
			settle(t, f, frontier.Ended, frontier.Outcome{Lease: claimed.Lease, Status: 200})
		}
		c.pass(time.Hour)
		if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
			t.Errorf("after the script: %v: a settled URL is handed out", after)
		}
	}
}

// served returns when the only shard was opened again.
func served(t *testing.T, f *frontier.Frontier) {
	t.Helper()
	testenv.Until(t, "the shard is opened again", func() bool {
		_, shards := f.Crawls()
		return f.Counts().Reopened > 0 && len(shards) > 0
	})
}
