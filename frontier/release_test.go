//go:build unix

package frontier_test

import (
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// A lease that is given back is over at once, and its URL waits for the delay of its domain.
func TestRelease(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 10*time.Second))
	add(t, f, frontier.Added, frontier.URL{URL: "https://example.com/"})
	first := claim(t, f, frontier.ClaimRequest{})
	got, err := f.Release(t.Context(), []string{first[0].Lease, "bm8", first[0].Lease})
	if err != nil || got[0].Result != frontier.Released || got[1].Result != frontier.Ended || got[2].Result != frontier.Ended {
		t.Fatal(got, err)
	}
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: first[0].Lease, Status: 200})
	if again := claim(t, f, frontier.ClaimRequest{}); len(again) != 0 {
		t.Fatalf("sooner than the delay: %+v", again)
	}
	c.pass(10 * time.Second)
	second := claim(t, f, frontier.ClaimRequest{})
	if len(second) != 1 || second[0].URL != first[0].URL || second[0].Tries != 1 {
		t.Fatalf("%+v", second)
	}
}

// A final outcome settles a URL that would be fetched again otherwise.
func TestFinal(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 0))
	add(t, f, frontier.Added, frontier.URL{URL: "https://example.com/a"}, frontier.URL{URL: "https://example.com/b"})
	for i := range 2 {
		got := claim(t, f, frontier.ClaimRequest{})
		want := []string{frontier.Settled, frontier.Retried}[i]
		settle(t, f, want, frontier.Outcome{Lease: got[0].Lease, Error: "robots.txt", Final: i == 0})
	}
	s, err := f.Seen("", "", "https://example.com/a")
	if err != nil || !s.Settled {
		t.Fatalf("%+v, %v", s, err)
	}
}

// TestManyLeasesEnd holds that all leases end whose time is over, however many there are.
func TestManyLeasesEnd(t *testing.T) {
	const n = 3500
	c := newClock()
	o := options(t, c, 0)
	o.Shards = 1
	f := start(t, testenv.NewRedis(t), o)
	addAll(t, f, pages("a.example", n))
	if got := claim(t, f, frontier.ClaimRequest{Max: n, PerQueue: n}); len(got) != n {
		t.Fatal(len(got))
	}
	c.pass(o.Lease)
	if err := f.Expire(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	if d, err := f.Domain(t.Context(), "a.example"); err != nil || d.Waiting != n || d.Leased != 0 {
		t.Fatalf("%d wait, %d are leased; %v", d.Waiting, d.Leased, err)
	}
}

// TestTriesOfLeasesThatAreOver holds that a URL whose leases end without a result is handed out as
// often as Options.Tries says, and settled then. Leases without a token do not count.
func TestTriesOfLeasesThatAreOver(t *testing.T) {
	c := newClock()
	o := options(t, c, 0)
	f := start(t, testenv.NewRedis(t), o)
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
	over := func() {
		t.Helper()
		c.pass(o.Lease + time.Second)
		if err := f.Expire(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range o.Tries {
		if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 1 || int(got[0].Tries) != i {
			t.Fatalf("try %d: %+v", i, got)
		}
		over()
	}
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
		t.Fatalf("it is handed out %d times: %+v", o.Tries+1, got)
	}
	if s, err := f.Seen("", "", "https://a.example/"); err != nil || !s.Settled {
		t.Errorf("%+v, %v", s, err)
	}
	var visits []frontier.Visit
	if _, _, err := f.Visited(time.Time{}, time.Time{}, "", 10, func(v frontier.Visit) bool { visits = append(visits, v); return true }); err != nil {
		t.Fatal(err)
	}
	if len(visits) != 1 || visits[0].Error != "expired" || visits[0].Status != 0 {
		t.Errorf("visits %+v", visits)
	}

	add(t, f, frontier.Added, frontier.URL{URL: "https://b.example/"})
	for i := range 2 * o.Tries {
		n := 0
		err := f.ClaimQueues(t.Context(), frontier.QueueRequest{Lease: o.Lease}, func(frontier.Claim) error { n++; return nil })
		if err != nil || n != 1 {
			t.Fatalf("try %d by gRPC: %d URLs, %v", i, n, err)
		}
		over()
	}
}
