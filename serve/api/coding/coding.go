// Package coding compresses answers: which encoding a client prefers, and encoders for it.
package coding

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Encoder compresses one answer at a time.
type Encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// pools are the encoders that no answer uses, by encoding. Fast levels: a page of URLs shrinks to a
// fifth by them, and better levels take longer than finding the page.
var pools = map[string]*sync.Pool{
	"gzip": {New: func() any {
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is valid
		}
		return w
	}},
	"zstd": {New: func() any {
		// A small window keeps the memory of an encoder below a megabyte, and repeated hosts are
		// near.
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are valid
		}
		return w
	}},
}

// New returns an encoder that writes to w. Free takes it back.
func New(name string, w io.Writer) Encoder {
	e := pools[name].Get().(Encoder)
	e.Reset(w)
	return e
}

// Free takes back an encoder of New.
func Free(name string, e Encoder) {
	e.Reset(nil)
	pools[name].Put(e)
}

// Choose chooses the encoding of an answer by the Accept-Encoding of its request: "zstd", "gzip",
// or "" for none.
func Choose(accept []string) string {
	if len(accept) == 0 {
		return ""
	}
	quality := map[string]float64{}
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			q := 1.0
			if text, ok := strings.CutPrefix(strings.TrimSpace(parameters), "q="); ok {
				var err error
				if q, err = strconv.ParseFloat(text, 64); err != nil {
					q = 0
				}
			}
			quality[strings.ToLower(strings.TrimSpace(name))] = q
		}
	}
	of := func(name string) float64 {
		if q, ok := quality[name]; ok {
			return q
		}
		return quality["*"]
	}
	best, q := "", 0.0
	for _, name := range []string{"zstd", "gzip"} {
		if of(name) > q {
			best, q = name, of(name)
		}
	}
	if q < quality["identity"] {
		return ""
	}
	return best
}
