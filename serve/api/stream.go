package api

import (
	"errors"
	"net/http"
	"strconv"
)

const (
	// streamPiece is how much of a stream is written at once, in bytes. It is also how much is made
	// between two turns of others.
	streamPiece = 64 << 10

	// The trailers of a stream: the number of rows, and the cursor of what follows them.
	rowsTrailer   = "Urlake-Rows"
	cursorTrailer = "Urlake-Next-Cursor"
)

// stream is an answer whose length is not known when its header is sent. It is compressed if the
// client wants that. While a client lets it wait, it gives its slot at the gate to others.
type stream struct {
	r       *request
	cursor  string  // of what follows the rows, "" if nothing does
	encoder encoder // nil if it is not compressed
	coding  string  // of the encoder
}

// begin sends the header of a stream. A client has to notice when one is cut, so HTTP/1.0, which
// ends an answer by closing the connection, has none.
func (h *handler) begin(r *request, contentType string) (*stream, error) {
	if !r.ProtoAtLeast(1, 1) {
		return nil, newProblem(http.StatusHTTPVersionNotSupported, "bad-request", "Malformed request",
			"HTTP/1.0 cannot tell a stream that was cut from a whole one; use HTTP/1.1, or format=json")
	}
	s := &stream{r: r}
	h.moving(r)
	r.header.Set("Content-Type", contentType)
	r.header.Set("Trailer", rowsTrailer+", "+cursorTrailer)
	r.caching()
	if !r.stored {
		r.vary("Accept-Encoding")
	}
	if s.coding = r.coding; s.coding != "" && r.Method != http.MethodHead {
		r.set("Content-Encoding", s.coding)
		s.encoder = newCoding(s.coding, connection{s})
	}
	if r.etag != "" {
		r.set("Etag", r.tag())
	}
	r.stream = s
	r.step("stream")
	r.w.WriteHeader(http.StatusOK)
	return s, nil
}

// writeAll sends text in pieces.
func (s *stream) writeAll(text []byte) error {
	for len(text) > 0 {
		n := min(len(text), streamPiece)
		if err := s.write(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// write sends a piece. An error means that the client has gone or does not read.
func (s *stream) write(piece []byte) error {
	if s.encoder != nil {
		_, err := s.encoder.Write(piece)
		return err
	}
	_, err := connection{s}.Write(piece)
	return err
}

// end sends the rest, and the trailers after it.
func (s *stream) end(rest []byte, rows int64) error {
	h := s.r.header
	h.Set(rowsTrailer, strconv.FormatInt(rows, 10))
	if s.cursor != "" {
		h.Set(cursorTrailer, s.cursor)
	}
	if err := s.writeAll(rest); err != nil || s.encoder == nil {
		return err
	}
	return s.encoder.Close()
}

// release gives the encoder back.
func (s *stream) release() {
	if s.encoder != nil {
		freeEncoder(s.coding, s.encoder)
		s.encoder = nil
	}
}

// errClientGone is the error of a stream that its client does not read.
var errClientGone = newProblem(statusClientGone, "client-gone", "The client has gone", "")

// connection is where a stream is sent.
type connection struct{ *stream }

// Write implements io.Writer.
func (c connection) Write(p []byte) (int, error) {
	had := c.r.turn.Has()
	c.r.turn.Give()
	if t := c.r.ticket; t != nil {
		t.pause()
	}
	x := c.r.transfer
	if err := x.WriteAll(p, x.WriteFlushed, nil); err != nil {
		return 0, errors.Join(errClientGone, err)
	}
	if t := c.r.ticket; t != nil {
		if err := t.resume(c.r.Context()); err != nil {
			return len(p), err
		}
	}
	if had {
		if err := c.r.turn.Take(c.r.Context()); err != nil {
			return len(p), err
		}
	}
	return len(p), nil
}
