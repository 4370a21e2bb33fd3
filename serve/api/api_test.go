package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// service is a server of one lake, its handler, and its log.
type service struct {
	t       testing.TB
	store   blob.Store
	server  *lookup.Server
	metrics *Metrics
	web     *Handler
	routes  map[string]*route
	log     bytes.Buffer
}

func start(t testing.TB, store blob.Store, opt lookup.Options) *service {
	t.Helper()
	s := &service{t: t, store: store}
	opt.CacheDir = t.TempDir()
	opt.Log = slog.New(slog.DiscardHandler)
	counting := blob.NewCounting(store)
	s.server = lookup.NewServer(counting, opt)
	t.Cleanup(s.server.Close)
	if err := s.server.Refresh(t.Context()); err != nil && !errors.Is(err, catalog.ErrNoVersion) {
		t.Fatal(err)
	}
	s.metrics = NewMetrics(s.server, counting)
	s.web, s.routes = routes(s.server, slog.New(slog.NewJSONHandler(&s.log, nil)), s.metrics)
	return s
}

func (s *service) do(method, path string) *httptest.ResponseRecorder {
	s.t.Helper()
	w, _ := s.send(httptest.NewRequest(method, path, nil))
	return w
}

// get decodes the answer into v and returns its status. Unknown members fail the test.
func (s *service) get(path string, v any) int {
	s.t.Helper()
	w := s.do("GET", path)
	dec := json.NewDecoder(w.Body)
	if v != nil && w.Code == http.StatusOK {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		s.t.Fatalf("GET %s: %d: %v", path, w.Code, err)
	}
	return w.Code
}

type answer struct {
	Domain        string     `json:"domain"`
	DomainID      string     `json:"domain_id"`
	Version       string     `json:"version"`
	TakedownEpoch int        `json:"takedown_epoch"`
	Returned      int        `json:"returned"`
	Complete      bool       `json:"complete"`
	StoppedBy     *string    `json:"stopped_by"`
	NextCursor    *string    `json:"next_cursor"`
	Next          *string    `json:"next"`
	Explain       *explained `json:"explain"`
	PublicSuffix  string     `json:"public_suffix_list"`
	Others        []string   `json:"other_domains"`
}

type explained struct {
	Requests int `json:"requests"`
	Bytes    int `json:"bytes"`
	Reads    []struct {
		Op     string `json:"op"`
		Object string `json:"object"`
		Offset int    `json:"offset"`
		Bytes  int    `json:"bytes"`
	} `json:"reads"`
}

type urlsAnswer struct {
	answer
	DatasetID  int       `json:"dataset_id"`
	Total      int       `json:"total_est"`
	Offset     int       `json:"offset"`
	Items      []urlItem `json:"items"`
	NextOffset *int      `json:"next_offset"`
}

type urlItem struct {
	ID  string  `json:"url_id"`
	URL string  `json:"url"`
	TS  *string `json:"ts"`
}

func ptr[T any](v T) *T { return &v }

// small returns a lake of two datasets.
func small(t testing.TB) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "https://Example.com:443/b?z=1&a=2#f", TS: 1_700_000_000_123, HasTS: true, Size: 10, HasSize: true},
		{URL: "http://www.example.com:8080/a", TS: 1_600_000_000_000, HasTS: true, Size: 5, HasSize: true},
		{URL: "https://other.test/"},
	})
	testlake.Ingest(t, store, "beta", "b1", []testlake.Record{{URL: "https://example.com/only"}})
	testlake.Publish(t, store)
	return store
}

func TestBothQueries(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	version := s.server.Status().Version
	for _, path := range []string{
		"/v1/domain/example.com", "/domain/example.com", "/v1/domain/EXAMPLE.com.",
		"/v1/domain/" + url.PathEscape("https://www.example.com/a?b#c"),
	} {
		var got domainAnswer
		if status := s.get(path, &got); status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		want := domainAnswer{
			answer: answer{
				Domain: "example.com", DomainID: urlnorm.FormatID(urlnorm.DomainID("example.com")),
				Version: version, Returned: 2, Complete: true,
			},
			Total: 2,
			Datasets: []datasetOf{
				{1, "alpha", 2, ptr(15), false, ptr("2020-09-13T12:26:40.000Z"), ptr("2023-11-14T22:13:20.123Z")},
				{2, "beta", 1, nil, false, nil, nil},
			},
		}
		if strings.Contains(path, "www.") {
			want.Host, want.TotalsOf = "www.example.com", "domain"
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(domainAnswer{}, urlsAnswer{})); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", path, diff)
		}
	}
	item := func(u string, ts *string) urlItem {
		return urlItem{urlnorm.FormatID(urlnorm.URLID([]byte(u))), u, ts}
	}
	all := []urlItem{
		item("https://example.com/b?a=2&z=1", ptr("2023-11-14T22:13:20.123Z")),
		item("http://www.example.com:8080/a", ptr("2020-09-13T12:26:40.000Z")),
	}
	for _, path := range []string{
		"/v1/domain/example.com/datasets/1/urls",
		"/domain/example.com/dataset/1/urls",
		"/v1/domain/example.com/datasets/1/urls?version=" + version,
	} {
		var got urlsAnswer
		if status := s.get(path, &got); status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		want := urlsAnswer{
			answer: answer{
				Domain: "example.com", DomainID: urlnorm.FormatID(urlnorm.DomainID("example.com")),
				Version: version, Returned: 2, Complete: true,
			},
			DatasetID: 1, Total: 2, Items: all,
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(domainAnswer{}, urlsAnswer{})); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", path, diff)
		}
	}
	// Following next reads the whole list.
	var got []urlItem
	next := "/v1/domain/example.com/datasets/1/urls?limit=1"
	for pages := 0; ; pages++ {
		var page urlsAnswer
		if status := s.get(next, &page); status != 200 {
			t.Fatalf("%s: %d", next, status)
		}
		got = append(got, page.Items...)
		if page.Next == nil {
			if !page.Complete || page.NextOffset != nil || page.NextCursor != nil || pages != 1 {
				t.Fatalf("%+v", page)
			}
			break
		}
		if page.Complete || *page.NextOffset != pages+1 || !strings.Contains(*page.Next, "version="+version) {
			t.Fatalf("%+v", page)
		}
		next = *page.Next
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Fatalf("pages (-want +got):\n%s", diff)
	}
}

func TestAbsentDomains(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	var d domainAnswer
	status := s.get("/v1/domain/no-such.example", &d)
	if status != 200 || d.Total != 0 || d.Datasets == nil || !d.Complete {
		t.Fatalf("%d: %+v", status, d)
	}
	for _, path := range []string{
		"/v1/domain/no-such.example/datasets/1/urls", "/v1/domain/other.test/datasets/2/urls",
		"/v1/domain/example.com/datasets/1/urls?offset=2", "/v1/domain/example.com/datasets/1/urls?offset=99999999999",
	} {
		var u urlsAnswer
		status := s.get(path, &u)
		if status != 200 || len(u.Items) != 0 || u.Items == nil || !u.Complete || u.NextOffset != nil {
			t.Fatalf("%s: %d: %+v", path, status, u)
		}
	}
}

type problemDocument struct {
	Type, Title, Detail, Reason, Parameter, File, Section, Offset string
	Status                                                        int
}

func TestProblems(t *testing.T) {
	store := small(t)
	s := start(t, store, lookup.Options{})
	var page urlsAnswer
	s.get("/v1/domain/example.com/datasets/1/urls?limit=1", &page)
	cursor := url.QueryEscape(*page.NextCursor)
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/v1/domain/mailto:me", 400, "not-a-host"},
		{"GET", "/v1/domain/word", 400, "not-a-host"},
		{"GET", "/v1/domain/example.com/datasets/9/urls", 404, "unknown-dataset"},
		{"GET", "/v1/domain/example.com/datasets/x/urls", 404, "unknown-dataset"},
		{"GET", "/v1/domain/example.com/datasets/4294967296/urls", 404, "unknown-dataset"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?limit=0", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?limit=many", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?offset=-1", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?offset=1&cursor=" + cursor, 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?limit=%zz", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?lmit=1", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?limit=1&limit=2", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com?version=", 400, "bad-parameter"},
		{"GET", "/v1/diff?from=", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com?offset=1", 400, "bad-parameter"},
		{"GET", "/v1/datasets?limit=1", 400, "bad-parameter"},
		{"GET", "/v1/datasets?cursor=" + cursor, 400, "bad-cursor"},
		{"GET", "/healthz?x", 400, "bad-parameter"},
		{"GET", "/v1/domain/example.com/datasets/1/urls?cursor=forged", 400, "bad-cursor"},
		{"GET", "/v1/domain/example.com/datasets/2/urls?cursor=" + cursor, 400, "bad-cursor"},
		{"GET", "/v1/domain/other.test/datasets/1/urls?cursor=" + cursor, 400, "bad-cursor"},
		{"GET", "/v1/domain/example.com?cursor=" + cursor, 400, "bad-cursor"},
		{"GET", "/v1/domain/example.com?version=1", 400, "bad-version"},
		{"GET", "/v1/domain/example.com?version=newest", 404, "unknown-version"},
		{"GET", "/v1/domain/example.com?version=20200101T000000.000Z-00000000", 410, "version-gone"},
		{"GET", "/v1/domain/example.com?version=29990101T000000.000Z-00000000", 404, "unknown-version"},
		{"GET", "/v1/nothing", 404, "no-such-path"},
		{"GET", "/v1/domain/", 404, "no-such-path"},
		{"GET", "/v1//versions", 404, "no-such-path"},
		{"GET", "/v1/../healthz", 404, "no-such-path"},
		{"GET", "//v1/domain/https%3A%2F%2Fexample.com", 404, "no-such-path"},
		{"GET", "/v1/domain/https://example.com", 404, "no-such-path"},
		{"POST", "/v1/domain/https://example.com", 404, "no-such-path"},
		{"POST", "/v1/domain/example.com", 405, "method-not-allowed"},
		{"DELETE", "/", 405, "method-not-allowed"},
	} {
		w := s.do(c.method, c.path)
		var p problemDocument
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s: %v: %s", c.path, err, w.Body)
		}
		if w.Code != c.status || p.Status != c.status || p.Type != "/problems/"+c.kind || p.Title == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
	var p problemDocument
	if s.get("/v1/domain/example.com/datasets/1/urls?offset=99999999999999999999", &p); !strings.Contains(p.Detail, "at most") {
		t.Errorf("an offset that is too large: %+v", p)
	}
	if s.get("/v1/domain/mailto:me", &p); p.Reason != "scheme" {
		t.Errorf("reason %q", p.Reason)
	}
	s.get("/v1/domain/example.com/datasets/1/urls?lmit=1", &p)
	if p.Parameter != "lmit" || !strings.Contains(p.Detail, "cursor, explain, fields, filter, format, from, host, limit, offset, prefix, to, unique, version") {
		t.Errorf("unknown parameter: %+v", p)
	}
}

func TestDamageIsAProblem(t *testing.T) {
	store := small(t)
	var part string
	for info, err := range store.List(t.Context(), "urls/") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] ^= 0x10
		}
		if _, err := store.Put(t.Context(), info.Key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		part = info.Key
	}
	s := start(t, store, lookup.Options{})
	var p problemDocument
	status := s.get("/v1/domain/example.com/datasets/2/urls", &p)
	if status != 500 || p.Type != "/problems/corrupt" || p.File != part || p.Section == "" ||
		!strings.HasSuffix(p.Detail, lake.Remedy("", part)) {
		t.Fatalf("%d: %+v", status, p)
	}
	if !strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Fatalf("log: %s", s.log.String())
	}
}

func TestServerWithoutAVersion(t *testing.T) {
	store := blob.NewMemory()
	s := start(t, store, lookup.Options{})
	for _, path := range []string{
		"/readyz", "/v1/domain/example.com", "/v1/domain/example.com/datasets/1/urls", "/v1/datasets",
	} {
		w := s.do("GET", path)
		var p problemDocument
		err := json.Unmarshal(w.Body.Bytes(), &p)
		if err != nil || w.Code != 503 || !strings.Contains(p.Detail, catalog.ErrNoVersion.Error()) ||
			w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := s.do("GET", "/healthz"); w.Code != 200 {
		t.Errorf("healthz: %d", w.Code)
	}
	if w := s.do("GET", "/"); w.Code != 503 || !strings.Contains(w.Body.String(), catalog.ErrNoVersion.Error()) {
		t.Errorf("start page: %d %s", w.Code, w.Body)
	}
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, store)
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ready map[string]any
	status := s.get("/readyz", &ready)
	if status != 200 || ready["version"] == "" || ready["public_suffix_list_missing"] != false || ready["error"] != nil {
		t.Fatalf("%d %v", status, ready)
	}
	// If the manifest is damaged later, the version is still served, and /readyz reports the
	// damage.
	if _, err := store.Put(t.Context(), catalog.ManifestKey, []byte("{}"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Refresh(t.Context()); !errors.Is(err, codec.ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	status = s.get("/readyz", &ready)
	if status != 200 || !strings.Contains(fmt.Sprint(ready["error"]), catalog.ManifestKey) {
		t.Fatalf("%d %v", status, ready)
	}
}

func TestExplainListsReads(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	var cold, warm urlsAnswer
	s.get("/v1/domain/example.com/datasets/1/urls?explain=1", &cold)
	if cold.Explain == nil || cold.Explain.Requests != 6 || len(cold.Explain.Reads) != 6 {
		t.Fatalf("%+v", cold.Explain)
	}
	bytes, parts := 0, 0
	for _, r := range cold.Explain.Reads {
		if r.Op != "read" || r.Bytes == 0 {
			t.Errorf("%+v", r)
		}
		if strings.HasPrefix(r.Object, "urls/") {
			parts++
		}
		bytes += r.Bytes
	}
	if bytes != cold.Explain.Bytes || parts != 4 {
		t.Fatalf("%+v", cold.Explain)
	}
	s.get("/v1/domain/example.com/datasets/1/urls?explain=1", &warm)
	if warm.Explain == nil || warm.Explain.Requests != 0 {
		t.Fatalf("%+v", warm.Explain)
	}
}

func TestLimitIsCapped(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range lookup.MaxLimit + 5 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%d", i)})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	var page urlsAnswer
	s.get("/v1/domain/example.com/datasets/1/urls?limit=20000", &page)
	if len(page.Items) != lookup.MaxLimit || page.StoppedBy == nil || *page.StoppedBy != "limit" || page.Complete ||
		page.Total != len(records) {
		t.Fatalf("%d items of %d, stopped by %v", len(page.Items), page.Total, page.StoppedBy)
	}
	s.get(*page.Next, &page)
	if len(page.Items) != 5 || page.StoppedBy != nil || !page.Complete {
		t.Fatalf("%d items, stopped by %v", len(page.Items), page.StoppedBy)
	}
	s.get("/v1/domain/example.com/datasets/1/urls", &page)
	if len(page.Items) != lookup.DefaultLimit {
		t.Fatalf("%d items by default", len(page.Items))
	}
}

func TestMissingPublicSuffixListIsReported(t *testing.T) {
	store := blob.NewMemory()
	list := testlake.SetList(t, store, "uk co.uk")
	testlake.Ingest(t, store, "alpha", "b1",
		[]testlake.Record{{URL: "http://co.uk/"}, {URL: "http://www.example.co.uk/"}})
	testlake.Publish(t, store)
	testlake.LoseList(t, store, list)
	s := start(t, store, lookup.Options{})
	var d domainAnswer
	s.get("/v1/domain/example.co.uk", &d)
	if d.PublicSuffix != list.Identity() || len(d.Others) != 1 || d.Others[0] != "co.uk" {
		t.Fatalf("%+v", d)
	}
	var ready map[string]any
	if s.get("/readyz", &ready); ready["public_suffix_list_missing"] != true {
		t.Fatalf("%v", ready)
	}
}

func TestLogsContainNoURL(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	secret := "s3cret"
	for _, path := range []string{
		"/v1/domain/" + url.PathEscape("https://user:"+secret+"@example.com/"+secret),
		"/v1/domain/" + url.PathEscape("mailto:"+secret),
		"/v1/domain/example.com/datasets/1/urls?cursor=" + secret,
		"/" + secret,
	} {
		s.do("GET", path)
	}
	s.do("GET", "/v1/domain/example.com/datasets/1/urls")
	text := s.log.String()
	for _, bad := range []string{secret, "example.com", "http"} {
		if strings.Contains(text, bad) {
			t.Errorf("the log contains %q: %s", bad, text)
		}
	}
	for _, want := range []string{
		`"domain_id":"` + urlnorm.FormatID(urlnorm.DomainID("example.com")) + `"`,
		`"dataset_id":1`, `"rows":2`, `"us":`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s: %s", want, text)
		}
	}
}

func TestWebPages(t *testing.T) {
	store := small(t)
	var records []testlake.Record
	for i := range lookup.DefaultLimit + 1 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://many.test/%03d?<script>", i)})
	}
	testlake.Ingest(t, store, "gamma", "b1", records)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	links := regexp.MustCompile(`href="(/\?[^"]*)"`)
	for _, c := range []struct {
		query  string
		status int
		has    []string
		hasNot []string
	}{
		{"", 200, []string{"105 URLs in 3 datasets", "alpha", "beta"}, []string{"role=\"alert\""}},
		{"?domain=https%3A%2F%2Fwww.EXAMPLE.com%2F", 200,
			[]string{"<h2>www.example.com", "A host of <a href=\"/?domain=example.com\">", "In 2 datasets", "alpha", "beta", "2020-09-13", "2023-11-14"},
			[]string{"gamma"}},
		{"?domain=many.test", 200, []string{"In 1 dataset.", ">101<"}, []string{"<th>first"}},
		{"?domain=nothing.test", 200, []string{"No dataset has"}, []string{"<tbody>"}},
		{"?domain=example.com&dataset=1", 200,
			[]string{"example.com in alpha", "1 to 2 of 2", "https://example.com/b?a=2&amp;z=1", "2023-11-14 22:13:20"},
			[]string{"Next page"}},
		{"?domain=example.com&dataset=3", 200, []string{"has no URL of the domain"}, []string{"<tbody>"}},
		{"?domain=many.test&dataset=3", 200,
			[]string{"1 to 100 of 101", "Next page"}, []string{"<script", "time (UTC)"}},
		{"?domain=mailto%3Ame", 400, []string{"Not a host or URL", `value="mailto:me"`}, nil},
		{"?domain=%22%3E%3Cscript%3E", 400, []string{"Not a host or URL"}, []string{"<script"}},
		{"?domain=example.com&dataset=x", 404, []string{"no such dataset"}, nil},
		{"?domain=example.com&dataset=9", 404, []string{"no such dataset"}, nil},
		{"?domain=example.com&cursor=x", 400, []string{"The cursor does not belong"}, nil},
		{"?domain=example.com&version=20200101T000000.000Z-00000000", 410, []string{"no longer kept"}, nil},
	} {
		w := s.do("GET", "/"+c.query)
		text := w.Body.String()
		if w.Code != c.status || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %v", c.query, w.Code, w.Header())
		}
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q: %s", c.query, want, text)
			}
		}
		for _, bad := range c.hasNot {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the page contains %q: %s", c.query, bad, text)
			}
		}
		for _, link := range links.FindAllStringSubmatch(text, -1) {
			if w := s.do("GET", html.UnescapeString(link[1])); w.Code != 200 {
				t.Errorf("%s: link %s: %d %s", c.query, link[1], w.Code, w.Body)
			}
		}
	}
	first := s.do("GET", "/?domain=many.test&dataset=3").Body.String()
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(first)
	text := s.do("GET", html.UnescapeString(next[1])).Body.String()
	if !strings.Contains(text, "101 to 101 of 101") || strings.Contains(text, "Next page") {
		t.Errorf("the second page: %s", text)
	}
}

// datasetList is an answer of /v1/datasets.
type datasetList struct {
	Version    string        `json:"version"`
	Epoch      int           `json:"takedown_epoch"`
	Total      int           `json:"total_datasets"`
	Rows       int           `json:"rows"`
	Datasets   []datasetInfo `json:"datasets"`
	Returned   int           `json:"returned"`
	Complete   bool          `json:"complete"`
	StoppedBy  *string       `json:"stopped_by"`
	NextCursor *string       `json:"next_cursor"`
	Next       *string       `json:"next"`
}

type datasetInfo struct {
	ID      int     `json:"dataset_id"`
	Name    string  `json:"name"`
	Title   *string `json:"title"`
	Source  *string `json:"source"`
	Licence *string `json:"licence"`
	Rows    int     `json:"rows"`
	Batches int     `json:"batches"`
	Parts   int     `json:"parts"`
	Bytes   int     `json:"bytes"`
}

func TestDatasetsAndStartPage(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	var list datasetList
	status := s.get("/v1/datasets", &list)
	if status != 200 || list.Total != 2 || list.Rows != 4 || list.Datasets[1].Name != "beta" ||
		list.Datasets[0].Rows != 3 {
		t.Fatalf("%d %+v", status, list)
	}
	if list.Returned != 2 || !list.Complete || list.StoppedBy != nil || list.NextCursor != nil || list.Next != nil {
		t.Fatalf("the only page: %+v", list)
	}
	if w := s.do("GET", "/"); w.Code != 200 || !strings.Contains(w.Body.String(), "beta") ||
		!strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := s.do("HEAD", "/v1/domain/example.com"); w.Code != 200 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

// Following next lists every dataset of the version once, even when a version with more datasets is
// published meanwhile.
func TestDatasetsArePaged(t *testing.T) {
	store := blob.NewMemory()
	const n = lookup.MaxDatasets + 3
	for i := range n {
		testlake.Ingest(t, store, fmt.Sprintf("d%04d", i), "b", []testlake.Record{{URL: "https://example.com/"}})
	}
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	version := s.server.Status().Version
	var sizes, ids []int
	for path := "/v1/datasets"; path != ""; {
		var page datasetList
		if status := s.get(path, &page); status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		if page.Version != version || page.Total != n || page.Rows != n || page.Returned != len(page.Datasets) ||
			page.StoppedBy != nil {
			t.Fatalf("%s: version %s, %d datasets, %d rows, %d returned",
				path, page.Version, page.Total, page.Rows, page.Returned)
		}
		sizes = append(sizes, page.Returned)
		for _, d := range page.Datasets {
			if d.Name != fmt.Sprintf("d%04d", len(ids)) {
				t.Fatalf("dataset %d is %+v", len(ids), d)
			}
			ids = append(ids, d.ID)
		}
		if page.Complete != (page.Next == nil) || page.Complete != (page.NextCursor == nil) {
			t.Fatalf("%s: complete is %v, next %v, next_cursor %v", path, page.Complete, page.Next, page.NextCursor)
		}
		if path = ""; page.Next != nil {
			path = *page.Next
			if !strings.HasPrefix(path, "/v1/datasets?") || !strings.Contains(path, "version="+version) {
				t.Fatalf("next is %s", path)
			}
			// A cursor implies its version.
			path = "/v1/datasets?cursor=" + url.QueryEscape(*page.NextCursor)
			testlake.Ingest(t, store, "another", "b", []testlake.Record{{URL: "https://example.com/"}})
			testlake.Publish(t, store)
			if err := s.server.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]int{lookup.MaxDatasets, 3}, sizes); diff != "" {
		t.Fatalf("sizes of pages (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != n {
		t.Fatal("datasets are not in the order of their ids")
	}
	// So does following the links of the start page.
	var names []string
	for path := "/?version=" + version; path != ""; {
		w := s.do("GET", path)
		for _, m := range regexp.MustCompile(`<td><a href="[^"]*">(d\d{4})</a></td>`).FindAllStringSubmatch(w.Body.String(), -1) {
			names = append(names, m[1])
		}
		path = ""
		if m := regexp.MustCompile(`<a href="([^"]*)" rel="next">`).FindStringSubmatch(w.Body.String()); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if len(slices.Compact(names)) != n || !slices.IsSorted(names) {
		t.Errorf("the start page and those behind it list %d datasets, want %d", len(names), n)
	}
	var first domainAnswer
	s.get("/v1/domain/example.com", &first)
	if w := s.do("GET", "/v1/datasets?cursor="+url.QueryEscape(*first.NextCursor)); w.Code != 400 {
		t.Errorf("the cursor of a domain's datasets: %d %s", w.Code, w.Body)
	}
}

// faulty is a store in which reads of parts fail with err, or panic if err is nil.
type faulty struct {
	blob.Store
	err error
}

func (f *faulty) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if !strings.HasPrefix(key, "urls/") {
		return f.Store.ReadRange(ctx, key, off, n)
	}
	if f.err == nil {
		panic("fault in a goroutine")
	}
	return nil, f.err
}

func TestPanicIsAProblem(t *testing.T) {
	inner := small(t)
	// A page of two parts reads each part in a goroutine of its own.
	testlake.Ingest(t, inner, "alpha", "b2", []testlake.Record{{URL: "https://example.com/second"}})
	testlake.Publish(t, inner)
	s := start(t, &faulty{Store: inner}, lookup.Options{})
	check := func(path, frame string) {
		t.Helper()
		s.log.Reset()
		var p problemDocument
		status := s.get(path, &p)
		if status != 500 || p.Type != "/problems/panic" || strings.Contains(fmt.Sprint(p), "fault in") {
			t.Fatalf("%s: %d %+v", path, status, p)
		}
		if text := s.log.String(); !strings.Contains(text, frame) || !strings.Contains(text, "fault in") {
			t.Fatalf("the log lacks the stack: %s", text)
		}
	}
	check("/v1/domain/example.com/datasets/1/urls", "ReadRange")
	s.web.HandleFunc("GET /panic", func(w http.ResponseWriter, r *http.Request) {
		h := &handler{server: s.server, log: slog.New(slog.NewTextHandler(&s.log, nil))}
		measured := NewMetrics(s.server, blob.NewCounting(inner)).route("test")
		h.serve(w, r, &route{name: "test", measured: measured, answer: func(r *request) error {
			r.doc.open('{')
			panic("fault in a handler")
		}})
	})
	check("/panic", "api_test.go")
	if w := s.do("GET", "/v1/domain/example.com"); w.Code != 200 {
		t.Fatalf("after a panic: %d %s", w.Code, w.Body)
	}
}

func TestProblemsDiscloseNoPaths(t *testing.T) {
	secret := "/srv/private/lake"
	denied := &fs.PathError{Op: "open", Path: secret, Err: fs.ErrPermission}
	store := &faulty{Store: small(t), err: fmt.Errorf("read urls/x: %w", denied)}
	s := start(t, store, lookup.Options{})
	w := s.do("GET", "/v1/domain/example.com/datasets/1/urls")
	if w.Code != 502 || strings.Contains(w.Body.String(), secret) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(s.log.String(), secret) {
		t.Errorf("the log lacks the path: %s", s.log.String())
	}
	dir := t.TempDir()
	local, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	// The manifest is a folder.
	if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(catalog.ManifestKey), "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	server := lookup.NewServer(local, lookup.Options{})
	t.Cleanup(server.Close)
	if err := server.Refresh(t.Context()); err == nil {
		t.Fatal("a folder was read as a manifest")
	}
	web := New(server, slog.New(slog.DiscardHandler), NewMetrics(server, blob.NewCounting(local)))
	for _, path := range []string{"/readyz", "/v1/domain/example.com", "/"} {
		w := httptest.NewRecorder()
		web.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if strings.Contains(w.Body.String(), dir) {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

func TestMalformedRequestsAreProblems(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	web := httptest.NewUnstartedServer(s.web)
	connections := NewConnections(10, 1<<20)
	web.Listener, web.Config.ConnState = connections.Listener(web.Listener, false), connections.State
	web.Config.MaxHeaderBytes = 4 << 10
	web.Start()
	defer web.Close()
	send := func(request string) (status int, header http.Header, body []byte) {
		t.Helper()
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, body
	}
	for request, want := range map[string]int{
		"GET /v1/domain/%zz HTTP/1.1\r\nHost: x\r\n\r\n":                               400,
		"GET /v1/domain/100% HTTP/1.1\r\nHost: x\r\n\r\n":                              400,
		"GET /v1/domain/a b HTTP/1.1\r\nHost: x\r\n\r\n":                               400,
		"GET /v1/datasets HTTP/1.1\r\n\r\n":                                            400,
		"GET /v1/datasets HTTP/7.1\r\nHost: x\r\n\r\n":                                 505,
		"GET /v1/datasets HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n":     501,
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":  431,
		"GET /v1/domain/" + strings.Repeat("%", 1000) + " HTTP/1.1\r\nHost: x\r\n\r\n": 400,
		"POST /v1/domains:lookup HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n":    400,
		"GET  / HTTP/1.1\r\nHost: x\r\n\r\n":                                           400,
		"GET / HTTP/1.1\r\nHost: x\r\nExpect: foo\r\n\r\n":                             417,
	} {
		status, header, body := send(request)
		var p problemDocument
		if err := json.Unmarshal(body, &p); err != nil {
			t.Fatalf("%.40q: %v: %s", request, err, body)
		}
		if status != want || p.Status != want || p.Detail == "" || p.Type != "/problems/bad-request" ||
			header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40q: %d %s", request, status, body)
		}
	}
	status, _, body := send("GET /v1/domain/example.com HTTP/1.1\r\nHost: x\r\n\r\n")
	if status != 200 || !json.Valid(body) {
		t.Errorf("%d %s", status, body)
	}
}

func TestMetrics(t *testing.T) {
	s := start(t, small(t), lookup.Options{LeaseTTL: lookup.DefaultLeaseTTL})
	read := func() map[string]float64 {
		t.Helper()
		w := httptest.NewRecorder()
		s.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		values := map[string]float64{}
		for line := range strings.Lines(w.Body.String()) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				values[name] = v
			}
		}
		return values
	}
	for range 3 {
		s.do("GET", "/v1/domain/example.com")
	}
	s.do("GET", "/v1/domain/mailto:me")
	s.do("GET", "/v1/domain/example.com/datasets/1/urls")
	s.do("GET", "/v1/domain/example.com/datasets/1/urls")
	got := read()
	for name, want := range map[string]float64{
		`urlake_http_request_duration_seconds_count{route="domain",status="200"}`: 3,
		`urlake_http_request_duration_seconds_count{route="domain",status="400"}`: 1,
		`urlake_http_request_duration_seconds_count{route="urls",status="200"}`:   2,
		`urlake_version_info{version="` + s.server.Status().Version + `"}`:        1,
		`urlake_version_rows`:                          4,
		`urlake_manifest_followed`:                     1,
		`urlake_open_versions`:                         1,
		`urlake_leased_versions`:                       1,
		`urlake_store_requests_total{operation="put"}`: 1,
		// The first of two requests read the only page of the part, the second found it in the
		// cache.
		`urlake_cache_hits_total{cache="pages"}`:   1,
		`urlake_cache_misses_total{cache="pages"}`: 1,
		`urlake_cache_entries{cache="pages"}`:      1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if n, ok := got["urlake_lease_failures_total"]; !ok || n != 0 {
		t.Errorf("urlake_lease_failures_total is %v, %v", n, ok)
	}
	for _, name := range []string{
		`urlake_store_requests_total{operation="read"}`, `urlake_store_read_bytes_total{operation="read"}`,
		"urlake_mapped_bytes", "urlake_index_bytes", `urlake_cache_bytes{cache="frames"}`,
		"urlake_version_published_timestamp_seconds", "urlake_manifest_read_timestamp_seconds", "go_goroutines",
	} {
		if got[name] <= 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if _, err := s.store.Put(t.Context(), catalog.ManifestKey, []byte("{}"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Refresh(t.Context()); err == nil {
		t.Fatal("a damaged manifest was accepted")
	}
	if got := read(); got["urlake_manifest_followed"] != 0 {
		t.Error("urlake_manifest_followed is not 0 with a damaged manifest")
	}
}

func BenchmarkObserve(b *testing.B) {
	server := lookup.NewServer(blob.NewMemory(), lookup.Options{})
	l := NewMetrics(server, blob.NewCounting(blob.NewMemory())).route("domain")
	b.ReportAllocs()
	for b.Loop() {
		l.observe(200, 20*time.Microsecond, 200, false)
	}
}
