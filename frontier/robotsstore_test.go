package frontier

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/robots"
)

func openStore(t *testing.T, name string, damage bool) *robotsStore {
	t.Helper()
	s, damaged, err := openRobotsStore(name, false)
	if err != nil || (damaged != nil) != damage {
		t.Fatal(damaged, err)
	}
	return s
}

// TestRobotsStore compares a store with a map, over restarts.
func TestRobotsStore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "robots")
	s := openStore(t, name, false)
	want := map[[2]string]robotsEntry{}
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
			f := robotsEntry{Host: host, Text: text, Expires: now + rng.Int64N(400), Delay: time.Duration(rng.IntN(50)) * time.Millisecond}
			before, ok, err := s.Head(key, host, now)
			if old := want[at]; err != nil || ok != (old.Expires > now) || ok && (before.Delay != old.Delay || before.Expires != old.Expires) {
				t.Fatal(before, old, err)
			}
			if err := s.Put(key, f); err != nil {
				t.Fatal(err)
			}
			f.Text = f.Text[:min(len(f.Text), robots.MaxText)]
			want[at] = f
		case 1:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, name, false)
		case 2:
			var err error
			if cursor, err = s.Forget(now, cursor, 3); err != nil {
				t.Fatal(err)
			}
		case 3:
			var got, live []string
			err := s.Files(key, now, func(f robotsEntry) bool {
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
	s = openStore(t, name, true)
	if _, ok, err := s.Get("k1", "h1", 0); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamage overwrites bytes anywhere in a store. Whatever is done with it then, nothing panics,
// no text is wrong, and there is a store again at the latest when it is opened the second time, or
// when what is damaged is replaced.
func TestDamage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "robots")
	s := openStore(t, name, false)
	text := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintln("Disallow: /", i, i*7919)), 1+i%40) }
	for i := range 60 {
		if err := s.Put("k", robotsEntry{Host: fmt.Sprint("h", i), Text: text(i), Expires: 100}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for at := 0; at+8 < len(whole); at += 1 + len(whole)/150 {
		damaged := bytes.Clone(whole)
		copy(damaged[at:], "\xff\x00\xfe\x01\xfd\x02\xfc\x03")
		copied := filepath.Join(t.TempDir(), "robots")
		if err := os.WriteFile(copied, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		s, replaced, err := openRobotsStore(copied, false)
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		for i := range 60 {
			f, ok, err := s.Get("k", fmt.Sprint("h", i), 1)
			if ok && !bytes.Equal(f.Text, text(i)) {
				t.Errorf("byte %d: the text of host %d is wrong", at, i)
			}
			if !ok || err != nil {
				noticed++
			}
		}
		_, _ = s.Expiries(1, [][2]string{{"k", "h1"}})
		_ = s.Files("k", 1, func(robotsEntry) bool { return true })
		_, _ = s.Forget(200, nil, 1000)
		_ = s.Put("k", robotsEntry{Host: "h1", Text: text(1), Expires: 100})
		if err := s.Close(); err != nil && replaced != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	if noticed == 0 {
		t.Error("no damage was noticed")
	}
}
