package api

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestConnectionsOnWhichNothingMoves holds that an answer that nobody reads, and a body that is not
// sent, end, and that a connection that is slow but moves does not.
func TestConnectionsOnWhichNothingMoves(t *testing.T) {
	ended := make(chan error, 1)
	serve := func(allowed time.Duration) (dial func(request string) net.Conn) {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			body := &movingBody{r.Body, control, allowed}
			if _, err := io.Copy(io.Discard, body); err != nil || r.URL.Path == "/read" {
				ended <- err
				return
			}
			out := &movingWriter{w, control, allowed}
			for {
				if _, err := out.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
					ended <- err
					return
				}
			}
		}))
		t.Cleanup(web.Close)
		return func(request string) net.Conn {
			t.Helper()
			c, err := net.Dial("tcp", web.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	dial := serve(300 * time.Millisecond)
	// Nobody reads the answer.
	dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := <-ended; err == nil {
		t.Error("an answer that nobody reads does not end")
	}
	// The body does not come.
	dial("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
	if err := <-ended; err == nil {
		t.Error("a body that is not sent does not end")
	}
	// The body comes slowly: it takes longer than is allowed for a piece. Each may be late.
	const allowed = 3 * time.Second
	c := serve(allowed)("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
	for range 10 {
		time.Sleep(allowed / 6)
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("a slow body: %v", err)
	}
}
