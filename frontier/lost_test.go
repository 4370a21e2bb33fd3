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
	"github.com/urlake/urlake/lake/urlnorm"
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

// TestLostLeases holds that URLs come again whose leases Redis did not get, or got unnoticed.
func TestLostLeases(t *testing.T) {
	for _, after := range []bool{false, true} {
		c, l := newClock(), &losing{after: after}
		o := options(t, c, 0)
		o.Shards = 1
		f := start(t, testenv.NewRedis(t), o, l)
		add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
		l.lose("{test:0}:leases {test:0}:ready:") // and not what is done each second
		if got, err := f.Claim(t.Context(), frontier.ClaimRequest{}); !errors.Is(err, errLost) {
			t.Fatal(got, err)
		}
		c.pass(2 * time.Minute)
		if got := claimsSoon(t, f); len(got) != 1 {
			t.Errorf("after the script: %v: %v", after, got)
		}
	}
}

// TestLostChanges holds that a queue is handed out of whose pause, block or limit has ended, if
// only the reply of Redis to that was lost.
func TestLostChanges(t *testing.T) {
	const settings = "{test:0}:owner {test:0}:domains"
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
		if got := claimsSoon(t, f); len(got) != 1 {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// lapsing lets shard 0 be lost before the command that losing would lose.
type lapsing struct {
	losing
	f *frontier.Frontier
}

func (l *lapsing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		what := l.what.Load()
		if what != nil && what.MatchString(fmt.Sprint(cmd.Args())) && l.what.CompareAndSwap(what, nil) {
			l.f.Lapse(0)
		}
		return next(ctx, cmd)
	}
}

// TestLostWhileDeleting lets the shard be lost when its URLs are deleted. That is not the error
// after which the next process is asked: it would say that there was nothing to delete.
func TestLostWhileDeleting(t *testing.T) {
	l, o := &lapsing{}, options(t, newClock(), 0)
	o.Shards = 1
	l.f = start(t, testenv.NewRedis(t), o, l)
	add(t, l.f, frontier.Added, frontier.URL{URL: "https://a.example/1"}, frontier.URL{URL: "https://a.example/2"})
	l.lose("{test:0}:leases {test:0}:ready:")
	n, err := l.f.DeleteQueue(t.Context(), "", "a.example")
	if n != 2 || err == nil || errors.Is(err, frontier.ErrElsewhere) || !l.lost() {
		t.Errorf("%d URLs were deleted: %v", n, err)
	}
	if n, err = l.f.DeleteQueue(t.Context(), "", "a.example"); n != 0 || !errors.Is(err, frontier.ErrElsewhere) {
		t.Errorf("%d URLs were deleted of a shard that was lost: %v", n, err)
	}
}

// rules exclude whole domains.
type rules map[string]bool

func (r *rules) Len() int                         { return len(*r) }
func (r *rules) URL(u *urlnorm.URL, _ int64) bool { return (*r)[u.Domain] }
func (r *rules) Key(key string) bool              { return (*r)[key] }

// TestLostUnhide holds that all domains come back that are excluded no more, also if Redis fails
// while those of one shard are woken.
func TestLostUnhide(t *testing.T) {
	l, o := &losing{}, options(t, newClock(), 0)
	var urls []frontier.URL
	out := rules{}
	for i := range 40 {
		domain := fmt.Sprintf("site%d.example", i)
		urls = append(urls, frontier.URL{URL: "https://" + domain + "/"})
		out[domain] = true
	}
	var current atomic.Pointer[rules]
	current.Store(&rules{})
	o.Refresh = 5 * time.Millisecond
	o.Exclusions = func(context.Context) (frontier.Exclusions, error) { return current.Load(), nil }
	f := start(t, testenv.NewRedis(t), o, l)
	add(t, f, frontier.Added, urls...)
	current.Store(&out)
	hidden := func() bool { return f.ExclusionStats().Hidden == int64(len(urls)) }
	for end := time.Now().Add(20 * time.Second); !hidden() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f.ExclusionStats().Rules == 0 {
			continue
		}
		if got := claim(t, f, frontier.ClaimRequest{Max: 100}); len(got) != 0 {
			t.Fatal(got)
		}
	}
	l.lose("}:ready:")
	current.Store(&rules{})
	for end := time.Now().Add(20 * time.Second); !l.lost() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	got := map[string]bool{}
	for end := time.Now().Add(20 * time.Second); len(got) < len(urls) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 100}) {
			got[cl.Key] = true
		}
	}
	if !l.lost() || len(got) != len(urls) {
		t.Errorf("%d of %d domains came back", len(got), len(urls))
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

// TestLostReports holds that a URL whose outcome was reported is settled once, and is not handed
// out before its lease is over, if Redis or its reply was lost on the way.
func TestLostReports(t *testing.T) {
	for name, command := range map[string]string{
		"report": `{test:0}:owner {test:0}:leases {test:0}:times {test:0}:domains`,
		"end":    `{test:0}:owner {test:0}:leases \S+ 0x`, // the pointer of a lease; expire has none
	} {
		for _, after := range []bool{false, true} {
			c, l := newClock(), &losing{after: after}
			o := options(t, c, 0)
			o.Shards = 1
			f := start(t, testenv.NewRedis(t), o, l)
			add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
			// Redis is told of the time for which the server wants to be left alone.
			outcome := frontier.Outcome{Lease: claimsSoon(t, f)[0].Lease, Status: 200, RetryAfter: time.Second}
			l.what.Store(regexp.MustCompile(command))
			got, err := f.Settle(t.Context(), []frontier.Outcome{outcome})
			if !l.lost() {
				t.Fatalf("%s, after %v: nothing was lost", name, after)
			}
			if errors.Is(err, errLost) { // and nobody knows what came of it
				served(t, f)
				if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
					t.Errorf("%s, after %v: the URL of a live lease is handed out", name, after)
				}
				got, err = f.Settle(t.Context(), []frontier.Outcome{outcome})
			}
			if err != nil || got[0].Result != frontier.Settled {
				t.Errorf("%s, after %v: %v, %v", name, after, got, err)
			}
			served(t, f)
			c.pass(time.Hour)
			if got, err := f.Settle(t.Context(), []frontier.Outcome{outcome}); err != nil || got[0].Result != frontier.Ended {
				t.Errorf("%s, after %v: reported again: %v, %v", name, after, got, err)
			}
			if claims := claim(t, f, frontier.ClaimRequest{}); len(claims) != 0 {
				t.Errorf("%s, after %v: a settled URL is handed out", name, after)
			}
		}
	}
}
