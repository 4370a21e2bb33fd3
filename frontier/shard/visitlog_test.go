package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// TestReadEqualsList adds visits, some with earlier times than those before, opens the files with
// fewer than were written, and reads from times and numbers: all has to be as in a list.
func TestReadEqualsList(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 7))
	var all []visit
	var times []int64 // those of the index, which never decrease
	now := int64(1000)
	for range 20 {
		l, err := openVisitLog(dir, int64(len(all)))
		if err != nil {
			t.Fatal(err)
		}
		if l.Count() != int64(len(all)) || len(all) > 0 && l.Last() != times[len(times)-1] {
			t.Fatalf("%d visits, the last one at %d; want %d, %v", l.Count(), l.Last(), len(all), times)
		}
		for range rng.IntN(30) {
			now += int64(rng.IntN(3))
			v := visit{
				Time: now - int64(rng.IntN(2)*rng.IntN(500)), Queue: "c\x00a.example", URL: fmt.Sprintf("https://a.example/%d", rng.IntN(99)),
				Status: uint16(rng.IntN(600)), Error: []string{"", "timeout"}[rng.IntN(2)], Content: "x", Redirect: "y", Depth: rng.Uint32(),
			}
			l.Add(&v)
			all, times = append(all, v), append(times, max(v.Time, slices.Max(append(times, 0))))
		}
		for range 10 {
			since, from := now-int64(rng.IntN(100)), int64(rng.IntN(len(all)+1))
			first := from
			for first < int64(len(all)) && times[first] < since {
				first++
			}
			var got []visit
			next, err := l.Read(since, from, l.Count(), func(_ int64, v visit) bool {
				got = append(got, v)
				return true
			})
			if err != nil || next != int64(len(all)) || !slices.Equal(got, all[first:]) {
				t.Fatalf("since %d, from %d: %d visits, next %d, %v; want %d", since, from, len(got), next, err, len(all[first:]))
			}
		}
		if _, err := l.Read(0, l.Count()+1, l.Count(), nil); !errors.Is(err, errPosition) {
			t.Fatalf("a position that no visit has: %v", err)
		}
		if err := errors.Join(l.Flush(), l.Close()); err != nil {
			t.Fatal(err)
		}
		kept := len(all) - min(len(all), rng.IntN(5)) // the others came after a checkpoint
		all, times = all[:kept:kept], times[:kept:kept]
	}
	if len(all) < 50 {
		t.Fatalf("%d visits", len(all))
	}
}

// TestDamageIsNamed flips a bit of each file: whoever reads gets an error that names it.
func TestDamageIsNamed(t *testing.T) {
	for _, name := range []string{name, indexName} {
		dir := t.TempDir()
		l, err := openVisitLog(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Add(&visit{Time: 1, URL: "https://a.example/"})
		l.Add(&visit{Time: 2, URL: "https://b.example/"})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[headerSize+2] ^= 1
		if err := os.WriteFile(file, b, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = l.Read(0, 0, 2, func(int64, visit) bool { return true })
		var corrupt *codec.CorruptError
		if !errors.As(err, &corrupt) || corrupt.File != file {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
