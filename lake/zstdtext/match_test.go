package zstdtext

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
)

// parseSlowly is parse without assembly.
func (f *finder) parseSlowly(text []byte, from int) []match {
	fast := hasAVX2
	hasAVX2 = false
	defer func() { hasAVX2 = fast }()
	return f.parse(text, from)
}

// compare parses a text, block by block, with and without assembly.
func compare(t *testing.T, fast, slow *finder, text []byte) {
	t.Helper()
	fast.reset()
	slow.reset()
	for from := 0; from < len(text); from += codec.MaxRawBlock {
		block := text[:min(len(text), from+codec.MaxRawBlock)]
		got, want := slices.Clone(fast.parse(block, from)), slow.parseSlowly(block, from)
		if !slices.Equal(got, want) {
			t.Fatalf("matches from %d of %d on (-without assembly, +with):\n%s", from, len(text), cmp.Diff(want, got, cmp.AllowUnexported(match{})))
		}
	}
}

func TestAssemblyFindsTheSame(t *testing.T) {
	if !hasAVX2 {
		return // there is no assembly for this machine
	}
	var fast, slow finder
	for _, text := range texts() {
		compare(t, &fast, &slow, text)
	}
	_, paths := sitemaps(t)
	for _, p := range pages(paths, pageRows) {
		compare(t, &fast, &slow, p.text)
	}
}

func FuzzAssembly(f *testing.F) {
	f.Add([]byte("/a/b/c/index.html"), uint16(1))
	f.Add(words(1, 3000), uint16(3))
	f.Add(words(2, 500), uint16(700))
	f.Add(random(3, 300, 256), uint16(1500))
	f.Add(random(4, 5000, 2), uint16(2))
	var fast, slow finder
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		compare(t, &fast, &slow, varied(text, int(times)))
	})
}
