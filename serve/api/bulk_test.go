package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// bulkLine is an answer of /v1/domains:lookup.
type bulkLine struct {
	Line     int             `json:"line"`
	Asked    string          `json:"asked"`
	Reason   string          `json:"reason"`
	Detail   string          `json:"detail"`
	Domain   string          `json:"domain"`
	DomainID string          `json:"domain_id"`
	Host     string          `json:"host"`
	Suffix   bool            `json:"public_suffix"`
	Total    int             `json:"total_datasets"`
	Datasets []datasetOf     `json:"datasets"`
	Rows     map[string]int  `json:"url_count_est"`
	Sizes    map[string]*int `json:"size"`
	Present  map[string]bool `json:"present"`
}

// post sends a list and returns the answer.
func (s *service) post(query, contentType, accept, list string) *httptest.ResponseRecorder {
	s.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/domains:lookup"+query, strings.NewReader(list))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	s.web.ServeHTTP(w, r)
	return w
}

// lines decodes an answer in NDJSON.
func (s *service) lines(w *httptest.ResponseRecorder) (all []bulkLine) {
	s.t.Helper()
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" {
		s.t.Fatalf("%d %v: %s", w.Code, w.Header(), w.Body)
	}
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	for {
		var l bulkLine
		if err := dec.Decode(&l); err == io.EOF {
			return all
		} else if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, l)
	}
}

// bulkStore is a lake of three datasets in two segments, some of whose batches were replaced.
func bulkStore(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	rng := rand.New(rand.NewPCG(4, 4))
	for step := range 2 {
		for d, name := range []string{"alpha", "beta", "gamma"} {
			if d == 2 && step == 0 {
				continue
			}
			var records []testlake.Record
			for range 200 {
				r := testlake.Record{URL: fmt.Sprintf("https://www.site%d.test/%d", rng.IntN(50), rng.IntN(1000))}
				if rng.IntN(2) == 0 {
					r.Size, r.HasSize = int64(rng.IntN(100)), true
				}
				if rng.IntN(2) == 0 {
					r.TS, r.HasTS = int64(rng.IntN(1e9))*1000, true
				}
				records = append(records, r)
			}
			testlake.Ingest(t, store, name, fmt.Sprint("b", step), records)
		}
		testlake.Publish(t, store)
	}
	return store
}

// Every line of every form is what GET /v1/domain answers for it.
func TestListsAreAnsweredLikeDomains(t *testing.T) {
	s := start(t, bulkStore(t), lookup.Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	var asked []string
	for range 600 {
		text := fmt.Sprintf("site%d.test", rng.IntN(60))
		switch rng.IntN(6) {
		case 0:
			text = "www." + text
		case 1:
			text = "https://" + text + "/a,b"
		case 2:
			text = []string{"github.io", "mailto:x", "a.example,b.example", "two words.example", "word"}[rng.IntN(5)]
		}
		asked = append(asked, text)
	}
	var want []bulkLine
	names := map[string]bool{}
	for i, text := range asked {
		w := s.do("GET", "/v1/domain/"+url.PathEscape(text))
		l := bulkLine{Line: i + 1, Asked: text}
		var a domainAnswer
		var p problemDocument
		if w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			l.Domain, l.DomainID, l.Total, l.Datasets = a.Domain, a.DomainID, a.Total, a.Datasets
			l.Suffix = text == "github.io"
			if strings.Contains(text, "www.") {
				l.Host = text
			}
		} else if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 400 {
			t.Fatalf("%s: %d %v", text, w.Code, err)
		} else {
			l.Reason, l.Detail = p.Reason, p.Detail
		}
		for _, d := range l.Datasets {
			names[d.Name] = true
		}
		want = append(want, l)
	}
	quoted := func(text string) string { return string(must(json.Marshal(text))) }
	form := func(f func(text string) string) string {
		out := make([]string, len(asked))
		for i, text := range asked {
			out[i] = f(text)
		}
		return strings.Join(out, "\n")
	}
	for _, list := range []struct{ contentType, text string }{
		{"text/plain; charset=utf-8", form(func(t string) string { return t })},
		{"application/x-www-form-urlencoded", form(func(t string) string { return t }) + "\n"},
		{"application/x-ndjson", form(quoted)},
		{"", form(func(t string) string { return `{"n":1,"domain":` + quoted(t) + `}` })},
		{"text/csv", form(func(t string) string { return `"` + t + `",7` })},
	} {
		got := s.lines(s.post("", list.contentType, "", list.text))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-GET +POST):\n%.2000s", list.contentType, diff)
		}
	}
	plain := form(func(t string) string { return t })

	// Datasets that are chosen, presence, and both matrices.
	some := slices.Clone(want)
	for i := range some {
		if some[i].Datasets != nil {
			some[i].Datasets = slices.DeleteFunc(slices.Clone(want[i].Datasets), func(d datasetOf) bool { return d.Name == "alpha" })
			some[i].Total = len(some[i].Datasets)
		}
	}
	chosen := fmt.Sprintf("?dataset=%d,gamma", datasetIDsOf(t, s)["beta"])
	if diff := cmp.Diff(some, s.lines(s.post(chosen, "", "", plain))); diff != "" {
		t.Fatalf("chosen datasets (-GET +POST):\n%.2000s", diff)
	}
	for i, l := range s.lines(s.post("?totals=0", "", "*/*", plain)) {
		w := want[i]
		w.Datasets = slices.Clone(w.Datasets)
		for j := range w.Datasets {
			w.Datasets[j] = datasetOf{ID: w.Datasets[j].ID, Name: w.Datasets[j].Name}
		}
		if diff := cmp.Diff(w, l); diff != "" {
			t.Fatalf("presence (-GET +POST):\n%s", diff)
		}
	}
	for _, totals := range []bool{true, false} {
		query := "?matrix=1"
		if !totals {
			query += "&totals=0"
		}
		for i, l := range s.lines(s.post(query, "", "application/json;q=0.5, text/csv;q=0.4", plain)) {
			w := want[i]
			if w.Reason == "" {
				rows, sizes, present := map[string]int{}, map[string]*int{}, map[string]bool{}
				for name := range names {
					rows[name], sizes[name], present[name] = 0, nil, false
				}
				for _, d := range w.Datasets {
					rows[d.Name], sizes[d.Name], present[d.Name] = d.Count, d.Size, true
				}
				if totals {
					w.Rows, w.Sizes = rows, sizes
				} else {
					w.Present = present
				}
			}
			w.Total, w.Datasets = 0, nil
			if diff := cmp.Diff(w, l); diff != "" {
				t.Fatalf("matrix (-GET +POST):\n%s", diff)
			}
		}
		s.checkMatrixCSV(query, plain, want, totals)
	}
	s.checkCSV(plain, want)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func datasetIDsOf(t *testing.T, s *service) map[string]int {
	t.Helper()
	var page struct {
		Datasets []struct {
			ID   int    `json:"dataset_id"`
			Name string `json:"name"`
		} `json:"datasets"`
	}
	if err := json.Unmarshal(s.do("GET", "/v1/datasets").Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, d := range page.Datasets {
		ids[d.Name] = d.ID
	}
	return ids
}

func (s *service) csv(w *httptest.ResponseRecorder) [][]string {
	s.t.Helper()
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/csv; charset=utf-8" {
		s.t.Fatalf("%d %v", w.Code, w.Header())
	}
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

func number(v *int) string {
	if v == nil {
		return ""
	}
	return strconv.Itoa(*v)
}

func noteOf(l *bulkLine) string {
	switch {
	case l.Reason != "":
		return l.Reason + ": " + l.Detail
	case l.Suffix:
		return "public suffix"
	}
	return ""
}

func (s *service) checkCSV(list string, want []bulkLine) {
	s.t.Helper()
	rows := [][]string{{"line", "asked", "domain", "dataset_id", "dataset", "url_count_est", "size", "first_ts", "last_ts", "note"}}
	text := func(v *string) string {
		if v == nil {
			return ""
		}
		return *v
	}
	for i := range want {
		l := &want[i]
		begin := []string{strconv.Itoa(l.Line), l.Asked, l.Domain}
		for _, d := range l.Datasets {
			rows = append(rows, slices.Concat(begin, []string{strconv.Itoa(d.ID), d.Name, strconv.Itoa(d.Count), number(d.Size),
				text(d.FirstTS), text(d.LastTS), noteOf(l)}))
		}
		if len(l.Datasets) == 0 {
			count := "0"
			if l.Reason != "" {
				count = ""
			}
			rows = append(rows, slices.Concat(begin, []string{"", "", count, "", "", "", noteOf(l)}))
		}
	}
	for _, w := range []*httptest.ResponseRecorder{s.post("?format=csv", "", "", list), s.post("", "", "text/csv, */*;q=0.1", list)} {
		if diff := cmp.Diff(rows, s.csv(w)); diff != "" {
			s.t.Fatalf("CSV (-GET +POST):\n%.2000s", diff)
		}
	}
}

func (s *service) checkMatrixCSV(query, list string, want []bulkLine, totals bool) {
	s.t.Helper()
	rows := s.csv(s.post(query+"&format=csv", "", "", list))
	header := rows[0]
	if len(rows) != len(want)+1 {
		s.t.Fatalf("%d rows for %d lines", len(rows)-1, len(want))
	}
	for i, row := range rows[1:] {
		l := &want[i]
		cells := map[string]string{"line": strconv.Itoa(l.Line), "asked": l.Asked, "domain": l.Domain, "note": noteOf(l)}
		for _, d := range l.Datasets {
			if cells[d.Name] = "1"; totals {
				cells[d.Name], cells[d.Name+" size"] = strconv.Itoa(d.Count), number(d.Size)
			}
		}
		for j, name := range header {
			cell, ok := cells[name]
			if !ok && l.Reason == "" && !strings.HasSuffix(name, " size") {
				cell = "0"
			}
			if row[j] != cell {
				s.t.Fatalf("row %v of %v: %q, want %q", row, header, row[j], cell)
			}
		}
	}
}

func TestProblemsOfLists(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	many := strings.Repeat("example.com\n", maxBulkLines)
	for _, c := range []struct {
		query, contentType, accept, list string
		status                           int
		kind, limit                      string
	}{
		{"", "", "", "", 400, "bad-list", ""},
		{"", "text/plain", "", "# nothing\n\n", 400, "bad-list", ""},
		{"?totals=2", "", "", "a.example", 400, "bad-parameter", ""},
		{"?matrix=yes", "", "", "a.example", 400, "bad-parameter", ""},
		{"?format=xml", "", "", "a.example", 400, "bad-parameter", ""},
		{"?format=csv&format=csv", "", "", "a.example", 400, "bad-parameter", ""},
		{"?limit=1", "", "", "a.example", 400, "bad-parameter", ""},
		{"?dataset=", "", "", "a.example", 400, "bad-parameter", ""},
		{"?dataset=alpha,", "", "", "a.example", 400, "bad-parameter", ""},
		{"?dataset=alpha,1", "", "", "a.example", 400, "bad-parameter", ""},
		{"?dataset=nothing", "", "", "a.example", 404, "unknown-dataset", ""},
		{"?dataset=99", "", "", "a.example", 404, "unknown-dataset", ""},
		{"?version=29990101T000000.000Z-00000000", "", "", "a.example", 404, "unknown-version", ""},
		{"", "multipart/form-data; boundary=x", "", "a.example", 415, "unsupported-media-type", ""},
		{"", "text/;", "", "a.example", 415, "unsupported-media-type", ""},
		{"", "", "image/png, text/csv;q=0", "a.example", 406, "not-acceptable", ""},
		{"", "", "", many + "example.com\n", 413, "too-large", "lines"},
		{"", "", "", strings.Repeat("x", maxBulkLine+1), 413, "too-large", "line_bytes"},
		{"", "", "", strings.Repeat("\n", maxBulkBody+1), 413, "too-large", "body_bytes"},
	} {
		w := s.post(c.query, c.contentType, c.accept, c.list)
		var p struct {
			problemDocument
			Limit string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.status || !strings.HasSuffix(p.Type, c.kind) || p.Limit != c.limit || p.Detail == "" {
			t.Errorf("%s %.20q: %d %s", c.query, c.list, w.Code, w.Body)
		}
	}
	if got := s.lines(s.post("", "", "", many)); len(got) != maxBulkLines || got[maxBulkLines-1].Total != 2 {
		t.Errorf("%d answers to as many lines as are allowed", len(got))
	}
	r := httptest.NewRequest("POST", "/v1/domains:lookup", io.NopCloser(strings.NewReader(strings.Repeat("\n", maxBulkBody+1))))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	if s.web.ServeHTTP(w, r); w.Code != 413 || !strings.Contains(w.Body.String(), `"limit":"body_bytes"`) {
		t.Errorf("a body without a length: %d %s", w.Code, w.Body)
	}
	r = httptest.NewRequest("POST", "/v1/domains:lookup", strings.NewReader("a.example"))
	r.Header.Set("Content-Encoding", "gzip")
	w = httptest.NewRecorder()
	if s.web.ServeHTTP(w, r); w.Code != 415 {
		t.Errorf("a compressed body: %d %s", w.Code, w.Body)
	}
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/domains:lookup", "POST"}, {"PUT", "/v1/domains:lookup", "POST"},
		{"POST", "/v1/domain/a.example", "GET, HEAD"}, {"DELETE", "/", "GET, HEAD"},
	} {
		if w := s.do(c.method, c.path); w.Code != 405 || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := s.do("POST", "/v1/nothing"); w.Code != 404 {
		t.Errorf("POST to no path: %d", w.Code)
	}
}

// faultyIndex is a store in which reads of postings fail once fail is set, and those of the whole
// index wait for hold once that is set.
type faultyIndex struct {
	blob.Store
	fail atomic.Bool
	hold atomic.Pointer[chan struct{}]
}

func (f *faultyIndex) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if hold := f.hold.Load(); hold != nil && strings.HasPrefix(key, "index/segments/") {
		<-*hold
	}
	if f.fail.Load() && strings.Contains(key, "/postings/") {
		return nil, errors.New("the store is broken")
	}
	return f.Store.ReadRange(ctx, key, off, n)
}

// A failure after the first byte cuts the connection, and one before it is a problem.
func TestFailureInAListCutsTheConnection(t *testing.T) {
	store := &faultyIndex{Store: bulkStore(t)}
	s := start(t, store, lookup.Options{FrameBytes: 1})
	web := httptest.NewServer(s.web)
	defer web.Close()
	list := strings.Repeat("site1.test\nabsent.test\n", 30_000)
	store.fail.Store(true)
	answer, err := http.Post(web.URL+"/v1/domains:lookup", "", strings.NewReader("site1.test"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != 502 {
		t.Fatalf("%d %v: %s", answer.StatusCode, err, body)
	}
	// Absent domains are answered without a read, so that the first bytes are sent.
	answer, err = http.Post(web.URL+"/v1/domains:lookup", "", strings.NewReader(strings.Repeat("absent.test\n", 40_000)+list))
	if err != nil {
		t.Fatal(err)
	}
	body, err = io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != 200 || err == nil || len(body) == 0 || bytes.Contains(body, []byte("site1.test")) {
		t.Fatalf("%d, %v after %d bytes", answer.StatusCode, err, len(body))
	}
	web.Close() // waits for the requests, which write the log
	if !strings.Contains(s.log.String(), `"status":502`) || strings.Contains(s.log.String(), "site1") {
		t.Error("the log does not have the failure, or has a domain")
	}
}

// A body that ends early is an error, and a client that leaves ends its request.
func TestListsOfClientsThatLeave(t *testing.T) {
	s := start(t, bulkStore(t), lookup.Options{})
	r := httptest.NewRequest("POST", "/v1/domains:lookup", io.MultiReader(strings.NewReader("site1.test\n"), broken{}))
	w := httptest.NewRecorder()
	if s.web.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "ended early") {
		t.Errorf("a body that is cut: %d %s", w.Code, w.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = httptest.NewRequest("POST", "/v1/domains:lookup", strings.NewReader(strings.Repeat("site1.test\n", 50_000))).WithContext(ctx)
	gone := &goneWriter{header: http.Header{}, cancel: cancel}
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("ended with %v", err)
			}
		}()
		s.web.ServeHTTP(gone, r)
	}()
	if gone.writes != 1 || !strings.Contains(s.log.String(), `"status":499`) {
		t.Errorf("%d writes after the client had gone; log %s", gone.writes, s.log.String())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// goneWriter is a client that goes with the first piece of the answer.
type goneWriter struct {
	header http.Header
	cancel func()
	writes int
}

func (g *goneWriter) Header() http.Header { return g.header }
func (g *goneWriter) WriteHeader(int)     {}
func (g *goneWriter) Write([]byte) (int, error) {
	g.writes++
	g.cancel()
	return 0, io.ErrClosedPipe
}

// FuzzList sends any bytes as a list of any type.
func FuzzList(f *testing.F) {
	f.Add([]byte("a.example\nb.example"), "", "")
	f.Add([]byte("domain,x\n\"a"), "text/csv", "format=csv&matrix=1")
	f.Add([]byte("{\"domain\":\"a.example\"}\n{"), "application/json", "totals=0&dataset=1")
	var store blob.Store
	f.Fuzz(func(t *testing.T, list []byte, contentType, query string) {
		if store == nil {
			store = small(t)
		}
		s := start(t, store, lookup.Options{})
		r := httptest.NewRequest("POST", "/v1/domains:lookup", bytes.NewReader(list))
		r.Header["Content-Type"] = []string{contentType}
		r.URL.RawQuery = query
		w := httptest.NewRecorder()
		if s.web.ServeHTTP(w, r); w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
