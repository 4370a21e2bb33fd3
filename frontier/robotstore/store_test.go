package robotstore_test

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
	"github.com/urlake/urlake/frontier/robotstore"
)

func open(t *testing.T, name string, damage bool) *robotstore.Store {
	t.Helper()
	s, damaged, err := robotstore.Open(name, false)
	if err != nil || (damaged != nil) != damage {
		t.Fatal(damaged, err)
	}
	return s
}

// TestStore compares a store with a map, over restarts.
func TestStore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "robots")
	s := open(t, name, false)
	want := map[[2]string]robotstore.File{}
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
			f := robotstore.File{Host: host, Text: text, Expires: now + rng.Int64N(400), Delay: time.Duration(rng.IntN(50)) * time.Millisecond}
			before, ok, err := s.Head(key, host, now)
			if old := want[at]; err != nil || ok != (old.Expires > now) || ok && (before.Delay != old.Delay || before.Expires != old.Expires) {
				t.Fatal(before, old, err)
			}
			if err := s.Put(key, f); err != nil {
				t.Fatal(err)
			}
			f.Text = f.Text[:min(len(f.Text), robots.MaxBytes)]
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
			err := s.Files(key, now, func(f robotstore.File) bool {
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
