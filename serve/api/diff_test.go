package api

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/serve/lookup"
)

type diffAnswer struct {
	From          string       `json:"from"`
	To            string       `json:"to"`
	TakedownEpoch int          `json:"takedown_epoch"`
	Changes       []diffChange `json:"changes"`
	Returned      int          `json:"returned"`
	Complete      bool         `json:"complete"`
	StoppedBy     *string      `json:"stopped_by"`
	NextCursor    *string      `json:"next_cursor"`
	Next          *string      `json:"next"`
	Explain       *explained   `json:"explain"`
}

type diffChange struct {
	Change   string      `json:"change"`
	Domain   string      `json:"domain"`
	DomainID string      `json:"domain_id"`
	ID       int         `json:"dataset_id"`
	Name     string      `json:"name"`
	Before   *diffTotals `json:"before"`
	After    *diffTotals `json:"after"`
}

type diffTotals struct {
	Count   int     `json:"url_count_est"`
	Size    *int    `json:"size"`
	Over    bool    `json:"size_overflow"`
	FirstTS *string `json:"first_ts"`
	LastTS  *string `json:"last_ts"`
}

func TestDiff(t *testing.T) {
	store := small(t)
	s := start(t, store, lookup.Options{})
	first := s.server.Status().Version
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "https://example.com/b?a=2", TS: 1_700_000_000_123, HasTS: true, Size: 10, HasSize: true},
	})
	testlake.Ingest(t, store, "beta", "b2", []testlake.Record{{URL: "https://new.test/"}, {URL: "https://example.com/more"}})
	second := testlake.Publish(t, store).Version
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]diffChange{
		"alpha example.com": {"changed", "example.com", "", 1, "alpha",
			&diffTotals{2, ptr(15), false, ptr("2020-09-13T12:26:40.000Z"), ptr("2023-11-14T22:13:20.123Z")},
			&diffTotals{1, ptr(10), false, ptr("2023-11-14T22:13:20.123Z"), ptr("2023-11-14T22:13:20.123Z")}},
		"alpha other.test": {"removed", "other.test", "", 1, "alpha", &diffTotals{Count: 1}, nil},
		"beta example.com": {"changed", "example.com", "", 2, "beta", &diffTotals{Count: 1}, &diffTotals{Count: 2}},
		"beta new.test":    {"added", "new.test", "", 2, "beta", nil, &diffTotals{Count: 1}},
	}
	for query, datasets := range map[string]string{
		"": "alpha beta", "?limit=1": "alpha beta", "?limit=3&from=" + first: "alpha beta", "?limit=99999&to=" + second: "alpha beta",
		"?dataset=2&limit=1": "beta", "?from=" + first + "&to=" + second + "&dataset=1": "alpha",
	} {
		got := map[string]diffChange{}
		for path := "/v1/diff" + query; path != ""; {
			var page diffAnswer
			if status := s.get(path, &page); status != 200 {
				t.Fatalf("%s: %d", path, status)
			}
			if page.From != first || page.To != second || page.Returned != len(page.Changes) || page.StoppedBy != nil ||
				page.Complete != (page.Next == nil) || page.Complete != (page.NextCursor == nil) {
				t.Fatalf("%s: %+v", path, page)
			}
			for _, c := range page.Changes {
				var domain domainAnswer
				if s.get("/v1/domain/"+c.Domain, &domain); domain.DomainID != c.DomainID {
					t.Errorf("%s: %+v", path, c)
				}
				c.DomainID = ""
				got[c.Name+" "+c.Domain] = c
			}
			if path = ""; page.Next != nil {
				path = *page.Next
			}
		}
		some := map[string]diffChange{}
		for key, c := range want {
			if strings.Contains(datasets, c.Name) {
				some[key] = c
			}
		}
		if diff := cmp.Diff(some, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	var page diffAnswer
	if s.get("/v1/diff?from="+second+"&to="+second+"&explain=1", &page); len(page.Changes) > 0 || !page.Complete || page.Explain.Requests > 0 {
		t.Errorf("a version and itself: %+v", page)
	}
	if s.get("/v1/diff?limit=1&from="+first, &page); page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	cursor := "cursor=" + url.QueryEscape(*page.NextCursor)
	for path, kind := range map[string]string{
		"/v1/diff?to=" + first:                                    "bad-parameter", // the first version
		"/v1/diff?limit=0":                                        "bad-parameter",
		"/v1/diff?dataset=x":                                      "unknown-dataset",
		"/v1/diff?version=" + first:                               "bad-parameter",
		"/v1/diff?dataset=9":                                      "unknown-dataset",
		"/v1/diff?from=1":                                         "bad-version",
		"/v1/diff?from=20200101T000000.000Z-00000000":             "version-gone",
		"/v1/diff?dataset=2&" + cursor:                            "bad-cursor",
		"/v1/diff?from=" + second + "&to=" + first + "&" + cursor: "bad-cursor",
		"/v1/datasets?" + cursor:                                  "bad-cursor",
	} {
		if w := s.do("GET", path); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), "/problems/"+kind) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, kind)
		}
	}
}

// Links of a page whose version was named lead to that version, also if a tag named it.
func TestLinksOfATaggedVersion(t *testing.T) {
	store := small(t)
	s := start(t, store, lookup.Options{})
	first := s.server.Status().Version
	if _, _, err := catalog.SetTag(t.Context(), store, "release", "", false); err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "beta", "b2", []testlake.Record{{URL: "https://new.test/"}})
	testlake.Publish(t, store)
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, link := range map[string]string{
		"/?domain=example.com&version=release":           `"/v1/domain/example.com?version=` + first + `"`,
		"/?domain=example.com&dataset=1&version=release": `"/v1/domain/example.com/datasets/1/urls?version=` + first + `"`,
		"/?domain=example.com":                           `"/v1/domain/example.com"`,
		"/?domain=example.com&version=current":           `version=2`,
	} {
		body := s.do("GET", path).Body.String()
		if !strings.Contains(body, link) || strings.Contains(body, "version=release") {
			t.Errorf("%s has no %s:\n%s", path, link, body)
		}
	}
}
