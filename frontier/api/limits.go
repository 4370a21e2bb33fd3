package api

import (
	"io"
	"net/http"
	"time"
)

const (
	// moveTime is how long a client may take to send or to receive the next bytes. A connection on
	// which nothing moves is closed; one that is slow is not.
	moveTime = 30 * time.Second
	// maxVisitLine bounds a line of visits of another process. Each byte of a result may be written
	// with six.
	maxVisitLine = 8 * maxLine
)

// movingBody is the body of a request whose deadline moves on with each piece.
type movingBody struct {
	io.ReadCloser
	control *http.ResponseController
	time    time.Duration
}

func (b *movingBody) Read(p []byte) (n int, err error) {
	// A connection without deadlines is that of a test.
	_ = b.control.SetReadDeadline(time.Now().Add(b.time))
	n, err = b.ReadCloser.Read(p)
	if err != nil {
		// The server reads on, to notice that the client leaves: a claim may wait for longer.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// movingWriter is an answer whose deadline moves on with each piece.
type movingWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration
}

func (w *movingWriter) Write(p []byte) (n int, err error) {
	// A big piece gets as much time as many small ones.
	for len(p) > 0 && err == nil {
		piece := p[:min(len(p), 64<<10)]
		_ = w.control.SetWriteDeadline(time.Now().Add(w.time))
		var m int
		m, err = w.ResponseWriter.Write(piece)
		n += m
		p = p[len(piece):]
	}
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *movingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// streams returns a client that bounds the time until an answer begins, and not that of the answer.
func streams() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = peerTimeout
	return &http.Client{Transport: t}
}
