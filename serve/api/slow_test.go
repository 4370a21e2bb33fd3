package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// crowded is a server whose clients say in X-Forwarded-For who they are, as to a proxy.
type crowded struct {
	*service
	web *httptest.Server
}

func startCrowded(t *testing.T, store blob.Store, options ...Option) *crowded {
	t.Helper()
	s := start(t, store, lookup.Options{})
	s.with(append(options, Proxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}))...)
	web := httptest.NewUnstartedServer(s.web)
	all := NewConnections(1000, 1<<20)
	web.Config.ConnState = all.State
	web.Listener = all.Listener(web.Listener, false)
	web.Start()
	t.Cleanup(web.Close)
	return &crowded{s, web}
}

// send opens a connection and sends text on it, which may be less than a request.
func (c *crowded) send(text string) net.Conn {
	c.t.Helper()
	conn := dial(c.t, c.web)
	if _, err := io.WriteString(conn, text); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// as asks as a client, and returns the status and how the answer ended.
func (c *crowded) as(client, method, path, body string) (status int, got []byte, err error) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.web.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	got, err = io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

// asked is a request that nobody may get an answer to.
func asked(client, path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\n\r\n", path, client)
}

const unfinished = "POST /v1/domains:lookup HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 1000\r\n\r\nexample.com\n"

// manyURLs is a lake with a domain whose list is larger than any buffer.
func manyURLs(t *testing.T) blob.Store {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 60_000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%s%06d", strings.Repeat("x", 200), i)})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	return store
}

// patient has no client cut for being slow alone.
func patient(f *Flow) { f.Grace = time.Hour }

// settings changes the flow of a handler.
func settings(change func(*Flow)) Option { return func(h *handler) { change(&h.flow) } }

// Lists that do not come are in nobody's way: neither that of lists nor that of pages.
func TestUnfinishedListsAreInNobodysWay(t *testing.T) {
	c := startCrowded(t, manyURLs(t), AnswerBytes(5<<20), settings(patient))
	for range 20 {
		c.send(unfinished)
	}
	lists, heavy := c.gate("lists"), c.gate("heavy")
	lists.until(t, "all are being read", func(st gateStats) bool { return st.admitted == 20 })
	if st := heavy.stats(); st.admitted != 0 {
		t.Errorf("before there is work the gate for it holds %+v", st)
	}
	for path, body := range map[string]string{"/v1/domains:lookup": "example.com", listPath + "?limit=10000": ""} {
		method := "GET"
		if body != "" {
			method = "POST"
		}
		if status, got, err := c.as("192.0.2.2", method, path, body); status != 200 || err != nil || len(got) == 0 {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}
}

// A list that comes too slowly is a problem, at once and not after the rest of it.
func TestSlowListsAreRefused(t *testing.T) {
	c := startCrowded(t, small(t), settings(func(f *Flow) { f.Grace = 10 * time.Millisecond }))
	conn := c.send(unfinished)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 408 || !resp.Close || !strings.Contains(string(body), `"/problems/too-slow"`) {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	// Nor does a body that nobody asked for keep a connection.
	conn = c.send(strings.Replace(unfinished, "/v1/domains:lookup", "/v1/nothing", 1))
	if got := hungUp(t, conn); !strings.HasPrefix(got, "HTTP/1.1 404") {
		t.Errorf("a body that nobody reads: %.200s", got)
	}
	c.gate("lists").until(t, "nothing is left", func(st gateStats) bool { return st.used == 0 && st.admitted == 0 })
}

// Many lists that are read slowly do not keep others from being answered: their clients are cut.
func TestSlowReadersOfListsMakeRoom(t *testing.T) {
	list := strings.Repeat("example.com\n", 30_000)
	c := startCrowded(t, small(t), AnswerBytes(5<<20), settings(patient), settings(func(f *Flow) { f.Judged = 20 * time.Millisecond }))
	for i := range 4 {
		c.send(fmt.Sprintf("POST /v1/domains:lookup HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 198.51.100.%d\r\nContent-Length: %d\r\n\r\n%s",
			i, len(list), list))
	}
	c.gate("lists").until(t, "they wait for each other", func(st gateStats) bool { return st.used > 0 && st.waiting > 0 })
	if status, got, err := c.as("192.0.2.2", "POST", "/v1/domains:lookup", "example.com"); status != 200 || err != nil {
		t.Errorf("a small list: %d, %v, %s", status, err, got)
	}
	if status, got, err := c.as("192.0.2.2", "POST", "/v1/domains:lookup", list); status != 200 || err != nil {
		t.Errorf("a large list: %d, %v, %.200s", status, err, got)
	}
	if c.gate("lists").shed[shedSlow].Load() == 0 {
		t.Error("no client was cut, so this test shows nothing")
	}
}

// Streams that are read slowly make room for the requests of others, and their clients notice.
func TestSlowReadersOfStreamsMakeRoom(t *testing.T) {
	c := startCrowded(t, manyURLs(t), AnswerBytes(20<<20), settings(patient), settings(func(f *Flow) { f.Judged = 20 * time.Millisecond }))
	g := c.gate("heavy")
	var slow []net.Conn
	for i := range 12 {
		slow = append(slow, c.send(asked(fmt.Sprintf("198.51.100.%d", i), listPath+"?format=ndjson")))
		g.until(t, "it is sent, or shed", func(st gateStats) bool {
			begun := st.admitted
			for reason := range shedReasons {
				begun += g.shed[reason].Load()
			}
			return begun == int64(i+1) && st.working == 0 && st.waiting == 0
		})
	}
	fill := g.budget - g.stats().used
	rest := g.admitted(t, clientNumber(9), fill)
	if status, got, err := c.as("192.0.2.2", "GET", listPath+"?limit=10000", ""); status != 200 || err != nil {
		t.Errorf("a page: %d, %v, %.200s", status, err, got)
	}
	if g.shed[shedSlow].Load() == 0 {
		t.Error("no client was cut, so this test shows nothing")
	}
	rest.release()
	cut := 0
	for _, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			cut++
		}
	}
	if n := g.shed[shedSlow].Load(); int64(cut) != n {
		t.Errorf("%d clients noticed that their streams were cut, of %d", cut, n)
	}
}

// A stream holds what its rows take, and a page no more than what is not sent yet.
func TestSlowReadersHoldWhatIsNotSent(t *testing.T) {
	c := startCrowded(t, manyURLs(t), AnswerBytes(100<<20), settings(patient), settings(func(f *Flow) { f.Judged = time.Millisecond }))
	g := c.gate("heavy")
	c.send(asked("192.0.2.1", listPath+"?format=ndjson"))
	g.until(t, "it is sent", func(st gateStats) bool { return st.admitted == 1 && st.working == 0 })
	// 10,000 URLs of 226 bytes, and a piece.
	if st := g.stats(); st.used < 2<<20 || st.used > 4<<20 {
		t.Errorf("a stream holds %d bytes", st.used)
	}
	store, path := long(t)
	c = startCrowded(t, store, AnswerBytes(100<<20), settings(patient), settings(func(f *Flow) { f.Judged = time.Millisecond }))
	g = c.gate("heavy")
	page := c.send(asked("192.0.2.1", path))
	g.until(t, "it is sent", func(st gateStats) bool { return st.admitted == 1 && st.working == 0 })
	whole := g.stats().used
	if _, err := io.CopyN(io.Discard, page, 7_000_000); err != nil {
		t.Fatal(err)
	}
	g.until(t, "half is free", func(st gateStats) bool { return st.used <= whole/2 && st.admitted == 1 })
}

// One client does not get more than its half of what is there while another one waits.
func TestGateSharesGrowth(t *testing.T) {
	g := testGate(100, 4, 8)
	one, two := g.admitted(t, clientNumber(1), 25), g.admitted(t, clientNumber(1), 25)
	three := g.admitted(t, clientNumber(2), 40)
	waits := make(chan *ticket, 1)
	go func() {
		ticket, err := g.acquire(t.Context(), clientNumber(3), 30)
		if err != nil {
			t.Error(err)
		}
		waits <- ticket
	}()
	g.until(t, "one waits", func(st gateStats) bool { return st.waiting == 1 })
	grown := make(chan error, 1)
	go func() { grown <- one.grow(t.Context(), 50) }()
	g.until(t, "two wait", func(st gateStats) bool { return st.waiting == 2 })
	three.release()
	testenv.Until(t, "it goes before more for a client with half", func() bool { return len(waits) == 1 })
	ticket := <-waits
	// Now that nobody else waits it gets its room, or else with its own.
	two.release()
	if err := <-grown; err != nil {
		t.Error(err)
	}
	ticket.release()
	one.release()
}
