//go:build unix

package api_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/api"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
)

// serve starts so many processes' worth of servers of one frontier, and returns their addresses.
func serve(t *testing.T, processes int) (bases []string) {
	t.Helper()
	servers, _ := start(t, processes, own)
	for _, s := range servers {
		bases = append(bases, s.URL)
	}
	return bases
}

// own is short enough to wait until processes have heard of each other's shards, and so long that
// a busy machine does not keep them from their shards.
const own = 6 * time.Second

// start returns when each process has its share of the shards, and knows who has the others.
func start(t testing.TB, processes int, own time.Duration) (servers []*httptest.Server, server *testenv.Redis) {
	t.Helper()
	server = testenv.NewRedis(t)
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	// All are known before the first begins, so that each takes its share of the shards and no
	// more.
	var begins []func() *frontier.Frontier
	for range processes {
		opt, err := redis.ParseURL(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		opt.MaxRetries = -1
		client := redis.NewClient(opt)
		web := httptest.NewUnstartedServer(nil)
		web.Listener = api.Listener(&countedListener{Listener: web.Listener})
		web.Config.ConnContext = api.ConnContext
		c, err := coord.Open(t.Context(), client, "test", web.Listener.Addr().String()+"#1", 8)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Join(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, web)
		begins = append(begins, func() *frontier.Frontier {
			f, err := frontier.New(t.Context(), c, frontier.Options{
				Dir: dir, Shards: 8, Lease: time.Minute, Tries: 3, Own: own, Shard: shard.Options{MemoryBytes: 1 << 20},
				MaxRobotsDelay: time.Minute, Now: time.Now, Log: log,
			})
			if err != nil {
				t.Fatal(err)
			}
			web.Config.Handler = &gate{Handler: api.New(f, log), dir: dir}
			web.Start()
			t.Cleanup(func() {
				web.Close()
				if err := f.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
			return f
		})
	}
	var all []*frontier.Frontier
	for _, begin := range begins {
		all = append(all, begin())
	}
	for _, f := range all {
		for end := time.Now().Add(time.Minute); f.Stats().Shards != 8/processes || !knowsAll(f); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the processes do not share the shards")
			}
		}
	}
	return servers, server
}

// gate is a server that can be away: then it ends every connection. With a cut, it ends those of
// which an answer is longer, after so many bytes. A stopped one answers when its channel is closed.
type gate struct {
	http.Handler
	dir     string // of the frontier
	shut    atomic.Bool
	cut     atomic.Int64
	stopped atomic.Pointer[chan struct{}]
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.shut.Load() {
		panic(http.ErrAbortHandler)
	}
	if resume := g.stopped.Load(); resume != nil {
		<-*resume
	}
	if cut := g.cut.Load(); cut > 0 {
		w = &cutWriter{w, int(cut)}
	}
	g.Handler.ServeHTTP(w, r)
}

// cutWriter ends the connection when it has sent as many bytes as are left.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// away shuts or opens the gate of a server.
func away(s *httptest.Server, shut bool) { s.Config.Handler.(*gate).shut.Store(shut) }

// knowsAll says that a process has each shard or knows who does: those of enough domains are all.
func knowsAll(f *frontier.Frontier) bool {
	for i := range 100 {
		s, err := f.Seen("", "", fmt.Sprintf("https://site%d.example/", i))
		if err != nil && s.Owner == "" {
			return false
		}
	}
	return true
}

func request(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	status, answer, _ = exchange(t, method, url, body, nil)
	return status, strings.TrimSpace(answer)
}

// exchange sends a request with headers, and holds that the API's description has it and its
// answer.
func exchange(t *testing.T, method, url, body string, headers http.Header) (status int, answer string, of http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, headers)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := theContract().check(req, body, res, data); err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return res.StatusCode, string(data), res.Header
}

// TestBadRequests holds that what is wrong is said, and that nothing else of a request is lost.
func TestBadRequests(t *testing.T) {
	base := serve(t, 1)[0]
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string // a part of it
	}{
		{"POST", "/v1/urls", "", 200, ""},
		{"POST", "/v1/urls", `{"url":"https://a.example/"}` + "\n\n" + `{"url":"x:y"}`, 200, `{"result":"added"}` + "\n" + `{"result":"rejected","reason":"scheme"}`},
		{"POST", "/v1/urls", "{\n" + `{"url":"https://a.example/"}`, 200, "line: "},
		{"POST", "/v1/urls", `{"url":"https://a.example/","colour":1}`, 200, `"line: unknown field colour"`},
		{"POST", "/v1/urls", `{"url":"https://a.example/b","priority":70000}`, 200, `"line: priority has to be a whole number from 0 to 65535"`},
		{"POST", "/v1/urls", `{"url":7}` + "\n" + `{"url":"a","url":"b"}` + "\n" + `{"url":"https://a.example/","refetch_after":"soon"}`, 200, `{"result":"rejected","reason":"line: url has to be a string"}` + "\n" +
			`{"result":"rejected","reason":"line: field url is there twice"}` + "\n" + `{"result":"rejected","reason":"line: refetch_after has to be a time with its zone, as 2026-11-26T08:33:09Z"}`},
		{"POST", "/v1/urls", `{"url":"https://a.example/","depth":1000000000}` + "\n" + `{"url":"https://a.example/","depth":999999999}`, 200,
			`{"result":"rejected","reason":"line: depth has to be a whole number from 0 to 999999999"}` + "\n" + `{"result":"known"}`},
		{"POST", "/v1/urls", `{"url":"https://a.example/","depth":4294967295,"update":true}`, 200, `"line: depth has to be`},
		{"POST", "/v1/visits", `{"url":"https://a.example/","depth":1000000000}`, 200, `"line: depth has to be`},
		{"POST", "/v1/urls", `[]`, 200, `"line: it has to be an object"`},
		{"POST", "/v1/urls", `{"url":"https://a.example/"} x`, 200, `"line: no JSON: invalid character 'x' after top-level value, after byte 29"`},
		{"POST", "/v1/seen", `{"crawl":true}`, 200, `"line: crawl has to be a string"`},
		{"POST", "/v1/visits", `{"status":"ok"}`, 200, `"line: status has to be a whole number from 0 to 65535"`},
		{"POST", "/v1/urls", `{"url":"https://a.example/b","key":"a\u0000b"}`, 200, `"reason":"name"`},
		{"POST", "/v1/urls", `{"url":"https://a.example/` + strings.Repeat("x", 300_000) + `"}`, 400, "a line is longer than 262144 bytes"},
		{"PUT", "/v1/urls", "", 405, "this path takes GET, HEAD, POST"},
		{"POST", "/v1/domains/a.example", "{}", 405, "this path takes GET, HEAD, PATCH"},
		{"GET", "/v1/urls?limit=1000001", "", 400, "limit has to be"},
		{"GET", "/v1/urls?state=waiting,lost", "", 400, "state has to be of waiting, later, leased, done"},
		{"GET", "/v1/urls?cursor=!", "", 400, "none of this frontier's"},
		{"GET", "/v1/urls?cursor=AAAA", "", 400, "none of this frontier's"},
		{"GET", "/v1/urls?crawl=none", "", 200, `{"next_cursor":""}`},
		{"GET", "/v1/domains/a.example/urls?limit=0", "", 400, "limit has to be"},
		{"GET", "/v1/domains/a.example/urls", "", 200, `"state":"waiting","priority":0,"depth":0,"tries":0,"added":"`},
		{"DELETE", "/v1/domains/a.example/urls?crawl=none", "", 200, `{"deleted":0}`},
		{"POST", "/v1/claims", "", 400, "the body: it is empty, and has to be JSON"},
		{"POST", "/v1/claims", `{"max":`, 400, "the body: no JSON: it ends too early"},
		{"POST", "/v1/claims", strings.Repeat(" ", 1<<20) + "{}", 400, "the body: it is longer than 1048576 bytes"},
		{"POST", "/v1/claims", `{"max":-1}`, 400, "max has to be 1 to 10000"},
		{"POST", "/v1/claims", `{"max":20000}`, 400, "max has to be 1 to 10000"},
		{"POST", "/v1/claims", `{"crawl":"none"}`, 200, `{"claims":[]}`},
		{"POST", "/v1/results", `{"lease":"AAAA","status":200}`, 200, `{"result":"ended"}`},
		{"POST", "/v1/results", `{"lease":7}`, 200, `"line: lease has to be a string"`},
		{"POST", "/v1/leases:extend", `{"leases":["x"]}`, 200, `"extended":[false]`},
		{"GET", "/v1/seen", "", 400, "no URL that can be fetched"},
		{"GET", "/v1/seen?url=https://a.example", "", 200, `"seen":true`},
		{"GET", "/v1/visited?cursor=!", "", 400, "none of this frontier's"},
		{"GET", "/v1/visited?cursor=AAAA", "", 400, "none of this frontier's"},
		{"GET", "/v1/visited?since=yesterday", "", 400, "since has to be a time with its zone"},
		{"GET", "/v1/visited?limit=0", "", 400, "limit"},
		{"PATCH", "/v1/domains/a.example", `{"delay":-2}`, 400, "delay has to be seconds"},
		{"PATCH", "/v1/domains/a.example", `{"delay":"1"}`, 400, "the body: delay has to be a number"},
		{"PATCH", "/v1/domains/a.example", `{"robots":{"hosts":"a.example"}}`, 400, "the body: unknown field robots.hosts"},
		{"PATCH", "/v1/domains/a.example", `{"delay":1.5}`, 200, `"delay":1.5`},
		{"GET", "/v1/domains/a.example", "", 200, `"waiting":1`},
		{"PATCH", "/v1/domains/a.example", `{"block":-1}`, 400, "block has to be seconds"},
		{"PATCH", "/v1/domains/a.example", `{"cap":1}`, 200, `"cap":1`},
		{"POST", "/v1/urls", `{"url":"https://a.example/2"}`, 200, `{"result":"rejected","reason":"cap"}`},
		{"PATCH", "/v1/domains/a.example", `{"exclude":true,"cap":-1,"delay":-1}`, 200, `"delay":0,"paused":false,"excluded":true,"taken_down":false,"failures":0}`},
		{"POST", "/v1/urls", `{"url":"https://a.example/2"}`, 200, `{"result":"rejected","reason":"excluded"}`},
		{"PATCH", "/v1/domains/a.example", `{"exclude":false}`, 200, `"crawls":[{"crawl":"DEFAULT","waiting":1,"leased":0,"later":0,"settled":0}]`},
		{"GET", "/v1/domains/a.example/robots", "", 404, "has no robots.txt of this host"},
		{"PATCH", "/v1/domains/a.example", `{"delay":9,"robots":{}}`, 400, "robots.text is missing"},
		{"GET", "/v1/domains/a.example", "", 200, `"delay":0,"paused"`},
		{"PATCH", "/v1/domains/a.example", `{"robots":{"host":"/","text":""}}`, 400, "robots.host"},
		{"PATCH", "/v1/domains/a.example", `{"robots":{"text":"User-agent: *\nCrawl-delay: 2","expires":"2100-01-02T03:04:05Z"}}`, 200, `"robots":[{"host":"a.example","expires":"2100-01-02T03:04:05Z","delay":2}]`},
		{"GET", "/v1/domains/a.example/robots?host=A.example", "", 200, `{"host":"a.example","text":"User-agent: *\nCrawl-delay: 2","expires":"2100-01-02T03:04:05Z","delay":2}`},
		{"PATCH", "/v1/domains/a.example", `{"robots":{"text":"` + strings.Repeat("\\u0020", 600_000) + `"}}`, 200, `"delay":0`},
		{"GET", "/metrics", "", 200, "urlake_frontier_waiting 1"},
		{"GET", "/metrics", "", 200, `urlake_frontier_results_total{result="added"} 1`},
		{"GET", "/nothing", "", 404, "/v1/openapi.yaml"},
	} {
		status, answer := request(t, c.method, base+c.path, c.body)
		if status != c.status || !strings.Contains(answer, c.answer) {
			t.Errorf("%s %s %.80s: %d %.300s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.answer)
		}
	}
}

// TestProcessesAnswerForEachOther starts two processes, which share the shards, and asks only one.
func TestProcessesAnswerForEachOther(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	const n = 60
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/\"}\n", i)
	}
	if _, answer := request(t, "POST", bases[0]+"/v1/urls", body.String()); strings.Count(answer, `{"result":"added"}`) != n {
		t.Fatal(answer)
	}
	if _, answer := request(t, "POST", bases[1]+"/v1/urls", body.String()); strings.Count(answer, `{"result":"known"}`) != n {
		t.Fatal(answer)
	}
	for i := range n {
		url := fmt.Sprintf("%s/v1/domains/site%d.example", bases[i%2], i)
		if status, answer := request(t, "PATCH", url, `{"delay":0}`); status != 200 || !strings.Contains(answer, `"waiting":1`) {
			t.Fatal(status, answer)
		}
		if _, answer := request(t, "GET", fmt.Sprintf("%s/v1/seen?url=https://site%d.example/", bases[i%2], i), ""); !strings.Contains(answer, `"seen":true`) {
			t.Fatal(answer)
		}
	}
	_, answer := request(t, "POST", bases[0]+"/v1/claims", `{"max":100}`)
	leases := strings.Split(answer, `"lease":"`)[1:]
	if len(leases) != n {
		t.Fatalf("%d claims: %s", len(leases), answer)
	}
	var results, extend []string
	for _, l := range leases {
		lease, _, _ := strings.Cut(l, `"`)
		results = append(results, fmt.Sprintf(`{"lease":%q,"status":200}`, lease))
		extend = append(extend, fmt.Sprintf("%q", lease))
	}
	if _, answer := request(t, "POST", bases[1]+"/v1/leases:extend", `{"leases":[`+strings.Join(extend, ",")+`]}`); strings.Count(answer, "true") != n {
		t.Fatal(answer)
	}
	if _, answer := request(t, "POST", bases[1]+"/v1/results", strings.Join(results, "\n")); strings.Count(answer, `{"result":"settled"}`) != n {
		t.Fatal(answer)
	}
	for _, base := range bases {
		visits, cursor := 0, ""
		for {
			_, answer := request(t, "GET", base+"/v1/visited?limit=7&cursor="+cursor, "")
			lines := strings.Split(answer, "\n")
			_, rest, ok := strings.Cut(lines[len(lines)-1], `"next_cursor":"`)
			if !ok {
				t.Fatal(answer)
			}
			cursor, _, _ = strings.Cut(rest, `"`)
			if len(lines) == 1 {
				break
			}
			visits += len(lines) - 1
		}
		if visits != n {
			t.Errorf("%s: %d visits", base, visits)
		}
	}
}
