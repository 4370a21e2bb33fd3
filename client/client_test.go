package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
)

// serve starts a server of a lake and returns its address.
func serve(t testing.TB, store blob.Store) string {
	t.Helper()
	counting := blob.NewCounting(store)
	server := lookup.NewServer(counting, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(server.Close)
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics := api.NewMetrics(server, counting)
	mux := api.New(server, slog.New(slog.DiscardHandler), metrics)
	mux.Handle("GET /metrics", metrics.Handler())
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return web.URL
}

// served is a client of a new server of a lake.
func served(t *testing.T, store blob.Store) *client.Client {
	t.Helper()
	return dial(t, serve(t, store), client.Options{})
}

func dial(t *testing.T, base string, opt client.Options) *client.Client {
	t.Helper()
	c, err := client.New(base, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// collect returns all that an iterator yields. An error fails the test.
func collect[T any](t *testing.T, list iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func ptr[T any](v T) *T { return &v }

func TestAgainstALake(t *testing.T) {
	store := blob.NewMemory()
	const day = 86_400_000
	var captures []testlake.Record
	var want []client.URL
	for i := range 25 {
		u, ms := fmt.Sprintf("https://example.com/%02d", i), int64(1_700_000_000_123+i*day)
		captures = append(captures, testlake.Record{URL: u, TS: ms, HasTS: true, Size: 10, HasSize: true})
		want = append(want, client.URL{
			ID: client.ID(urlnorm.URLID([]byte(u))), URL: u, Time: &client.Time{Time: time.UnixMilli(ms).UTC()},
		})
	}
	testlake.Ingest(t, store, "captures", "b1", captures)
	first := testlake.Publish(t, store).Version
	testlake.Ingest(t, store, "web_list-2.0", "b1", []testlake.Record{{URL: "https://example.com/"}, {URL: "https://example.org/"}})
	second := testlake.Publish(t, store).Version
	c := served(t, store)

	ready, err := c.Ready(t.Context())
	if err != nil || ready.Version != second || ready.Rows != 27 || ready.Datasets != 2 || ready.Err != "" {
		t.Fatalf("%+v, %v", ready, err)
	}
	at := func(i int) *client.Time { return want[i].Time }
	domain, err := c.Domain(t.Context(), "https://www.Example.com/a?b#c", client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	wantDomain := &client.Domain{
		Answered: client.Answered{
			Domain: "example.com", DomainID: client.ID(urlnorm.DomainID("example.com")), Version: second,
		},
		Host: "www.example.com", TotalsOf: "domain", Total: 2,
		Datasets: []client.Holding{
			{DatasetID: 1, Name: "captures", Totals: client.Totals{Rows: 25, Size: ptr(int64(250)), First: at(0), Last: at(24)}},
			{DatasetID: 2, Name: "web_list-2.0", Totals: client.Totals{Rows: 1}},
		},
	}
	if diff := gocmp.Diff(wantDomain, domain); diff != "" {
		t.Errorf("domain (-want +got):\n%s", diff)
	}
	if older, err := c.Domain(t.Context(), "example.com", client.Query{Version: first}); err != nil || len(older.Datasets) != 1 ||
		older.Version != first {
		t.Errorf("in the first version: %+v, %v", older, err)
	}
	if none, err := c.Domain(t.Context(), "absent.test", client.Query{}); err != nil || len(none.Datasets) != 0 {
		t.Errorf("a domain that no dataset has: %+v, %v", none, err)
	}

	byURL := func(a, b client.URL) int { return cmp.Compare(a.URL, b.URL) }
	for _, size := range []int64{0, 1, 7, 100} {
		got := collect(t, c.URLs(t.Context(), "example.com", "captures", client.URLsOptions{PageSize: size}))
		slices.SortFunc(got, byURL)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("URLs in pages of %d (-want +got):\n%s", size, diff)
		}
	}
	rest := collect(t, c.URLs(t.Context(), "example.com", "1", client.URLsOptions{Offset: 20, PageSize: 3}))
	if len(rest) != 5 {
		t.Errorf("%d URLs after the twentieth", len(rest))
	}
	sizes := []int{}
	for page, err := range c.URLPages(t.Context(), "example.com", "1", client.URLsOptions{PageSize: 10}) {
		if err != nil || *page.Total != 25 || page.DatasetID != 1 || page.Complete != (page.NextCursor == "") {
			t.Fatalf("%+v, %v", page, err)
		}
		sizes = append(sizes, len(page.Items))
	}
	if !slices.Equal(sizes, []int{10, 10, 5}) {
		t.Errorf("sizes of pages %v", sizes)
	}
	// An iterator may be left early.
	for u, err := range c.URLs(t.Context(), "example.org", "web_list-2.0", client.URLsOptions{PageSize: 1}) {
		if err != nil || u.URL != "https://example.org/" || u.Time != nil {
			t.Errorf("%+v, %v", u, err)
		}
		break
	}

	datasets := collect(t, c.Datasets(t.Context(), client.DatasetsOptions{}))
	if len(datasets) != 2 || datasets[0].Name != "captures" || datasets[0].Rows != 25 || datasets[1].ID != 2 {
		t.Errorf("datasets: %+v", datasets)
	}
	versions := collect(t, c.Versions(t.Context(), client.VersionsOptions{}))
	if len(versions) != 2 || versions[0].ID != second || !versions[0].Current || *versions[0].RowsAdded != 2 ||
		versions[1].ID != first || versions[1].Parent != "" || versions[1].Created.IsZero() {
		t.Errorf("versions: %+v", versions)
	}
	changes := collect(t, c.Diff(t.Context(), client.DiffOptions{PageSize: 1}))
	slices.SortFunc(changes, func(a, b client.Change) int { return cmp.Compare(a.Domain, b.Domain) })
	if len(changes) != 2 || changes[0].Domain != "example.com" || changes[0].Kind != "added" || changes[0].Before != nil ||
		changes[0].After.Rows != 1 || changes[0].Name != "web_list-2.0" {
		t.Errorf("changes: %+v", changes)
	}
	back := collect(t, c.Diff(t.Context(), client.DiffOptions{From: second, To: first, Dataset: "web_list-2.0"}))
	if len(back) != 2 || back[0].Kind != "removed" || back[0].After != nil {
		t.Errorf("changes the other way: %+v", back)
	}
}

func TestProblemsAreTyped(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "captures", "b1", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, store)
	c := served(t, store)
	last := func(list iter.Seq2[client.URL, error]) (err error) {
		for _, err = range list {
			if err != nil {
				return err
			}
		}
		return nil
	}
	_, notAHost := c.Domain(t.Context(), "mailto:me", client.Query{})
	_, gone := c.Domain(t.Context(), "example.com", client.Query{Version: "20200101T000000.000Z-00000000"})
	for kind, err := range map[client.Kind]error{
		client.NotAHost: notAHost, client.VersionGone: gone,
		client.UnknownDataset: last(c.URLs(t.Context(), "example.com", "..", client.URLsOptions{})),
		client.BadParameter:   last(c.URLs(t.Context(), "example.com", "1", client.URLsOptions{Offset: -1})),
	} {
		var p *client.Problem
		if !errors.As(err, &p) || !errors.Is(err, kind) || p.Title == "" || p.Detail == "" || p.Status < 400 ||
			!strings.HasPrefix(p.Type, "http://127.0.0.1") || !strings.Contains(err.Error(), p.Detail) {
			t.Errorf("%s: %#v", kind, err)
			continue
		}
		// The type is the address of an explanation.
		resp, err := http.Get(p.Type)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", p.Type, resp.Status)
		}
	}
	var p *client.Problem
	if errors.As(notAHost, &p); p.Members["reason"] != "scheme" {
		t.Errorf("members: %v", p.Members)
	}
	if errors.Is(errors.New("not-a-host"), client.NotAHost) || errors.Is(&client.Problem{Status: 502}, client.Kind("")) {
		t.Error("any error is a problem")
	}
}

// answers is a transport that gives one answer after the other.
type answers struct {
	t        *testing.T
	list     []answer
	requests []*http.Request
}

type answer struct {
	status     int
	retryAfter string
	kind, body string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests = append(a.requests, r)
	if len(a.list) == 0 {
		a.t.Errorf("one request too many: %s", r.URL)
		return nil, io.ErrUnexpectedEOF
	}
	next := a.list[0]
	a.list = a.list[1:]
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", cmp.Or(next.kind, "application/json"))
	if next.retryAfter != "" {
		w.Header().Set("Retry-After", next.retryAfter)
	}
	w.WriteHeader(next.status)
	_, _ = w.WriteString(next.body)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

const ready = `{"status":"ready","version":"v"}`

func TestRetriesWaitAsAsked(t *testing.T) {
	const problem = "application/problem+json"
	busy := answer{503, "2", problem, `{"type":"/problems/not-ready","title":"Busy","status":503}`}
	for _, c := range []struct {
		name   string
		list   []answer
		opt    client.Options
		waited time.Duration
		status int // of the problem, 0 for an answer
	}{
		{"at once", []answer{{200, "", "", ready}}, client.Options{}, 0, 0},
		{"in time", []answer{busy, {429, "3", problem, "{}"}, {200, "", "", ready}}, client.Options{}, 5 * time.Second, 0},
		{"given up", []answer{busy, busy, busy}, client.Options{Attempts: 3}, 4 * time.Second, 503},
		{"no retries", []answer{busy}, client.Options{Attempts: 1}, 0, 503},
		{"too long", []answer{{503, "31", problem, "{}"}}, client.Options{}, 0, 503},
		{"longer allowed", []answer{{503, "31", problem, "{}"}, {200, "", "", ready}}, client.Options{MaxWait: time.Minute},
			31 * time.Second, 0},
		{"until a date", []answer{{503, "Sat, 01 Jan 2000 00:00:07 GMT", problem, "{}"}, {200, "", "", ready}}, client.Options{},
			7 * time.Second, 0}, // synctest's clock starts at midnight
		{"not for other errors", []answer{{502, "1", "text/html", "<h1>"}}, client.Options{}, 0, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := &answers{t: t, list: c.list}
				c.opt.HTTP = &http.Client{Transport: transport}
				started := time.Now()
				r, err := dial(t, "http://lake.example", c.opt).Ready(t.Context())
				if waited := time.Since(started); waited != c.waited {
					t.Errorf("waited %s, want %s", waited, c.waited)
				}
				var p *client.Problem
				if c.status == 0 && (err != nil || r.Version != "v") || c.status != 0 && (!errors.As(err, &p) || p.Status != c.status) {
					t.Errorf("%+v, %v", r, err)
				}
				if len(transport.list) > 0 {
					t.Errorf("%d requests too few", len(transport.list))
				}
			})
		})
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &answers{t: t, list: []answer{{503, "20", "application/problem+json", `{"title":"Busy"}`}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := dial(t, "http://lake.example", client.Options{HTTP: &http.Client{Transport: transport}}).Ready(ctx)
		var p *client.Problem
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &p) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRequestsAndOddAnswers(t *testing.T) {
	ask := func(base string, opt client.Options, list ...answer) ([]*http.Request, error) {
		t.Helper()
		transport := &answers{t: t, list: list}
		opt.HTTP = &http.Client{Transport: transport}
		var err error
		for _, e := range dial(t, base, opt).Datasets(t.Context(), client.DatasetsOptions{At: client.At{Version: "a b"}}) {
			err = e
		}
		return transport.requests, err
	}
	page := func(next string) answer { return answer{200, "", "", `{"datasets":[],"extra":1,"next":` + next + `}`} }
	requests, err := ask("https://proxy.example/lake/", client.Options{Token: "secret"},
		page(`"/v1/datasets?cursor=x&version=v"`), page("null"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"https://proxy.example/lake/v1/datasets?version=a+b", "https://proxy.example/lake/v1/datasets?cursor=x&version=v"}
	for i, r := range requests {
		if r.URL.String() != want[i] || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("request %d: %s %v", i, r.URL, r.Header)
		}
	}
	for name, list := range map[string][]answer{
		"the link":        {page(`"https://evil.example/v1/"`)},
		"has the link":    {page(`"/v1/datasets?cursor=x"`), page(`"/v1/datasets?cursor=x"`)},
		"//evil":          {page(`"//evil.example/v1/"`)},
		"text/html":       {{200, "", "text/html", "<h1>Log in</h1>"}},
		"unexpected EOF":  {{200, "", "", `{"datasets":[`}},
		"502 Bad Gateway": {{502, "", "text/html", "<h1>"}},
		"504 Gateway":     {{504, "", "application/problem+json", "{"}},
	} {
		if _, err := ask("http://lake.example", client.Options{}, list...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, base := range []string{"", "lake.example", "ftp://lake.example", "http://", "http://x/?a=b", "http://%zz"} {
		if _, err := client.New(base, client.Options{}); err == nil {
			t.Errorf("%q is taken for an address", base)
		}
	}
}

func TestTimesOfAllYears(t *testing.T) {
	for _, want := range []time.Time{
		time.UnixMilli(0), time.UnixMilli(-1), time.UnixMilli(1_700_000_000_123), time.UnixMilli(1<<62-1).AddDate(-146_000_000, 0, 0),
		time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC), time.Date(12_345_600, 2, 29, 0, 0, 0, 0, time.UTC),
		time.Date(0, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(-4, 2, 29, 1, 2, 3, 4e6, time.UTC), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		data, err := json.Marshal(client.Time{Time: want})
		if err != nil {
			t.Fatal(err)
		}
		var got client.Time
		if err := json.Unmarshal(data, &got); err != nil || !got.Equal(want.Truncate(time.Millisecond)) {
			t.Errorf("%s: %s, %v", data, got.Time, err)
		}
	}
	for _, text := range []string{`"2023-02-29T00:00:00.000Z"`, `"2024-01-01"`, `""`, `1`, `"-"`, `"+2024-01-01T00:00:00.000Z"`} {
		if err := json.Unmarshal([]byte(text), new(client.Time)); err == nil {
			t.Errorf("%s is taken for a time", text)
		}
	}
	for _, text := range []string{`"0123"`, `"0123456789abcdeg"`, `1`, `"00123456789abcdef"`} {
		if err := json.Unmarshal([]byte(text), new(client.ID)); err == nil {
			t.Errorf("%s is taken for an id", text)
		}
	}
	if data, err := json.Marshal(client.ID(0xabc)); err != nil || string(data) != `"0000000000000abc"` {
		t.Errorf("%s, %v", data, err)
	}
}

// Without Retry-After, the waits grow and differ, so that clients that were refused together do not
// come back together. They stay below MaxWait.
func TestWaitsWithoutRetryAfter(t *testing.T) {
	refused := answer{503, "", "", ""}
	for _, c := range []struct {
		maxWait     time.Duration
		least, most time.Duration
	}{
		{time.Minute, 1750 * time.Millisecond, 5250 * time.Millisecond}, // 0.5, 1 and 2 seconds, each by half
		{120 * time.Millisecond, 120 * time.Millisecond, 360 * time.Millisecond},
	} {
		different := map[time.Duration]bool{}
		for range 10 {
			synctest.Test(t, func(t *testing.T) {
				transport := &answers{t: t, list: []answer{refused, {503, "soon", "", ""}, refused, {200, "", "", ready}}}
				started := time.Now()
				_, err := dial(t, "http://lake.example", client.Options{HTTP: &http.Client{Transport: transport}, MaxWait: c.maxWait}).Ready(t.Context())
				waited := time.Since(started)
				different[waited] = true
				if err != nil || waited < c.least || waited > c.most {
					t.Errorf("waited %s, want %s to %s; %v", waited, c.least, c.most, err)
				}
			})
		}
		if len(different) < 2 {
			t.Errorf("all waits are the same: %v", different)
		}
	}
}

// The program in docs/api.md compiles, and prints what a lake holds.
func TestDocumentedProgram(t *testing.T) {
	root := testenv.Root(t)
	store := blob.NewMemory()
	testlake.Ingest(t, store, "smallweb", "b1", []testlake.Record{{URL: "https://example.com/a"}, {URL: "https://example.com/b"}})
	testlake.Publish(t, store)
	base := serve(t, store)
	doc, err := os.ReadFile(filepath.Join(root, "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```go\n")
	program, _, closed := strings.Cut(rest, "```")
	const address = "http://localhost:8080"
	if !ok || !closed || strings.Count(program, address) != 1 {
		t.Fatalf("docs/api.md has no program in Go that asks %s:\n%s", address, program)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(strings.Replace(program, address, base, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", file)
	cmd.Dir = root
	const want = "smallweb 2\nhttps://example.com/a\nhttps://example.com/b\n"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v, printed %q, want %q", err, out, want)
	}
}
