package api

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compressFrom is the size of the smallest document that is compressed, in bytes. Smaller ones fit
// into one packet anyway.
const compressFrom = 1 << 10

// encoder compresses one answer at a time.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// encoders are those that no request uses, by encoding. Fast levels: a page of URLs shrinks to a
// fifth by them, and better levels take longer than finding the page.
var encoders = map[string]*sync.Pool{
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

// encoding chooses the encoding of an answer by the Accept-Encoding of its request: "zstd", "gzip",
// or "" for none.
func encoding(accept []string) string {
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

// compressPiece is how much is compressed between two chances for other requests, in bytes.
const compressPiece = 16 << 10

// compress returns the document in an encoding. It waits for the request's turn, whether anybody
// still waits for the answer or not: a turn does not last for long.
func (r *request) compress(name string) []byte {
	ctx := context.WithoutCancel(r.ctx)
	body := r.doc.buf
	packed := growing{make([]byte, 0, len(body)/4)}
	e := encoders[name].Get().(encoder)
	e.Reset(&packed)
	err := r.turn.Take(ctx)
	for err == nil && len(body) > 0 {
		n := min(len(body), compressPiece)
		if _, err = e.Write(body[:n]); err == nil && len(body) > n {
			err = r.turn.Yield(ctx)
		}
		body = body[n:]
	}
	if err == nil {
		err = e.Close()
	}
	r.turn.Give()
	if err != nil {
		panic(err) // memory takes everything, and the context does not end
	}
	e.Reset(nil)
	encoders[name].Put(e)
	return packed.data
}

// growing is a writer to memory.
type growing struct{ data []byte }

// Write implements io.Writer.
func (g *growing) Write(p []byte) (int, error) {
	g.data = append(g.data, p...)
	return len(p), nil
}
