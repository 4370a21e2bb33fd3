//go:build soak

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/compat"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// fixture is the name of the lake that TestFixture writes: a new folder beside the earlier ones.
var fixture = flag.String("fixture", "", "write internal/compat/testdata/lakes/`NAME` (make fixtures FIXTURE=NAME)")

// fixtureInputs is where the inputs of fixtures are, since records of batches name them.
const fixtureInputs = "/tmp/urlake-fixture"

// fixtureHas are the kinds of objects that a fixture must have, as patterns of keys. A new kind of
// object is a line here.
var fixtureHas = []string{
	`^registry/datasets\.json$`, `^registry/datasets\.copy\.json$`, `^pending/`,
	`^registry/pieces/`, `^registry/taken\.json$`, `^registry/taken/`,
	`^rules/public-suffix-[0-9a-f]{32}\.txt$`,
	`^urls/dataset_id=\d+/domain_prefix=any/`, `^urls/dataset_id=\d+/domain_prefix=any/part-~`,
	`^batches/dataset_id=\d+/[^/~]+/[0-9a-f]{32}\.json$`, `^batches/dataset_id=\d+/~[0-9a-f]{16}/[0-9a-f]{32}\.json$`,
	`^batches/dataset_id=\d+/[^/]+/postings-`,
	`^rejects/`, `^reports/`,
	`^index/manifest\.json$`, `^index/versions/`, `^index/pieces/`, `^index/segments/[0-9a-f]{32}/segment\.json$`,
	`^index/segments/[0-9a-f]{32}/parts\.keys\.zst$`, `^index/segments/[0-9a-f]{32}/domains\.starts\.zst$`,
	`^index/segments/[0-9a-f]{32}/domains\.reversed\.zst$`, `^index/segments/[0-9a-f]{32}/domains\.reversed\.starts\.zst$`,
	`^index/takedowns/documents/`, `^index/takedowns/pieces/`, `^index/deletions/`,
	`^index/trash/lists/`, `^index/trash/sweep\.json$`,
	`^frontier/visits/[^/]+/cursor\.json$`,
}

// TestFixture makes a lake that has everything that a lake can have, with the real programs, and
// checks that it does. With -fixture it becomes a fixture of package compat.
//
// Whoever adds a format, or something that a lake can have, adds it to the events below and to
// fixtureHas, and writes a new fixture. Earlier ones are never written again.
func TestFixture(t *testing.T) {
	if *fixture == "" {
		t.Parallel()
	}
	in := t.TempDir()
	if *fixture != "" {
		in = fixtureInputs
		if err := os.Mkdir(in, 0o777); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(in) })
	}
	dir := filepath.Join(t.TempDir(), "lake")
	u := startAlone(t, "file://"+filepath.ToSlash(dir), [][]string{allPools})
	f := &fixtureLake{t: t, urlake: u, in: in}
	f.live()

	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	f.complete(store)
	if out, errs, code := u.starter(t, "verify", "--lake", u.lake, "--deep"); code != 0 {
		t.Fatalf("verify: exit %d: %s%s", code, out, errs)
	}
	// Staging is of runs and not of the lake, and no format of it is promised.
	if err := os.RemoveAll(filepath.Join(dir, "staging")); err != nil {
		t.Fatal(err)
	}
	answers := compat.Ask(t, u.lake).Record(fixtureHosts, fixtureSearches)
	to := filepath.Join(t.TempDir(), "1-test")
	if *fixture != "" {
		to = filepath.Join(testenv.Root(t), compat.Folder, *fixture)
	}
	if err := compat.Write(to, dir, answers); err != nil {
		t.Fatal(err)
	}
	for _, line := range compat.Ask(t, compat.Unpack(t, to)).Differences(answers, 20) {
		t.Errorf("after it was unpacked: %s", line)
	}
}

// fixtureHosts are the hosts of which rows are in the lake.
var fixtureHosts = []string{
	"site-0.example", "site-1.example", "site-2.example", "site-3.example", "site-4.example", "site-5.example",
	"a.pages.example", "b.pages.example", "hidden.example", "forum.example", "once.example", "gone.example",
	"xn--mnchen-3ya.example", "192.0.2.7", "[2001:db8::1]", "localhost", "absent.example",
}

// fixtureSearches are paths that search a large domain by the keys of its pages, and domains by
// their beginnings and ends.
var fixtureSearches = []string{
	"/v1/domain/bulk.example/datasets/list-30/urls?limit=25&prefix=%2F77%2F",
	"/v1/domain/bulk.example/datasets/list-30/urls?limit=25&prefix=%2F199%2F9&host=bulk.example",
	"/v1/domain/bulk.example/datasets/list-30/urls?limit=25&prefix=%2Fnone",
	"/v1/url?url=https%3A%2F%2Fbulk.example%2F50%2F5",
	"/v1/url?url=https%3A%2F%2Fbulk.example%2F50%2Fnone",
	"/v1/domains?prefix=site-&limit=4", "/v1/domains?suffix=.example&limit=5", "/v1/domains?prefix=s&suffix=0.example",
}

// fixtureLake is a lake to which everything happens that can happen to one.
type fixtureLake struct {
	t *testing.T
	*urlake
	in string
}

func (f *fixtureLake) do(args ...string) string {
	f.t.Helper()
	at := 1
	if args[0] == "takedown" || args[0] == "rules" || args[0] == "frontier" {
		at = 2
	}
	all := append(append(append([]string{}, args[:at]...), "--lake", f.lake), args[at:]...)
	out, errs, code := f.starter(f.t, all...)
	if code != 0 {
		f.t.Fatalf("starter %s: exit %d: %s%s", strings.Join(all, " "), code, out, errs)
	}
	return out
}

func (f *fixtureLake) file(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.in, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// crawl returns the lines of a day of a crawl, with times and sizes. Some are in several days.
func crawl(day int) string {
	var out strings.Builder
	for i := range 60 {
		host := fmt.Sprintf("site-%d.example", (i*i+day)%6)
		if i%7 == 0 {
			host = []string{"a.pages.example", "b.pages.example", "www.hidden.example", "forum.example"}[i/7%4]
		}
		fmt.Fprintf(&out, `{"url":"https://%s/%d/%d?q=%d","ts":"2024-03-%02dT%02d:00:00Z","size":%d}`+"\n",
			host, day%3, i, i%5, day, i%24, 1000+i*day)
	}
	return out.String()
}

func (f *fixtureLake) crawl(day int, more ...string) {
	f.t.Helper()
	name := fmt.Sprintf("2024-03-%02d", day)
	f.do(append([]string{"ingest", "--dataset", "crawl", "--batch", name, "--wait", "--ts-column", "ts", "--size-field", "size",
		f.file("crawl/"+name+".jsonl", crawl(day))}, more...)...)
}

// live is the life of the lake.
func (f *fixtureLake) live() {
	// A list that is none of the programs', so that a lake with other rules is in the fixture.
	f.do("rules", "update", "--psl", f.file("before.dat", "example\n"))
	f.crawl(1)
	f.do("tag", "current", "first")
	forum := "https://forum.example/t/1\nhttp://forum.example:8080/t/2?a=b\nhttps://münchen.example/straße\n" +
		"http://192.0.2.7/a\nhttp://[2001:db8::1]/b\nhttp://localhost/c\nmailto:nobody@example\nhttp:///\nhttps://gone.example/1\n"
	f.do("ingest", "--dataset", "forum", "--batch", "old", "--max-reject-rate", "0.9", "--wait", "--title", "A forum",
		f.file("forum/old.txt", forum))
	f.do("ingest", "--dataset", "forum", "--batch", "new", "--wait", f.file("forum/new.txt", "https://forum.example/t/3\nhttps://once.example/\n"))
	// Lists that are ingested together.
	for i := range 9 {
		text := fmt.Sprintf("https://site-%d.example/list\nhttps://once.example/%d\nhttp:///\n", i%6, i)
		f.file(fmt.Sprintf("lists/list-%d.txt", i), text)
	}
	f.do("ingest", "--datasets-from", "files", "--max-reject-rate", "0.9", "--wait", filepath.Join(f.in, "lists"))
	for day := 2; day <= 5; day++ {
		f.crawl(day)
	}
	// Takedowns that compaction makes final, and one that is lifted.
	f.do("takedown", "add", "--domain", "hidden.example", "--reason", "case 1", "--by", "tests")
	f.do("takedown", "add", "--url", "https://site-5.example/1/2?q=2", "--reason", "case 2", "--by", "tests")
	lifted := f.id(f.do("takedown", "add", "--host", "forum.example", "--dataset", "crawl", "--reason", "case 3", "--by", "tests", "--json"))
	f.do("takedown", "lift", lifted, "--reason", "it was a mistake", "--by", "tests")
	f.do("compact", "--full") // unions
	f.do("tag", "current", "united")
	f.do("gc", "--keep", "2", "--grace", "0s") // a sweep
	// After that, what adds segments: rows that are hidden, a batch that is replaced, one that is
	// retired, and one that is retired out of a union.
	f.crawl(6)
	f.do("takedown", "add", "--prefix", "https://site-4.example/0/", "--from", "2024-03-02", "--to", "2024-03-07", "--reason", "case 4", "--by", "tests")
	f.do("ingest", "--dataset", "crawl", "--batch", "2024-03-06", "--wait", "--ts-column", "ts", "--size-field", "size",
		f.file("crawl/again.jsonl", crawl(7)))
	f.do("ingest", "--dataset", "forum", "--batch", "only", "--replace", "--wait",
		f.file("forum/only.txt", "https://forum.example/t/4\nhttps://www.hidden.example/forum\n"))
	f.do("retire", "--dataset", "list-3", "--wait")
	f.do("retire", "--dataset", "crawl", "--batch", "2024-03-02", "--wait")
	// Another public suffix list: a.pages.example becomes a domain.
	f.do("rules", "update", "--psl", f.file("after.dat", "example\npages.example\n"))
	f.crawl(8)
	// At the end the lake has several segments, a list of garbage whose time of grace has not
	// passed, and batches that no version has yet.
	f.do("compact")
	f.crawl(9)
	// Dead rows: a batch is taken out of a segment that is large enough to stay, and a takedown
	// hides a row of those that are left. Its domain has several pages, so it has page keys.
	var large strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&large, "https://bulk.example/%d/%d\n", i/100, i%100)
	}
	large.WriteString("https://site-1.example/large/7\nhttps://site-1.example/large/8\nhttps://once.example/large/9\n")
	f.file("large/list-30.txt", large.String())
	f.file("large/list-31.txt", "https://site-1.example/large/1\nhttps://once.example/large\n")
	f.do("ingest", "--datasets-from", "files", "--wait", filepath.Join(f.in, "large"))
	f.do("retire", "--dataset", "list-31", "--wait")
	f.do("takedown", "add", "--url", "https://site-1.example/large/7", "--reason", "case 5", "--by", "tests")
	f.do("gc", "--keep", "6", "--grace", "3d")
	f.crawl(10, "--no-publish")
	f.file("more/list-21.txt", "https://site-2.example/more\nhttps://once.example/more\n")
	f.file("more/list-20.txt", "https://site-2.example/more\n")
	f.do("ingest", "--datasets-from", "files", "--no-publish", "--wait", filepath.Join(f.in, "more"))
	f.visits()
	// New formats go here: each needs an event that makes a lake write it.
}

// visits ingests visits of a frontier, which is one that has two.
func (f *fixtureLake) visits() {
	f.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "" {
			fmt.Fprintln(w, `{"url":"https://site-1.example/visited","crawl":"DEFAULT","domain":"site-1.example","time":"2024-03-11T01:02:03.004Z","status":200,"depth":0}`)
			fmt.Fprintln(w, `{"url":"https://once.example/visited","crawl":"DEFAULT","domain":"once.example","time":"2024-03-11T01:02:04Z","status":404,"depth":1}`)
		}
		fmt.Fprintln(w, `{"next_cursor":"Ag"}`)
	}))
	f.t.Cleanup(server.Close)
	f.do("frontier", "ingest", "--frontier", server.URL, "--dataset", "visits", "--no-publish", "--wait")
}

var takedownID = regexp.MustCompile(`"id": ?"([^"]+)"`)

func (f *fixtureLake) id(out string) string {
	f.t.Helper()
	m := takedownID.FindStringSubmatch(out)
	if m == nil {
		f.t.Fatalf("no id in %s", out)
	}
	return m[1]
}

// complete checks that the lake has everything that it is to have.
func (f *fixtureLake) complete(store blob.Store) {
	f.t.Helper()
	ctx := f.t.Context()
	found := map[string]bool{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			f.t.Fatal(err)
		}
		for _, pattern := range fixtureHas {
			found[pattern] = found[pattern] || regexp.MustCompile(pattern).MatchString(info.Key)
		}
	}
	for _, pattern := range fixtureHas {
		if !found[pattern] {
			f.t.Errorf("the lake has nothing like %s", pattern)
		}
	}
	m, _, err := catalog.ReadManifest(ctx, store)
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := catalog.ReadVersion(ctx, store, m.Versions[len(m.Versions)-1])
	if err != nil {
		f.t.Fatal(err)
	}
	if len(m.Tags) != 2 || len(m.Versions) < 6 ||
		len(v.Segments) < 2 || m.Takedowns == nil || m.TakedownEpoch != 6 ||
		!slices.ContainsFunc(v.Segments, func(s catalog.Segment) bool { return s.Dead != nil }) {
		f.t.Errorf("manifest with %d versions, %d tags, epoch %d; version with %d segments",
			len(m.Versions), len(m.Tags), m.TakedownEpoch, len(v.Segments))
	}
}
