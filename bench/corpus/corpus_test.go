package corpus

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func generate(t *testing.T, opt Options, parallel int) []byte {
	t.Helper()
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := c.WriteDir(dir, parallel); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range opt.Datasets {
		list, err := os.ReadFile(filepath.Join(dir, Name(i+1)))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(list, []byte("\n")); int64(n) != c.Rows(i+1) {
			t.Errorf("list %d has %d lines, want %d", i+1, n, c.Rows(i+1))
		}
		all = append(all, list...)
	}
	return all
}

func TestSameSeedSameLists(t *testing.T) {
	opt := Options{Seed: 7, Rows: 20_000, Datasets: 5}
	one := generate(t, opt, 1)
	if !bytes.Equal(one, generate(t, opt, 4)) {
		t.Error("four parallel writers generate other lists than one")
	}
	opt.Seed++
	if bytes.Equal(one, generate(t, opt, 4)) {
		t.Error("another seed generates the same lists")
	}
}

// TestShapeIsThatOfTheCollections compares generated lists with the figures that the generator is
// fitted to.
func TestShapeIsThatOfTheCollections(t *testing.T) {
	s, err := Measure(bytes.NewReader(generate(t, Options{Seed: 1, Rows: 400_000, Datasets: 8}, 2)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                 string
		got, want, tolerance float64
	}{
		{"rejected", float64(s.Rejected), 0, 0},
		{"zipf", s.Zipf, 0.9, 0.1},
		{"hosts a domain", float64(s.Hosts) / float64(s.Domains), 1.36, 0.15},
		{"bare", s.Bare, 0.195, 0.05},
		{"www", s.WWW, 0.407, 0.07},
		{"https", s.HTTPS, 0.798, 0.04},
		{"mean length", s.Mean, 69, 5},
		{"median length", float64(s.Length[1]), 57, 4},
		{"one segment", s.Depth[1], 0.245, 0.03},
		{"two segments", s.Depth[2], 0.281, 0.03},
		{"slash", s.Slash, 0.329, 0.03},
		{"extension", s.Ext, 0.351, 0.05},
		{"query", s.Query, 0.086, 0.015},
		{"one parameter", s.Params[0], 0.572, 0.03},
		{"one word", s.Words[0], 0.445, 0.04},
		{"last segment", s.Segment[0], 24.4, 2.5},
		{"other segments", s.Segment[1], 7.7, 1},
	} {
		if math.Abs(c.got-c.want) > c.tolerance {
			t.Errorf("%s is %.3f, want %.3f ± %.3f", c.name, c.got, c.want, c.tolerance)
		}
	}
}

func TestMeasureOfFewURLs(t *testing.T) {
	s, err := Measure(bytes.NewReader([]byte("http://a.com/\nnonsense\nhttps://www.a.com/x/y.html?b=1&a=2\nhttps://www.a.com/2020/some-page/")))
	if err != nil {
		t.Fatal(err)
	}
	if s.URLs != 3 || s.Rejected != 1 || s.Hosts != 2 || s.Domains != 1 || s.Repeats != 1.0/3 {
		t.Errorf("%+v", s)
	}
	if s.Depth[0] != 1.0/3 || s.Depth[2] != 2.0/3 || s.Slash != 0.5 || s.Ext != 0.5 || s.Dated != 0.5 || s.Params[1] != 1 || s.Words[1] != 0.5 {
		t.Errorf("%+v", s)
	}
}

func TestEmptyListsAreRejected(t *testing.T) {
	for _, opt := range []Options{{Rows: 1}, {Datasets: 1}, {Rows: 3, Datasets: 4}} {
		if _, err := New(opt); err == nil {
			t.Errorf("%+v is accepted", opt)
		}
	}
}
