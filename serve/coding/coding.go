// Package coding compresses answers of HTTP: it chooses the encoding that a request accepts, and
// has the encoders.
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

// Get returns an encoder for an encoding that Of has returned.
func Get(name string) Encoder { return encoders[name].Get().(Encoder) }

// Put gives an encoder back that is not used any more.
func Put(name string, e Encoder) {
	e.Reset(nil)
	encoders[name].Put(e)
}

// Of chooses the encoding of an answer by the Accept-Encoding of its request: "zstd", "gzip",
// or "" for none.
func Of(accept []string) string {
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

// piece is how much is compressed between two chances for other requests, in bytes.
const piece = 16 << 10

// Compress returns a document in an encoding. It calls yield between two pieces; its errors are the
// only ones.
func Compress(name string, body []byte, yield func() error) ([]byte, error) {
	packed := growing{make([]byte, 0, len(body)/4)}
	e := Get(name)
	defer Put(name, e)
	e.Reset(&packed)
	for len(body) > 0 {
		n := min(len(body), piece)
		if _, err := e.Write(body[:n]); err != nil {
			return nil, err
		}
		if body = body[n:]; len(body) > 0 {
			if err := yield(); err != nil {
				return nil, err
			}
		}
	}
	err := e.Close()
	return packed.data, err
}

// growing is a writer to memory.
type growing struct{ data []byte }

// Write implements io.Writer.
func (g *growing) Write(p []byte) (int, error) {
	g.data = append(g.data, p...)
	return len(p), nil
}
