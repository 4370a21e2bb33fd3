package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
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
	// unexpected begins the answer to an Expect that net/http does not know. It has no text.
	unexpected = rejectionStart + "417 "
)

// rejections say what is wrong where net/http does not, by status.
var rejections = map[int]string{
	http.StatusBadRequest: "a request begins with a method, a path and HTTP/1.1, each after one space, and Content-Length is one number; " +
		"in the path, write a percent sign as %25 and a space as %20",
	http.StatusExpectationFailed:           "Expect can only be 100-continue",
	http.StatusRequestHeaderFieldsTooLarge: "the headers are too large; send fewer or shorter ones",
	http.StatusNotImplemented:              "Transfer-Encoding can only be chunked",
}

// Write replaces a rejection by net/http with a problem document of the same status. It passes
// everything else on unchanged.
func (c *conn) Write(b []byte) (int, error) {
	if c.tls || len(b) > maxRejection || !bytes.HasPrefix(b, []byte(rejectionStart)) {
		return c.TCPConn.Write(b)
	}
	statusLine, text, ok := bytes.Cut(b, []byte(rejectionEnd))
	if bytes.HasPrefix(b, []byte(unexpected)) { // no handler answers so
		statusLine, ok = []byte(unexpected+http.StatusText(http.StatusExpectationFailed)), true
	}
	status, err := strconv.Atoi(string(statusLine[len(rejectionStart):min(len(rejectionStart)+3, len(statusLine))]))
	if !ok || err != nil || bytes.IndexByte(statusLine, '\n') >= 0 {
		return c.TCPConn.Write(b)
	}
	detail := rejections[status]
	if _, reason, ok := bytes.Cut(text, []byte(": ")); ok {
		detail = string(reason)
	}
	head := append(bytes.Clone(statusLine[:len(statusLine):len(statusLine)]), "\r\n"...)
	if err := c.answer(head, c.all.problem(status, "bad-request", "Malformed request", detail)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// refuse answers with a problem before a request is read. The caller closes the connection.
func (c *conn) refuse(kind, title, detail string) {
	if c.tls {
		return
	}
	const status = http.StatusServiceUnavailable
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nRetry-After: %s\r\n", status, http.StatusText(status), connRetryAfter())
	// A client that does not take it gets none.
	_ = c.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_ = c.answer(head, c.all.problem(status, kind, title, detail))
}

// connRetryAfter is the Retry-After of what was shed, in seconds. It varies, so that what was shed
// together does not come back together.
func connRetryAfter() string { return strconv.Itoa(1 + rand.IntN(3)) }

// answer writes a problem after the status line and the headers in head, as the last answer of the
// connection.
func (c *conn) answer(head, problem []byte) error {
	answer := append(head, "Content-Type: application/problem+json\r\nConnection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(problem)), 10)
	answer = append(append(answer, "\r\n\r\n"...), problem...)
	_, err := c.TCPConn.Write(answer)
	return err
}
