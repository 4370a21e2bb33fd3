package api

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
)

// Listener has what net/http refuses before it knows of any handler (a malformed percent escape in the path, no host, too large a header)
// refused as a problem document like everything else.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return conn{tcp}, err
	}
	return c, err
}

type conn struct{ *net.TCPConn }

// What net/http writes by itself is at most refusalMost bytes in one piece: a line of status, refusalEnd, a text. An answer
// of a handler has further fields.
const (
	refusalStart = "HTTP/1.1 "
	refusalEnd   = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	refusalMost  = 512
)

func (c conn) Write(b []byte) (int, error) {
	if len(b) > refusalMost || !bytes.HasPrefix(b, []byte(refusalStart)) {
		return c.TCPConn.Write(b)
	}
	head, text, ok := bytes.Cut(b, []byte(refusalEnd))
	status, err := strconv.Atoi(string(head[len(refusalStart):min(len(refusalStart)+3, len(head))]))
	if !ok || err != nil || bytes.IndexByte(head, '\n') >= 0 {
		return c.TCPConn.Write(b)
	}
	p := &problem{status: status, kind: "bad-request", title: "The request cannot be read"}
	if _, why, ok := bytes.Cut(text, []byte(": ")); ok {
		p.detail = string(why)
	} else if status == http.StatusBadRequest {
		p.detail = "a percent sign in the path has to be followed by two hex digits, and a space to be escaped"
	}
	var d document
	p.write(&d)
	answer := append(bytes.Clone(head), "\r\nContent-Type: application/problem+json\r\nConnection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(d.buf)), 10)
	answer = append(append(answer, "\r\n\r\n"...), d.buf...)
	if _, err := c.TCPConn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}
