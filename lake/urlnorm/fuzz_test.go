package urlnorm

import (
	"sync"
	"testing"
)

// normalizers hands out one Normalizer per goroutine, with what earlier inputs left in its
// buffers: what changed an answer would show.
var normalizers = sync.Pool{New: func() any {
	n, err := New(Options{})
	if err != nil {
		panic(err)
	}
	return n
}}

func FuzzParse(f *testing.F) {
	for _, l := range readTable(f) {
		f.Add(l.input)
	}
	for _, s := range sharedInputs(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) { checkInvariants(t, raw) })
}
