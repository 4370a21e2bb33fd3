package zstdtext

import (
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/seekable"
)

func TestOtherDecodersReadSections(t *testing.T) {
	dec := newDecoder(t)
	var e Encoder
	for _, a := range []int{0, 1, minSectionText - 1, minSectionText, 3000, seekable.MaxRawBlock + 5} {
		for _, b := range []int{0, minSectionText, 4000} {
			for _, n := range []int{0, 1, minSectionText - 1, minSectionText, 5000, 2*seekable.MaxRawBlock + 7} {
				for _, letters := range []int{1, 3, 256} {
					lengths, more, text := random(30, a, letters), random(31, b, letters), words(32, n)
					frame := e.AppendSections([]byte("before"), text, lengths, more)
					check(t, dec, frame[len("before"):], slices.Concat(lengths, more), text)
					if t.Failed() {
						t.Fatalf("%d, %d and %d bytes of %d letters", a, b, n, letters)
					}
				}
			}
		}
	}
}
