//go:build unix

package frontier_test

import (
	"errors"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// Visits of an earlier crawler: their URLs are settled, and they are listed with their own times.
func TestImportedVisits(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 0))
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/waits"}, frontier.URL{URL: "https://a.example/leased"})
	held := claim(t, f, frontier.ClaimRequest{})
	long := c.now().Add(-1000 * time.Hour).UTC()
	visits := []frontier.ImportedVisit{
		{URL: "https://a.example/waits", Time: long.Add(time.Hour), Status: 200, Content: "x"},
		{URL: "HTTPS://A.example:443/leased", Time: long, Status: 404},
		{URL: "https://b.example/new", Time: long.Add(2 * time.Hour), Status: 301, Redirect: "https://b.example/", Depth: 4},
		{URL: "mailto:a@b.example"},
		{URL: "https://b.example/other", Crawl: "other", Time: long, Error: "no answer"},
	}
	for round := range 2 {
		results, err := f.Import(t.Context(), visits)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			want := frontier.AddResult{Result: []string{frontier.Added, frontier.Known}[round]}
			if i == 3 {
				want = frontier.AddResult{Result: frontier.Rejected, Reason: "scheme"}
			}
			if r != want {
				t.Errorf("round %d: %s: %+v, want %+v", round, visits[i].URL, r, want)
			}
		}
	}
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: held[0].Lease, Status: 200})
	if got := claim(t, f, frontier.ClaimRequest{Max: 10, PerQueue: 10}); len(got) != 0 {
		t.Errorf("claimed %+v, which was visited", got)
	}
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/last"})
	last := claim(t, f, frontier.ClaimRequest{})
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: last[0].Lease, Status: 200})

	list := func(since, until time.Time, cursor string) (got map[string]frontier.Visit, next string) {
		t.Helper()
		got = map[string]frontier.Visit{}
		next, _, err := f.Visited(since, until, cursor, 100, func(v frontier.Visit) bool {
			got[v.URL] = v
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return got, next
	}
	all, next := list(time.Time{}, time.Time{}, "")
	if len(all) != 5 || !all["https://a.example/waits"].Time.Equal(long.Add(time.Hour)) || all["https://b.example/new"].Depth != 4 ||
		all["https://b.example/other"].Crawl != "other" || !all["https://a.example/last"].Time.Equal(c.now()) {
		t.Errorf("%+v", all)
	}
	if some, _ := list(long.Add(time.Hour), long.Add(2*time.Hour), ""); len(some) != 1 || some["https://a.example/waits"].Content != "x" {
		t.Errorf("by time: %+v", some)
	}
	if some, _ := list(long.Add(2*time.Hour), time.Time{}, ""); len(some) != 2 {
		t.Errorf("since: %+v", some)
	}
	if some, _ := list(time.Time{}, time.Time{}, next); len(some) != 0 {
		t.Errorf("after the last: %+v", some)
	}
	st, err := f.Seen("", "", "https://a.example/leased")
	if err != nil || !st.Settled || st.Status != 404 || !st.Fetched.Equal(long.Truncate(time.Second)) {
		t.Errorf("%+v, %v", st, err)
	}
	// A cursor of a frontier that has more visits.
	other := start(t, testenv.NewRedis(t), options(t, c, 0))
	if _, _, err := other.Visited(time.Time{}, time.Time{}, next, 10, func(frontier.Visit) bool { return true }); !errors.Is(err, frontier.ErrCursor) {
		t.Errorf("%v", err)
	}
}
