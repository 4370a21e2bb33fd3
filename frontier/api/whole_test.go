package api_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/urlake/urlake/frontier/api"
)

// countedListener counts the writes on its connections.
type countedListener struct {
	net.Listener
	writes atomic.Int64
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, &l.writes}, err
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// An answer that is held is one write, of whatever length, and answers that are not held before and
// after it on the same connection arrive as ever.
func TestAnswersAreWrittenWhole(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedListener{Listener: inner}
	body := func(n int) []byte { return bytes.Repeat([]byte("0123456789\r\n\r\n."), n/15+1)[:n] }
	server := &http.Server{ConnContext: api.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/held" {
			w.Header().Set("Content-Length", strconv.Itoa(n))
			api.Hold(r, n)
		}
		_, _ = w.Write(body(n))
	})}
	go func() { _ = server.Serve(api.Listener(counted)) }()
	defer server.Close()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, n := range []int{1, 4000, 4096, 5000, 64 << 10, 200_000} {
		for _, path := range []string{"/held", "/streamed", "/held"} {
			counted.writes.Store(0)
			req, err := http.NewRequest(http.MethodGet, "http://"+inner.Addr().String()+path+"?n="+strconv.Itoa(n), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := req.Write(conn); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(in, req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || !bytes.Equal(got, body(n)) {
				t.Fatalf("%s of %d bytes: %d, %v", path, n, len(got), err)
			}
			if writes := counted.writes.Load(); path == "/held" && writes != 1 {
				t.Errorf("%d bytes were %d writes", n, writes)
			}
		}
	}
}
