package api

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
)

// Listener wraps l so that requests which net/http rejects before it calls a handler also get a
// problem document. Such a request has e.g. an invalid percent-escape in the path, no Host header,
// or a header that is too large.
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

// net/http writes its own rejections in one call of Write with at most maxRejection bytes: a status
// line, rejectionEnd, and a text. Answers of handlers have further header fields.
const (
	rejectionStart = "HTTP/1.1 "
	rejectionEnd   = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	maxRejection   = 512
)

// Write replaces a rejection by net/http with a problem document of the same status. It passes
// everything else on unchanged.
func (c conn) Write(b []byte) (int, error) {
	if len(b) > maxRejection || !bytes.HasPrefix(b, []byte(rejectionStart)) {
		return c.TCPConn.Write(b)
	}
	statusLine, text, ok := bytes.Cut(b, []byte(rejectionEnd))
	status, err := strconv.Atoi(string(statusLine[len(rejectionStart):min(len(rejectionStart)+3, len(statusLine))]))
	if !ok || err != nil || bytes.IndexByte(statusLine, '\n') >= 0 {
		return c.TCPConn.Write(b)
	}
	p := newProblem(status, "bad-request", "Malformed request", "")
	if _, reason, ok := bytes.Cut(text, []byte(": ")); ok {
		p.detail = string(reason)
	} else if status == http.StatusBadRequest {
		p.detail = "in the path, write a percent sign as %25 and a space as %20"
	}
	var d document
	p.write(&d)
	answer := append(bytes.Clone(statusLine),
		"\r\nContent-Type: application/problem+json\r\nConnection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(d.buf)), 10)
	answer = append(append(answer, "\r\n\r\n"...), d.buf...)
	if _, err := c.TCPConn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}
