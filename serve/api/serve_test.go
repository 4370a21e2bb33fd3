package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/serve/lookup"
)

// ask sends a request with headers, alternately name and value.
func (s *service) ask(method, path string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.web.ServeHTTP(w, r)
	return w
}

// with makes the handler of a service again, with other settings.
func (s *service) with(options ...Option) *service {
	s.metrics = NewMetrics(s.server, blob.NewCounting(s.store))
	s.web = New(s.server, slog.New(slog.NewJSONHandler(&s.log, nil)), s.metrics, options...)
	return s
}

// queries are requests of every route about the lake that small makes.
func queries(version string) []string {
	return []string{
		"/v1/domain/example.com", "/v1/domain/example.com/datasets/1/urls", "/v1/datasets", "/v1/versions",
		"/", "/?domain=example.com", "/?domain=example.com&dataset=1",
		"/v1/domain/example.com?version=" + version, "/v1/domain/example.com/datasets/alpha/urls?limit=1",
		"/v1/datasets?version=" + version, "/v1/diff?from=" + version + "&to=" + version,
	}
}

func TestUnchangedAnswersAreNotMadeAgain(t *testing.T) {
	store := small(t)
	old := start(t, store, lookup.Options{}).server.Status().Version
	testlake.Ingest(t, store, "gamma", "b1", []testlake.Record{{URL: "https://example.com/more"}})
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	tags := map[string]string{}
	for _, path := range queries(old) {
		first := s.ask("GET", path)
		tag := first.Header().Get("ETag")
		if first.Code != 200 || tag == "" || first.Header().Get("Cache-Control") != "no-cache" ||
			!slices.Contains(first.Header()["Vary"], "Accept-Encoding") {
			t.Fatalf("%s: %d %v", path, first.Code, first.Header())
		}
		if other, ok := tags[tag]; ok {
			t.Fatalf("%s and %s have the same ETag", path, other)
		}
		tags[tag] = path
		for _, match := range []string{tag, "W/" + tag, `"x", ` + tag, strings.TrimSuffix(tag, `"`) + `-zstd"`, "*"} {
			again := s.ask("GET", path, "If-None-Match", match)
			if again.Code != 304 || again.Body.Len() != 0 || again.Header().Get("ETag") != tag ||
				again.Header().Get("Content-Length") != "" || again.Header().Get("Cache-Control") != "no-cache" {
				t.Errorf("%s with %s: %d %v %s", path, match, again.Code, again.Header(), again.Body)
			}
		}
		if w := s.ask("GET", path, "If-None-Match", `"0123"`); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) {
			t.Errorf("%s with another ETag: %d", path, w.Code)
		}
		// Another server of the same lake and program has the same ones.
		if w := start(t, store, lookup.Options{}).ask("GET", path); w.Header().Get("ETag") != tag {
			t.Errorf("%s: another server has another ETag", path)
		}
	}
	// 304 needs neither the index nor the version.
	path := "/v1/domain/example.com?version=" + old
	tag := s.ask("GET", path).Header().Get("ETag")
	counting := blob.NewCounting(store)
	closed := start(t, counting, lookup.Options{})
	requests := counting.Reads().Requests
	if w := closed.ask("GET", path, "If-None-Match", tag); w.Code != 304 || counting.Reads().Requests != requests {
		t.Errorf("%d after %d requests to the store", w.Code, counting.Reads().Requests-requests)
	}
	// What is current changes.
	tag = s.ask("GET", "/v1/domain/example.com").Header().Get("ETag")
	testlake.Ingest(t, store, "delta", "b1", []testlake.Record{{URL: "https://example.com/delta"}})
	testlake.Publish(t, store)
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := s.ask("GET", "/v1/domain/example.com", "If-None-Match", tag); w.Code != 200 || w.Header().Get("ETag") == tag {
		t.Errorf("after a flip: %d", w.Code)
	}
	// A version named by its id does not.
	if w := s.ask("GET", path, "If-None-Match", start(t, store, lookup.Options{}).ask("GET", path).Header().Get("ETag")); w.Code != 304 {
		t.Errorf("a named version after a flip: %d", w.Code)
	}
	// Errors, health, and what depends on caches are never stored.
	for _, path := range []string{
		"/v1/domain/word", "/v1/none", "/healthz", "/readyz", "/v1/domain/example.com?explain=1", "/?domain=mailto:me",
	} {
		w := s.ask("GET", path, "If-None-Match", "*")
		if w.Code == 304 || w.Header().Get("ETag") != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

func TestAnswersAreCompressed(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 300 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%d", i)})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	path := "/v1/domain/example.com/datasets/1/urls?limit=200"
	plain := s.ask("GET", path)
	if plain.Header().Get("Content-Encoding") != "" {
		t.Fatalf("compressed without being asked: %v", plain.Header())
	}
	tags := []string{plain.Header().Get("ETag")}
	for _, c := range []struct{ accept, want string }{
		{"gzip", "gzip"}, {"zstd", "zstd"}, {"gzip, deflate, br, zstd", "zstd"}, {"GZIP;q=0.5", "gzip"},
		{"gzip;q=1, zstd;q=0.2", "gzip"}, {"gzip;q=0", ""}, {"identity", ""}, {"br", ""}, {"*", "zstd"}, {"*;q=0, gzip", "gzip"},
		{"identity;q=1, gzip;q=0.5", ""}, {"gzip;q=x", ""}, {"zstd;q=0, *", "gzip"}, {"", ""}, {"gzip; q=1.0", "gzip"},
	} {
		w := s.ask("GET", path, "Accept-Encoding", c.accept)
		if got := w.Header().Get("Content-Encoding"); got != c.want {
			t.Errorf("Accept-Encoding %q: %q", c.accept, got)
			continue
		}
		if w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Errorf("Accept-Encoding %q: Content-Length %s of %d", c.accept, w.Header().Get("Content-Length"), w.Body.Len())
		}
		if got := unpacked(t, c.want, w.Body); !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("Accept-Encoding %q: %.100q", c.accept, got)
		}
		if c.want != "" && w.Body.Len() > plain.Body.Len()/2 {
			t.Errorf("%s: %d bytes of %d", c.want, w.Body.Len(), plain.Body.Len())
		}
		tags = append(tags, w.Header().Get("ETag"))
	}
	slices.Sort(tags)
	if n := len(slices.Compact(tags)); n != 3 {
		t.Errorf("%d ETags for three encodings", n)
	}
	// Small answers are not worth it.
	if w := s.ask("GET", "/v1/domain/example.com", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d bytes were compressed", w.Body.Len())
	}
}

// decoded returns a body without its content encoding.
func decoded(encoding string, body []byte) ([]byte, error) {
	switch encoding {
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case "zstd":
		r, err := zstd.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return body, nil
}

func unpacked(t *testing.T, encoding string, body io.Reader) []byte {
	t.Helper()
	data, err := io.ReadAll(body)
	if err == nil {
		data, err = decoded(encoding, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestHeadersOfAnswers(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	version := s.server.Status().Version
	// Link is what next says.
	w := s.ask("GET", "/v1/domain/example.com/datasets/1/urls?limit=1")
	var page urlsAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || page.Next == nil {
		t.Fatalf("%v %s", err, w.Body)
	}
	if got := w.Header().Get("Link"); got != "<"+*page.Next+`>; rel="next"` {
		t.Errorf("Link: %s, next: %s", got, *page.Next)
	}
	if w := s.ask("GET", *page.Next); w.Header().Get("Link") != "" {
		t.Errorf("the last page has %s", w.Header().Get("Link"))
	}
	// HEAD has the status and the validator of GET, no body, and reads less.
	for _, path := range append(queries(version), "/v1/domain/word", "/v1/domain/example.com/datasets/9/urls", "/healthz") {
		get, head := s.ask("GET", path), s.ask("HEAD", path)
		if head.Code != get.Code || head.Body.Len() != 0 || head.Header().Get("ETag") != get.Header().Get("ETag") ||
			head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
			t.Errorf("HEAD %s: %d %v, GET: %d %v", path, head.Code, head.Header(), get.Code, get.Header())
		}
		if n := head.Header().Get("Content-Length"); n != "" && n != fmt.Sprint(get.Body.Len()) {
			t.Errorf("HEAD %s: Content-Length %s of %d", path, n, get.Body.Len())
		}
	}
	// A request id is taken over if it is harmless, and else made.
	if w := s.ask("GET", "/healthz", "X-Request-Id", "Req-1_a"); w.Header().Get("X-Request-Id") != "Req-1_a" ||
		!strings.Contains(s.log.String(), `"request_id":"Req-1_a"`) {
		t.Errorf("%v, %s", w.Header(), s.log.String())
	}
	made := map[string]bool{}
	for _, bad := range []string{"", "a b", "https://example.com/", strings.Repeat("x", 65), "é", "a\x00"} {
		id := s.ask("GET", "/healthz", "X-Request-Id", bad).Header().Get("X-Request-Id")
		if !saneID(id) || id == bad || made[id] {
			t.Errorf("%q became %q", bad, id)
		}
		made[id] = true
	}
}

func TestCrossOrigin(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	const path = "/v1/domain/example.com"
	allowed := func(origin string) string {
		return s.ask("GET", path, "Origin", origin).Header().Get("Access-Control-Allow-Origin")
	}
	if got := allowed("https://a.test"); got != "" {
		t.Errorf("without --cors-origin: %s", got)
	}
	if w := s.ask("OPTIONS", path, "Origin", "https://a.test"); w.Code != 405 {
		t.Errorf("OPTIONS without --cors-origin: %d", w.Code)
	}
	s.with(Origins([]string{"https://a.test", "https://b.test"}))
	if got := allowed("https://b.test"); got != "https://b.test" {
		t.Errorf("an allowed origin: %q", got)
	}
	if got := allowed("https://c.test"); got != "" {
		t.Errorf("another origin: %q", got)
	}
	if w := s.ask("GET", path); !slices.Contains(w.Header()["Vary"], "Origin") {
		t.Errorf("Vary: %v", w.Header()["Vary"])
	}
	w := s.ask("OPTIONS", path, "Origin", "https://a.test", "Access-Control-Request-Method", "GET")
	if w.Code != 204 || w.Body.Len() != 0 || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Authorization") ||
		w.Header().Get("Access-Control-Allow-Origin") != "https://a.test" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := s.ask("OPTIONS", path, "Origin", "https://c.test"); w.Code != 204 || w.Header().Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	s.with(Origins([]string{"*"}))
	if got := allowed("https://c.test"); got != "*" {
		t.Errorf("any origin: %q", got)
	}
	// What says how much there is, and of which version, can be read.
	w = s.ask("GET", path+"/datasets/1/urls?format=csv", "Origin", "https://c.test")
	for _, name := range []string{"Urlake-Version", "Urlake-Total"} {
		if w.Header().Get(name) == "" || !strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
	// Errors can be read too.
	if w := s.ask("GET", "/v1/domain/word", "Origin", "https://c.test"); w.Code != 400 || w.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestClients(t *testing.T) {
	h := &handler{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	for _, c := range []struct {
		peer string
		list []string
		want string
	}{
		{"192.0.2.1:99", nil, "192.0.2.1"},
		{"192.0.2.1:99", []string{"198.51.100.1"}, "192.0.2.1"}, // no proxy
		{"10.1.2.3:99", nil, "10.1.2.3"},
		{"10.1.2.3:99", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.1.2.3:99", []string{"203.0.113.9, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		{"10.1.2.3:99", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1"},
		{"10.1.2.3:99", []string{"nonsense, 10.9.9.9"}, "10.9.9.9"},
		{"10.1.2.3:99", []string{""}, "10.1.2.3"},
		{"[::1]:99", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::"},
		{"[::ffff:192.0.2.1]:99", nil, "192.0.2.1"},
		{"[fe80::1%eth0]:99", nil, "fe80::"},
	} {
		r := &request{Request: &http.Request{RemoteAddr: c.peer, Header: http.Header{}}}
		if c.list != nil {
			r.Header["X-Forwarded-For"] = c.list
		}
		if got := h.client(r).addr.String(); got != c.want {
			t.Errorf("%s for %q: %s, want %s", c.peer, c.list, got, c.want)
		}
	}
	if got := h.client(&request{Request: &http.Request{RemoteAddr: "10.0.0.1:1"}, principal: "ada"}); got != (client{principal: "ada"}) {
		t.Errorf("a principal behind a proxy: %v", got)
	}
	if got := h.client(&request{Request: &http.Request{RemoteAddr: "@"}}); got != (client{}) {
		t.Errorf("a peer without an address: %v", got)
	}
}

// stalled is a store whose reads wait until their context ends, or until they are let go.
type stalled struct {
	blob.Store
	on      atomic.Bool
	waiting atomic.Int64
	once    sync.Once
	gone    chan struct{}
}

func stall(store blob.Store) *stalled { return &stalled{Store: store, gone: make(chan struct{})} }

// letGo ends all waits.
func (s *stalled) letGo() { s.once.Do(func() { close(s.gone) }) }

func (s *stalled) wait(ctx context.Context) error {
	if !s.on.Load() {
		return nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-ctx.Done():
		return errors.New("the store was asked for too long") // as a client that hides its cause
	case <-s.gone:
		return nil
	}
}

func (s *stalled) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if err := s.wait(ctx); err != nil {
		return nil, blob.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *stalled) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.ReadRange(ctx, key, off, n)
}

// TestEveryQueryHasADeadline asks a store that does not answer.
func TestEveryQueryHasADeadline(t *testing.T) {
	inner := small(t)
	old := start(t, inner, lookup.Options{}).server.Status().Version
	testlake.Ingest(t, inner, "gamma", "b1", []testlake.Record{{URL: "https://example.com/more"}})
	testlake.Publish(t, inner)
	store := stall(inner)
	s := start(t, store, lookup.Options{Deadline: 300 * time.Millisecond})
	t.Cleanup(store.letGo)
	store.on.Store(true)
	for _, path := range []string{
		"/v1/domain/example.com", "/v1/domain/example.com/datasets/1/urls", "/v1/versions",
		"/v1/domain/example.com?version=" + old, "/v1/datasets?version=" + old, "/v1/diff", "/v1/diff?from=" + old,
	} {
		w := s.ask("GET", path)
		var p problemDocument
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 504 || p.Type != "/problems/deadline" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/?domain=example.com", "/?domain=example.com&dataset=1", "/?version=" + old} {
		if w := s.ask("GET", path); w.Code != 504 || !strings.Contains(w.Body.String(), "too slow") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	// What needs no store is answered.
	if w := s.ask("GET", "/v1/datasets"); w.Code != 200 {
		t.Errorf("datasets: %d %s", w.Code, w.Body)
	}
}

// TestOpeningsAreBounded asks for many old versions while the store does not answer. Few are opened
// at once, one client has no more than half of these turns, and what finds no turn is shed or late.
func TestOpeningsAreBounded(t *testing.T) {
	inner := small(t)
	for n := range 2 * lookup.MaxOpenings {
		testlake.Ingest(t, inner, "gamma", fmt.Sprintf("b%d", n), []testlake.Record{{URL: "https://example.com/more"}})
		testlake.Publish(t, inner)
	}
	m, _, err := catalog.ReadManifest(t.Context(), inner)
	if err != nil {
		t.Fatal(err)
	}
	store := stall(inner)
	s := start(t, store, lookup.Options{Deadline: time.Hour, KeepOpen: 100})
	t.Cleanup(store.letGo)
	store.on.Store(true)
	var done sync.WaitGroup
	for i, ref := range m.Versions[:len(m.Versions)-1] {
		done.Go(func() {
			r := httptest.NewRequest("GET", "/v1/domain/example.com?version="+ref.ID, nil)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%2)
			w := httptest.NewRecorder()
			s.web.ServeHTTP(w, r)
			if w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	gate := s.gate("opening")
	gate.until(t, "the rest waits", func(st gateStats) bool {
		return st.working == lookup.MaxOpenings && st.waiting == int64(len(m.Versions)-1-lookup.MaxOpenings)
	})
	testenv.Until(t, "versions are being opened", func() bool { return store.waiting.Load() == lookup.MaxOpenings })
	// Who asks for one that is open does not wait.
	store.on.Store(false)
	if w := s.ask("GET", "/v1/domain/example.com?version="+m.CurrentVersion); w.Code != 200 {
		t.Errorf("the current version: %d", w.Code)
	}
	store.letGo()
	done.Wait()
}

// gate finds a gate of the service.
func (s *service) gate(name string) *gate {
	for _, g := range s.metrics.state.gates {
		if g.name == name {
			return g
		}
	}
	s.t.Fatalf("no gate %s", name)
	return nil
}

// TestLightAndHeavyDoNotWaitForEachOther fills one gate and asks at the other.
func TestLightAndHeavyDoNotWaitForEachOther(t *testing.T) {
	const urls = "/v1/domain/example.com/datasets/1/urls"
	light := []string{
		"/v1/domain/example.com", urls, urls + "?host=www.example.com&prefix=/a&unique=0", "/v1/datasets", "/", "/v1/domains?prefix=e",
		"/v1/domains?suffix=", "/v1/domains?suffix=com", "/v1/domains?suffix=com&prefix=", "/domains?suffix=com&prefix=+",
	}
	heavy := []string{
		urls + "?limit=10000", urls + "?limit=500", urls + "?format=csv", urls + "?unique=1", urls + "?filter=a%3Db", urls + "?from=2020-01-01",
		urls + "?to=2020-01-01&offset=0", "/v1/domains?prefix=e&suffix=com", "/v1/domains?limit=500", "/v1/domain/example.com/tree",
		"/?domain=example.com&dataset=1&unique=1", "/domains?prefix=e&suffix=com", "/?domain=example.com&dataset=1&filter=&filter=a~b",
	}
	for full, paths := range map[string][2][]string{"light": {light, heavy}, "heavy": {heavy, light}} {
		s := start(t, small(t), lookup.Options{}) // that keeps no answer yet
		g := s.gate(full)
		g.wait = 0
		ticket := g.admitted(t, clientNumber(77), g.budget)
		for _, path := range paths[0] {
			w := s.ask("GET", path)
			var p problemDocument
			err := json.Unmarshal(w.Body.Bytes(), &p)
			if err != nil || w.Code != 503 || p.Type != "/problems/overloaded" || w.Header().Get("Retry-After") == "" {
				t.Errorf("%s at a full gate: %d %s", path, w.Code, w.Body)
			}
		}
		for _, path := range append(paths[1], "/healthz", "/readyz") {
			if w := s.ask("GET", path); w.Code != 200 {
				t.Errorf("%s while %s is full: %d %s", path, full, w.Code, w.Body)
			}
		}
		ticket.release()
		for _, path := range append(light, heavy...) {
			if w := s.ask("GET", path); w.Code != 200 {
				t.Errorf("%s when there is room again: %d", path, w.Code)
			}
		}
		if st := g.stats(); st.used != 0 || st.admitted != 0 {
			t.Errorf("after all answers %+v", st)
		}
	}
}

// long returns a lake with a page that is too large for any socket's buffers.
func long(t *testing.T) (store blob.Store, path string) {
	t.Helper()
	store = blob.NewMemory()
	var records []testlake.Record
	for i := range 2000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%05d/%s", i, strings.Repeat("long", 1500))})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	return store, "/v1/domain/example.com/datasets/1/urls?limit=10000"
}

// TestAnswersAreCountedUntilTheyAreReceived has clients that do not read. What their answers take
// is what the gate holds, others are shed, and the clients are cut after a while.
func TestAnswersAreCountedUntilTheyAreReceived(t *testing.T) {
	store, path := long(t)
	s := start(t, store, lookup.Options{})
	s.with(AnswerBytes(40<<20), func(h *handler) { h.flow.Grace = time.Hour })
	web := httptest.NewServer(s.web)
	defer web.Close()
	g := s.gate("heavy")
	g.wait = 0
	var clients []net.Conn
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	for range 20 {
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		answered := s.answered()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, "it is answered or shed", func() bool {
			st := g.stats()
			return s.answered() > answered || st.admitted == int64(len(clients)) && st.working == 0
		})
		if st := g.stats(); st.used > st.budget {
			t.Fatalf("the gate holds %+v", st)
		}
	}
	if st := g.stats(); st.admitted == 0 || st.admitted > 3 || st.used < 8<<20 {
		t.Errorf("of 20 clients with answers of 12 MB %+v", st)
	}
	if n := g.shed[shedClient].Load() + g.shed[shedFull].Load(); n < 16 {
		t.Errorf("%d were shed", n)
	}
	for _, c := range clients {
		c.Close()
	}
	g.until(t, "the memory is free again", func(st gateStats) bool { return st.used == 0 && st.admitted == 0 })
}

// answered is the number of requests that have ended.
func (s *service) answered() (n uint64) {
	families, err := s.metrics.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "urlake_http_request_duration_seconds" {
			for _, m := range f.Metric {
				n += m.Histogram.GetSampleCount()
			}
		}
	}
	return n
}

func TestSlowReadersAreCut(t *testing.T) {
	store, path := long(t)
	s := start(t, store, lookup.Options{})
	s.with(func(h *handler) { h.flow.Grace, h.flow.Rate = time.Millisecond, 1<<30 })
	web := httptest.NewServer(s.web)
	defer web.Close()
	c, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the client is cut", func() bool { return s.answered() == 1 && s.gate("heavy").stats().used == 0 })
	if !strings.Contains(s.log.String(), `"cut":true`) {
		t.Errorf("the log does not say so: %s", s.log.String())
	}
	// A client that reads gets everything, however long it is.
	s.with()
	fast := httptest.NewServer(s.web)
	defer fast.Close()
	resp, err := http.Get(fast.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page urlsAnswer
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || page.Returned != 2000 {
		t.Errorf("%v, %d rows", err, page.Returned)
	}
}

// streaming is a service with a route that streams lines.
func streaming(t *testing.T, lines int, end error) *httptest.Server {
	t.Helper()
	s := start(t, small(t), lookup.Options{})
	h := &handler{
		server: s.server, log: slog.New(slog.DiscardHandler), flow: defaultFlow,
		gates: gates{light: testGate(1<<20, 1, 8)},
	}
	rt := &route{
		name: "lines", measured: s.metrics.route("lines"), weight: always(1),
		streams: func(*request) bool { return true }, streamed: s.metrics.route("lines_stream"),
		answer: func(r *request) error {
			snap, err := h.acquire(r.Context(), r, "")
			if err != nil {
				return err
			}
			defer snap.Release()
			r.of(7, snap)
			if lines == 0 {
				return end
			}
			out, err := h.begin(r, "text/plain")
			if err != nil {
				return err
			}
			var piece []byte
			for i := 0; i < lines && r.Method != http.MethodHead; i++ {
				if piece = fmt.Appendf(piece, "%08d\n", i); len(piece) < streamPiece {
					continue
				}
				if err := out.write(piece); err != nil {
					return err
				}
				piece = piece[:0]
			}
			if end != nil {
				return end
			}
			return out.end(piece, int64(lines))
		},
	}
	s.web.HandleFunc("GET /lines", func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, rt) })
	web := httptest.NewServer(s.web)
	t.Cleanup(func() {
		web.Close()
		if st := h.gates.light.stats(); st.admitted != 0 || st.used != 0 {
			t.Errorf("after all streams the gate holds %+v", st)
		}
	})
	return web
}

func TestStreams(t *testing.T) {
	const lines = 100_000
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&want, "%08d\n", i)
	}
	web := streaming(t, lines, nil)
	// Compression is asked for by hand, so that the client does not undo it.
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	get := func(method, base, accept string) (status int, header http.Header, body []byte, err error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+"/lines", nil)
		if err != nil {
			t.Fatal(err)
		}
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header, body, err
	}
	for _, accept := range []string{"", "gzip", "zstd"} {
		status, header, body, err := get("GET", web.URL, accept)
		if err != nil || status != 200 || header.Get("Content-Encoding") != accept || header.Get("Etag") == "" ||
			header.Get("Content-Type") != "text/plain" {
			t.Errorf("%q: %d %v, %v", accept, status, header, err)
		}
		if got := unpacked(t, accept, bytes.NewReader(body)); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%q: %d bytes, want %d", accept, len(got), want.Len())
		}
		if status, header, _, err := get("HEAD", web.URL, accept); err != nil || status != 200 || header.Get("Content-Type") != "text/plain" {
			t.Errorf("HEAD: %d %v, %v", status, header, err)
		}
	}
	// An error before the first byte is a problem. A later one cuts the connection.
	fault := badParameter("line", "is wrong")
	if status, header, _, err := get("GET", streaming(t, 0, fault).URL, ""); err != nil || status != 400 ||
		header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("an early error: %d %v, %v", status, header, err)
	}
	for _, accept := range []string{"", "gzip", "zstd"} {
		if status, _, _, err := get("GET", streaming(t, lines, fault).URL, accept); status != 200 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, a late error: %d, %v", accept, status, err)
		}
	}
}

func TestReadinessDrains(t *testing.T) {
	ready := &Readiness{}
	s := start(t, small(t), lookup.Options{}).with(Ready(ready))
	if ready.Watched(time.Hour) {
		t.Error("nobody has asked yet")
	}
	if w := s.ask("GET", "/readyz"); w.Code != 200 || !ready.Watched(time.Hour) {
		t.Errorf("%d, watched: %t", w.Code, ready.Watched(time.Hour))
	}
	ready.Stop()
	w := s.ask("GET", "/readyz")
	if w.Code != 503 || !strings.Contains(w.Body.String(), "stop") || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.ask("GET", "/v1/domain/example.com"); w.Code != 200 {
		t.Errorf("other requests: %d", w.Code)
	}
}

// A parameter that is no number passes the gate as a light request, and is an error.
func TestWeights(t *testing.T) {
	weight := rows(100, 10_000)
	for text, want := range map[string]int64{"": 100, "limit=7": 7, "limit=99999": 10_000, "limit=99999999999999999999": 10_000, "limit=x": 0, "limit=-1": 0} {
		query, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := weight(&request{query: query}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
