package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Format is the form of a stream.
type Format string

// The formats. Parquet and Text are those of lists of URLs only.
const (
	NDJSON  Format = "ndjson"
	CSV     Format = "csv"
	Text    Format = "text"
	Parquet Format = "parquet"
)

func (f Format) mediaType() string {
	switch f {
	case NDJSON:
		return "application/x-ndjson"
	case CSV:
		return "text/csv"
	case Text:
		return "text/plain"
	case Parquet:
		return "application/vnd.apache.parquet"
	}
	return "application/" + string(f) // the server says what it has
}

// ErrCut is the error of a stream that ended before its end: the connection broke, or the server
// failed while it sent. What came before is right, but not all.
var ErrCut = errors.New("the answer was cut")

// Stream is an answer that is read while the server sends it. Read returns io.EOF only after the
// whole answer, and an error that wraps ErrCut if it breaks off. The end is known by a trailer
// field of HTTP: behind a proxy that drops trailers, every stream is cut. A Stream is for one
// goroutine.
type Stream struct {
	// Version is the version that is read.
	Version string
	// Total counts the rows of the whole list of URLs. It is nil if they would have to be read for
	// that, and for other lists.
	Total *int64

	request *request
	resp    *http.Response
	err     error // of the last Read
	rows    int64
}

// stream asks for a stream.
func (c *Client) stream(ctx context.Context, q *request) (*Stream, error) {
	resp, err := c.send(ctx, q) //nolint:bodyclose // Close of the Stream closes it
	if err != nil {
		return nil, err
	}
	s := &Stream{Version: resp.Header.Get("Urlake-Version"), request: q, resp: resp}
	if n, err := strconv.ParseInt(resp.Header.Get("Urlake-Total"), 10, 64); err == nil {
		s.Total = &n
	}
	return s, nil
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.resp.Body.Read(p)
	switch {
	case err == io.EOF:
		s.err = s.end()
	case err != nil:
		s.err = s.cut(err)
	}
	return n, s.err
}

// end reads the trailer.
func (s *Stream) end() error {
	text := s.resp.Trailer.Get("Urlake-Rows")
	rows, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return s.cut(fmt.Errorf("the trailer Urlake-Rows is %q; does a proxy drop trailers?", text))
	}
	s.rows = rows
	return io.EOF
}

func (s *Stream) cut(err error) error {
	return fmt.Errorf("urlake: %s: %w: %w", s.request, ErrCut, err)
}

// Rows is how many rows or answers the stream had. It is 0 before Read has returned io.EOF.
func (s *Stream) Rows() int64 { return s.rows }

// NextCursor leads to the rows that follow if PageSize ended the stream, and is empty otherwise and
// before Read has returned io.EOF.
func (s *Stream) NextCursor() string {
	if s.err != io.EOF {
		return ""
	}
	return s.resp.Trailer.Get("Urlake-Next-Cursor")
}

// Close ends the stream. The server stops reading for one that is closed before its end.
func (s *Stream) Close() error { return s.resp.Body.Close() }
