package e2e

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
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/workflows"
)

// crawlSite is a frontier with its own Redis, and a proxy before it that can hold requests.
type crawlSite struct {
	base  string // of frontierd
	proxy string

	mu    sync.Mutex
	holds []*holding
}

// holding holds requests of a path, from the n-th on, until release is closed.
type holding struct {
	path          string
	left          int
	held, release chan struct{}
}

func startFrontier(t *testing.T, u *urlake) *crawlSite {
	t.Helper()
	address := testenv.FreeAddress(t)
	s := &crawlSite{base: "http://" + address}
	u.run(t, "frontierd", filepath.Join(u.bin, "frontierd"), "--redis", testenv.NewRedis(t).URL, "--data", t.TempDir(),
		"--http", address, "--crawl-delay", "0s", "--shards", "4")
	until(t, "frontierd answers", func(ctx context.Context) error {
		_, err := s.get(ctx, "/healthz")
		return err
	})
	to, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.wait(r.URL.Path)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	s.proxy = proxy.URL
	return s
}

// holdFrom makes the proxy hold the requests of a path from the n-th on.
func (s *crawlSite) holdFrom(path string, n int) *holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &holding{path: path, left: n, held: make(chan struct{}), release: make(chan struct{})}
	s.holds = append(s.holds, h)
	return h
}

// wait holds a request that is to be held.
func (s *crawlSite) wait(path string) {
	s.mu.Lock()
	at := slices.IndexFunc(s.holds, func(h *holding) bool { return h.path == path })
	if at < 0 {
		s.mu.Unlock()
		return
	}
	h := s.holds[at]
	h.left--
	left := h.left
	s.mu.Unlock()
	if left == 0 {
		close(h.held)
	}
	if left <= 0 {
		<-h.release
	}
}

// let lets what is held, and all that comes, pass.
func (s *crawlSite) let() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		close(h.release)
	}
	s.holds = nil
}

func (s *crawlSite) get(ctx context.Context, path string) ([]byte, error) {
	return s.do(ctx, http.MethodGet, path, "")
}

func (s *crawlSite) do(ctx context.Context, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, data)
	}
	return data, err
}

// crawl claims up to n URLs and reports a status of each. It returns the URLs.
func (s *crawlSite) crawl(t *testing.T, n int, status func(i int) int) (urls []string) {
	t.Helper()
	var got struct {
		Claims []struct{ Lease, URL string }
	}
	data, err := s.do(t.Context(), http.MethodPost, "/v1/claims", fmt.Sprintf(`{"max":%d,"per_domain":%d}`, n, n))
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	for i, c := range got.Claims {
		urls = append(urls, c.URL)
		fmt.Fprintf(&body, `{"lease":%q,"status":%d,"content":"s3://pages/%d"}`+"\n", c.Lease, status(i), i)
	}
	data, err = s.do(t.Context(), http.MethodPost, "/v1/results", body.String())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) != `{"result":"settled"}` {
			t.Errorf("result %s", line)
		}
	}
	return urls
}

// olderCrawler are the tables of a crawler with its frontier in PostgreSQL.
const olderCrawler = `
CREATE TABLE visited_urls (url_sha256 text PRIMARY KEY, url text, crawled_timestamp bigint, http_status_code integer,
	content_storage_path text, redirected_to_url text);
INSERT INTO visited_urls SELECT md5(i::text), 'https://www' || i % 3 || '.old' || i % 70 || '.test/a|b/' || i, 1699564800 + i, 200 + i % 5, 'c/' || i,
	CASE WHEN i % 7 = 0 THEN 'https://target.test/' || i END FROM generate_series(1, 12000) i;
CREATE TABLE frontier (id bigserial PRIMARY KEY, url text, domain text, depth integer, added_timestamp bigint, priority_score real);
INSERT INTO frontier (url, depth, priority_score) SELECT 'https://next' || i % 30 || '.test/' || i, i % 5, 1 - i % 3 * 0.1 FROM generate_series(1, 2000) i;
INSERT INTO frontier (url) SELECT url FROM visited_urls ORDER BY url_sha256 LIMIT 1000;
INSERT INTO frontier (url) VALUES ('mailto:somebody@old.test');
CREATE TABLE domain_metadata (domain text PRIMARY KEY, robots_txt_content text, robots_txt_expires_timestamp bigint, is_manually_excluded integer,
	last_scheduled_fetch_timestamp bigint);
INSERT INTO domain_metadata VALUES ('out.test', NULL, NULL, 1, NULL), ('www0.old1.test', E'User-agent: *\nDisallow: /x', 4102444800, 0, 0),
	('old2.test', NULL, NULL, 0, 1699564800)`

// URLs go from a lake to a frontier, and the visits of a crawl come back as a dataset. A worker is
// killed while it seeds, and one while it collects visits.
func TestCrawlOfALake(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir)+"/lake", [][]string{{"control", "normalize", "write", "index", "publish"}})
	worker := func() *exec.Cmd {
		return u.run(t, "worker background", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--pools", "background", "--temp-dir", t.TempDir())
	}
	background := worker()
	site := startFrontier(t, u)
	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := u.starter(t, append(args, "--lake", u.lake)...)
		if code != want {
			t.Fatalf("starter %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out + errs
	}
	seeds := map[string]bool{}
	var list strings.Builder
	for i := range 12_000 {
		url := fmt.Sprintf("https://host%d.site%d.test/page/%d", i%2, i%40, i)
		fmt.Fprintln(&list, url)
		if i%40 != 7 {
			seeds[url] = true
		}
	}
	run(0, "ingest", "--dataset", "seeds", "--batch", "1", "--wait", write(t, in, "seeds.txt", list.String()))
	run(0, "takedown", "add", "--domain", "site7.test", "--reason", "request 1")

	if out := run(2, "frontier", "seed", "--frontier", "localhost:7070"); !strings.Contains(out, "is no URL of a frontier") {
		t.Errorf("%s", out)
	}
	if out := run(1, "frontier", "seed", "--frontier", site.base, "--dataset", "none", "--wait"); !strings.Contains(out, `no dataset "none"`) {
		t.Errorf("%s", out)
	}

	// A first crawl, of some domains, and what it visits.
	var few []string
	some := map[string]bool{}
	for d := range 5 {
		few = append(few, "--domain", fmt.Sprintf("site%d.test", d))
	}
	for url := range seeds {
		for d := range 5 {
			if strings.Contains(url, fmt.Sprintf(".site%d.test/", d)) {
				some[url] = true
			}
		}
	}
	if out := run(0, append([]string{"frontier", "seed", "--frontier", site.base, "--wait"}, few...)...); !strings.Contains(out, "added        1,500\n") {
		t.Errorf("%s", out)
	}
	waiting := func(want int) {
		t.Helper()
		var stats struct{ Waiting int }
		if data, err := site.get(t.Context(), "/v1/stats"); err != nil || json.Unmarshal(data, &stats) != nil || stats.Waiting != want {
			t.Errorf("%d URLs wait, want %d: %v", stats.Waiting, want, err)
		}
	}
	waiting(len(some))
	if out := run(0, "frontier", "ingest", "--frontier", site.proxy, "--dataset", "visits", "--wait"); !strings.Contains(out, "Nothing new") {
		t.Errorf("%s", out)
	}
	visited := map[string]int{}
	fetch := func(n, status int) {
		t.Helper()
		for len(visited) < n {
			got := site.crawl(t, min(n-len(visited), 5000), func(int) int { return status })
			if len(got) == 0 {
				t.Fatal("nothing is claimed")
			}
			for _, url := range got {
				if !some[url] || visited[url] > 0 {
					t.Fatalf("%s is claimed, which was not seeded, or twice", url)
				}
				visited[url] = status
			}
		}
	}
	fetch(300, 200)
	var r workflows.VisitedIngestResult
	u.starterJSON(t, &r, "frontier", "ingest", "--frontier", site.proxy, "--dataset", "visits", "--wait", "--json", "--lake", u.lake)
	if r.Rows != 300 || r.Visits != 300 || len(r.Batches) != 1 || r.Version == "" {
		t.Errorf("%+v", r)
	}
	if out := run(0, "frontier", "ingest", "--frontier", site.proxy, "--dataset", "visits", "--wait"); !strings.Contains(out, "has all 300 visits") {
		t.Errorf("%s", out)
	}
	if out := run(1, "frontier", "ingest", "--frontier", site.base, "--dataset", "visits", "--wait"); !strings.Contains(out, "--moved") {
		t.Errorf("%s", out)
	}

	// An older crawler has its frontier in PostgreSQL.
	dsn := testenv.NewPostgres(t).NewDatabase(t)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(t.Context(), olderCrawler, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	older := startFrontier(t, u)
	if out := run(1, "frontier", "migrate", "--frontier", older.base, "--dsn", dsn, "--verify", "--wait"); !strings.Contains(out, "12,000: missing in the frontier") {
		t.Errorf("%s", out)
	}

	// A worker dies while it seeds, collects visits and migrates: the first request of each was
	// answered. Another goes on.
	fetch(450, 404)
	migrates := older.holdFrom("/v1/visits", 2)
	run(0, "frontier", "migrate", "--frontier", older.proxy, "--dsn", dsn)
	<-migrates.held
	sends, lists := site.holdFrom("/v1/urls", 2), site.holdFrom("/v1/visited", 2)
	run(0, "frontier", "seed", "--frontier", site.proxy, "--dataset", "seeds", "--batch", "1")
	run(0, "frontier", "ingest", "--frontier", site.proxy, "--dataset", "visits")
	<-sends.held
	<-lists.held
	kill(t, background)
	site.let()
	older.let()
	worker()
	var seeded workflows.CrawlSeedResult
	u.starterJSON(t, &seeded, "watch", "--json", workflowOf(t, u, "CrawlSeedWorkflow"))
	if seeded.Added+seeded.Known != int64(len(seeds)) || seeded.URLs != int64(len(seeds)) || len(seeded.Rejected) > 0 || seeded.Restarts == 0 {
		t.Errorf("seeded %+v, want %d URLs", seeded, len(seeds))
	}
	waiting(len(seeds) - len(visited))
	u.starterJSON(t, &r, "watch", "--json", workflowOf(t, u, "VisitedIngestWorkflow"))
	if r.Rows != 150 || r.Total != 450 {
		t.Errorf("%+v", r)
	}

	var migrated workflows.FrontierMigrateResult
	u.starterJSON(t, &migrated, "watch", "--json", workflowOf(t, u, "FrontierMigrateWorkflow"))
	v, q := migrated.Counts["visited_urls"], migrated.Counts["frontier"]
	if v.Rows != 12_000 || v.Added+v.Known != 12_000 || q.Rows != 3_001 || q.Added != 2_000 || q.Known != 1_000 || q.Left["scheme"] != 1 ||
		migrated.Counts["domain_metadata"].Changed != 2 || migrated.Restarts != 1 {
		t.Errorf("%+v", migrated)
	}
	if out := run(0, "frontier", "migrate", "--frontier", older.base, "--dsn", dsn, "--verify", "--wait"); !strings.Contains(out, "equal        12,000") ||
		!strings.Contains(out, "equal        2,000") || !strings.Contains(out, "everything that the tables have") {
		t.Errorf("%s", out)
	}
	if data, err := older.get(t.Context(), "/v1/domains/out.test"); err != nil || !strings.Contains(string(data), `"excluded":true`) {
		t.Errorf("%s, %v", data, err)
	}

	run(0, "verify", "--deep")

	// The server answers with the visits.
	server := u.serve(t)
	have := map[string]int{}
	for d := range 5 {
		var answer struct {
			Items []struct {
				URL    string
				Extras struct {
					Status  int
					Content string
				}
			}
		}
		api := crawlSite{base: u.base}
		data, err := api.get(t.Context(), fmt.Sprintf("/v1/domain/site%d.test/datasets/visits/urls?limit=1000&fields=url,extras", d))
		if err == nil {
			err = json.Unmarshal(data, &answer)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range answer.Items {
			if have[row.URL] > 0 || !strings.HasPrefix(row.Extras.Content, "s3://pages/") {
				t.Errorf("a second row of %s, or none of its content: %q", row.URL, row.Extras.Content)
			}
			have[row.URL] = row.Extras.Status
		}
	}
	kill(t, server)
	if !maps.Equal(have, visited) {
		t.Errorf("the dataset has %d URLs, visited were %d, or a status differs", len(have), len(visited))
	}
	// Every visit of the frontier is a visit of the test.
	lines, err := site.get(t.Context(), "/v1/visited?limit=100000")
	if err != nil {
		t.Fatal(err)
	}
	n := -1 // the last line is the cursor
	for in := bufio.NewScanner(bytes.NewReader(lines)); in.Scan(); n++ {
	}
	if n != len(visited) {
		t.Errorf("the frontier has %d visits, want %d", n, len(visited))
	}
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// workflowOf returns the id of the newest workflow of a type.
func workflowOf(t *testing.T, u *urlake, kind string) (id string) {
	t.Helper()
	return runsOf(t, u, kind)[0].Execution.WorkflowID
}

// runsOf returns the runs of a type of workflow, newest first.
func runsOf(t *testing.T, u *urlake, kind string) (listed []exportRun) {
	t.Helper()
	until(t, "Temporal lists a "+kind, func(context.Context) error {
		listed = nil
		out := u.temporalCLI(t, "workflow", "list", "--output", "json", "--query", "WorkflowType = '"+kind+"'")
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			return err
		}
		if len(listed) == 0 {
			return errors.New("none is listed")
		}
		return nil
	})
	return listed
}
