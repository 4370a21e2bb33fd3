//go:build unix

package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// CloseWrite is what net/http looks for.
func (c countedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// serveCounted serves a handler as frontierd does, and returns a connection to it.
func serveCounted(t *testing.T, handler http.HandlerFunc) (conn net.Conn, counted *countedListener) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted = &countedListener{Listener: inner}
	server := &http.Server{ConnContext: api.ConnContext, Handler: handler}
	go func() { _ = server.Serve(api.Listener(counted)) }()
	t.Cleanup(func() { server.Close() })
	conn, err = net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn, counted
}

// An answer that is held is one write, of whatever length, and answers that are not held before and
// after it on the same connection arrive as ever.
func TestAnswersAreWrittenWhole(t *testing.T) {
	body := func(n int) []byte { return bytes.Repeat([]byte("0123456789\r\n\r\n."), n/15+1)[:n] }
	conn, counted := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/held" {
			w.Header().Set("Content-Length", strconv.Itoa(n))
			api.Hold(r, n)
		}
		_, _ = w.Write(body(n))
	})
	in := bufio.NewReader(conn)
	for _, n := range []int{1, 4000, 4096, 5000, 64 << 10, 200_000} {
		for _, path := range []string{"/held", "/streamed", "/held"} {
			counted.writes.Store(0)
			req, err := http.NewRequest(http.MethodGet, "http://frontier"+path+"?n="+strconv.Itoa(n), nil)
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

// A client that is still sending when the connection ends reads the answer, and its end. Nothing of
// an answer stays that became shorter than was said.
func TestAnswersArriveBeforeTheEnd(t *testing.T) {
	for name, said := range map[string]int{"whole": 5, "too short": 9, "not held": -1} {
		t.Run(name, func(t *testing.T) {
			conn, _ := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "close")
				if said >= 0 {
					w.Header().Set("Content-Length", strconv.Itoa(said))
					api.Hold(r, said)
				}
				_, _ = io.WriteString(w, "short")
			})
			_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: frontier\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 400_000))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.Contains(string(got), "200 OK") || !strings.Contains(string(got), "short") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Claims are answered in one write, however many there are.
func TestClaimsAreOneWrite(t *testing.T) {
	servers, _ := start(t, 1, own)
	counted := api.Inner(servers[0].Listener).(*countedListener)
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "{\"url\":\"https://site%d.example/a/page\"}\n", i)
	}
	request(t, http.MethodPost, servers[0].URL+"/v1/urls", lines.String())
	for _, n := range []int{1, 20, 100} {
		counted.writes.Store(0)
		_, answer := request(t, http.MethodPost, servers[0].URL+"/v1/claims", fmt.Sprintf(`{"max":%d}`, n))
		if got := strings.Count(answer, `"lease"`); got != n {
			t.Errorf("%d claims of %d", got, n)
		}
		if writes := counted.writes.Load(); writes != 1 {
			t.Errorf("%d claims were %d writes", n, writes)
		}
	}
}
