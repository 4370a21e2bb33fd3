package api

// Answers are compressed: which encoding a client prefers, and encoders for it.

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// encoder compresses one answer at a time.
type encoder interface {
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

// newCoding returns an encoder that writes to w. Free takes it back.
func newCoding(name string, w io.Writer) encoder {
	e := pools[name].Get().(encoder)
	e.Reset(w)
	return e
}

// freeEncoder takes back an encoder of New.
func freeEncoder(name string, e encoder) {
	e.Reset(nil)
	pools[name].Put(e)
}

// chooseCoding chooses the encoding of an answer by the Accept-Encoding of its request: "zstd",
// "gzip", or "" for none.
func chooseCoding(accept []string) string {
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
