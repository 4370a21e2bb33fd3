package urlnorm

import (
	"sync"
	"testing"
)

// newNormalizer returns a Normalizer with default options and the list of the program.
func newNormalizer() *Normalizer {
	n, err := New(BuiltinSuffixes(), Options{})
	if err != nil {
		panic(err)
	}
	return n
}

// normalizers hands out one Normalizer per goroutine, with what earlier inputs left in its buffers,
// so that a dependency on them would show.
var normalizers = sync.Pool{New: func() any { return newNormalizer() }}

func FuzzParse(f *testing.F) {
	for _, l := range readTable(f) {
		f.Add(l.input)
	}
	for _, s := range sharedInputs(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) { checkInvariants(t, raw) })
}

// A Normalizer recognizes the start of the preceding input.
func FuzzParseAfterSameStart(f *testing.F) {
	for _, start := range []string{"http://example.com/", "https://example.com", "example.co", "t.co/", "http://example.com:8", "http://1.2.3.4/"} {
		for _, end := range []string{"", "a", "/a//b?z&a", ".", "0/"} {
			f.Add(start, "/abcdef", end)
		}
	}
	f.Fuzz(func(t *testing.T, start, a, b string) {
		n := normalizers.Get().(*Normalizer)
		defer normalizers.Put(n)
		n.Parse([]byte(start + a))
		got, err := n.Parse([]byte(start + b))
		if want, wantErr := Parse(BuiltinSuffixes(), start+b); got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("%q after %q is %+v, %v, want %+v, %v", start+b, start+a, got, err, want, wantErr)
		}
	})
}
