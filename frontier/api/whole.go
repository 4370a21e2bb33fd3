package api

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// largestHead bounds the header of an answer that is held. Those of this package have some hundred
// bytes.
const largestHead = 4 << 10

// wholeConn sends an answer of some kilobytes in one piece. The buffer of net/http has 4 KiB: a
// longer answer is several system calls, and as often the client wakes up and finds a part.
type wholeConn struct {
	net.Conn
	held *[]byte // what there is of an answer, nil if none is held
	body int     // the length of its body
}

// wholeAnswers are buffers of answers that are held.
var wholeAnswers = sync.Pool{New: func() any { return new([]byte) }}

// Listener returns l with connections on which claims are answered in one write, if the server has
// ConnContext, too. A server without them answers the same in several.
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
	if c, ok := r.Context().Value(connKey{}).(*wholeConn); ok && c.held == nil && r.Method != http.MethodHead {
		c.held, c.body = wholeAnswers.Get().(*[]byte), n
	}
}

// Write implements net.Conn. Only what serves the request writes while an answer is held.
func (c *wholeConn) Write(p []byte) (int, error) {
	if c.held == nil {
		return c.Conn.Write(p)
	}
	b := append(*c.held, p...)
	*c.held = b
	if len(b) < largestHead+c.body {
		if head := bytes.Index(b, []byte("\r\n\r\n")); head < 0 || len(b) < head+4+c.body {
			return len(p), nil
		}
	}
	if err := c.send(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// send sends what is held.
func (c *wholeConn) send() error {
	if c.held == nil {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	wholeAnswers.Put(c.held)
	c.held = nil
	return err
}

// CloseWrite tells the client that no more comes. The server of net/http looks for it when it ends
// a connection on which a client still sends.
func (c *wholeConn) CloseWrite() error {
	err := c.send()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, half.CloseWrite())
	}
	return err
}
