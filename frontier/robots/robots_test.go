package robots_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/robots"
)

// TestDelay lists what crawlers are asked for.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		name, text, agent string
		seconds           float64
	}{
		{"nothing", "", "bot", 0},
		{"all", "User-agent: *\nCrawl-delay: 3", "bot", 3},
		{"all, without a name", "User-agent: *\nCrawl-delay: 3\nUser-agent: 7\nCrawl-delay: 5", "", 3},
		{"a fraction and a comment", "user-AGENT : * # all\r\ncrawl-DELAY:\t0.5 # quick", "bot", 0.5},
		{"by name", "User-agent: *\nCrawl-delay: 3\n\nUser-agent: Bot\nCrawl-delay: 10", "bot", 10},
		{"by name and version", "User-agent: Bot/1.0\nCrawl-delay: 10", "bot", 10},
		{"a longer name is another", "User-agent: Botany\nCrawl-delay: 10\nUser-agent: *\nCrawl-delay: 3", "bot", 3},
		{"several names", "User-agent: a\nUser-agent: bot\nDisallow: /x\nCrawl-delay: 10", "bot", 10},
		{"a group ends", "User-agent: bot\nDisallow: /x\nUser-agent: b\nCrawl-delay: 10", "bot", 0},
		{"a group of another record goes on", "User-agent: bot\nSitemap: https://a.example/\nUser-agent: b\nCrawl-delay: 10", "bot", 10},
		{"named without a delay", "User-agent: bot\nDisallow: /x\nUser-agent: *\nCrawl-delay: 10", "bot", 0},
		{"groups count together", "User-agent: bot\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\nUser-agent: bot\nCrawl-delay: 4", "bot", 4},
		{"before any group", "Crawl-delay: 9\nUser-agent: *\nDisallow:", "bot", 0},
		{"after a line that is none", "Disallow: /\n<html>\nUser-agent: *\nCrawl-delay: 2", "bot", 2},
		{"nonsense", "User-agent: *\nCrawl-delay: soon\nCrawl-delay: -4\nCrawl-delay: NaN", "bot", 0},
		{"a byte order mark", "\ufeffUser-agent: *\nCrawl-delay: 2", "bot", 2},
		{"beyond what counts", strings.Repeat("# x\n", robots.MaxText/4) + "User-agent: *\nCrawl-delay: 2", "bot", 0},
	} {
		if got := robots.Delay([]byte(c.text), c.agent); got != time.Duration(c.seconds*float64(time.Second)) {
			t.Errorf("%s: %v, want %v seconds", c.name, got, c.seconds)
		}
	}
	if got := robots.Delay([]byte("User-agent: *\nCrawl-delay: 1e300"), "bot"); got < 365*24*time.Hour {
		t.Errorf("a delay beyond all measure is %v", got)
	}
}

func open(t *testing.T, name string, damage bool) *robots.Store {
	t.Helper()
	s, damaged, err := robots.Open(name, false)
	if err != nil || (damaged != nil) != damage {
		t.Fatal(damaged, err)
	}
	return s
}

// TestStore compares a store with a map, over restarts.
func TestStore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "robots")
	s := open(t, name, false)
	want := map[[2]string]robots.File{}
	rng := rand.New(rand.NewPCG(1, 2))
	now := int64(1000)
	if until, err := s.Expiries(now, [][2]string{{"a", "b"}}); until != nil || err != nil {
		t.Fatal(until, err)
	}
	var cursor []byte
	for range 300 {
		now += rng.Int64N(20)
		key, host := fmt.Sprint("k", rng.IntN(5)), fmt.Sprint("h", rng.IntN(6))
		at := [2]string{key, host}
		switch rng.IntN(6) {
		case 0:
			text := bytes.Repeat([]byte(fmt.Sprintln("Disallow: /", rng.IntN(100))), 1+rng.IntN(50)*rng.IntN(800))
			f := robots.File{Host: host, Text: text, Expires: now + rng.Int64N(400), Delay: time.Duration(rng.IntN(50)) * time.Millisecond}
			before, err := s.Put(key, f)
			if old, ok := want[at]; err != nil || ok && old.Expires > now && before != old.Delay {
				t.Fatal(before, old, err)
			}
			f.Text = f.Text[:min(len(f.Text), robots.MaxText)]
			want[at] = f
		case 1:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, name, false)
		case 2:
			var err error
			if cursor, err = s.Forget(now, cursor, 3); err != nil {
				t.Fatal(err)
			}
		case 3:
			var got, live []string
			err := s.Files(key, now, func(f robots.File) bool {
				got = append(got, fmt.Sprint(f.Host, f.Expires, f.Delay))
				return true
			})
			for k, f := range want {
				if k[0] == key && f.Expires > now {
					live = append(live, fmt.Sprint(f.Host, f.Expires, f.Delay))
				}
			}
			slices.Sort(live)
			if err != nil || !slices.Equal(got, live) {
				t.Fatal(got, live, err)
			}
		default:
			f, ok, err := s.Get(key, host, now)
			w, known := want[at]
			known = known && w.Expires > now
			if err != nil || ok != known || ok && (!bytes.Equal(f.Text, w.Text) || f.Expires != w.Expires || f.Delay != w.Delay) {
				t.Fatal(at, ok, known, err)
			}
			until, err := s.Expiries(now, [][2]string{at})
			if err != nil || until != nil && (until[0] > 0) != known || known && until[0] != w.Expires {
				t.Fatal(until, known, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What is damaged is replaced: it is only a cache.
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 10_000), 0o666); err != nil {
		t.Fatal(err)
	}
	s = open(t, name, true)
	if _, ok, err := s.Get("k1", "h1", 0); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
