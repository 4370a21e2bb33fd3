//go:build unix

package frontier_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestRobots holds that the Crawl-delay of each host of a domain holds until its file expires, the
// longest of all that hold, over restarts, and never less than the delay of the frontier or the
// operator; and that claims tell whether the file of their host is there.
func TestRobots(t *testing.T) {
	c := newClock()
	server, o := testenv.NewRedis(t), options(t, c, 5*time.Second)
	o.RobotsAgent, o.MaxRobotsDelay = "bot", time.Minute
	f := start(t, server, o)
	const key = "a.example"
	set := func(host, text string, holds time.Duration) {
		t.Helper()
		if err := f.SetRobots(t.Context(), key, frontier.RobotsFile{Host: host, Text: []byte(text), Expires: c.now().Add(holds)}); err != nil {
			t.Fatal(err)
		}
	}
	delay := func(want time.Duration) {
		t.Helper()
		d, err := f.Domain(t.Context(), key)
		if err != nil || d.Delay != want {
			t.Fatalf("delay %v, want %v; %v", d.Delay, want, err)
		}
	}
	again := func() {
		t.Helper()
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = start(t, server, o)
	}
	delay(5 * time.Second)
	set("", "User-agent: *\nCrawl-delay: 20\nUser-agent: bot\nCrawl-delay: 10", time.Hour)
	delay(10 * time.Second)
	set("www.a.example", "User-agent: bot\nCrawl-delay: 30", time.Minute)
	set("img.a.example", "User-agent: bot\nCrawl-delay: 2", 3*time.Hour)
	set("A.EXAMPLE:8080", "", time.Hour)
	delay(30 * time.Second)
	again()
	delay(30 * time.Second)
	var urls []frontier.URL
	for _, u := range []string{"https://www.a.example/1", "https://www.a.example/2", "http://a.example:8080/3", "https://nn.a.example/4"} {
		urls = append(urls, frontier.URL{URL: u})
	}
	add(t, f, frontier.Added, urls...)
	one := func(want string, has bool) {
		t.Helper()
		got := claim(t, f, frontier.ClaimRequest{})
		if len(got) != 1 || got[0].URL != want || got[0].Robots.IsZero() == has {
			t.Fatalf("%+v, want %s with a robots.txt: %v", got, want, has)
		}
		settle(t, f, frontier.Settled, frontier.Outcome{Lease: got[0].Lease, Status: 200})
	}
	none := func() {
		t.Helper()
		if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
			t.Fatal(got)
		}
	}
	one("https://www.a.example/1", true)
	c.pass(29 * time.Second)
	none()
	c.pass(time.Second)
	one("https://www.a.example/2", true)
	c.pass(30 * time.Second) // that of www has expired
	delay(10 * time.Second)
	one("http://a.example:8080/3", true)
	c.pass(9 * time.Second)
	none()
	c.pass(time.Second)
	one("https://nn.a.example/4", false)
	// Each of the two may ask for the longer delay, and a file that asks for too much is bounded.
	minute, slow := time.Minute, 40*time.Second
	if err := f.ChangeDomain(t.Context(), key, frontier.DomainChange{Delay: &slow}); err != nil {
		t.Fatal(err)
	}
	delay(slow)
	set("", "User-agent: *\nCrawl-delay: 1e9", time.Hour)
	delay(minute)
	set("", "User-agent: *\nDisallow: /", time.Hour)
	delay(slow)
	r, ok, err := f.Robots(key, "a.example:443")
	if err != nil || !ok || string(r.Text) != "User-agent: *\nDisallow: /" || r.Host != key || !r.Expires.Equal(c.now().Add(time.Hour)) {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
	if d, err := f.Domain(t.Context(), key); err != nil || len(d.Robots) != 3 || d.Robots[0].Host != key || d.Robots[2].Delay != 2*time.Second {
		t.Fatalf("%+v, %v", d.Robots, err)
	}
	set("", "", -time.Second)
	if r, ok, err := f.Robots(key, ""); ok || err != nil {
		t.Fatal(r, err)
	}
	for _, bad := range []string{"a/b", "a b", "user@a.example", "https://a.example"} {
		if err := f.SetRobots(t.Context(), key, frontier.RobotsFile{Host: bad}); !errors.Is(err, frontier.ErrURL) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRobotsDelays replaces the files of the hosts of a domain at random, and compares the delay
// with the longest of those that hold.
func TestRobotsDelays(t *testing.T) {
	c := newClock()
	o := options(t, c, time.Second)
	o.MaxRobotsDelay = 90 * time.Second
	f := start(t, testenv.NewRedis(t), o)
	type file struct {
		delay   time.Duration
		expires time.Time
	}
	files := map[string]file{}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		host := fmt.Sprintf("h%d.a.example", rng.IntN(8))
		fresh := file{time.Duration(rng.IntN(3)*rng.IntN(60)) * time.Second, c.now().Add(time.Duration(rng.IntN(100)) * time.Second)}
		files[host] = fresh
		text := fmt.Sprintf("User-agent: *\nCrawl-delay: %d", fresh.delay/time.Second)
		if err := f.SetRobots(t.Context(), "a.example", frontier.RobotsFile{Host: host, Text: []byte(text), Expires: fresh.expires}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Duration(rng.IntN(10)) * time.Second)
		want := time.Second
		for _, known := range files {
			if known.expires.After(c.now()) {
				want = max(want, min(known.delay, o.MaxRobotsDelay))
			}
		}
		if d, err := f.Domain(t.Context(), "a.example"); err != nil || d.Delay != want {
			t.Fatalf("%v, %v, want %v: %+v", d.Delay, err, want, files)
		}
	}
}
