package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/serve/lookup"
)

// bounded serves a lake with bounds for its connections.
func bounded(t *testing.T, limit int, headers int64) (*httptest.Server, *Connections) {
	t.Helper()
	s := start(t, small(t), lookup.Options{})
	c := NewConnections(limit, headers)
	s.metrics.Connections(c)
	web := httptest.NewUnstartedServer(s.web)
	// httptest follows connections too.
	web.Config.ConnState = c.State
	web.Listener = c.Listener(web.Listener, false)
	web.Config.ReadHeaderTimeout = time.Hour
	web.Start()
	t.Cleanup(func() {
		web.Close()
		testenv.Until(t, "all connections end", func() bool { st := c.Stats(); return st.Open == 0 && st.Idle == 0 && st.Headers == 0 })
	})
	return web, c
}

func dial(t testing.TB, web *httptest.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends text, reads an answer, whose connection goes on, and returns its status.
func exchange(t *testing.T, c net.Conn, text string) int {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// hungUp waits until the server has closed a connection, and returns what it sent before.
func hungUp(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(c)
	var late net.Error
	if err != nil && errors.As(err, &late) && late.Timeout() {
		t.Fatal("the connection is still open")
	}
	return string(data)
}

const health = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

func TestIdleConnectionsMakeRoom(t *testing.T) {
	web, all := bounded(t, 3, 1<<20)
	oldest, second := dial(t, web), dial(t, web)
	testenv.Until(t, "two are open", func() bool { return all.Stats().Open == 2 })
	third := dial(t, web)
	testenv.Until(t, "three are open", func() bool { return all.Stats().Open == 3 })
	// A request makes a connection the youngest one.
	if status := exchange(t, oldest, health); status != 200 {
		t.Fatalf("%d", status)
	}
	testenv.Until(t, "it is idle again", func() bool { return all.Stats().Idle == 3 })
	// A half-sent header is idle too.
	if _, err := io.WriteString(second, "GET /healthz HTTP/1.1\r\nHo"); err != nil {
		t.Fatal(err)
	}
	fourth := dial(t, web)
	if status := exchange(t, fourth, health); status != 200 {
		t.Fatalf("%d", status)
	}
	if got := hungUp(t, second); got != "" {
		t.Errorf("the second one was told %q", got)
	}
	for _, c := range []net.Conn{oldest, third, fourth} {
		if status := exchange(t, c, health); status != 200 {
			t.Errorf("another one: %d", status)
		}
	}
	if st := all.Stats(); st.Open != 3 || st.Shed["idle"] != 1 || st.Shed["full"] != 0 {
		t.Errorf("%+v", st)
	}
}

func TestHeadersAreCounted(t *testing.T) {
	web, all := bounded(t, 100, 200<<10)
	big := func(n int) string {
		return "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", n)
	}
	var open []net.Conn
	for range 2 {
		c := dial(t, web)
		if _, err := io.WriteString(c, big(90<<10)); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	testenv.Until(t, "both headers are counted", func() bool { return all.Stats().Headers > 160<<10 })
	// There is no room for a third one.
	third := dial(t, web)
	_, _ = io.WriteString(third, big(90<<10)) // the server closes it meanwhile
	hungUp(t, third)
	if st := all.Stats(); st.Shed["headers"] != 1 || st.Headers > 200<<10 {
		t.Errorf("%+v", st)
	}
	// Usual headers need none.
	if status := exchange(t, dial(t, web), health); status != 200 {
		t.Errorf("a small header: %d", status)
	}
	// A request gives its memory back when it is answered, and a connection when it ends.
	if status := exchange(t, open[0], "\r\n\r\n"); status != 200 {
		t.Errorf("a large header: %d", status)
	}
	testenv.Until(t, "one is free", func() bool { return all.Stats().Headers < 100<<10 })
	open[1].Close()
	testenv.Until(t, "all are free", func() bool { return all.Stats().Headers == 0 })
	if status := exchange(t, dial(t, web), big(150<<10)+"\r\n\r\n"); status != 200 {
		t.Errorf("a larger header, when there is room: %d", status)
	}
}

// The refusal is a problem document.
func TestRefusal(t *testing.T) {
	web, all := bounded(t, 1, 1<<20)
	active := dial(t, web) // with a request that does not end
	if _, err := io.WriteString(active, unfinished); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "it is active", func() bool { st := all.Stats(); return st.Open == 1 && st.Idle == 0 })
	resp, err := http.ReadResponse(bufio.NewReader(dial(t, web)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p problemDocument
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 503 || p.Status != 503 ||
		p.Type != "/problems/too-many-connections" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v, %d %+v", err, resp.StatusCode, p)
	}
	active.Close()
	testenv.Until(t, "it is closed", func() bool { return all.Stats().Open == 0 })
	if status := exchange(t, dial(t, web), health); status != 200 {
		t.Errorf("when there is room again: %d", status)
	}
	if st := all.Stats(); st.Shed["full"] != 1 {
		t.Errorf("%+v", st)
	}
}
