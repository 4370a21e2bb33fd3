package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// hiddenMark is in everything that only one principal of the fuzz tests may see: the dataset's
// name, its domains and its paths. No seed has it and nothing leads a fuzzer to it, so an answer
// that has it disclosed it.
const hiddenMark = "zq7x9"

// maxFuzzAnswer is more than any answer about the lake of the fuzz tests takes, in bytes. The
// largest is the interface's description.
const maxFuzzAnswer = 1 << 20

// fuzzed is a service with access control over a small lake, which fuzz tests ask.
type fuzzed struct {
	*closed
	// hidden is the id of the dataset that only ops may read.
	hidden uint32
	// version is an older one, cursor that of a page of it.
	version, cursor string
}

// fuzzedPrincipals are who asks: nobody in particular, one who may read one dataset more, one whom
// no list names, and one who may read everything.
var fuzzedPrincipals = []string{"", "ada", "zoe", "ops"}

func startFuzzed(tb testing.TB) *fuzzed {
	tb.Helper()
	store := blob.NewMemory()
	records := func(urls ...string) (list []testlake.Record) {
		for i, u := range urls {
			list = append(list, testlake.Record{URL: u, TS: 1_700_000_000_000 + int64(i), HasTS: i%2 == 0, Size: int64(i), HasSize: true})
		}
		return list
	}
	testlake.Ingest(tb, store, hiddenMark, "b1", records("https://common.com/"+hiddenMark, "https://"+hiddenMark+".com/",
		"https://"+hiddenMark+".github.io/", "http://"+hiddenMark+"/", "https://"+hiddenMark+".common.com/a"))
	testlake.Ingest(tb, store, "open", "b1", records("https://common.com/", "https://www.common.com/a/b?c=d", "https://common.com/a",
		"https://site.github.io/x", "http://intranet/", "https://xn--bcher-kva.example/ü", "http://192.0.2.1:8080/"))
	testlake.Ingest(tb, store, "team", "b1", records("https://common.com/team", "https://team.example/"))
	version := testlake.Publish(tb, store).Version
	testlake.Ingest(tb, store, "open", "b2", records("https://common.com/later", "https://later.example/"))
	testlake.Ingest(tb, store, hiddenMark, "b2", records("https://common.com/2"+hiddenMark, "https://later"+hiddenMark+".com/"))
	testlake.Publish(tb, store)
	for name, text := range map[string]string{hiddenMark: "ops", "team": "ada,ops"} {
		readers, err := access.ParseReaders(text)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := access.Change(tb.Context(), store, access.Edit{Dataset: name, Readers: &readers}); err != nil {
			tb.Fatal(err)
		}
	}
	named, err := catalog.DatasetsNamed(tb.Context(), store, hiddenMark)
	if err != nil {
		tb.Fatal(err)
	}
	f := &fuzzed{closed: startClosed(tb, store), hidden: named[hiddenMark].ID, version: version}
	var page struct {
		Cursor string `json:"next_cursor"`
	}
	w := f.as("ops", "/v1/domain/common.com/datasets/open/urls?limit=1&version="+version)
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || page.Cursor == "" {
		tb.Fatalf("%v: %s", err, w.Body)
	}
	f.cursor = page.Cursor
	return f
}

// parse reads a request as net/http's server does. The result is nil for what that rejects before
// it calls a handler: TestMalformedRequestsAreProblems has such requests.
func parse(method, target, header string) *http.Request {
	text := method + " " + target + " HTTP/1.1\r\nHost: lake.test\r\n" + header + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil || !r.ProtoAtLeast(1, 0) || !httpguts.ValidHostHeader(r.Host) {
		return nil
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || !valid(values...) {
			return nil
		}
	}
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		return nil // net/http answers it
	}
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

// valid reports whether net/http's server takes the values of a header field.
func valid(values ...string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) })
}

// hold sends a request and checks what holds for each: the answer is an answer, a redirect, or a
// problem that says what is wrong with the request, is as openapi.yaml says, and has nothing that
// the principal may not see.
func (f *fuzzed) hold(t *testing.T, who uint8, r *http.Request, body []byte) {
	t.Helper()
	f.t = t
	defer f.log.Reset()
	principal := fuzzedPrincipals[int(who)%len(fuzzedPrincipals)]
	if principal != "" {
		r.Header["Authorization"] = []string{"Bearer " + f.tokens[principal]}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	asked := fmt.Sprintf("%q %q %q %.200q as %q", r.Method, r.RequestURI, r.Header, body, principal)
	w, _ := f.send(r)
	if !utf8.Valid(f.log.Bytes()) || strings.Contains(f.log.String(), hiddenMark) {
		t.Fatalf("%s: the log has %q", asked, f.log.String())
	}
	header := w.Result().Header
	answer := w.Body.Bytes()
	if r.Method != http.MethodHead && w.Code != http.StatusNotModified {
		answer = unpacked(t, header.Get("Content-Encoding"), w.Body)
	}
	if len(answer) > maxFuzzAnswer {
		t.Fatalf("%s: an answer of %d bytes", asked, len(answer))
	}
	switch {
	case w.Code < 500:
	case w.Code == http.StatusServiceUnavailable && bytes.Contains(answer, []byte("/problems/computing")):
	default:
		t.Fatalf("%s: %d %s %s", asked, w.Code, answer, f.log.Bytes())
	}
	// The mux's own redirects repeat the query as it was sent.
	text := w.Code/100 != 3 && !strings.HasPrefix(header.Get("Content-Type"), "application/vnd.apache.parquet")
	if text && !utf8.Valid(answer) {
		t.Fatalf("%s: the answer is no UTF-8: %q", asked, answer)
	}
	page := strings.HasPrefix(header.Get("Content-Type"), "text/html") && bytes.Contains(answer, []byte(`role="alert"`))
	if w.Code >= 400 && r.Method != http.MethodHead && !page {
		var p problemDocument
		if err := json.Unmarshal(answer, &p); err != nil || p.Title == "" || p.Detail == "" || p.Status != w.Code {
			t.Fatalf("%s: %d does not say what is wrong: %s", asked, w.Code, answer)
		}
	}
	for name, values := range header {
		if !valid(values...) {
			t.Fatalf("%s: the header %s is %q", asked, name, values)
		}
	}
	if principal == "ops" || strings.Contains(strings.ToLower(asked), hiddenMark) {
		return
	}
	told := strings.ToLower(fmt.Sprint(header)) + strings.ToLower(string(answer))
	id := fmt.Sprintf(`"dataset_id":%d,`, f.hidden)
	example := strings.HasPrefix(r.URL.Path, "/openapi.json") // its examples have the ids of another lake
	if strings.Contains(told, hiddenMark) || strings.Contains(told, id) && !example {
		t.Fatalf("%s: the answer discloses what may not be seen: %s", asked, told)
	}
}

// badValues are values that no parameter expects, and that parameters and headers often get wrong.
var badValues = []string{
	"", "\x00", "a\x00b", "\xff\xfe", "\xc3(", "%00", "%2500", "%zz", "%25%32%66", "..", "../../etc/passwd", "-1", "+1", "0", "00", "1e9", "NaN",
	"9223372036854775807", "9223372036854775808", "-9223372036854775809", "4294967296", "0x10", "١", "true", "null", "[]", "{}", "\"", "'", "<script>",
	"раypal.com", "xn--", "xn--a", "a..b", ".com", "com.", "github.io", "a.com,b.com", "a b", "\t", "\r\nX-Evil: 1", "\u202ecom", "é.example", "[::1]",
	"https://user:pass@common.com:99999/", "mailto:x", "1970-01-01", "9999999-01-01", "-0001-01-01T00:00:00Z", "2024-13-45", "a=b", "a~(", "a~(a*)*$", "=",
	"*", ";", "&", "#", "?", strings.Repeat("a", 10<<10), strings.Repeat("%41", 3000), strings.Repeat("a.", 5000) + "com",
}

// fuzzedRoutes are the paths of FuzzParameters, with the domain and the dataset in them.
var fuzzedRoutes = []string{
	"/v1/domain/{d}/datasets/{id}/urls", "/v1/domain/{d}", "/v1/url", "/v1/domains", "/v1/datasets", "/v1/datasets/{id}", "/v1/diff", "/v1/versions",
	"/v1/domains:lookup", "/", "/readyz", "/healthz", "/problems/{id}", "/openapi.json", "/api", "/domains", "/tree", "/domain/{d}", "/domain/{d}/dataset/{id}/urls",
	"/v1/domain/{d}/tree",
}

// FuzzParameters sends any values as the parameters, header fields and body of each route. A line
// of parameters is a name, =, and a value; a line of headers a name, a colon, and a value.
func FuzzParameters(f *testing.F) {
	s := startFuzzed(f)
	add := func(who, route uint8, domain, dataset, parameters, headers, body string) {
		f.Add(who, route, domain, dataset, parameters, headers, body)
	}
	// Every value goes to every parameter of lists of URLs, and to each parser once. Where several
	// parameters share a parser, the values take turns.
	for i, bad := range badValues {
		who := uint8(i)
		turn := func(names ...string) string { return names[i%len(names)] }
		for _, name := range urlsParameters {
			add(who, 0, "common.com", "open", name+"="+bad, "", "")
		}
		add(who, 0, bad, "open", "", "", "")
		add(who, 0, "common.com", bad, "", "", "")
		add(who, 1, bad, "", "explain=1", "", "")
		add(who, 2, "", "", "url="+bad, "", "")
		add(who, 3, "", "", turn("prefix", "suffix", "dataset", "limit", "cursor", "version")+"="+bad, "", "")
		add(who, 5, "", bad, "", "", "")
		add(who, 6, "", "", turn("from", "to", "dataset", "cursor", "limit")+"="+bad, "", "")
		add(who, 7, "", "", "cursor="+bad, "", "")
		add(who, 8, "", "", turn("dataset", "format", "matrix", "totals", "version")+"="+bad, "", "common.com\n")
		add(who, 8, "", "", "", "", bad)
		add(who, 8, "", "", "", "Content-Type: text/csv", "domain\n"+bad)
		add(who, 9, "", "", "domain="+bad, "", "")
		add(who, 12, "", bad, "", "", "")
		add(who, 18, "common.com", "", turn("path", "dataset", "depth", "min_count", "min_bytes", "sort", "top", "limit", "cursor")+"="+bad, "", "")
		add(0, 4, "", "", "", "Authorization: Bearer "+bad, "")
		add(who, 4, "", "", bad+"="+bad, "", "")
		for j, name := range []string{"Accept", "Accept-Encoding", "Range", "If-None-Match", "Content-Type", "Content-Encoding", "X-Forwarded-For", "X-Request-Id", "Origin", "Traceparent"} {
			if (i+j)%4 == 0 {
				add(who, uint8(i%len(fuzzedRoutes)), "common.com", "open", "", name+": "+bad, "common.com")
			}
		}
	}
	for _, form := range []string{"json", "ndjson", "csv", "text", "parquet"} {
		add(1, 0, "common.com", "team", "format="+form+"\nfields=url,ts\nhost=common.com\nfrom=2020-01-01\nto=2030-01-01", "Accept-Encoding: gzip", "")
		add(1, 0, "common.com", "open", "format="+form+"\nunique=1\nprefix=/a\nfilter=x=y\nfilter=x!=y\nfilter=x~^a", "Accept-Encoding: zstd", "")
	}
	add(3, 0, "www.common.com", fmt.Sprint(s.hidden), "limit=1\nversion="+s.version+"\nexplain=1", "", "")
	add(2, 0, "common.com", "open", "cursor="+s.cursor, "", "")
	add(2, 6, "", "", "from="+s.version+"\nto=current\nlimit=1", "If-None-Match: *", "")
	add(1, 8, "", "", "matrix=1\nformat=csv\ndataset=open,team", "Content-Type: application/x-ndjson", "{\"domain\":\"common.com\"}\n{\"url\":\"http://a/\"}")
	add(1, 9, "", "", "domain=common.com\ndataset=open", "Accept: text/html", "")
	f.Fuzz(func(t *testing.T, who, route uint8, domain, dataset, parameters, headers, body string) {
		pattern := fuzzedRoutes[int(route)%len(fuzzedRoutes)]
		method := http.MethodGet
		if strings.HasSuffix(pattern, ":lookup") {
			method = http.MethodPost
		}
		var query []string
		for line := range strings.SplitSeq(parameters, "\n") {
			if name, value, ok := strings.Cut(line, "="); ok {
				query = append(query, url.QueryEscape(name)+"="+url.QueryEscape(value))
			}
		}
		target := strings.NewReplacer("{d}", url.PathEscape(domain), "{id}", url.PathEscape(dataset)).Replace(pattern)
		r := parse(method, target+"?"+strings.Join(query, "&"), "")
		if r == nil {
			t.Fatalf("%q is no request", target)
		}
		for line := range strings.SplitSeq(headers, "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && httpguts.ValidHeaderFieldName(name) {
				if value = strings.Trim(value, " \t"); valid(value) { // otherwise net/http rejects it
					r.Header.Add(name, value)
				}
			}
		}
		s.hold(t, who, r, []byte(body))
	})
}

// FuzzRequests sends any bytes as method, target, header and body of a request.
func FuzzRequests(f *testing.F) {
	s := startFuzzed(f)
	// No route knows the methods after the third, so each of those goes to some targets.
	for i, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "X", "!"} {
		for j, target := range append(slices.Clone(fuzzedRoutes), "*", "//", "/v1/domain/a/b", "/v1//datasets", "/v1/domain/../datasets", "http://lake.test/v1/datasets",
			"lake.test:80", "/v1/domain/%2e%2e/datasets/%2F/urls?limit=%31", "/?%zz", "/?a;b", "/%", "/%00", "/v1/domain/common.com/?x=1", "/metrics", "/debug/pprof/") {
			if i < 3 || (i+j)%5 == 0 {
				f.Add(uint8(i), method, target, "Accept: */*", []byte("common.com"))
			}
		}
	}
	f.Fuzz(func(t *testing.T, who uint8, method, target, header string, body []byte) {
		if r := parse(method, target, header); r != nil {
			s.hold(t, who, r, body)
		}
	})
}
