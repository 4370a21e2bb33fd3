package api

import (
	"errors"
	"net/http"
)

// streamPiece is how much of a stream is gathered before it is sent, in bytes. It is also how much
// is made between two turns of others.
const streamPiece = 64 << 10

// errHeadOnly ends the writing of a stream that nobody asked to see: the request is HEAD.
var errHeadOnly = errors.New("the request wants no body")

// stream is an answer that is sent while it is made, compressed if the client wants that. Its
// memory does not grow with its length. An error after its first byte cuts the connection, so that
// no client takes the part for the whole. While a client lets it wait, it gives its slot at the
// gate to others.
type stream struct {
	r       *request
	pace    pace
	buf     []byte
	begun   bool    // the headers are sent
	name    string  // of the encoding, or ""
	encoder encoder // nil if the stream is not compressed, or has not begun
	err     error   // the first failure
}

// streamed begins an answer that is sent while it is made. The handler writes it and returns, with
// the error of a write if there was one. An error before the headers are sent is a problem document
// like any other.
func (h *handler) streamed(r *request, contentType string) *stream {
	r.header["Content-Type"] = []string{contentType}
	r.stream = &stream{
		r: r, buf: make([]byte, 0, streamPiece), name: encoding(r.Header["Accept-Encoding"]),
		pace: h.pace(r.w, true),
	}
	if r.Method == http.MethodHead {
		r.stream.err = errHeadOnly
	}
	return r.stream
}

// Write implements io.Writer. It fails when the client has gone or receives too slowly, and for a
// HEAD request.
func (s *stream) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.buf = append(s.buf, p...)
	if len(s.buf) >= streamPiece {
		if s.begin(); s.pass() != nil {
			return 0, s.err
		}
	}
	return len(p), nil
}

// Flush sends what was written so far.
func (s *stream) Flush() error {
	if s.err != nil {
		return s.err
	}
	s.begin()
	if s.pass() == nil && s.encoder != nil {
		s.err = s.encoder.Flush()
	}
	if s.err == nil {
		s.err = s.pace.control.Flush()
	}
	return s.err
}

// pass hands what was gathered to the encoder or to the connection.
func (s *stream) pass() error {
	if s.encoder != nil {
		_, s.err = s.encoder.Write(s.buf)
	} else {
		_, s.err = connection{s}.Write(s.buf)
	}
	s.buf = s.buf[:0]
	return s.err
}

// begin sends the headers, once.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	r := s.r
	r.caching()
	if s.name != "" {
		r.header["Content-Encoding"] = []string{s.name}
		s.encoder = encoders[s.name].Get().(encoder)
		s.encoder.Reset(connection{s})
	}
	if r.etag != "" {
		r.header["Etag"] = []string{r.tag()}
	}
	r.w.WriteHeader(r.status)
}

// finish sends the rest if the handler has had no error, and returns how much was sent in all and
// why not everything was.
func (s *stream) finish(err error) (int64, error) {
	if errors.Is(err, errHeadOnly) {
		s.begin()
		return 0, nil
	}
	if err == nil && !s.begun && len(s.buf) < compressFrom {
		s.name = ""
	}
	if err == nil {
		err = s.err
	}
	if err == nil {
		s.begin()
		err = s.pass()
	}
	if s.encoder != nil {
		if err == nil {
			err = s.encoder.Close()
		}
		s.encoder.Reset(nil)
		encoders[s.name].Put(s.encoder)
	}
	return s.pace.sent, err
}

// connection is where a stream is sent.
type connection struct{ *stream }

// Write implements io.Writer.
func (c connection) Write(p []byte) (int, error) {
	if t := c.r.ticket; t != nil {
		t.pause()
	}
	n, err := c.pace.write(c.r.w, p)
	if t := c.r.ticket; t != nil && err == nil {
		err = t.resume(c.r.Context())
	}
	return n, err
}
