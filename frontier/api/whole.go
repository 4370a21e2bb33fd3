package api

import (
	"bytes"
	"context"
	"net"
	"net/http"
)

// wholeConn sends an answer of some kilobytes in one piece. The buffer of net/http has 4 KiB: a
// longer answer is several system calls, and as often the client wakes up and finds a part.
type wholeConn struct {
	net.Conn
	held []byte
	// body is the length of the body of the answer that is held until it is complete, 0 for none.
	body int
}

// Listener accepts connections for ConnContext.
func Listener(l net.Listener) net.Listener { return wholeListener{l} }

type wholeListener struct{ net.Listener }

// Accept implements net.Listener.
func (l wholeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wholeConn{Conn: c}, nil
}

type connKey struct{}

// ConnContext lets handlers reach a connection of Listener. It is for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// hold says that the handler is about to write its answer: a header with the length n of the body,
// and the body.
func hold(r *http.Request, n int) {
	if c, ok := r.Context().Value(connKey{}).(*wholeConn); ok {
		c.body = n
	}
}

// Write implements net.Conn. Only what serves the request writes while an answer is held.
func (c *wholeConn) Write(p []byte) (int, error) {
	if c.body == 0 {
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	if header := bytes.Index(c.held, []byte("\r\n\r\n")); header < 0 || len(c.held) < header+4+c.body {
		return len(p), nil
	}
	_, err := c.Conn.Write(c.held)
	c.held, c.body = c.held[:0], 0
	if err != nil {
		return 0, err
	}
	return len(p), nil
}
