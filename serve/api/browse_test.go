package api

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

type domainAnswer struct {
	answer
	Host     string      `json:"host"`
	TotalsOf string      `json:"totals_of"`
	Suffix   bool        `json:"public_suffix"`
	Below    *int        `json:"domains_below"`
	List     string      `json:"domains_below_list"`
	Total    int         `json:"total_datasets"`
	Datasets []datasetOf `json:"datasets"`
}

type datasetOf struct {
	ID      int     `json:"dataset_id"`
	Name    string  `json:"name"`
	Count   int     `json:"url_count_est"`
	Size    *int    `json:"size"`
	Over    bool    `json:"size_overflow"`
	FirstTS *string `json:"first_ts"`
	LastTS  *string `json:"last_ts"`
}

type domainSum struct {
	Domain   string  `json:"domain"`
	ID       string  `json:"domain_id"`
	Datasets int     `json:"total_datasets"`
	Count    int     `json:"url_count_est"`
	Size     *int    `json:"size"`
	FirstTS  *string `json:"first_ts"`
	LastTS   *string `json:"last_ts"`
}

type domainsAnswer struct {
	Version       string      `json:"version"`
	TakedownEpoch int         `json:"takedown_epoch"`
	Domains       []domainSum `json:"domains"`
	Returned      int         `json:"returned"`
	Complete      bool        `json:"complete"`
	StoppedBy     *string     `json:"stopped_by"`
	NextCursor    *string     `json:"next_cursor"`
	Next          *string     `json:"next"`
	Explain       *explained  `json:"explain"`
}

type datasetAnswer struct {
	Version       string      `json:"version"`
	TakedownEpoch int         `json:"takedown_epoch"`
	ID            int         `json:"dataset_id"`
	Name          string      `json:"name"`
	Title         *string     `json:"title"`
	Source        *string     `json:"source"`
	Licence       *string     `json:"licence"`
	Batches       int         `json:"batches"`
	Parts         int         `json:"parts"`
	Bytes         int         `json:"bytes"`
	TotalDomains  int         `json:"total_domains"`
	Count         int         `json:"url_count_est"`
	Size          *int        `json:"size"`
	FirstTS       *string     `json:"first_ts"`
	LastTS        *string     `json:"last_ts"`
	ByRows        []domainSum `json:"top_by_rows"`
	BySize        []domainSum `json:"top_by_size"`
}

func sumOf(domain string, datasets, count int, size *int, first, last *string) domainSum {
	return domainSum{domain, urlnorm.FormatID(urlnorm.DomainID(domain)), datasets, count, size, first, last}
}

// suffixed is small with sites below public suffixes.
func suffixed(t *testing.T) blob.Store {
	t.Helper()
	store := small(t)
	testlake.Ingest(t, store, "gamma", "b1", []testlake.Record{
		{URL: "https://one.github.io/"}, {URL: "https://two.github.io/"}, {URL: "https://www.two.github.io/x"},
		{URL: "https://www.example.co.uk/"}, {URL: "http://github.io/self"},
	})
	testlake.Publish(t, store)
	return store
}

func TestAnswersAreForWhatWasAsked(t *testing.T) {
	s := start(t, suffixed(t), lookup.Options{})
	for _, c := range []struct {
		asked, domain, host string
		suffix              bool
		below, total        int
	}{
		{"www.two.github.io", "two.github.io", "www.two.github.io", false, 0, 1},
		{"two.github.io", "two.github.io", "", false, 0, 1},
		{"github.io", "github.io", "", true, 2, 1},
		{"co.uk", "co.uk", "", true, 1, 0},
		{"uk", "uk", "", true, 1, 0},
		{"https://com/", "com", "", true, 1, 0},
		{"192.0.2.1", "192.0.2.1", "", false, 0, 0},
		{"localhost", "localhost", "", false, 0, 0},
	} {
		var a domainAnswer
		if status := s.get("/v1/domain/"+url.PathEscape(c.asked), &a); status != 200 {
			t.Errorf("%s: %d", c.asked, status)
			continue
		}
		if a.Domain != c.domain || a.Host != c.host || a.Suffix != c.suffix || a.Total != c.total || (a.TotalsOf == "domain") != (c.host != "") {
			t.Errorf("%s: %+v", c.asked, a)
		}
		if !c.suffix {
			continue
		}
		if a.Below == nil || *a.Below != c.below {
			t.Errorf("%s: %v domains below, want %d", c.asked, a.Below, c.below)
		}
		var list domainsAnswer
		if status := s.get(a.List, &list); status != 200 || len(list.Domains) != c.below {
			t.Errorf("%s: %d: %+v", a.List, status, list)
		}
	}
	for _, text := range []string{"a.com,b.com", "a.com b.com", "a.com;b.com", "a.com, b.com", "a.com\nb.com", "a.com\tb.com"} {
		asked := url.PathEscape(text)
		for _, path := range []string{
			"/v1/domain/" + asked, "/v1/domain/" + asked + "/datasets/1/urls", "/v1/domain/" + asked + "/datasets/1/urls?format=csv",
			"/v1/domain/" + asked + "/tree", "/?domain=" + asked, "/?dataset=1&domain=" + asked, "/tree?domain=" + asked,
		} {
			w := s.do("GET", path)
			if w.Code != 400 || !strings.Contains(w.Body.String(), "one domain at a time") {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
}

func TestListsOfDomains(t *testing.T) {
	s := start(t, suffixed(t), lookup.Options{})
	first, last := ptr("2020-09-13T12:26:40.000Z"), ptr("2023-11-14T22:13:20.123Z")
	all := []domainSum{
		sumOf("example.co.uk", 1, 1, nil, nil, nil), sumOf("example.com", 2, 3, ptr(15), first, last),
		sumOf("github.io", 1, 1, nil, nil, nil), sumOf("one.github.io", 1, 1, nil, nil, nil),
		sumOf("other.test", 1, 1, nil, nil, nil), sumOf("two.github.io", 1, 2, nil, nil, nil),
	}
	for _, c := range []struct {
		query string
		want  []domainSum
	}{
		{"", all}, {"?prefix=o", []domainSum{all[3], all[4]}}, {"?suffix=.github.io", []domainSum{all[3], all[5]}},
		{"?prefix=exam&suffix=m", all[1:2]}, {"?prefix=zzz", []domainSum{}},
		{"?dataset=alpha", []domainSum{sumOf("example.com", 1, 2, ptr(15), first, last), all[4]}},
	} {
		var got domainsAnswer
		if status := s.get("/v1/domains"+c.query, &got); status != 200 || !got.Complete || got.Returned != len(c.want) || got.StoppedBy != nil {
			t.Errorf("%s: %d %+v", c.query, status, got)
		}
		if diff := cmp.Diff(c.want, got.Domains); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.query, diff)
		}
	}
	// Following next reads the whole list.
	for _, query := range []string{"?limit=2", "?limit=1&dataset=gamma&suffix=.github.io", "?limit=1&prefix=e&explain=1"} {
		var whole domainsAnswer
		s.get("/v1/domains"+strings.Replace(query, "limit=1", "limit=9", 1), &whole)
		if strings.HasPrefix(query, "?limit=2") {
			whole.Domains = all
		}
		got := []domainSum{}
		for next := "/v1/domains" + query; ; {
			var page domainsAnswer
			if status := s.get(next, &page); status != 200 || page.Complete != (page.Next == nil) {
				t.Fatalf("%s: %d %+v", next, status, page)
			}
			if got = append(got, page.Domains...); page.Next == nil {
				break
			}
			next = *page.Next
		}
		if diff := cmp.Diff(whole.Domains, got); diff != "" || len(got) < 2 {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	var page domainsAnswer
	s.get("/v1/domains?limit=1", &page)
	cursor := url.QueryEscape(*page.NextCursor)
	for _, c := range []struct {
		path   string
		status int
		kind   string
	}{
		{"/v1/domains?prefix=B", 400, "bad-parameter"}, {"/v1/domains?suffix=%C3%BC", 400, "bad-parameter"},
		{"/v1/domains?prefix=a%2Fb", 400, "bad-parameter"}, {"/v1/domains?prefix=" + strings.Repeat("a", 256), 400, "bad-parameter"},
		{"/v1/domains?limit=0", 400, "bad-parameter"}, {"/v1/domains?dataset=nothing", 404, "unknown-dataset"},
		{"/v1/domains?prefix=e&cursor=" + cursor, 400, "bad-cursor"}, {"/v1/domains?cursor=x", 400, "bad-cursor"},
		{"/v1/domains?version=1", 400, "bad-version"}, {"/v1/datasets/9", 404, "unknown-dataset"},
		{"/v1/datasets/nothing", 404, "unknown-dataset"}, {"/v1/datasets/1?limit=1", 400, "bad-parameter"},
	} {
		if w := s.do("GET", c.path); w.Code != c.status || !strings.Contains(w.Body.String(), c.kind) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}

func TestOneDataset(t *testing.T) {
	s := start(t, suffixed(t), lookup.Options{})
	first, last := ptr("2020-09-13T12:26:40.000Z"), ptr("2023-11-14T22:13:20.123Z")
	for _, path := range []string{"/v1/datasets/1", "/v1/datasets/alpha", "/v1/datasets/alpha?version=current"} {
		var got datasetAnswer
		if status := s.get(path, &got); status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		large := sumOf("example.com", 0, 2, ptr(15), first, last)
		want := datasetAnswer{
			Version: s.server.Status().Version, ID: 1, Name: "alpha", Batches: 1, Parts: got.Parts, Bytes: got.Bytes,
			TotalDomains: 2, Count: 3, Size: ptr(15), FirstTS: first, LastTS: last,
			ByRows: []domainSum{large, sumOf("other.test", 0, 1, nil, nil, nil)}, BySize: []domainSum{large},
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Parts < 1 || got.Bytes < 1 {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// What takes a scan is answered when it is done, and not waited for beyond the deadline. The
// deadline passes in the time of a bubble, so however slow the machine is, only what is held is
// late.
func TestAnswersThatAreBeingComputed(t *testing.T) {
	inner := suffixed(t)
	testenv.Bubble(t, func(t *testing.T) { answersThatAreBeingComputed(t, &faultyIndex{Store: inner}) })
}

func answersThatAreBeingComputed(t *testing.T, store *faultyIndex) {
	s := start(t, store, lookup.Options{Deadline: time.Minute})
	hold := make(chan struct{})
	store.hold.Store(&hold)
	w := s.do("GET", "/v1/datasets/gamma")
	if w.Code != 503 || !strings.Contains(w.Body.String(), "computing") || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	store.hold.Store(nil)
	close(hold)
	for w.Code == 503 {
		w = s.do("GET", "/v1/datasets/gamma")
	}
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.do("GET", "/v1/domain/example.com"); w.Code != 200 { // the frame of postings is cached now
		t.Errorf("%d %s", w.Code, w.Body)
	}
	again := make(chan struct{})
	store.hold.Store(&again)
	var a domainAnswer
	if status := s.get("/v1/domain/co.uk", &a); status != 200 || !a.Suffix || a.Below != nil || a.List == "" {
		t.Errorf("%d %+v", status, a)
	}
	store.hold.Store(nil)
	close(again)
	for a.Below == nil {
		if status := s.get("/v1/domain/co.uk", &a); status != 200 {
			t.Fatalf("%d %+v", status, a)
		}
	}
	store.fail.Store(true)
	for w = s.do("GET", "/v1/datasets/alpha"); w.Code == 503; {
		w = s.do("GET", "/v1/datasets/alpha")
	}
	if w.Code != 502 {
		t.Errorf("while the store fails: %d", w.Code)
	}
}

// TestListsSayWhatWasAskedFor holds that a list for a host below its domain is that of the domain
// and says so, and that the list of a public suffix says what it is.
func TestListsSayWhatWasAskedFor(t *testing.T) {
	s := start(t, pagesLake(t), lookup.Options{})
	get := func(path string, v any) int {
		w := s.do("GET", path)
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			t.Fatal(err)
		}
		return w.Code
	}
	type answer struct {
		Domain, Host string
		TotalsOf     string  `json:"totals_of"`
		Total        int     `json:"total_est"`
		Suffix       bool    `json:"public_suffix"`
		Below        *int    `json:"domains_below"`
		List         string  `json:"domains_below_list"`
		Next         *string `json:"next"`
		Items        []struct{ URL string }
	}
	var a answer
	rows := 0
	for path := "/v1/domain/https%3A%2F%2Fa.example.com%2Fx/datasets/alpha/urls?limit=5"; path != ""; {
		a = answer{}
		if status := get(path, &a); status != 200 || a.Domain != "example.com" || a.Host != "a.example.com" || a.TotalsOf != "domain" || a.Total != 24 {
			t.Fatalf("%s: %d %+v", path, status, a)
		}
		for _, it := range a.Items {
			if strings.HasPrefix(it.URL, "https://a.example.com/") {
				rows++
			}
		}
		if path = ""; a.Next != nil {
			path = *a.Next
		}
	}
	if rows != 12 {
		t.Errorf("%d rows", rows)
	}
	a = answer{}
	if get("/v1/domain/a.example.com/datasets/alpha/urls?host=b.example.com", &a); a.Host != "" || a.Total != 12 || !strings.HasPrefix(a.Items[0].URL, "https://b.") {
		t.Errorf("%+v", a)
	}
	a = answer{}
	if get("/v1/domain/github.io/datasets/alpha/urls", &a); !a.Suffix || a.Below == nil || *a.Below != 2 || a.List == "" || a.Host != "" {
		t.Errorf("%+v", a)
	}
	for path, want := range map[string]string{
		"/?domain=github.io&dataset=alpha": "2 domains below it",
	} {
		if w := s.do("GET", path); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
