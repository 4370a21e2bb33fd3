package api

import (
	"context"
	"net/http"
	"time"
)

const (
	// streamPiece is how much of a stream is gathered before it is sent, in bytes.
	streamPiece = 64 << 10
	// streamPatience is how long a client may take to receive a piece.
	streamPatience = time.Minute
)

// stream is an answer that is sent while it is made. Its memory does not grow with its length. An
// error after its first byte cuts the connection, so that no client takes the part for the whole.
type stream struct {
	r       *request
	buf     []byte
	control *http.ResponseController
	sent    int64
	err     error // the first failure to send
}

// streamed begins an answer that is sent while it is made. The handler writes it and returns. An
// error that it returns before the first byte is sent is a problem document like any other.
func (h *handler) streamed(r *request, contentType string) *stream {
	r.header.Set("Content-Type", contentType)
	return &stream{r: r, buf: make([]byte, 0, streamPiece), control: http.NewResponseController(r.w)}
}

// Write implements io.Writer. It fails when the client has gone.
func (s *stream) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	if len(s.buf) >= streamPiece {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *stream) flush() error {
	if s.err != nil {
		return s.err
	}
	if s.r.stream == nil {
		s.r.stream = s
		s.r.w.WriteHeader(s.r.status)
	}
	// A writer without deadlines is no connection of a server, such as that of a test.
	_ = s.control.SetWriteDeadline(time.Now().Add(streamPatience))
	n, err := s.r.w.Write(s.buf)
	s.sent += int64(n)
	s.buf = s.buf[:0]
	if err != nil { // the client is the only one who can cause this
		s.err = context.Canceled
	}
	return s.err
}

// end sends what is left of a complete answer.
func (s *stream) end() error { return s.flush() }
