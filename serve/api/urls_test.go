package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
)

// captures returns a lake whose dataset alpha has n rows of example.com, in two batches: pages of
// two hosts, each with a time, a size and extras.
func captures(t *testing.T, store blob.Store, n int) {
	t.Helper()
	for b := range 2 {
		var lines strings.Builder
		for i := b; i < n; i += 2 {
			// Rows 4k and 4k+1 are captures of one URL.
			fmt.Fprintf(&lines, `{"url":"https://%s.example.com/p%06d","ts":"2026-11-%02dT00:00:00Z","size":%d,"mime":"text, \"html\"","n":%d}`+"\n",
				[]string{"a", "b"}[i/4%2], i/4*4+i/2%2, 1+i%20, i, i)
		}
		path := filepath.Join(t.TempDir(), "captures.jsonl")
		if err := os.WriteFile(path, []byte(lines.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		spec := testlake.Spec(t, store, "alpha", fmt.Sprintf("b%d", b), nil)
		spec.Inputs, spec.Extras = []string{path}, []string{"mime", "n"}
		testlake.IngestSpec(t, store, spec)
	}
	testlake.Publish(t, store)
}

const listPath = "/v1/domain/example.com/datasets/alpha/urls"

type selectedAnswer struct {
	answer
	DatasetID int `json:"dataset_id"`
	Selection *struct {
		Host   *string  `json:"host"`
		Prefix *string  `json:"prefix"`
		From   *string  `json:"from"`
		To     *string  `json:"to"`
		Filter []string `json:"filter"`
		Unique bool     `json:"unique"`
	} `json:"selection"`
	Total      *int             `json:"total_est"`
	Unknown    string           `json:"total_unknown"`
	Offset     *int             `json:"offset"`
	Items      []map[string]any `json:"items"`
	NextOffset *int             `json:"next_offset"`
}

// all follows next and returns the items of all pages.
func (s *service) all(path string) (items []map[string]any) {
	s.t.Helper()
	for {
		var page selectedAnswer
		if status := s.get(path, &page); status != 200 {
			s.t.Fatalf("%s: %d", path, status)
		}
		if page.Total == nil != (page.Unknown != "") || (page.Offset == nil) != (page.Total == nil) {
			s.t.Fatalf("%s: total %v, unknown %q, offset %v", path, page.Total, page.Unknown, page.Offset)
		}
		items = append(items, page.Items...)
		if page.Next == nil {
			if page.Total != nil && *page.Total != len(items) {
				s.t.Fatalf("%s: %d items of %d", path, len(items), *page.Total)
			}
			return items
		}
		path = *page.Next
	}
}

// Each selection is the whole list without the other rows, in JSON pages and in every format.
func TestSelectionsInEveryFormat(t *testing.T) {
	store := blob.NewMemory()
	captures(t, store, 400)
	s := start(t, store, lookup.Options{})
	web := httptest.NewServer(s.web)
	t.Cleanup(web.Close)
	everything := s.all(listPath + "?limit=1000&fields=url_id,url,ts,host,path,size,extras,batch")
	if len(everything) != 400 {
		t.Fatalf("%d rows", len(everything))
	}
	text := func(it map[string]any, name string) string { return it[name].(string) }
	for _, tc := range []struct {
		query   string
		has     func(it map[string]any) bool
		unknown bool
	}{
		{"", func(map[string]any) bool { return true }, false},
		{"host=A.Example.com", func(it map[string]any) bool { return it["host"] == "a.example.com" }, false},
		{"host=none.example.com", func(map[string]any) bool { return false }, false},
		{"host=b.example.com&prefix=/p0000", func(it map[string]any) bool {
			return it["host"] == "b.example.com" && strings.HasPrefix(text(it, "path"), "/p0000")
		}, false},
		{"prefix=/p0001", func(it map[string]any) bool { return strings.HasPrefix(text(it, "path"), "/p0001") }, true},
		{"from=2026-11-05&to=2026-11-07T00:00:00Z", func(it map[string]any) bool {
			return text(it, "ts") >= "2026-11-05" && text(it, "ts") < "2026-11-07T00:00:00.000Z"
		}, true},
		{"filter=n~7$&filter=mime!=image/png&filter=absent!=x", func(it map[string]any) bool { return int(it["size"].(float64))%10 == 7 }, true},
		{"host=a.example.com&filter=n=8", func(it map[string]any) bool { return it["size"] == 8.0 }, true},
	} {
		var want []map[string]any
		for _, it := range everything {
			if tc.has(it) {
				want = append(want, it)
			}
		}
		var first selectedAnswer
		path := listPath + "?fields=url_id,url,ts,host,path,size,extras,batch&" + tc.query
		s.get(path, &first)
		if (first.Selection == nil) != (tc.query == "") || (first.Unknown != "") != tc.unknown {
			t.Errorf("%s: selection %+v, %q", tc.query, first.Selection, first.Unknown)
		}
		for _, limit := range []string{"7", "1000"} {
			if diff := cmp.Diff(want, s.all(path+"&limit="+limit)); diff != "" {
				t.Fatalf("%s by %s (-want +got):\n%s", tc.query, limit, diff)
			}
		}
		body, header, trailer := fetch(t, web.URL+path+"&format=ndjson", "")
		var got []map[string]any
		for line := range strings.Lines(body) {
			var it map[string]any
			if err := json.Unmarshal([]byte(line), &it); err != nil {
				t.Fatal(err)
			}
			got = append(got, it)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s as NDJSON (-want +got):\n%s", tc.query, diff)
		}
		if header.Get("Content-Type") != "application/x-ndjson; charset=utf-8" || trailer.Get("Urlake-Rows") != strconv.Itoa(len(want)) ||
			trailer.Get("Urlake-Next-Cursor") != "" || (header.Get("Urlake-Total") == "") != tc.unknown {
			t.Errorf("%s: header %v, trailer %v", tc.query, header, trailer)
		}
		body, header, _ = fetch(t, web.URL+path, "text/csv")
		table, err := csv.NewReader(strings.NewReader(body)).ReadAll()
		if err != nil || len(table) != 1+len(want) || header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
			t.Fatalf("%s as CSV: %d lines, %v", tc.query, len(table), err)
		}
		for i, it := range want {
			extras, err := json.Marshal(it["extras"])
			if err != nil {
				t.Fatal(err)
			}
			if row := table[1+i]; row[1] != it["url"] || row[2] != it["ts"] || row[5] != fmt.Sprint(it["size"]) || row[6] != string(extras) {
				t.Fatalf("%s: row %d is %q, want %v", tc.query, i, row, it)
			}
		}
		body, header, trailer = fetch(t, web.URL+path, "application/vnd.apache.parquet")
		if !strings.HasPrefix(body, "PAR1") || !strings.HasSuffix(body, "PAR1") || trailer.Get("Urlake-Rows") != strconv.Itoa(len(want)) ||
			header.Get("Content-Type") != "application/vnd.apache.parquet" {
			t.Errorf("%s as Parquet: %d bytes, header %v, trailer %v", tc.query, len(body), header, trailer)
		}
		body, _, trailer = fetch(t, web.URL+listPath+"?format=text&limit=5&"+tc.query, "")
		wantText := ""
		for _, it := range want[:min(5, len(want))] {
			wantText += text(it, "url") + "\n"
		}
		if body != wantText || (trailer.Get("Urlake-Next-Cursor") == "") != (len(want) <= 5) {
			t.Fatalf("%s as text: %q, trailer %v", tc.query, body, trailer)
		}
		if c := trailer.Get("Urlake-Next-Cursor"); c != "" { // it goes on in any format
			rest, _, _ := fetch(t, web.URL+listPath+"?format=text&cursor="+c+"&"+tc.query, "")
			if n := strings.Count(rest, "\n"); n != len(want)-5 {
				t.Errorf("%s: %d rows after the first five of %d", tc.query, n, len(want))
			}
		}
	}
	distinct := s.all(listPath + "?unique=1&limit=30&host=a.example.com")
	if len(distinct) != 100 {
		t.Fatalf("%d distinct URLs", len(distinct))
	}
	for i, it := range distinct {
		if it["rows"] != 2.0 || i > 0 && text(it, "url") <= text(distinct[i-1], "url") || text(it, "first_ts") >= text(it, "last_ts") {
			t.Fatalf("distinct URL %d: %v", i, it)
		}
	}
	// Of the URLs with rows 4k and 4k+1 some have one of them.
	odd := s.all(listPath + "?unique=1&limit=30&filter=n~[13579]$&fields=url,rows,first_ts,last_ts")
	for _, it := range odd {
		if it["rows"] != 1.0 || it["first_ts"] != it["last_ts"] {
			t.Fatalf("distinct URL of odd rows: %v", it)
		}
	}
	if len(odd) != 200 {
		t.Fatalf("%d distinct URLs of odd rows", len(odd))
	}
	body, _, trailer := fetch(t, web.URL+listPath+"?unique=1&format=text", "")
	if strings.Count(body, "\n") != 200 || trailer.Get("Urlake-Rows") != "200" {
		t.Errorf("%d distinct URLs, trailer %v", strings.Count(body, "\n"), trailer)
	}
}

// fetch reads an answer to its end.
func fetch(t *testing.T, url, accept string) (body string, header, trailer http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d, %v\n%.500s", url, resp.StatusCode, err, data)
	}
	return string(data), resp.Header, resp.Trailer
}

func TestBadSelections(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	for query, parameter := range map[string]string{
		"host=": "host", "host=a/b": "host", "host=example.org": "host", "prefix=x": "prefix", "prefix=": "prefix",
		"from=now": "from", "to=": "to", "from=2026-01-02&to=2026-01-01": "from", "unique=yes": "unique",
		"format=xml": "format", "format=": "format", "fields=": "fields", "fields=nope": "fields", "fields=ts&unique=1": "fields",
		"fields=url&format=text": "fields", "format=csv&explain=1": "explain", "prefix=/&offset=1": "offset",
		"unique=1&offset=1": "offset", "from=2020-01-01&host=example.com&offset=1": "offset", "format=csv&limit=0": "limit",
		"explain=yes": "explain", "filter=x": "filter", "filter=": "filter", "filter=mime~(": "filter", "host=a.com&host=b.com": "host",
		strings.Repeat("filter=a=1&", 17) + "format=csv": "filter",
	} {
		var p problemDocument
		status := s.get("/v1/domain/example.com/datasets/1/urls?"+query, &p)
		if status != 400 || p.Type != "/problems/bad-parameter" || p.Parameter != parameter {
			t.Errorf("%s: %d %+v", query, status, p)
		}
	}
	for query, kind := range map[string]string{"cursor=x&format=csv": "bad-cursor", "cursor=x&unique=1": "bad-cursor"} {
		var p problemDocument
		if status := s.get("/v1/domain/example.com/datasets/1/urls?"+query, &p); status != 400 || p.Type != "/problems/"+kind {
			t.Errorf("%s: %d %+v", query, status, p)
		}
	}
	store := blob.NewMemory()
	for b := range lookup.MaxMerged + 1 {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%02d", b), []testlake.Record{{URL: "https://example.com/"}})
	}
	testlake.Publish(t, store)
	var p problemDocument
	status := start(t, store, lookup.Options{}).get(listPath+"?unique=1&format=csv", &p)
	if status != 422 || !strings.Contains(p.Detail, "from 64 at most") || p.Type != "/problems/too-many-parts" || !strings.Contains(p.Detail, "without unique") {
		t.Errorf("too many parts: %d %+v", status, p)
	}
}

// A stream that fails in its middle does not end like a whole one.
func TestFailedStreamIsCut(t *testing.T) {
	inner := blob.NewMemory()
	var records []testlake.Record
	for i := range 12_000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%06d", i)})
	}
	testlake.Ingest(t, inner, "alpha", "b1", records)
	testlake.Publish(t, inner)
	for _, form := range []format.Format{format.NDJSON, format.CSV, format.Text} {
		faulty := blobtest.NewFaulty(inner)
		s := start(t, faulty, lookup.Options{PageBytes: 1})
		web := httptest.NewServer(s.web)
		t.Cleanup(web.Close)
		// The first page of the list has two pages of the part, in one range a column. The second
		// may be read ahead, and is then read again for the stream, so all reads from then on fail.
		reads := atomic.Int32{}
		faulty.Inject(blobtest.Fault{Op: blob.OpReadRange, Key: func(k string) bool {
			return strings.HasPrefix(k, "urls/") && reads.Add(1) >= 6
		}})
		resp, err := http.Get(web.URL + listPath + "?format=" + string(form))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || len(data) == 0 || resp.Trailer.Get("Urlake-Rows") != "" {
			t.Errorf("%s: %d, %d bytes, %v, trailer %v", form, resp.StatusCode, len(data), err, resp.Trailer)
		}
		web.Close() // waits for the handler
		if log := s.log.String(); !strings.Contains(log, `"route":"urls_stream","status":502`) {
			t.Errorf("%s: log %s", form, log)
		}
	}
	// An error before the first row is a problem document.
	faulty := blobtest.NewFaulty(inner)
	s := start(t, faulty, lookup.Options{})
	faulty.Inject(blobtest.Fault{Op: blob.OpReadRange, Key: func(k string) bool { return strings.HasPrefix(k, "urls/") }, Nth: 1})
	var p problemDocument
	if status := s.get(listPath+"?format=csv", &p); status != 502 || p.Type != "/problems/lake" {
		t.Errorf("%d %+v", status, p)
	}
}

// When a client leaves, its stream ends and releases the version.
func TestStreamEndsWithItsClient(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 60_000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%s%06d", strings.Repeat("x", 200), i)})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	var running atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		s.web.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", web.URL+listPath+"?format=ndjson", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || running.Load() != 1 {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	web.Close() // waits for the handler
	if log := s.log.String(); running.Load() != 0 || !strings.Contains(log, `"route":"urls_stream","status":499`) {
		t.Errorf("%d requests, log %s", running.Load(), log)
	}
}

// HTTP/1.0 ends an answer by closing the connection, as a cut does.
func TestStreamsNeedHTTP11(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	web := httptest.NewServer(s.web)
	t.Cleanup(web.Close)
	for query, status := range map[string]string{"format=csv": "505", "format=json": "200"} {
		conn, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /v1/domain/example.com/datasets/1/urls?%s HTTP/1.0\r\n\r\n", query)
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 "+status) {
			t.Errorf("%s: %v, %.200s", query, err, answer)
		}
		conn.Close()
	}
	resp, err := http.Head(web.URL + "/v1/domain/example.com/datasets/1/urls?format=csv")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != format.CSV.ContentType() || resp.Header.Get("Urlake-Total") != "2" ||
		resp.Header.Get("Vary") != "Accept" {
		t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
	}
}

// deadlines notes the write deadlines that a handler sets.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

// A stream may take longer than the server's timeout for one answer: each piece has its own.
func TestStreamExtendsTheWriteDeadline(t *testing.T) {
	store := blob.NewMemory()
	captures(t, store, 4000)
	s := start(t, store, lookup.Options{})
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.web.ServeHTTP(w, httptest.NewRequest("GET", listPath+"?format=ndjson", nil))
	if pieces := w.Body.Len() / streamPiece; pieces < 2 || len(w.set) < pieces {
		t.Errorf("%d deadlines for %d pieces", len(w.set), pieces)
	}
}

type urlAnswer struct {
	answer
	URL      string `json:"url"`
	URLID    string `json:"url_id"`
	Datasets []struct {
		ID    int     `json:"dataset_id"`
		Name  string  `json:"name"`
		Rows  int     `json:"rows"`
		First *string `json:"first_ts"`
		Last  *string `json:"last_ts"`
	} `json:"datasets"`
}

func TestDatasetsOfAURL(t *testing.T) {
	store := blob.NewMemory()
	captures(t, store, 40)
	testlake.Ingest(t, store, "beta", "b1", []testlake.Record{{URL: "https://a.example.com/p000000"}, {URL: "https://a.example.com/p0000"}})
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	path := func(u string) string { return "/v1/url?url=" + url.QueryEscape(u) }
	var got urlAnswer
	if status := s.get(path("HTTPS://A.example.com:443/p000000#x"), &got); status != 200 {
		t.Fatal(status)
	}
	if got.URL != "https://a.example.com/p000000" || got.Domain != "example.com" || len(got.Datasets) != 2 || !got.Complete || got.Returned != 2 {
		t.Fatalf("%+v", got)
	}
	if a := got.Datasets[0]; a.Name != "alpha" || a.Rows != 2 || *a.First != "2026-11-01T00:00:00.000Z" || *a.Last != "2026-11-02T00:00:00.000Z" {
		t.Errorf("%+v", a)
	}
	if b := got.Datasets[1]; b.Name != "beta" || b.Rows != 1 || b.First != nil {
		t.Errorf("%+v", b)
	}
	for _, u := range []string{"https://a.example.com/p00000", "http://a.example.com/p000000", "https://nowhere.test/"} {
		var got urlAnswer
		if status := s.get(path(u), &got); status != 200 || len(got.Datasets) != 0 || got.Datasets == nil || !got.Complete {
			t.Errorf("%s: %d %+v", u, status, got)
		}
	}
	for query, kind := range map[string]string{
		"": "bad-parameter", "?url=": "bad-parameter", "?url=mailto:x": "not-a-host", "?url=http://a.com/&cursor=x": "bad-cursor", "?u=1": "bad-parameter",
	} {
		var p problemDocument
		if status := s.get("/v1/url"+query, &p); status != 400 || p.Type != "/problems/"+kind {
			t.Errorf("%s: %d %+v", query, status, p)
		}
	}
	// Many row groups are searched in several pages.
	many := blob.NewMemory()
	for d := range 40 {
		for b := range 8 {
			testlake.Ingest(t, many, fmt.Sprintf("d%02d", d), fmt.Sprintf("b%d", b), []testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", d%2)}})
		}
	}
	testlake.Publish(t, many)
	s = start(t, many, lookup.Options{})
	n, pages := 0, 0
	for next := path("https://example.com/1"); next != ""; pages++ {
		var got urlAnswer
		if status := s.get(next, &got); status != 200 {
			t.Fatal(status)
		}
		for _, d := range got.Datasets {
			if n++; d.Rows != 8 || d.Name != fmt.Sprintf("d%02d", 2*n-1) {
				t.Errorf("%+v", d)
			}
		}
		if next = ""; got.Next != nil {
			if next = *got.Next; *got.StoppedBy != "row_groups" {
				t.Errorf("stopped by %s", *got.StoppedBy)
			}
		}
	}
	if n != 20 || pages != 2 {
		t.Errorf("%d datasets on %d pages", n, pages)
	}
}
