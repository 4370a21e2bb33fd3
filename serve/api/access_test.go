package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

// closedReaders are the readers of the datasets of the lakes of these tests. Those that are not
// here have the default, which is public.
var closedReaders = map[string]string{"alpha": "ada,ops", "beta": "bea,ops", "secret": "ops"}

// closedDatasets are all datasets in the order in which they are ingested. The ids of those that a
// principal may read are others in a lake that has no more than these.
var closedDatasets = []string{"secret", "open", "alpha", "beta", "late"}

// principals are all kinds: nobody, one who may read one dataset more, another one, one who may
// read all, and one whom no list names.
var principals = []string{"", "ada", "bea", "ops", "zoe"}

func mayRead(principal, dataset string) bool {
	readers, ok := closedReaders[dataset]
	return !ok || principal != "" && slices.Contains(strings.Split(readers, ","), principal)
}

// step is what is published at once: batches, and takedowns after that.
type step struct {
	batches []stepBatch
	retire  []string // datasets whose batch b1 is retired
	hide    string   // a domain that is taken down
}

type stepBatch struct {
	dataset, batch string
	urls           []string
}

// closedSteps is the life of a lake. Every step changes something that everybody may read, so that
// every lake publishes as often.
func closedSteps() []step {
	urls := func(n int, hosts ...string) (list []string) {
		for _, host := range hosts {
			for i := range n {
				list = append(list, fmt.Sprintf("https://%s/%d", host, i))
			}
		}
		return list
	}
	return []step{
		{batches: []stepBatch{
			{"secret", "b1", urls(5, "common.com", "secret-only.com", "below.github.io", "intranet")},
			{"open", "b1", urls(3, "common.com", "open-only.com", "www.down.com")},
			{"alpha", "b1", urls(7, "common.com", "www.common.com", "alpha-only.com", "alpha-beta.com", "mainframe")},
			{"beta", "b1", urls(4, "common.com", "beta-only.com", "alpha-beta.com", "www.down.com")},
		}},
		{batches: []stepBatch{
			{"secret", "b2", urls(9, "common.com", "a.secret-only.com")},
			{"open", "b2", urls(6, "common.com")},
			{"alpha", "b1", urls(2, "common.com", "alpha-only.com", "moved.com")},
		}},
		{batches: []stepBatch{
			{"late", "b1", urls(3, "late-only.com", "common.com")},
			{"beta", "b2", urls(2, "new-beta.com")},
			{"secret", "b1", urls(1, "common.com")},
		}, hide: "down.com"},
		{batches: []stepBatch{{"open", "b3", urls(2, "common.com", "alpha-only.com")}}, retire: []string{"beta", "secret"}},
	}
}

// closedLake makes a lake with those datasets that may are for, and returns its versions and, for
// each, the rows that an independent count finds: by dataset and host.
func closedLake(t testing.TB, may func(dataset string) bool) (store blob.Store, versions []string, counts []map[string]map[string]int) {
	t.Helper()
	store = blob.NewMemory()
	rows := map[string]map[string][]string{} // by dataset and batch
	for _, s := range closedSteps() {
		for _, b := range s.batches {
			if !may(b.dataset) {
				continue
			}
			var records []testlake.Record
			for i, u := range b.urls {
				records = append(records, testlake.Record{URL: u, TS: 1_700_000_000_000 + int64(i), HasTS: true, Size: int64(i), HasSize: true})
			}
			if rows[b.dataset] == nil {
				rows[b.dataset] = map[string][]string{}
			}
			testlake.Ingest(t, store, b.dataset, b.batch, records)
			rows[b.dataset][b.batch] = b.urls
		}
		for _, name := range s.retire {
			if !may(name) {
				continue
			}
			d, err := catalog.DatasetsNamed(t.Context(), store, name)
			if err != nil {
				t.Fatal(err)
			}
			testlake.Retire(t, store, catalog.BatchName{DatasetID: d[name].ID, Batch: "b1"})
			delete(rows[name], "b1")
		}
		versions = append(versions, testlake.Publish(t, store).Version)
		count := map[string]map[string]int{}
		for name, batches := range rows {
			count[name] = map[string]int{}
			for _, list := range batches {
				for _, text := range list {
					u, err := url.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					count[name][u.Host]++
				}
			}
		}
		counts = append(counts, count)
		if s.hide != "" {
			target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, s.hide)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now().UTC()
			rule := catalog.Takedown{ID: catalog.NewTakedownID(now), Target: target, Reason: "test", Created: now}
			if _, err := suppress.Add(t.Context(), store, rule, suppress.Options{TempDir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, count := range counts { // takedowns are for all versions
		for name := range count {
			delete(count[name], "www.down.com")
		}
	}
	return store, versions, counts
}

// closed is a service that asks who sends a request.
type closed struct {
	*service
	follower *access.Follower
	tokens   map[string]string // by principal
}

// setReaders gives a lake the readers of these tests.
func setReaders(t testing.TB, store blob.Store) {
	t.Helper()
	for name, text := range closedReaders {
		r, err := access.ParseReaders(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := access.Change(t.Context(), store, access.Edit{Dataset: name, Readers: &r}); err != nil {
			t.Fatal(err)
		}
	}
}

// startClosed starts a service with readers and with a token for each principal.
func startClosed(t testing.TB, store blob.Store) *closed {
	t.Helper()
	c := &closed{tokens: map[string]string{}, follower: access.NewFollower(store)}
	for _, name := range principals {
		if name == "" {
			continue
		}
		token, _, err := access.NewToken(t.Context(), store, name, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.tokens[name] = token
	}
	c.service = start(t, store, lookup.Options{Access: c.follower})
	c.web, c.routes = routes(c.server, slog.New(slog.NewJSONHandler(&c.log, nil)), NewMetrics(c.server, blob.NewCounting(store)),
		WithAuth(auth.Tokens(c.follower, nil)))
	return c
}

// as sends a request of a principal.
func (c *closed) as(principal, path string) *httptest.ResponseRecorder {
	c.t.Helper()
	return c.sendAs(principal, httptest.NewRequest("GET", path, nil))
}

// sendAs sends any request as a principal.
func (c *closed) sendAs(principal string, r *http.Request) *httptest.ResponseRecorder {
	c.t.Helper()
	if principal != "" {
		r.Header.Set("Authorization", "Bearer "+c.tokens[principal])
	}
	w, _ := c.send(r)
	return w
}

// names maps what a lake has made up to what it stands for, so that answers of two lakes compare.
type names struct {
	versions []string
	datasets map[string]string // id to name
}

func namesOf(t *testing.T, store blob.Store, versions []string) names {
	t.Helper()
	list, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	n := names{versions: versions, datasets: map[string]string{}}
	for _, d := range list {
		n.datasets[fmt.Sprint(d.ID)] = d.Name
	}
	return n
}

var (
	csvDataset  = regexp.MustCompile(`,(\d+),(?:` + strings.Join(closedDatasets, "|") + `),`)
	cursorText  = regexp.MustCompile(`cursor=[A-Za-z0-9_-]+`)
	datasetText = regexp.MustCompile(`(dataset(?:s/|=|: |_id":)|<option value="|<option selected value="|name="dataset" value="|<tr><td class="n wide">)([0-9]+)`)
)

// text maps a text.
func (n *names) text(s string) string {
	for i, v := range n.versions {
		s = strings.ReplaceAll(s, v, fmt.Sprint("version ", i))
		s = strings.ReplaceAll(s, url.QueryEscape(v), fmt.Sprint("version ", i))
	}
	s = cursorText.ReplaceAllString(s, "cursor=…")
	return datasetText.ReplaceAllStringFunc(s, func(m string) string {
		parts := datasetText.FindStringSubmatch(m)
		return parts[1] + n.datasets[parts[2]]
	})
}

// value maps a JSON value.
func (n *names) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = n.value(k, v[k])
		}
	case []any:
		for i := range v {
			v[i] = n.value(key, v[i])
		}
	case json.Number:
		switch key {
		case "dataset_id":
			return n.datasets[v.String()]
		case "bytes": // a part has the id of its dataset and the name of its ingest
			return "…"
		}
	case string:
		if key == "next_cursor" {
			return "…"
		}
		return n.text(v)
	}
	return v
}

// answerOf is an answer by other names: its status and body, and where the next page is. URLs are
// apart from it, as their order is that of the parts of an index, which the other datasets are in
// too. Only their number is the same on every page.
func (n *names) answerOf(t *testing.T, w *httptest.ResponseRecorder) (got any, next string, urls []string) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); !strings.HasSuffix(kind, "/json") && !strings.HasSuffix(kind, "+json") {
		// A page for people, or a stream. In lines of CSV the id is before the name.
		lines := strings.Split(n.text(csvDataset.ReplaceAllString(w.Body.String(), ",dataset=$1,")), "\n")
		slices.Sort(lines)
		return []any{w.Code, lines}, "", nil
	}
	var body map[string]any
	dec := json.NewDecoder(w.Body)
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		t.Fatal(err)
	}
	next, _ = body["next"].(string)
	if items, ok := body["items"].([]any); ok {
		for _, item := range items {
			urls = append(urls, fmt.Sprint(item))
		}
		body["items"] = len(items)
	}
	return []any{w.Code, n.value("", body)}, next, urls
}

// TestAnswersAreThoseOfALakeWithoutTheRest is the definition of what one may not see: every answer
// for a principal is the answer of a lake that never had any other dataset, from a server that asks
// nobody who they are.
func TestAnswersAreThoseOfALakeWithoutTheRest(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	buildTrees(t, store) // the other lakes have none
	whole := startClosed(t, store)
	wholeNames := namesOf(t, store, versions)
	domains := []string{
		"common.com", "www.common.com", "secret-only.com", "a.secret-only.com", "open-only.com", "alpha-only.com", "alpha-beta.com",
		"beta-only.com", "moved.com", "new-beta.com", "late-only.com", "down.com", "below.github.io", "github.io", "never-was.com", "mailto:x", "intranet", "mainframe", "nowhere",
	}
	for among, principal := range principals {
		t.Run(principal, func(t *testing.T) {
			may := func(dataset string) bool { return mayRead(principal, dataset) }
			partStore, partVersions, _ := closedLake(t, may)
			if len(partVersions) != len(versions) {
				t.Fatalf("%d versions, want %d", len(partVersions), len(versions))
			}
			part := start(t, partStore, lookup.Options{})
			partNames := namesOf(t, partStore, partVersions)
			requests, compared, changes := 0, 0, 0
			// always compares the answers to a request, which is made by the names of a lake, and
			// to those that follow it.
			always := func(request func(n names, id func(dataset string) string) string) {
				t.Helper()
				path := func(n names) string {
					return request(n, func(dataset string) string {
						for id, name := range n.datasets {
							if name == dataset && may(dataset) {
								return id
							}
						}
						return "4000000000"
					})
				}
				here, there := path(wholeNames), path(partNames)
				first := here
				var gotURLs, wantURLs []string
				for pages := 0; here != ""; pages++ {
					if pages > 200 {
						t.Fatalf("%s has no end", path(wholeNames))
					}
					got, gotNext, urls := wholeNames.answerOf(t, whole.as(principal, here))
					gotURLs = append(gotURLs, urls...)
					want, wantNext, urls := partNames.answerOf(t, part.do("GET", there))
					wantURLs = append(wantURLs, urls...)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s as %q (-lake without the rest, +got):\n%s", here, principal, diff)
					}
					if strings.HasPrefix(here, "/v1/diff") {
						changes += strings.Count(fmt.Sprint(got), "url_count_est")
					}
					compared++
					here, there = gotNext, wantNext
				}
				slices.Sort(gotURLs)
				slices.Sort(wantURLs)
				if !strings.Contains(first, "offset=") && !slices.Equal(gotURLs, wantURLs) {
					t.Fatalf("%s as %q: %v\nlake without the rest: %v", first, principal, gotURLs, wantURLs)
				}
			}
			// compare compares the answers to one of several requests.
			compare := func(request func(n names, id func(dataset string) string) string) {
				t.Helper()
				if requests++; (requests+among)%testenv.Every(7) == 0 {
					always(request)
				}
			}
			for v := -1; v < len(versions); v++ {
				query := func(n names, more ...string) string {
					q := url.Values{}
					if v >= 0 {
						q.Set("version", n.versions[v])
					}
					for i := 0; i < len(more); i += 2 {
						q.Set(more[i], more[i+1])
					}
					return "?" + q.Encode()
				}
				compare(func(n names, _ func(string) string) string { return "/v1/datasets" + query(n) })
				compare(func(n names, _ func(string) string) string { return "/" + query(n) })
				for _, more := range [][]string{nil, {"prefix", "a"}, {"suffix", ".com"}} {
					compare(func(n names, _ func(string) string) string { return "/domains" + query(n, more...) })
				}
				for _, more := range [][]string{nil, {"prefix", "a"}, {"suffix", ".com"}, {"suffix", ".io", "prefix", "b"}} {
					compare(func(n names, _ func(string) string) string {
						return "/v1/domains" + query(n, append(more, "limit", "2")...)
					})
				}
				for _, dataset := range append(closedDatasets, "never") {
					compare(func(n names, _ func(string) string) string {
						return "/v1/domains" + query(n, "dataset", dataset, "limit", "1")
					})
					compare(func(n names, _ func(string) string) string { return "/v1/datasets/" + dataset + query(n) })
					compare(func(n names, id func(string) string) string { return "/domains" + query(n, "dataset", id(dataset)) })
				}
				for _, domain := range domains {
					escaped := url.PathEscape(domain)
					compare(func(n names, _ func(string) string) string { return "/v1/domain/" + escaped + query(n) })
					compare(func(n names, _ func(string) string) string { return "/" + query(n, "domain", domain) })
					compare(func(n names, _ func(string) string) string {
						return "/v1/domain/" + escaped + "/tree" + query(n, "depth", "2", "limit", "2")
					})
					compare(func(n names, _ func(string) string) string { return "/tree" + query(n, "domain", domain) })
					compare(func(n names, _ func(string) string) string { return "/" + query(n, "url", "https://"+domain+"/1") })
					compare(func(n names, _ func(string) string) string { return "/v1/url" + query(n, "url", domain) })
					compare(func(n names, _ func(string) string) string {
						return "/v1/url" + query(n, "url", "https://"+domain+"/1")
					})
					for _, dataset := range append(closedDatasets, "never") {
						compare(func(n names, _ func(string) string) string {
							return "/v1/domain/" + escaped + "/tree" + query(n, "dataset", dataset, "sort", "rows")
						})
						compare(func(n names, _ func(string) string) string {
							return "/v1/domain/" + escaped + "/datasets/" + dataset + "/urls" + query(n, "limit", "2")
						})
						compare(func(n names, id func(string) string) string {
							return "/v1/domain/" + escaped + "/datasets/" + id(dataset) + "/urls" + query(n, "offset", "3")
						})
						compare(func(n names, _ func(string) string) string {
							return "/v1/domain/" + escaped + "/datasets/" + dataset + "/urls" + query(n, "unique", "1", "limit", "3")
						})
						compare(func(n names, _ func(string) string) string {
							return "/v1/domain/" + escaped + "/datasets/" + dataset + "/urls" + query(n, "host", domain, "limit", "3")
						})
						compare(func(n names, id func(string) string) string {
							return "/" + query(n, "domain", domain, "dataset", id(dataset))
						})
						for _, selected := range [][]string{
							{"host", "www." + domain}, {"prefix", "/1"}, {"unique", "1", "limit", "2"}, {"format", "csv"}, {"format", "ndjson"},
							{"format", "text", "unique", "1"}, {"from", "2023-01-01", "to", "2023-11-15", "limit", "2"},
						} {
							compare(func(n names, _ func(string) string) string {
								return "/v1/domain/" + escaped + "/datasets/" + dataset + "/urls" + query(n, selected...)
							})
						}
					}
				}
			}
			for from := range versions {
				for to := range versions {
					always(func(n names, _ func(string) string) string {
						return "/v1/diff?limit=3&from=" + n.versions[from] + "&to=" + n.versions[to]
					})
					for _, dataset := range append(closedDatasets, "never") {
						compare(func(n names, _ func(string) string) string {
							return "/v1/diff?limit=2&dataset=" + dataset + "&from=" + n.versions[from] + "&to=" + n.versions[to]
						})
					}
				}
			}
			for _, path := range []string{"/healthz", "/v1/nothing", "/v1/domain/", "/v1/datasets?cursor=x", "/v1/diff?from=x"} {
				always(func(names, func(string) string) string { return path })
			}
			// Many domains at once are asked for by another method, and the answer is a stream.
			for _, query := range []string{
				"", "?format=csv", "?matrix=1", "?format=csv&matrix=1", "?totals=0", "?format=csv&matrix=1&totals=0",
				"?dataset=open", "?dataset=alpha", "?dataset=secret", "?dataset=never",
			} {
				ask := func() *http.Request {
					r := httptest.NewRequest("POST", "/v1/domains:lookup"+query, strings.NewReader(strings.Join(domains, "\n")))
					r.Header.Set("Content-Type", "text/plain")
					return r
				}
				got, _, _ := wholeNames.answerOf(t, whole.sendAs(principal, ask()))
				w := httptest.NewRecorder()
				part.web.ServeHTTP(w, ask())
				want, _, _ := partNames.answerOf(t, w)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("many domains%s as %q (-lake without the rest, +got):\n%s", query, principal, diff)
				}
				compared++
			}
			if changes == 0 {
				t.Error("no diff had a change")
			}
			t.Logf("%d answers are equal", compared)
		})
	}
}

// TestMatrix counts what each principal is told, against the rows that were ingested.
func TestMatrix(t *testing.T) {
	store, versions, counts := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	c := startClosed(t, store)
	ids := map[string]string{}
	for id, name := range namesOf(t, store, versions).datasets {
		ids[name] = id
	}
	for _, principal := range principals {
		for v, version := range versions {
			rows, datasets := 0, []string{}
			byDomain := map[string]map[string]int{}
			for _, name := range closedDatasets {
				if !mayRead(principal, name) || counts[v][name] == nil {
					continue
				}
				for host, n := range counts[v][name] {
					rows += n
					domain := urlnorm.BuiltinSuffixes().Domain(host)
					if byDomain[domain] == nil {
						byDomain[domain] = map[string]int{}
					}
					byDomain[domain][name] += n
				}
				if slices.ContainsFunc(slices.Collect(maps.Values(counts[v][name])), func(n int) bool { return n > 0 }) {
					datasets = append(datasets, name)
				}
			}
			var list struct {
				Total    int `json:"total_datasets"`
				Rows     int
				Datasets []struct {
					Name string
					Rows int
				}
			}
			decode(t, c.as(principal, "/v1/datasets?version="+version), &list)
			got := []string{}
			for _, d := range list.Datasets {
				got = append(got, d.Name)
			}
			slices.Sort(got)
			slices.Sort(datasets)
			if list.Rows != rows || list.Total != len(datasets) || !slices.Equal(got, datasets) {
				t.Fatalf("%q, version %d: %+v, want %d rows of %v: %v", principal, v, list, rows, datasets, counts[v])
			}
			for _, domain := range []string{"common.com", "secret-only.com", "alpha-only.com", "alpha-beta.com", "down.com", "below.github.io", "late-only.com"} {
				var page domainAnswer
				decode(t, c.as(principal, "/v1/domain/"+domain+"?version="+version), &page)
				got := map[string]int{}
				for _, d := range page.Datasets {
					got[d.Name] = d.Count
				}
				want := byDomain[domain]
				if want == nil {
					want = map[string]int{}
				}
				if page.Total != len(want) || !maps.Equal(got, want) {
					t.Fatalf("%q, version %d, %s: %v, want %v", principal, v, domain, got, want)
				}
				for _, name := range closedDatasets {
					w := c.as(principal, "/v1/domain/"+domain+"/datasets/"+ids[name]+"/urls?version="+version)
					if !slices.Contains(datasets, name) {
						if w.Code != 404 {
							t.Fatalf("%q reads %s: %d %s", principal, name, w.Code, w.Body)
						}
						continue
					}
					var urls urlsAnswer
					decode(t, w, &urls)
					if urls.Total != want[name] || len(urls.Items) != want[name] {
						t.Fatalf("%q, %s of %s: %d rows, want %d", principal, domain, name, urls.Total, want[name])
					}
				}
			}
		}
	}
}

func decode(t *testing.T, w *httptest.ResponseRecorder, v any) {
	t.Helper()
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatal(err)
	}
}

// TestHiddenIsUnknown holds that a dataset that one may not read gets the bytes of one that never
// was, and headers that do not differ either.
func TestHiddenIsUnknown(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	c := startClosed(t, store)
	n := namesOf(t, store, versions)
	for id, name := range n.datasets {
		if mayRead("zoe", name) {
			continue
		}
		for _, form := range []string{
			"/v1/domain/common.com/datasets/%s/urls", "/v1/domain/common.com/datasets/%s/urls?offset=1&limit=1",
			"/v1/diff?dataset=%s", "/?domain=common.com&dataset=%s",
		} {
			for hidden, never := range map[string]string{name: "neverwas", id: "123456"} {
				got, want := c.as("zoe", fmt.Sprintf(form, hidden)), c.as("zoe", fmt.Sprintf(form, never))
				body := strings.ReplaceAll(want.Body.String(), never, hidden)
				wantHeader := want.Header().Clone()
				wantHeader.Set("Content-Length", fmt.Sprint(len(body)))
				wantHeader.Set("X-Request-Id", got.Header().Get("X-Request-Id"))
				if got.Code != 404 || got.Code != want.Code || got.Body.String() != body || !maps.EqualFunc(got.Header(), wantHeader, slices.Equal) {
					t.Errorf("%s: %d %s %v\nnever was: %d %s %v", form, got.Code, got.Body, got.Header(), want.Code, body, wantHeader)
				}
			}
		}
	}
}

// TestFilledCache asks for each answer first as one who may read all, so that every cache has what
// others may not see, and then as the others; and the other way round. A server that was asked
// nothing before has to say the same.
func TestFilledCache(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	var paths []string
	for _, version := range versions {
		for _, domain := range []string{"common.com", "secret-only.com", "alpha-only.com", "alpha-beta.com"} {
			paths = append(paths, "/v1/domain/"+domain+"?version="+version, "/?domain="+domain+"&version="+version)
			for _, dataset := range closedDatasets {
				paths = append(paths, "/v1/domain/"+domain+"/datasets/"+dataset+"/urls?version="+version)
			}
		}
		paths = append(paths, "/v1/datasets?version="+version, "/?version="+version)
	}
	paths = append(paths, "/v1/diff", "/v1/versions", "/readyz")
	tagged := map[string]string{}
	fresh := map[string]string{}
	for _, principal := range []string{"", "ada", "bea"} {
		c := startClosed(t, store)
		for _, path := range paths {
			fresh[principal+path] = c.as(principal, path).Body.String()
		}
	}
	for _, order := range [][]string{{"ops", "ada", "", "bea", "ada"}, {"", "ops", "bea", "ada", ""}} {
		c := startClosed(t, store)
		for _, path := range paths {
			for _, principal := range order {
				w := c.as(principal, path)
				if want, ok := fresh[principal+path]; ok && w.Body.String() != want {
					t.Fatalf("%s as %q after %v: %s\nfrom a fresh server: %s", path, principal, order, w.Body, want)
				}
				if got := w.Header().Get("Vary"); got != "Authorization" {
					t.Fatalf("%s: Vary is %q", path, got)
				}
				if got := w.Header().Get("Cache-Control"); got != "private, no-cache" && got != "no-store" {
					t.Fatalf("%s: Cache-Control is %q", path, got)
				}
				// Equal ETags are of equal answers, and nobody is told that an answer which only
				// others get has not changed.
				tag := w.Header().Get("ETag")
				if tag == "" {
					continue
				}
				if body, ok := tagged[path+tag]; ok && body != w.Body.String() {
					t.Fatalf("%s: two answers have the ETag %s", path, tag)
				}
				tagged[path+tag] = w.Body.String()
				for _, other := range principals {
					r := httptest.NewRequest("GET", path, nil)
					r.Header.Set("If-None-Match", tag)
					if other != "" {
						r.Header.Set("Authorization", "Bearer "+c.tokens[other])
					}
					again := httptest.NewRecorder()
					c.web.ServeHTTP(again, r)
					if same := c.as(other, path).Header().Get("ETag") == tag; (again.Code == 304) != same {
						t.Fatalf("%s: %q has %d for the ETag of %q", path, other, again.Code, principal)
					}
				}
			}
		}
	}
}

// TestCountsOfAllAreForReadersOfAll holds that what is not counted by dataset is told only to those
// who may read all: the counts of versions, the state of the server, and the reads of the store.
func TestCountsOfAllAreForReadersOfAll(t *testing.T) {
	store, _, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	c := startClosed(t, store)
	open := start(t, store, lookup.Options{})
	counted := []string{
		"datasets", "batches", "parts", "rows", "part_bytes", "segments", "index_bytes", "datasets_added", "batches_added", "rows_added",
	}
	for _, principal := range principals {
		all := principal == "ops"
		var list struct{ Versions []map[string]any }
		decode(t, c.as(principal, "/v1/versions"), &list)
		for _, v := range list.Versions {
			for _, member := range counted {
				if got, ok := v[member]; !ok || (got != nil) != all {
					t.Errorf("%q is told %s of a version: %v", principal, member, got)
				}
			}
		}
		var ready, whole map[string]any
		decode(t, c.as(principal, "/readyz"), &ready)
		decode(t, open.do("GET", "/readyz"), &whole)
		for _, member := range []string{"generation", "segments", "open_versions", "frame_cache", "page_cache", "error"} {
			if _, ok := ready[member]; ok != all {
				t.Errorf("%q: readyz has %s: %v", principal, member, ok)
			}
		}
		if all && ready["rows"] != whole["rows"] || !all && ready["rows"].(float64) >= whole["rows"].(float64) {
			t.Errorf("%q: readyz has %v rows of %v", principal, ready["rows"], whole["rows"])
		}
		for _, path := range []string{"/v1/domain/common.com?explain=1", "/v1/domain/common.com/datasets/open/urls?explain=1", "/v1/diff?explain=1"} {
			w := c.as(principal, path)
			if all != (w.Code == 200) || !all && (w.Code != 403 || !strings.Contains(w.Body.String(), "problems/forbidden")) {
				t.Errorf("%s as %q: %d %s", path, principal, w.Code, w.Body)
			}
			if w := c.as(principal, strings.Replace(path, "explain=1", "explain=0", 1)); w.Code != 200 {
				t.Errorf("%s without explain as %q: %d", path, principal, w.Code)
			}
		}
	}
}

// TestAccessChanges holds that changes take effect with the next poll, also in older versions and
// for cursors that were made before.
func TestAccessChanges(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	c := startClosed(t, store)
	poll := func() {
		t.Helper()
		if err := c.server.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := "/v1/domain/common.com/datasets/alpha/urls?limit=1&version=" + versions[0]
	var page urlsAnswer
	decode(t, c.as("ada", first), &page)
	next := *page.Next
	decode(t, c.as("ada", next), &page)
	set := func(e access.Edit) {
		t.Helper()
		if _, err := access.Change(t.Context(), store, e); err != nil {
			t.Fatal(err)
		}
	}
	set(access.Edit{Dataset: "alpha", Readers: &access.Readers{Names: []string{"bea"}}})
	if w := c.as("ada", next); w.Code != 200 {
		t.Fatalf("before the poll: %d", w.Code)
	}
	poll()
	for _, path := range []string{first, next} {
		if w := c.as("ada", path); w.Code != 404 {
			t.Errorf("%s after the change: %d %s", path, w.Code, w.Body)
		}
		if w := c.as("bea", path); w.Code != 200 {
			t.Errorf("%s for the new reader: %d %s", path, w.Code, w.Body)
		}
	}
	set(access.Edit{Dataset: "alpha"}) // the default again
	poll()
	if w := c.as("", next); w.Code != 200 {
		t.Errorf("a dataset that has become public: %d", w.Code)
	}
	set(access.Edit{Default: &access.Readers{}})
	poll()
	var list struct {
		Total int `json:"total_datasets"`
	}
	if decode(t, c.as("", "/v1/datasets"), &list); list.Total != 0 {
		t.Errorf("%d datasets are left after the default is nobody", list.Total)
	}
	// Tokens.
	if ended, err := access.Revoke(t.Context(), store, "ada", "", time.Now()); err != nil || len(ended) != 1 {
		t.Fatalf("%v, %v", ended, err)
	}
	if w := c.as("ada", "/v1/datasets"); w.Code != 200 {
		t.Fatalf("before the poll: %d", w.Code)
	}
	poll()
	for _, path := range []string{"/v1/datasets", next, "/readyz", "/v1/versions", "/", "/v1/nothing"} {
		w := c.as("ada", path)
		if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), `Bearer realm="urlake"`) ||
			w.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), "problems/unauthorized") ||
			!strings.Contains(w.Body.String(), "revoked") {
			t.Errorf("%s with a revoked token: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	if w := c.as("ada", "/healthz"); w.Code != 200 {
		t.Errorf("healthz asks who it is: %d", w.Code)
	}
}

// TestBadCredentials holds that credentials that are no proof are an error on every path, and never
// what anybody may read.
func TestBadCredentials(t *testing.T) {
	store, _, _ := closedLake(t, func(string) bool { return true })
	c := startClosed(t, store)
	good := c.tokens["ada"]
	for _, header := range []string{
		"Bearer", "Bearer ", "Basic YWRhOng=", good, "Bearer x", "Bearer " + good + "x", "Bearer " + good[:len(good)-1], "Bearer " + good + " " + good,
		"Bearer " + strings.ToUpper(good), "Bearer \x00", "Bearer " + strings.Repeat("a", 20<<10), "",
	} {
		for _, path := range []string{"/v1/datasets", "/v1/domain/common.com", "/", "/readyz", "/v1/versions", "/v1/diff", "/v1/nothing"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Authorization", header)
			w, _ := c.send(r)
			if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %.30q: %d %s", path, header, w.Code, w.Body)
			}
		}
	}
	r := httptest.NewRequest("GET", "/v1/datasets", nil)
	r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good}
	w, _ := c.send(r)
	if w.Code != 401 {
		t.Errorf("two headers: %d", w.Code)
	}
	r = httptest.NewRequest("GET", "/v1/datasets", nil)
	r.Header.Set("Authorization", "bearer   "+good)
	if w, _ = c.send(r); w.Code != 200 {
		t.Errorf("the scheme in lower case: %d", w.Code)
	}
}

// TestLogHasNoSecrets holds that the log of all kinds of requests has neither tokens nor URLs.
func TestLogHasNoSecrets(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	c := startClosed(t, store)
	for _, principal := range principals {
		for _, path := range []string{
			"/v1/domain/common.com", "/v1/domain/alpha-only.com/datasets/alpha/urls?limit=1&version=" + versions[0], "/v1/diff", "/",
			"/?domain=common.com", "/v1/domain/common.com/datasets/secret/urls", "/v1/domain/mailto:x?explain=1",
		} {
			c.as(principal, path)
		}
	}
	forged := "urlake_" + strings.Repeat("x", 43)
	for _, header := range []string{"Bearer " + forged, "Basic " + forged, forged} {
		r := httptest.NewRequest("GET", "/v1/domain/common.com?token="+forged, nil)
		r.Header.Set("Authorization", header)
		c.send(r)
	}
	text := c.log.String()
	for _, secret := range append(slices.Collect(maps.Values(c.tokens)), forged, "urlake_", "Bearer", "common.com", "alpha-only", "://", "cursor=", "/v1/") {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if !strings.Contains(text, `"principal":"ada"`) {
		t.Error("the log does not say who asked")
	}
}
