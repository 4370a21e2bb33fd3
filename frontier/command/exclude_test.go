//go:build unix

package command

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
)

// rig is a frontier that follows a lake in a folder.
type rig struct {
	t     *testing.T
	store blob.Store
	f     *frontier.Frontier
	now   atomic.Int64
	rules int
	read  atomic.Int64 // how often the lake was read
	fail  atomic.Bool  // reading it fails
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://a.example/x"}})
	testlake.Publish(t, store)
	r := &rig{t: t, store: store}
	r.now.Store(1_700_000_000_000)
	server := testenv.NewRedis(t)
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	c, err := coord.Open(t.Context(), client, "test", "node", 2)
	if err != nil {
		t.Fatal(err)
	}
	lake := followTakedowns(store)
	r.f, err = frontier.New(t.Context(), c, frontier.Options{
		Dir: t.TempDir(), Shards: 2, Lease: time.Minute, Tries: 3, Own: time.Minute, Shard: shard.Options{MemoryBytes: 1 << 20},
		Now: func() time.Time { return time.UnixMilli(r.now.Load()) }, Log: slog.New(slog.DiscardHandler),
		Refresh: 5 * time.Millisecond,
		Exclusions: func(ctx context.Context) (frontier.Exclusions, error) {
			defer r.read.Add(1)
			if r.fail.Load() {
				return nil, fmt.Errorf("the disk is on fire")
			}
			return lake.Rules(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.f.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// followed returns when the frontier has read the lake as it is now.
func (r *rig) followed() {
	for before := r.read.Load(); r.read.Load() < before+2; {
		if r.t.Context().Err() != nil {
			r.t.Fatal("the lake is not read")
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rig) takeDown(rule catalog.Takedown, kind catalog.TargetKind, text string) string {
	r.t.Helper()
	var err error
	if rule.Target, err = catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text); err != nil {
		r.t.Fatal(err)
	}
	r.rules++
	rule.ID, rule.Reason = fmt.Sprintf("20261120-%010x", r.rules), "test"
	if _, err := suppress.Add(r.t.Context(), r.store, rule, suppress.Options{}); err != nil {
		r.t.Fatal(err)
	}
	r.followed()
	return rule.ID
}

func (r *rig) lift(id string) {
	r.t.Helper()
	if _, err := suppress.Lift(r.t.Context(), r.store, id, "me", "test", suppress.Options{}); err != nil {
		r.t.Fatal(err)
	}
	r.followed()
}

// add adds URLs and returns those that are excluded.
func (r *rig) add(urls ...string) (out []string) {
	r.t.Helper()
	var all []frontier.URL
	for _, u := range urls {
		all = append(all, frontier.URL{URL: u})
	}
	got, err := r.f.Add(r.t.Context(), all)
	if err != nil {
		r.t.Fatal(err)
	}
	for i, res := range got {
		switch res {
		case frontier.AddResult{Result: frontier.Rejected, Reason: frontier.ReasonExcluded}:
			out = append(out, urls[i])
		case frontier.AddResult{Result: frontier.Added}:
		default:
			r.t.Fatalf("%s: %+v", urls[i], res)
		}
	}
	return out
}

// claimed claims all that there is, and settles it.
func (r *rig) claimed() (urls []string) {
	r.t.Helper()
	for range 10 {
		got, err := r.f.Claim(r.t.Context(), frontier.ClaimRequest{Max: 100, PerQueue: 100})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, c := range got {
			urls = append(urls, c.URL)
			if res, err := r.f.Settle(r.t.Context(), []frontier.Outcome{{Lease: c.Lease, Status: 200}}); err != nil || res[0].Result != frontier.Settled {
				r.t.Fatal(res, err)
			}
		}
	}
	slices.Sort(urls)
	return urls
}

func (r *rig) want(what string, got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

var all = []string{
	"https://a.example/", "https://a.example/private/1", "https://a.example/private/2", "https://www.a.example/", "http://a.example/page",
	"https://a.example/page", "https://a.example:8443/page", "https://b.example/", "https://www.b.example/x",
}

// TestTakedownsAreRejected holds of each kind of takedown which URLs are no longer added, and that
// they are when it was lifted. It does not ask the rules but lists what each means.
func TestTakedownsAreRejected(t *testing.T) {
	r := newRig(t)
	hour := r.now.Load() + time.Hour.Milliseconds()
	for i, c := range []struct {
		kind catalog.TargetKind
		text string
		rule catalog.Takedown
		out  []int
	}{
		{catalog.DomainTarget, "a.example", catalog.Takedown{}, []int{0, 1, 2, 3, 4, 5, 6}},
		{catalog.HostTarget, "a.example", catalog.Takedown{}, []int{0, 1, 2, 4, 5, 6}},
		{catalog.HostTarget, "www.b.example", catalog.Takedown{}, []int{8}},
		{catalog.URLTarget, "https://a.example/page", catalog.Takedown{}, []int{5}},
		{catalog.URLTarget, "a.example/page", catalog.Takedown{}, []int{4, 5}},
		{catalog.URLTarget, "https://a.example:8443/page", catalog.Takedown{}, []int{6}},
		{catalog.PrefixTarget, "https://a.example/private/", catalog.Takedown{}, []int{1, 2}},
		{catalog.DomainTarget, "b.example", catalog.Takedown{DatasetID: 1, Dataset: "alpha"}, nil},
		{catalog.DomainTarget, "b.example", catalog.Takedown{To: &hour}, []int{7, 8}},
		{catalog.DomainTarget, "b.example", catalog.Takedown{From: &hour}, nil},
	} {
		id := r.takeDown(c.rule, c.kind, c.text)
		var want, urls []string
		for _, u := range all {
			urls = append(urls, fmt.Sprintf("%s?%d", u, i))
		}
		if c.kind == catalog.URLTarget {
			urls = all
		}
		for _, n := range c.out {
			want = append(want, urls[n])
		}
		if c.kind == catalog.URLTarget { // the others are known from the first one on
			for _, n := range c.out {
				r.want(string(c.kind)+" "+c.text, r.add(urls[n]), urls[n])
			}
		} else {
			r.want(string(c.kind)+" "+c.text, r.add(urls...), want...)
		}
		r.lift(id)
		if len(c.out) > 0 && c.kind != catalog.URLTarget {
			r.want("lifted", r.add(want...))
		}
	}
	r.want("not taken down", r.add(all...))
}

// TestTakedownsWhileURLsWait holds that nothing is handed out that was taken down while it waited:
// a domain comes back when its takedown is lifted; single URLs are settled, and a visit says so.
func TestTakedownsWhileURLsWait(t *testing.T) {
	r := newRig(t)
	r.want("added", r.add(all...))
	domain := r.takeDown(catalog.Takedown{}, catalog.DomainTarget, "b.example")
	prefix := r.takeDown(catalog.Takedown{}, catalog.PrefixTarget, "https://a.example/private/")
	r.takeDown(catalog.Takedown{}, catalog.HostTarget, "www.a.example")
	r.want("claimed", r.claimed(), "http://a.example/page", "https://a.example/", "https://a.example/page", "https://a.example:8443/page")
	if d, err := r.f.Domain(t.Context(), "b.example"); err != nil || !d.TakenDown || d.Waiting != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	var dropped []string
	if _, _, err := r.f.Visited(time.Time{}, time.Time{}, "", 100, func(v frontier.Visit) bool {
		if v.Error == frontier.ErrorExcluded && v.Status == 0 {
			dropped = append(dropped, v.URL)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(dropped)
	r.want("visits that were none", dropped, "https://a.example/private/1", "https://a.example/private/2", "https://www.a.example/")
	if s := r.f.ExclusionStats(); s.Rules != 3 || s.Dropped != 3 || s.Hidden != 1 || s.Failures != 0 {
		t.Fatalf("%+v", s)
	}
	r.lift(domain)
	r.lift(prefix)
	r.want("claimed after the lift", r.claimed(), "https://b.example/", "https://www.b.example/x")
	// What was dropped comes back by an update; that it is settled may be told of what is taken
	// down.
	got, err := r.f.Add(t.Context(), []frontier.URL{
		{URL: "https://a.example/private/1", Update: true}, {URL: "https://www.a.example/", Update: true},
		{URL: "https://www.a.example/", Update: true, Done: true},
	})
	if err != nil || got[0].Result != frontier.Updated || got[1].Reason != frontier.ReasonExcluded || got[2].Result != frontier.Updated {
		t.Fatal(got, err)
	}
	r.want("claimed after the update", r.claimed(), "https://a.example/private/1")
}

// TestALakeThatCannotBeRead holds that what was excluded stays so, and that the failures count.
func TestALakeThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.takeDown(catalog.Takedown{}, catalog.DomainTarget, "a.example")
	r.fail.Store(true)
	r.followed()
	r.want("excluded", r.add("https://a.example/"), "https://a.example/")
	if s := r.f.ExclusionStats(); s.Failures == 0 || s.Rules != 1 || s.Read.IsZero() {
		t.Fatalf("%+v", s)
	}
	r.fail.Store(false)
	r.followed()
	if s := r.f.ExclusionStats(); s.Failures != 0 {
		t.Fatalf("%+v", s)
	}
	empty, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := followTakedowns(empty).Rules(t.Context()); err == nil {
		t.Fatalf("a folder without a lake has %d rules", rules.Len())
	}
}

// TestDoneStoresNothingTakenDown reports URLs as done that are taken down. Known URLs are settled,
// and no other URL is stored.
func TestDoneStoresNothingTakenDown(t *testing.T) {
	r := newRig(t)
	if out := r.add("https://b.example/gone/known", "https://c.example/known"); len(out) > 0 {
		t.Fatal(out)
	}
	r.takeDown(catalog.Takedown{}, catalog.PrefixTarget, "https://b.example/gone/")
	r.takeDown(catalog.Takedown{}, catalog.DomainTarget, "c.example")
	for _, c := range []struct {
		url  string
		want string
	}{
		{"https://b.example/gone/known", frontier.Updated},
		{"https://b.example/gone/new", frontier.Rejected},
		{"https://B.example:443/gone//new2", frontier.Rejected},
		{"https://b.example/other", frontier.Added},
		{"https://c.example/known", frontier.Updated},
		{"https://c.example/new", frontier.Rejected},
		{"https://www.c.example/new", frontier.Rejected},
	} {
		for _, fetched := range []bool{false, true} {
			got, err := r.f.Add(t.Context(), []frontier.URL{{URL: c.url, Update: true, Done: true, Fetched: fetched, Status: 200}})
			want := c.want
			if want == frontier.Added && fetched {
				want = frontier.Updated // by the first
			}
			if err != nil || got[0].Result != want || want == frontier.Rejected && got[0].Reason != frontier.ReasonExcluded {
				t.Errorf("%s: %+v, %v, want %s", c.url, got, err, want)
			}
		}
		for _, add := range []frontier.URL{{URL: c.url}, {URL: c.url, Update: true}} {
			if got, err := r.f.Add(t.Context(), []frontier.URL{add}); c.want != frontier.Added && (err != nil || got[0].Reason != frontier.ReasonExcluded) {
				t.Errorf("%+v: %+v, %v", add, got, err)
			}
		}
		got, err := r.f.Import(t.Context(), []frontier.ImportedVisit{{URL: c.url, Status: 200}})
		if c.want != frontier.Added && (err != nil || got[0].Reason != frontier.ReasonExcluded) {
			t.Errorf("a visit of %s: %+v, %v", c.url, got, err)
		}
	}
	var stored []string
	for cursor, more := "", true; more; more = cursor != "" {
		var err error
		if cursor, err = r.f.URLs("", "", cursor, func(u frontier.KnownURL) bool {
			stored = append(stored, u.URL)
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(stored)
	if want := []string{"https://b.example/gone/known", "https://b.example/other", "https://c.example/known"}; !slices.Equal(stored, want) {
		t.Errorf("stored %q, want %q", stored, want)
	}
}
