//go:build unix

package migrate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/frontier/frontiertest"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/lake/urlnorm"
)

// fake is a frontier as this package sees one, written after docs/frontier.md.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	visits  []fakeVisit
	waiting map[string]fakeURL
	done    map[string]fakeVisit // the latest visit of a URL
	domains map[string]map[string]any
	lines   int
	after   func(lines int) error // fails a request once so many lines have come
}

type fakeVisit struct {
	URL      string    `json:"url"`
	Crawl    string    `json:"crawl"`
	Time     time.Time `json:"time"`
	Status   int       `json:"status"`
	Error    string    `json:"error,omitempty"`
	Content  string    `json:"content,omitempty"`
	Redirect string    `json:"redirect,omitempty"`
	Depth    int       `json:"depth"`
}

type fakeURL struct {
	URL      string `json:"url"`
	Crawl    string `json:"crawl"`
	Priority int    `json:"priority"`
	Depth    int    `json:"depth"`
}

func newFake(t *testing.T) *fake {
	f := &fake{waiting: map[string]fakeURL{}, done: map[string]fakeVisit{}, domains: map[string]map[string]any{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) line(path string, line []byte) string {
	reply := func(result, reason string) string { return fmt.Sprintf(`{"result":%q,"reason":%q}`, result, reason) }
	var v fakeVisit
	var u fakeURL
	if err := errors.Join(json.Unmarshal(line, &v), json.Unmarshal(line, &u)); err != nil {
		return reply("rejected", "line: "+err.Error())
	}
	parsed, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), v.URL)
	var reject *urlnorm.RejectError
	if errors.As(err, &reject) {
		if path == "/v1/seen" {
			return `{"seen":false,"settled":false,"reason":"no URL"}`
		}
		return reply("rejected", string(reject.Reason))
	}
	v.URL, u.URL = parsed.String(), parsed.String()
	done, settled := f.done[v.URL]
	_, waits := f.waiting[v.URL]
	switch path {
	case "/v1/seen":
		return fmt.Sprintf(`{"url":%q,"seen":%t,"settled":%t}`, v.URL, settled || waits, settled)
	case "/v1/urls":
		if settled || waits {
			return reply("known", "")
		}
		f.waiting[u.URL] = u
	case "/v1/visits":
		if settled && (v.Time.IsZero() || !v.Time.Truncate(time.Second).After(done.Time.Truncate(time.Second))) {
			return reply("known", "")
		}
		if v.Time.IsZero() {
			v.Time = time.Now().UTC().Truncate(time.Millisecond)
		}
		v.Crawl = "DEFAULT"
		f.visits = append(f.visits, v)
		f.done[v.URL] = v
		delete(f.waiting, v.URL)
	}
	return reply("added", "")
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/stats":
		_, _ = io.WriteString(w, "{}")
	case r.URL.Path == "/v1/visited":
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		to := min(len(f.visits), from+1000)
		for _, v := range f.visits[from:to] {
			b, _ := json.Marshal(v)
			fmt.Fprintf(w, "%s\n", b)
		}
		fmt.Fprintf(w, "{\"next_cursor\":\"%d\"}\n", to)
	case r.URL.Path == "/v1/urls" && r.Method == http.MethodGet:
		urls := slices.Sorted(maps.Keys(f.waiting))
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		to := min(len(urls), from+1000)
		for _, url := range urls[from:to] {
			b, _ := json.Marshal(f.waiting[url])
			fmt.Fprintf(w, "%s\n", b)
		}
		next := ""
		if to < len(urls) {
			next = strconv.Itoa(to)
		}
		fmt.Fprintf(w, "{\"next_cursor\":%q}\n", next)
	case strings.HasSuffix(r.URL.Path, "/robots"):
		all, _ := f.domains[strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/domains/"), "/robots")]["robots"].([]any)
		for _, robots := range all {
			if robots.(map[string]any)["host"] == r.URL.Query().Get("host") {
				_ = json.NewEncoder(w).Encode(robots)
				return
			}
		}
		http.NotFound(w, r)
	case strings.HasPrefix(r.URL.Path, "/v1/domains/"):
		name := strings.TrimPrefix(r.URL.Path, "/v1/domains/")
		d := f.domains[name]
		if d == nil {
			d = map[string]any{"delay": 70.0}
		}
		if r.Method == http.MethodPatch {
			var change map[string]any
			if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			if change["exclude"] == true {
				change["excluded"] = true
			}
			if robots, ok := change["robots"].(map[string]any); ok {
				if robots["host"] == nil {
					robots["host"] = name
				}
				all, _ := d["robots"].([]any)
				change["robots"] = append(all, robots)
			}
			maps.Copy(d, change)
			f.domains[name] = d
		}
		_ = json.NewEncoder(w).Encode(d)
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for in := bufio.NewScanner(bytes.NewReader(body)); in.Scan(); f.lines++ {
			if f.after != nil {
				if err := f.after(f.lines); err != nil {
					panic(http.ErrAbortHandler) // as if the process had died
				}
			}
			fmt.Fprintln(w, f.line(r.URL.Path, in.Bytes()))
		}
	}
}

// document are the tables of the document, as it uses them.
const document = `
CREATE TABLE visited_urls (
	url_sha256 text PRIMARY KEY, url text NOT NULL, crawled_timestamp bigint, http_status_code integer,
	content_storage_path text, redirected_to_url text
);
CREATE TABLE frontier (
	id serial PRIMARY KEY, url text NOT NULL, domain text, depth integer, added_timestamp bigint, priority_score real
);
CREATE TABLE domain_metadata (
	domain text PRIMARY KEY, robots_txt_content text, robots_txt_expires_timestamp bigint,
	is_manually_excluded integer, last_scheduled_fetch_timestamp bigint
);`

func database(t *testing.T, sql ...string) (dsn string, c *pgx.Conn) {
	t.Helper()
	dsn = testenv.NewPostgres(t).NewDatabase(t)
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	for _, s := range sql {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return dsn, c
}

func migrateAll(t *testing.T, spec Spec) Progress {
	t.Helper()
	p, err := Migrate(t.Context(), spec, Progress{}, func(Progress) {})
	if err != nil || !p.Done {
		t.Fatalf("%+v, %v", p, err)
	}
	return p
}

func verify(t *testing.T, spec Spec) Comparison {
	t.Helper()
	c, err := Verify(t.Context(), spec, t.TempDir(), func(Verifying) {})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Rows of every kind that the document's tables can have.
func TestMigrate(t *testing.T) {
	t.Parallel()
	dsn, c := database(t, document, `
INSERT INTO visited_urls VALUES
	('01', 'https://a.test/plain', 1699564800, 200, 'content/a5/b7.txt', NULL),
	('02', 'https://a.test/pipe|in|it?a=b|c', 1699564801, 404, NULL, NULL),
	('03', E'https://a.test/con\ttrol\x01\nchar', 1699564802, NULL, NULL, 'https://a.test/target'),
	('04', 'https://a.test/notime', NULL, 500, '', ''),
	('05', 'https://a.test/twice', 1699564810, 200, 'first', NULL),
	('06', 'HTTPS://A.test:443/twice', 1699564820, 301, 'second', NULL),
	('07', 'mailto:nobody@a.test', 1699564803, 200, NULL, NULL),
	('08', '', 1699564804, 200, NULL, NULL),
	('09', 'https://a.test/milliseconds', 1699564805123, 200, NULL, NULL),
	('10', 'https://a.test/future', 99999999999, 200, NULL, NULL),
	('11', 'https://münchen.test/ü', 1699564806, 200, 'Größe', NULL),
	('12', 'https://b.test/status', 1699564807, 70000, NULL, NULL),
	('13', 'https://b.test/second', 1699564807100, 200, NULL, NULL),
	('14', 'https://b.test/second', 1699564807900, 201, NULL, NULL);
INSERT INTO frontier (url, domain, depth, added_timestamp, priority_score) VALUES
	('https://a.test/next|1', 'a.test', 2, 1699564900, 1.0),
	('https://a.test/next2', 'a.test', NULL, NULL, 0.9),
	('https://a.test/plain', 'a.test', 1, 1699564900, 1.0),
	('https://a.test/next2', 'a.test', 5, NULL, 0.1),
	('https://b.test/', NULL, -3, NULL, NULL),
	('not a url', NULL, 1, NULL, NULL);
INSERT INTO domain_metadata VALUES
	('excluded.test', NULL, NULL, 1, 0),
	('www.a.test', 'User-agent: *', 4102444800, 0, 0),
	('a.test', E'User-agent: *\nDisallow: /x', 4102444800, 0, NULL),
	('old.test', 'User-agent: *', 1699564800, 0, 1699564800),
	('www.excluded.test', NULL, NULL, 1, NULL),
	('no domain', NULL, NULL, 1, NULL);`)
	f := newFake(t)
	spec := Spec{Lake: "memory://", DSN: dsn, Frontier: f.URL}
	if plan, err := Look(t.Context(), spec); err != nil || !maps.Equal(plan.Rows, map[string]int64{tableVisited: 14, tableFrontier: 6, tableDomains: 6}) {
		t.Errorf("%+v, %v", plan, err)
	}
	// A worker that may connect to the database, and not to the frontier.
	socket, _, _ := strings.Cut(strings.TrimPrefix(spec.DSN, "host="), " ")
	targets, err := allow.ParseTargets([]string{socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx := allow.WithTargets(t.Context(), targets)
	_, looked := Look(ctx, spec)
	_, moved := Migrate(ctx, spec, Progress{}, func(Progress) {})
	_, verified := Verify(ctx, spec, t.TempDir(), func(Verifying) {})
	for _, err := range []error{looked, moved, verified} {
		if err == nil || !strings.Contains(err.Error(), "frontier: ") || !strings.Contains(err.Error(), "--allow-target") {
			t.Errorf("a frontier that is no target: %v", err)
		}
	}
	p := migrateAll(t, spec)
	v, q, d := p.Counts[tableVisited], p.Counts[tableFrontier], p.Counts[tableDomains]
	if v.Rows != 14 || v.Added != 11 || v.Known != 1 || v.Left["scheme"] != 1 || len(v.Left) != 2 {
		t.Errorf("visited: %+v", v)
	}
	if q.Rows != 6 || q.Added != 3 || q.Known != 2 || len(q.Left) != 1 {
		t.Errorf("frontier: %+v", q)
	}
	if d.Rows != 6 || d.Changed != 3 || d.Left["no domain"] != 1 || d.Left["nothing to set"] != 1 || d.Left["exclusion of a host of a larger domain"] != 1 {
		t.Errorf("domains: %+v", d)
	}
	second := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	for _, want := range []fakeVisit{
		{URL: "https://a.test/plain", Time: second(1699564800), Status: 200, Content: "content/a5/b7.txt"},
		{URL: "https://a.test/pipe%7Cin%7Cit?a=b%7Cc", Time: second(1699564801), Status: 404},
		{URL: "https://a.test/control%01char", Time: second(1699564802), Redirect: "https://a.test/target"},
		{URL: "https://a.test/twice", Time: second(1699564820), Status: 301, Content: "second"},
		{URL: "https://a.test/milliseconds", Time: time.UnixMilli(1699564805123).UTC(), Status: 200},
		{URL: "https://xn--mnchen-3ya.test/%C3%BC", Time: second(1699564806), Status: 200, Content: "Größe"},
		{URL: "https://b.test/status", Time: second(1699564807)},
	} {
		want.Crawl = "DEFAULT"
		if got := f.done[want.URL]; got != want {
			t.Errorf("visit %+v, want %+v", got, want)
		}
	}
	if got := f.waiting["https://a.test/next%7C1"]; got.Depth != 2 || got.Priority != 1000 {
		t.Errorf("%+v", got)
	}
	if got := f.waiting["https://a.test/next2"]; got.Depth != 0 || got.Priority != 900 {
		t.Errorf("%+v", got)
	}
	if got := f.waiting["https://b.test/"]; got.Depth != 0 || got.Priority != 0 || len(f.waiting) != 3 {
		t.Errorf("%+v of %d", got, len(f.waiting))
	}
	if f.domains["excluded.test"]["excluded"] != true || f.domains["excluded.test"]["pause"] != false || p.Counts[stageExclusions].Changed != 1 ||
		len(f.domains["a.test"]["robots"].([]any)) != 2 || len(f.domains) != 2 {
		t.Errorf("%v", f.domains)
	}

	if c := verify(t, spec); !c.Equal || c.Sets[tableVisited].Equal != 8 || c.Sets[tableVisited].Altered != 2 || c.Sets[tableVisited].Same != 2 ||
		c.Sets[tableFrontier].Equal != 2 || c.Sets[tableFrontier].Altered != 1 || c.Sets[tableFrontier].Same != 1 || c.Sets[tableFrontier].Visited != 1 || c.Sets[tableFrontier].Newer != 0 || c.Sets[tableDomains].Equal != 3 {
		t.Errorf("%+v %+v %+v", c.Sets[tableVisited], c.Sets[tableFrontier], c.Sets[tableDomains])
	}
	// A second migration adds nothing, and then what has come since.
	if p := migrateAll(t, spec); p.Counts[tableVisited].Added+p.Counts[tableFrontier].Added != 0 {
		t.Errorf("again: %+v", p.Counts)
	}
	if _, err := c.Exec(t.Context(), `INSERT INTO visited_urls VALUES ('15', 'https://a.test/next2', 1699564999, 200, NULL, NULL);
		INSERT INTO frontier (url) VALUES ('https://a.test/next3'); UPDATE visited_urls SET http_status_code = 201 WHERE url_sha256 = '01'`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	compared := verify(t, spec)
	s := compared.Sets[tableVisited]
	if compared.Equal || s.Missing != 1 || s.Differ != 1 || compared.Sets[tableFrontier].Missing != 1 || !slices.ContainsFunc(s.Examples, func(e string) bool {
		return strings.Contains(e, "url_sha256=01") && strings.Contains(e, "201")
	}) {
		t.Errorf("%+v %+v", s, compared.Sets[tableFrontier])
	}
	if p := migrateAll(t, spec); p.Counts[tableVisited].Added != 1 || p.Counts[tableFrontier].Added != 1 {
		t.Errorf("what came since: %+v", p.Counts)
	}
	// What the frontier has changed since is told.
	f.mu.Lock()
	f.visits = append(f.visits, fakeVisit{URL: "https://a.test/pipe%7Cin%7Cit?a=b%7Cc", Crawl: "DEFAULT", Time: time.Now().UTC(), Status: 200},
		fakeVisit{URL: "https://new.test/", Crawl: "DEFAULT", Time: time.Now().UTC(), Status: 200},
		fakeVisit{URL: "https://other.test/", Crawl: "other", Time: time.Now().UTC(), Status: 200})
	f.mu.Unlock()
	if s := verify(t, spec).Sets[tableVisited]; s.Newer != 1 || s.Only != 1 {
		t.Errorf("%+v", s)
	}
}

// TestVerify compares with a real frontier, in which others change one thing of each kind after the
// migration. Each is named, and nothing else differs.
func TestVerify(t *testing.T) {
	t.Parallel()
	dsn, c := database(t, `
CREATE TABLE visited_urls (id serial PRIMARY KEY, url text, crawled_timestamp bigint, http_status_code integer, depth integer);
CREATE TABLE frontier (id serial PRIMARY KEY, url text, depth integer, priority real);
CREATE TABLE domain_metadata (
	domain text PRIMARY KEY, robots_txt_content text, robots_txt_expires_timestamp bigint, is_manually_excluded integer, crawl_delay real
);
INSERT INTO visited_urls (url, crawled_timestamp, http_status_code, depth) SELECT 'https://v' || i || '.test/', 1699564800 + i, 200, i FROM generate_series(1, 30) i;
INSERT INTO frontier (url, depth, priority) SELECT 'https://s' || i % 9 || '.test/' || i, i % 5, 0.1 * (i % 10) FROM generate_series(1, 6000) i;
INSERT INTO frontier (url, depth, priority) VALUES ('https://deep.test/', 1500000000, 1), ('https://s1.test/1', 4, 0.5);
INSERT INTO domain_metadata VALUES
	('slow.test', 'User-agent: *', 4102444800, 0, 30), ('asks.test', E'User-agent: *\nCrawl-delay: 50', 4102444800, 0, 20),
	('out.test', NULL, NULL, 1, NULL), ('other.test', 'User-agent: x', 4102444800, 0, NULL), ('fresh.test', 'User-agent: y', 4102444800, 0, NULL);`)
	base := frontiertest.Serve(t)
	spec := Spec{Lake: "memory://", DSN: dsn, Frontier: base, Crawl: "old"}
	migrateAll(t, spec)
	count := func(c Comparison, name string) string {
		s := c.Sets[name]
		return fmt.Sprintf("%d rows, %d equal, %d altered, %d same, %d newer, %d missing, %d differ, %d only", s.Rows, s.Equal, s.Altered, s.Same, s.Newer, s.Missing, s.Differ, s.Only)
	}
	check := func(equal bool, want map[string]string) (examples []string) {
		t.Helper()
		c := verify(t, spec)
		if c.Equal != equal {
			t.Errorf("equal %v, want %v", c.Equal, equal)
		}
		for _, name := range Tables {
			if got := count(c, name); got != want[name] || len(c.Sets[name].Left) > 0 {
				t.Errorf("%s: %s, %v, want %s: %q", name, got, c.Sets[name].Left, want[name], c.Sets[name].Examples)
			}
			examples = append(examples, c.Sets[name].Examples...)
		}
		return examples
	}
	check(true, map[string]string{
		tableVisited:  "30 rows, 30 equal, 0 altered, 0 same, 0 newer, 0 missing, 0 differ, 0 only",
		tableFrontier: "6002 rows, 6000 equal, 1 altered, 1 same, 0 newer, 0 missing, 0 differ, 0 only",
		tableDomains:  "5 rows, 5 equal, 0 altered, 0 same, 0 newer, 0 missing, 0 differ, 0 only",
	})
	send := func(method, path string, lines ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(strings.Join(lines, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || strings.Contains(string(text), "rejected") {
			t.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
		}
	}
	send("POST", "/v1/urls", `{"url":"https://s2.test/2","crawl":"old","priority":9,"depth":2,"update":true}`, // was 200
		`{"url":"https://s3.test/3","crawl":"old","priority":300,"depth":7,"update":true}`, // was 3
		`{"url":"https://s4.test/4","crawl":"old","update":true,"done":true}`,
		`{"url":"https://s5.test/5","crawl":"old","priority":500,"depth":0,"update":true,"refetch_after":"2100-01-01T00:00:00Z"}`,
		`{"url":"https://found.test/","crawl":"old"}`, `{"url":"https://found.test/","crawl":"new"}`)
	send("DELETE", "/v1/domains/deep.test/urls?crawl=old")
	if _, err := c.Exec(t.Context(), "UPDATE visited_urls SET depth = 99 WHERE id = 7"); err != nil {
		t.Fatal(err)
	}
	send("PATCH", "/v1/domains/slow.test", `{"delay":60}`)
	send("PATCH", "/v1/domains/other.test", `{"robots":{"text":"User-agent: z","expires":"2100-01-01T00:00:00Z"}}`)
	send("PATCH", "/v1/domains/fresh.test", `{"robots":{"text":"User-agent: z","expires":"2101-01-01T00:00:00Z"}}`)
	send("PATCH", "/v1/domains/out.test", `{"exclude":false}`)
	examples := check(false, map[string]string{
		tableVisited:  "30 rows, 29 equal, 0 altered, 0 same, 0 newer, 0 missing, 1 differ, 0 only",
		tableFrontier: "6002 rows, 5997 equal, 0 altered, 1 same, 1 newer, 1 missing, 2 differ, 1 only",
		tableDomains:  "5 rows, 1 equal, 0 altered, 0 same, 1 newer, 0 missing, 3 differ, 0 only",
	})
	slices.Sort(examples)
	want := []string{
		"row domain=other.test: its robots.txt has another text in the frontier", "row domain=out.test: it is not excluded",
		"row domain=slow.test: its delay is 30 s, in the frontier 60 s", "row id=2: the priority is 200, in the frontier 9",
		"row id=3: the depth is 3, in the frontier 7", "row id=7: the depth is 99, in the frontier 7", "the frontier does not know row id=6001",
	}
	if !slices.Equal(examples, want) {
		t.Errorf("named %q, want %q", examples, want)
	}
	// However many differ, some are named.
	if _, err := c.Exec(t.Context(), "UPDATE frontier SET priority = 65"); err != nil {
		t.Fatal(err)
	}
	if s := verify(t, spec).Sets[tableFrontier]; s.Differ != 5999 || len(s.Examples) != 21 {
		t.Errorf("%d differ, %d are named", s.Differ, len(s.Examples))
	}
}

// Wherever a migration stops, one that goes on at the last position that was reported sends the
// rest. Rows change meanwhile.
func TestMigrationGoesOn(t *testing.T) {
	t.Parallel()
	dsn, c := database(t, document, `
INSERT INTO visited_urls SELECT md5(i::text), 'https://site' || i % 50 || '.test/' || i, 1699564800 + i, 200 + i % 5, 'c/' || i, NULL FROM generate_series(1, 17000) i;
INSERT INTO frontier (url, depth, priority_score) SELECT 'https://site' || i % 50 || '.test/next/' || i, i % 4, 0.5 FROM generate_series(1, 11000) i;`)
	f := newFake(t)
	spec := Spec{Lake: "memory://", DSN: dsn, Frontier: f.URL}
	died := errors.New("died")
	at, deaths := Progress{}, 0
	for !at.Done {
		ctx, die := context.WithCancelCause(t.Context())
		f.mu.Lock()
		limit := f.lines + 11_000
		f.after = func(lines int) error {
			if lines >= limit {
				die(died)
				return died
			}
			return nil
		}
		f.mu.Unlock()
		next, err := Migrate(ctx, spec, at, func(p Progress) { at = p })
		die(nil)
		if err == nil {
			at = next
			continue
		}
		deaths++
		if _, err := c.Exec(t.Context(), fmt.Sprintf(`UPDATE visited_urls SET content_storage_path = 'moved' WHERE url = 'https://site%d.test/%d';
			INSERT INTO frontier (url) VALUES ('https://late.test/%d')`, deaths%50, deaths, deaths), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		if deaths > 40 {
			t.Fatalf("%d deaths, and it is at %+v", deaths, at)
		}
		f.mu.Lock()
		f.after = nil
		f.mu.Unlock()
	}
	if deaths < 3 {
		t.Errorf("%d deaths", deaths)
	}
	f.after = nil
	// A row that was changed behind the position differs in its content, and nothing else does.
	s := verify(t, spec)
	if v := s.Sets[tableVisited]; v.Missing != 0 || v.Only != 0 || v.Equal+v.Differ != 17000 || v.Differ > int64(deaths) {
		t.Errorf("%+v", v)
	}
	if q := s.Sets[tableFrontier]; q.Equal != 11000+int64(deaths) || q.Missing != 0 {
		t.Errorf("%+v, %d deaths", q, deaths)
	}
}

// Tables that differ from the document's: other types, keys of several columns, missing columns.
func TestOtherTables(t *testing.T) {
	t.Parallel()
	dsn, c := database(t, `CREATE SCHEMA crawl`, `
CREATE TABLE crawl.visited_urls (site integer NOT NULL, n bigint NOT NULL, url text, fetched_at timestamptz, status_code smallint, UNIQUE (site, n));
CREATE UNIQUE INDEX ON crawl.visited_urls (url);
INSERT INTO crawl.visited_urls SELECT i % 3, i, 'https://t.test/' || i, '2026-01-02 03:04:05.678+01'::timestamptz + i * interval '1 s', 200 FROM generate_series(1, 12345) i;`)
	f := newFake(t)
	spec := Spec{Lake: "memory://", DSN: dsn, Schema: "crawl", Frontier: f.URL}
	p := migrateAll(t, spec)
	if v := p.Counts[tableVisited]; v.Added != 12345 || len(p.Counts[tableFrontier].Left) > 0 || p.Counts[tableFrontier].Rows > 0 {
		t.Errorf("%+v", p.Counts)
	}
	if got, want := f.done["https://t.test/1"].Time, time.Date(2026, 1, 2, 2, 4, 6, 678e6, time.UTC); !got.Equal(want) {
		t.Errorf("time %s, want %s", got, want)
	}
	if s := verify(t, spec); !s.Equal || s.Sets[tableVisited].Equal != 12345 || len(s.Sets) != 1 {
		t.Errorf("%+v", s.Sets[tableVisited])
	}
	refused := func(sql, text string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		var input *InputError
		if _, err := Look(t.Context(), spec); !errors.As(err, &input) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	refused("ALTER TABLE crawl.visited_urls DROP CONSTRAINT visited_urls_site_n_key", "no primary key")
	refused("ALTER TABLE crawl.visited_urls DROP COLUMN url", "no column url")
	refused("DROP TABLE crawl.visited_urls", "none of the tables")
	spec.DSN = "postgres://u:secret@host/db"
	refused("SELECT 1", "it has a password")
}
