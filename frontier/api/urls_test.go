//go:build unix

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/urlake/urlake/frontier/api"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/lake/blob"
)

// line is a line of a list of URLs or visits.
type line struct {
	URL, Crawl, Domain, State   string
	Priority, Depth, Status     int
	Metadata                    any
	Added, Fetched              string
	RefetchAfter                string  `json:"refetch_after"`
	Cursor                      *string `json:"next_cursor"`
	Unserved                    []int
	Time, Content, Error, Tries any
}

// page gets a page of a list.
func page(t *testing.T, url string) (status int, lines []line, end line) {
	t.Helper()
	status, text := request(t, "GET", url, "")
	if status != 200 {
		return status, nil, end
	}
	for one := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(one), &l); err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		lines = append(lines, l)
	}
	end = lines[len(lines)-1]
	if end.Cursor == nil {
		t.Fatalf("%s: the list has no end: %s", url, text)
	}
	return status, lines[:len(lines)-1], end
}

// listAll gets a list of URLs by pages, of one process after the other.
func listAll(t *testing.T, bases []string, path string) map[string]line {
	t.Helper()
	all := map[string]line{}
	for cursor, n := "", 0; ; n++ {
		status, lines, end := page(t, bases[n%len(bases)]+path+"&limit=7&cursor="+cursor)
		if status != 200 || len(lines) > 7 {
			t.Fatalf("%s: %d, %d lines", path, status, len(lines))
		}
		for _, l := range lines {
			if _, twice := all[l.URL]; twice {
				t.Errorf("%s comes twice", l.URL)
			}
			all[l.URL] = l
		}
		if cursor = *end.Cursor; cursor == "" {
			return all
		}
	}
}

// TestListsOfURLs lists URLs of all states by pages of two processes, and deletes those of a domain
// through the one that does not have them.
func TestListsOfURLs(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	var body strings.Builder
	want := map[string]string{} // states
	for d := range 20 {
		for i := range 4 {
			url := fmt.Sprintf("https://site%d.example/%d", d, i)
			later := ""
			if want[url] = "waiting"; i == 3 {
				want[url], later = "later", `,"refetch_after":"2100-01-02T03:04:05Z"`
			}
			fmt.Fprintf(&body, `{"url":%q,"crawl":"c","priority":%d,"depth":%d,"metadata":{"n":[%d]}%s}`+"\n", url, 9-i, i, d, later)
		}
	}
	if _, text := request(t, "POST", bases[0]+"/v1/urls", body.String()); strings.Count(text, "added") != len(want) {
		t.Fatal(text)
	}
	for n := 0; n < 20; {
		got := claims(t, bases[0], `{"max":20,"crawl":"c","wait_ms":1000}`).Claims
		for _, c := range got {
			if want[c.URL] = "leased"; n%2 == 0 {
				want[c.URL] = "done"
				if _, text := request(t, "POST", bases[1]+"/v1/results", fmt.Sprintf(`{"lease":%q,"status":404}`, c.Lease)); text != `{"result":"settled"}` {
					t.Fatal(text)
				}
			}
			n++
		}
	}
	check := func(path string, want map[string]string) {
		t.Helper()
		got := listAll(t, bases, path)
		states := map[string]string{}
		for url, l := range got {
			states[url] = l.State
			var d, i int
			if _, err := fmt.Sscanf(url, "https://site%d.example/%d", &d, &i); err != nil {
				t.Fatal(err)
			}
			if l.Crawl != "c" || l.Domain != fmt.Sprintf("site%d.example", d) || l.Priority != 9-i || l.Depth != i ||
				fmt.Sprint(l.Metadata) != fmt.Sprintf("map[n:[%d]]", d) || l.Added == "" || (l.State == "done") != (l.Status == 404 && l.Fetched != "") ||
				(l.State == "later") != (l.RefetchAfter == "2100-01-02T03:04:05Z") {
				t.Errorf("%s: %+v", path, l)
			}
		}
		if !maps.Equal(states, want) {
			t.Errorf("%s: %v, want %v", path, states, want)
		}
	}
	only := func(keep func(url, state string) bool) map[string]string {
		some := maps.Clone(want)
		maps.DeleteFunc(some, func(url, state string) bool { return !keep(url, state) })
		return some
	}
	check("/v1/urls?crawl=c", want)
	check("/v1/urls?crawl=c&state=done,leased", only(func(_, state string) bool { return state == "done" || state == "leased" }))
	check("/v1/urls?crawl=other", nil)
	for d := range 20 {
		domain := fmt.Sprintf("site%d.example", d)
		of := func(url, _ string) bool { return strings.HasPrefix(url, "https://"+domain+"/") }
		check("/v1/domains/"+domain+"/urls?crawl=c", only(of))
		check("/v1/domains/"+domain+"/urls?crawl=c&state=later", only(func(url, state string) bool { return of(url, state) && state == "later" }))
		if d%3 > 0 {
			continue
		}
		_, text := request(t, "GET", bases[d%2]+"/v1/domains/"+domain, "")
		if !strings.Contains(text, `"waiting":2,"leased":`) || !strings.Contains(text, `"later":1,"settled":`) {
			t.Errorf("%s", text)
		}
		for _, n := range []int{4, 0} {
			if _, text := request(t, "DELETE", bases[d%2]+"/v1/domains/"+domain+"/urls?crawl=c", ""); text != fmt.Sprintf(`{"deleted":%d}`, n) {
				t.Errorf("%s: %s, want %d", domain, text, n)
			}
		}
		maps.DeleteFunc(want, of)
	}
	check("/v1/urls?crawl=c", want)
	if _, text := request(t, "POST", bases[0]+"/v1/urls", `{"url":"https://site0.example/0","crawl":"c"}`); text != `{"result":"added"}` {
		t.Errorf("a URL that was deleted: %s", text)
	}
	_, text := request(t, "GET", bases[0]+"/metrics", "")
	for _, route := range []string{"GET /v1/urls", "GET /v1/domains/{d}/urls", "DELETE /v1/domains/{d}/urls"} {
		if !strings.Contains(text, `route="`+route+`",status="200"`) {
			t.Errorf("no metric of route %s", route)
		}
	}
}

// awayAndBack calls page with cursors until a process of two that is away is asked for more, lets
// the process come back, and goes on to the end. It returns the URLs, and what ended the first
// part.
func awayAndBack(t *testing.T, servers []*httptest.Server, path string, ends func(lines []line, end line) bool) (before, all map[string]bool, last line) {
	t.Helper()
	before, all = map[string]bool{}, map[string]bool{}
	away(servers[1], true)
	cursor := ""
	for {
		status, lines, end := page(t, servers[0].URL+path+"&cursor="+cursor)
		if status == 503 {
			break
		}
		for _, l := range lines {
			before[l.URL] = true
		}
		if status != 200 || ends(lines, end) {
			t.Fatalf("%s ends with %+v after %d URLs without a process that has half of the shards", path, end, len(before))
		}
		cursor, last = *end.Cursor, end
	}
	away(servers[1], false)
	maps.Copy(all, before)
	for {
		status, lines, end := page(t, servers[0].URL+path+"&cursor="+cursor)
		if status != 200 {
			t.Fatalf("%s: %d once the process is back", path, status)
		}
		for _, l := range lines {
			if all[l.URL] {
				t.Errorf("%s: %s comes twice", path, l.URL)
			}
			all[l.URL] = true
		}
		if ends(lines, end) {
			return before, all, last
		}
		cursor = *end.Cursor
	}
}

// TestListsLackNothing takes one of two processes away. Lists of URLs and visits end at what only
// that has, and do not say that they are at their end; with their cursors they go on when it is
// back.
func TestListsLackNothing(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	var urls, visits strings.Builder
	const n = 60
	for i := range n {
		fmt.Fprintf(&urls, "{\"url\":\"https://site%d.example/\"}\n", i)
		fmt.Fprintf(&visits, "{\"url\":\"https://site%d.example/visited\",\"status\":200}\n", i)
	}
	if _, text := request(t, "POST", servers[0].URL+"/v1/urls", urls.String()); strings.Count(text, "added") != n {
		t.Fatal(text)
	}
	if _, text := request(t, "POST", servers[0].URL+"/v1/visits", visits.String()); strings.Count(text, "added") != n {
		t.Fatal(text)
	}
	noMore := func(_ []line, end line) bool { return *end.Cursor == "" }
	nothing := func(lines []line, _ line) bool { return len(lines) == 0 }
	for _, limit := range []int{7, 1000} {
		before, all, _ := awayAndBack(t, servers, fmt.Sprintf("/v1/urls?state=waiting&limit=%d", limit), noMore)
		if len(before) == n || len(all) != n {
			t.Errorf("%d URLs, and then %d, want %d", len(before), len(all), n)
		}
		before, all, last := awayAndBack(t, servers, fmt.Sprintf("/v1/visited?limit=%d", limit), nothing)
		if len(before) == 0 || len(before) == n || len(all) != n || len(last.Unserved) != 4 {
			t.Errorf("%d visits, %v, and then %d, want %d", len(before), last.Unserved, len(all), n)
		}
	}
	away(servers[1], true)
	_, _, end := page(t, servers[0].URL+"/v1/visited?limit=1")
	if len(end.Unserved) > 0 {
		t.Errorf("a page that is full says %v", end.Unserved)
	}
	_, _, end = page(t, servers[0].URL+"/v1/visited")
	status, text := request(t, "GET", servers[0].URL+"/v1/visited?cursor="+*end.Cursor, "")
	if status != 503 || !strings.Contains(text, fmt.Sprint("the visits of shards ", end.Unserved)) {
		t.Errorf("%d, %s, which does not name %v", status, text, end.Unserved)
	}
}

// TestListsInTime lists URLs by pages that have no time for more than one, of which few have the
// state that is wanted. Pages without any have a cursor, and together they have all.
func TestListsInTime(t *testing.T) {
	api.SetListTime(t, 1)
	bases := serve(t, 2)
	var urls strings.Builder
	const n = 40
	for i := range n {
		later := ""
		if i%10 == 0 {
			later = `,"refetch_after":"2100-01-02T03:04:05Z"`
		}
		fmt.Fprintf(&urls, "{\"url\":\"https://site%d.example/\"%s}\n", i, later)
	}
	if _, text := request(t, "POST", bases[0]+"/v1/urls", urls.String()); strings.Count(text, "added") != n {
		t.Fatal(text)
	}
	for state, want := range map[string]int{"done": 0, "later": 4, "waiting": 36} {
		all, pages := map[string]bool{}, 0
		for cursor := ""; cursor != "" || pages == 0; pages++ {
			status, lines, end := page(t, bases[0]+"/v1/urls?state="+state+"&cursor="+cursor)
			if status != 200 || len(lines) > 2 {
				t.Fatalf("%s: %d, %d lines", state, status, len(lines))
			}
			for _, l := range lines {
				if all[l.URL] || l.State != state {
					t.Errorf("%s: %+v", state, l)
				}
				all[l.URL] = true
			}
			cursor = *end.Cursor
		}
		if len(all) != want || pages < n/2 {
			t.Errorf("%s: %d URLs on %d pages, want %d", state, len(all), pages, want)
		}
	}
}

// TestListsThatBreak lets the answer of one of two processes break in the middle of its URLs. The
// list that has some of them breaks, too: with an end it would name them again.
func TestListsThatBreak(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	var urls strings.Builder
	const n = 60
	for i := range n {
		fmt.Fprintf(&urls, "{\"url\":\"https://site%d.example/\"}\n", i)
	}
	if _, text := request(t, "POST", servers[0].URL+"/v1/urls", urls.String()); strings.Count(text, "added") != n {
		t.Fatal(text)
	}
	cut := &servers[1].Config.Handler.(*gate).cut
	cut.Store(1000)
	if res, err := http.Get(servers[0].URL + "/v1/urls"); err == nil {
		text, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err == nil {
			t.Errorf("a list of which the half is cut off ends: %s", text)
		}
	}
	cut.Store(0)
	if all := listAll(t, []string{servers[0].URL}, "/v1/urls?crawl="); len(all) != n {
		t.Errorf("%d URLs, want %d", len(all), n)
	}
}

// TestIngestLacksNothing lets the visits be ingested while one of two processes is away. The batch
// is not made until that is back, and has the visits of both.
func TestIngestLacksNothing(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	var visits strings.Builder
	const n = 60
	for i := range n {
		fmt.Fprintf(&visits, "{\"url\":\"https://site%d.example/visited\",\"status\":200}\n", i)
	}
	if _, text := request(t, "POST", servers[0].URL+"/v1/visits", visits.String()); strings.Count(text, "added") != n {
		t.Fatal(text)
	}
	away(servers[1], true)
	collected := make(chan error, 1)
	go func() {
		spec := feed.VisitsSpec{Lake: "memory://", Frontier: servers[0].URL, Dataset: "visits"}
		c, err := feed.Collect(context.WithoutCancel(t.Context()), blob.NewMemory(), spec, func(feed.Collecting) {})
		if err == nil && c.Visits != n {
			err = fmt.Errorf("%d visits of %d", c.Visits, n)
		}
		collected <- err
	}()
	refused := `route="GET /v1/visited",status="503"`
	for text := ""; !strings.Contains(text, refused); {
		select {
		case err := <-collected:
			t.Fatalf("the ingest ended without a half of the frontier: %v", err)
		default:
			_, text = request(t, "GET", servers[0].URL+"/metrics", "")
		}
	}
	away(servers[1], false)
	if err := <-collected; err != nil {
		t.Error(err)
	}
}
