package zstdtext

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/lake/seekable"
)

// compare parses a text, block by block, without assembly, with AVX2 and with AVX-512, and compares
// the matches.
func compare(t *testing.T, finders *[3]finder, text []byte) {
	t.Helper()
	avx2, avx512 := hasAVX2, hasAVX512
	defer func() { hasAVX2, hasAVX512 = avx2, avx512 }()
	for i := range finders {
		finders[i].reset()
	}
	for from := 0; from < len(text); from += seekable.MaxRawBlock {
		block := text[:min(len(text), from+seekable.MaxRawBlock)]
		var want []match
		for i := range finders {
			hasAVX2, hasAVX512 = avx2 && i > 0, avx512 && i > 1
			got := finders[i].parse(block, from)
			if i == 0 {
				want = got
			} else if !slices.Equal(got, want) {
				t.Fatalf("AVX-512 %t: matches from %d of %d on (-without assembly, +with):\n%s",
					hasAVX512, from, len(text), cmp.Diff(want, got, cmp.AllowUnexported(match{})))
			}
		}
	}
}

func TestAssemblyFindsMatches(t *testing.T) {
	var finders [3]finder
	for _, text := range texts() {
		compare(t, &finders, text)
	}
	_, paths := sitemaps(t)
	for _, p := range pages(paths, pageRows) {
		compare(t, &finders, p.text)
	}
}

func FuzzMatches(f *testing.F) {
	f.Add([]byte("/a/b/c/index.html"), uint16(1))
	f.Add(words(1, 3000), uint16(3))
	f.Add(words(2, 500), uint16(700))
	f.Add(random(3, 300, 256), uint16(1500))
	f.Add(random(4, 5000, 2), uint16(2))
	var finders [3]finder
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		compare(t, &finders, varied(text, int(times)))
	})
}
