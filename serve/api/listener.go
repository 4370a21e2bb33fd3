package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// net/http writes its own rejections in one call of Write with at most maxRejection bytes: a status
// line, rejectionEnd, and a text. Answers of handlers have further header fields.
const (
	rejectionStart = "HTTP/1.1 "
	rejectionEnd   = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	maxRejection   = 512
)

// Write replaces a rejection by net/http with a problem document of the same status. It passes
// everything else on unchanged.
func (c *conn) Write(b []byte) (int, error) {
	if c.tls || len(b) > maxRejection || !bytes.HasPrefix(b, []byte(rejectionStart)) {
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
	head := append(bytes.Clone(statusLine[:len(statusLine):len(statusLine)]), "\r\n"...)
	if err := c.answer(head, p); err != nil {
		return 0, err
	}
	return len(b), nil
}

// refuse answers with a problem before a request is read. The caller closes the connection.
func (c *conn) refuse(p *problem) {
	if c.tls {
		return
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nRetry-After: %s\r\n", p.status, http.StatusText(p.status), shedRetry())
	// A client that does not take it gets none.
	_ = c.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_ = c.answer(head, p)
}

// answer writes a problem after the status line and the headers in head, as the last answer of the
// connection.
func (c *conn) answer(head []byte, p *problem) error {
	var d document
	p.write(&d)
	answer := append(head, "Content-Type: application/problem+json\r\nConnection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(d.buf)), 10)
	answer = append(append(answer, "\r\n\r\n"...), d.buf...)
	_, err := c.TCPConn.Write(answer)
	return err
}
