//go:build unix

package frontier_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/urlnorm"
)

// TestExcludedDomainHoldsForHosts holds that nothing of a host is added or handed out whose domain
// is excluded, whichever shard or process has its key, over a restart too, and that what waited
// comes back. Others that end like the domain are not below it.
func TestExcludedDomainHoldsForHosts(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	o.Shards = 16
	f := start(t, server, o)
	var below, others []string
	for _, host := range []string{"a", "b", "c", "d", "x.y", "www"} {
		below = append(below, host+".k.example")
	}
	others = append(others, "xk.example", "www.other.example", "192.0.2.1", "job/1.k.example", "www.k.example.")
	waiting := func(path string) (urls []frontier.URL) {
		for _, key := range slices.Concat(below, others) {
			urls = append(urls, frontier.URL{URL: "https://www.k.example/" + path + key, Key: key})
		}
		return urls
	}
	add(t, f, frontier.Added, waiting("1/")...)
	yes, no := true, false
	exclude := func(key string, excluded *bool) {
		t.Helper()
		if err := f.ChangeDomain(t.Context(), key, frontier.DomainChange{Exclude: excluded}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, f *frontier.Frontier, path string, keys []string) {
		t.Helper()
		got, err := f.Add(t.Context(), waiting(path))
		if err != nil {
			t.Fatal(err)
		}
		var added, claimed []string
		for i, r := range got {
			switch r {
			case frontier.AddResult{Result: frontier.Added}:
				added = append(added, waiting(path)[i].Key)
			case frontier.AddResult{Result: frontier.Rejected, Reason: "excluded"}:
			default:
				t.Errorf("%s: %+v", what, r)
			}
		}
		for range 2 { // the first finds out what is excluded
			for _, c := range claim(t, f, frontier.ClaimRequest{Max: 1000, PerQueue: 50}) {
				if !slices.Contains(claimed, c.Key) {
					claimed = append(claimed, c.Key)
				}
			}
		}
		slices.Sort(added)
		slices.Sort(claimed)
		keys = slices.Sorted(slices.Values(keys))
		if !slices.Equal(added, keys) || !slices.Equal(claimed, keys) {
			t.Errorf("%s: added %q, handed out %q, want %q", what, added, claimed, keys)
		}
	}
	exclude("k.example", &yes)
	want("excluded", f, "2/", others)
	if d, err := f.Domain(t.Context(), "www.k.example"); err != nil || !d.Excluded {
		t.Errorf("www.k.example: %+v, %v", d, err)
	}
	if s := f.ExclusionStats(); s.Hidden != int64(len(below)) {
		t.Errorf("%d keys are kept back, want %d", s.Hidden, len(below))
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// An earlier program, or one that has died in between, has noted it in the shard alone.
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	if n, err := client.Del(t.Context(), "{test}:excluded").Result(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	f = start(t, server, o)
	want("after a restart", f, "3/", others)
	if err := client.SAdd(t.Context(), "{test}:excluded", "other.example").Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = start(t, server, o)
	want("with what is over", f, "4/", others)

	exclude("k.example", &no)
	want("again", f, "5/", slices.Concat(below, others))
	exclude("y.k.example", &yes)
	want("a subdomain", f, "6/", slices.DeleteFunc(slices.Concat(below, others), func(key string) bool { return key == "x.y.k.example" }))
	exclude("y.k.example", &no)
	// The domain of a key below a public suffix is not that suffix.
	exclude("example", &yes)
	want("a public suffix", f, "7/", slices.Concat(below, others))
}

// TestExcludedByAnotherProcess holds that the exclusion of a domain and its end reach the processes
// that serve the keys of its hosts.
func TestExcludedByAnotherProcess(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	first := start(t, server, o)
	second := start(t, server, o) // serves no shard as long as the first has all
	u := frontier.URL{URL: "https://www.k.example/", Key: "www.k.example"}
	yes, no := true, false
	for _, excluded := range []*bool{&yes, &no} {
		if err := first.ChangeDomain(t.Context(), "k.example", frontier.DomainChange{Exclude: excluded}); err != nil {
			t.Fatal(err)
		}
		if err := second.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := second.Add(t.Context(), []frontier.URL{u})
		if err != nil || (got[0].Reason == frontier.ReasonExcluded) != *excluded {
			t.Errorf("excluded %t: %+v, %v", *excluded, got, err)
		}
	}
}

// rules exclude whole domains.
type rules map[string]bool

func (r *rules) Len() int                         { return len(*r) }
func (r *rules) URL(u *urlnorm.URL, _ int64) bool { return (*r)[u.Domain] }
func (r *rules) Key(key string) bool              { return (*r)[key] }

// TestUnhide holds that all domains come back that are excluded no more.
func TestUnhide(t *testing.T) {
	o := options(t, newClock(), 0)
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
	f := start(t, testenv.NewRedis(t), o)
	add(t, f, frontier.Added, urls...)
	current.Store(&out)
	hidden := func() bool { return f.ExclusionStats().Hidden == int64(len(urls)) }
	testenv.Until(t, "all domains are hidden", func() bool {
		if f.ExclusionStats().Rules == 0 {
			return false
		}
		if got := claim(t, f, frontier.ClaimRequest{Max: 100}); len(got) != 0 {
			t.Fatal(got)
		}
		return hidden()
	})
	current.Store(&rules{})
	got := map[string]bool{}
	testenv.Until(t, "all domains come back", func() bool {
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 100}) {
			got[cl.Key] = true
		}
		return len(got) == len(urls)
	})
}
