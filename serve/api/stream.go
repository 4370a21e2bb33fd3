package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

const (
	// streamPiece is how much of a stream is written at once, in bytes.
	streamPiece = 64 << 10
	// pieceTimeout is how long a client may take to receive a piece. A client that goes on reading
	// may take any time for the whole.
	pieceTimeout = time.Minute

	// The trailers of a stream: the number of rows, and the cursor of what follows them.
	rowsTrailer   = "Urlake-Rows"
	cursorTrailer = "Urlake-Next-Cursor"
)

// stream is an answer whose length is not known when its header is sent.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	bytes   int64
	cursor  string // of what follows the rows, "" if nothing does
}

// begin sends the header of a stream. A client has to notice when one is cut, so HTTP/1.0, which
// ends an answer by closing the connection, has none.
func (r *request) begin(contentType string) (*stream, error) {
	if !r.ProtoAtLeast(1, 1) {
		return nil, newProblem(http.StatusHTTPVersionNotSupported, "bad-request", "Malformed request",
			"HTTP/1.0 cannot tell a stream that was cut from a whole one; use HTTP/1.1, or format=json")
	}
	r.header.Set("Content-Type", contentType)
	r.header.Set("Trailer", rowsTrailer+", "+cursorTrailer)
	r.stream = &stream{w: r.w, control: http.NewResponseController(r.w)}
	r.w.WriteHeader(http.StatusOK)
	return r.stream, nil
}

// write sends a piece. An error means that the client has gone or does not read.
func (s *stream) write(piece []byte) error {
	err := s.control.SetWriteDeadline(time.Now().Add(pieceTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(errClientGone, err)
	}
	n, err := s.w.Write(piece)
	s.bytes += int64(n)
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(errClientGone, err)
	}
	return nil
}

// end sends the last piece, and the trailers after it.
func (s *stream) end(piece []byte, rows int64) error {
	h := s.w.Header()
	h.Set(rowsTrailer, strconv.FormatInt(rows, 10))
	if s.cursor != "" {
		h.Set(cursorTrailer, s.cursor)
	}
	return s.write(piece)
}

// errClientGone is the error of a stream that its client does not read.
var errClientGone = newProblem(statusClientGone, "client-gone", "The client has gone", "")

// finish records a stream. If it failed, the connection is cut, so that the client does not take
// what it got for the whole.
func (h *handler) finish(r *request, rt *route, err error, started time.Time) {
	if err != nil {
		_ = r.fail(err) // for the log: no problem document can follow the rows
	}
	h.record(r, rt.name+"_stream", rt.stream, r.stream.bytes, started)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
