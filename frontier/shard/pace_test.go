package shard

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPacer says after which work there is a rest, and how long it is.
func TestPacer(t *testing.T) {
	for _, c := range []struct {
		name  string
		times int
		took  time.Duration
		want  time.Duration
	}{
		{"nobody else wants the processor", 0, time.Second, 0},
		{"a short piece", 3, piece - 1, 0},
		{"a piece", 3, piece, 3 * piece},
		{"a long piece", 5, 10 * time.Millisecond, 50 * time.Millisecond},
		{"a piece that was stuck", 3, time.Hour, longestRest},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			list := []int{2, 1}
			p := newPace(func() int { return c.times })
			for name, work := range map[string]func(){
				"look": p.Look,
				"steps": func() {
					for range stepsAtOnce {
						p.Step()
					}
				},
				"write": func() {
					if n, err := p.Writer(&out).Write([]byte("text")); n != 4 || err != nil {
						t.Error(n, err)
					}
				},
				"sort": func() {
					p.steps = stepsAtOnce - 1
					slices.SortFunc(list, compare(p, func(a, b int) int { return a - b }))
				},
			} {
				p.began, p.steps = time.Now().Add(-c.took), 0
				before := time.Now()
				work()
				if got := time.Since(before); got != c.want {
					t.Errorf("%s, %s: a rest of %v, want %v", c.name, name, got, c.want)
				}
				before = time.Now()
				p.Look()
				if time.Since(before) != 0 {
					t.Errorf("%s, %s: a second rest at once", c.name, name)
				}
			}
			if out.String() != "text" || !slices.IsSorted(list) {
				t.Errorf("%s: wrote %q, sorted %v", c.name, &out, list)
			}
		})
	}
}

// TestWriterRestsBetweenParts says that a large write has rests in it.
func TestWriterRestsBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(func() int { return 3 })
		slow := writerFunc(func(b []byte) (int, error) {
			p.began = p.began.Add(-time.Millisecond) // it takes so long
			return len(b), nil
		})
		before := time.Now()
		if n, err := p.Writer(slow).Write(make([]byte, 2*writeAtOnce+1)); n != 2*writeAtOnce+1 || err != nil {
			t.Fatal(n, err)
		}
		if got := time.Since(before); got != 3*3*time.Millisecond {
			t.Errorf("rests of %v after three parts of a millisecond", got)
		}
	})
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestNilPacer has no rests.
func TestNilPacer(t *testing.T) {
	p := newPace(nil)
	p.Look()
	p.Step()
	if n, err := p.Writer(&bytes.Buffer{}).Write([]byte("text")); n != 4 || err != nil {
		t.Error(n, err)
	}
}
