package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/lookup"
)

// versionList is an answer of /v1/versions.
type versionList struct {
	Current    string         `json:"current_version"`
	Total      int            `json:"total_versions"`
	Versions   []versionEntry `json:"versions"`
	Returned   int            `json:"returned"`
	Complete   bool           `json:"complete"`
	StoppedBy  *string        `json:"stopped_by"`
	NextCursor *string        `json:"next_cursor"`
	Next       *string        `json:"next"`
}

type versionEntry struct {
	Version       string   `json:"version"`
	Current       bool     `json:"current"`
	Tags          []string `json:"tags"`
	Created       string   `json:"created"`
	BuiltBy       string   `json:"built_by"`
	Parent        *string  `json:"parent"`
	Commit        string   `json:"commit"`
	Form          string   `json:"canonical_form"`
	PublicSuffix  string   `json:"public_suffix_list"`
	Datasets      int      `json:"datasets"`
	Batches       int      `json:"batches"`
	Parts         int64    `json:"parts"`
	Rows          int64    `json:"rows"`
	PartBytes     int64    `json:"part_bytes"`
	Segments      int      `json:"segments"`
	IndexBytes    int64    `json:"index_bytes"`
	DatasetsAdded *int     `json:"datasets_added"`
	BatchesAdded  *int     `json:"batches_added"`
	RowsAdded     *int64   `json:"rows_added"`
}

// rowsOf returns n records, of which no two are the same URL.
func rowsOf(prefix string, n int) []testlake.Record {
	var records []testlake.Record
	for i := range n {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%s/%d", prefix, i)})
	}
	return records
}

// versioned returns a lake of five versions: two datasets, then another one with two batches, a
// batch replaced by a smaller one, by one as large, and a further batch.
func versioned(t *testing.T) blob.Store {
	t.Helper()
	store := small(t)
	for _, publish := range [][]struct {
		dataset, batch string
		rows           int
	}{
		{{"gamma", "b1", 10}, {"gamma", "b2", 5}},
		{{"gamma", "b1", 3}},
		{{"gamma", "b2", 5}},
		{{"alpha", "b2", 7}},
	} {
		for i, b := range publish {
			testlake.Ingest(t, store, b.dataset, b.batch, rowsOf(fmt.Sprint(testlake.Run(), i), b.rows))
		}
		testlake.Publish(t, store)
	}
	return store
}

// documents lists the versions of a lake, newest first, without what changed.
func documents(t *testing.T, store blob.Store) []versionEntry {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var list []versionEntry
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		c := v.Counts
		e := versionEntry{
			Version: v.ID, Current: v.ID == m.CurrentVersion, Tags: []string{}, Created: v.Created, BuiltBy: v.BuiltBy, Parent: &v.Parent,
			Commit: v.Commit, Form: v.CanonicalForm, PublicSuffix: v.PublicSuffix,
			Datasets: c.Datasets, Batches: c.Batches, Parts: c.Parts, Rows: c.Rows, PartBytes: c.PartBytes,
			Segments: c.Segments, IndexBytes: c.IndexBytes,
		}
		if v.Parent == "" {
			e.Parent = nil
		}
		list = append(list, e)
	}
	slices.Reverse(list)
	return list
}

func TestVersionsSayWhatChanged(t *testing.T) {
	store := versioned(t)
	want := documents(t, store)
	want[3].Tags = []string{"production", "release-1"}
	for _, tag := range want[3].Tags {
		if _, _, err := catalog.SetTag(t.Context(), store, tag, want[3].Version, false); err != nil {
			t.Fatal(err)
		}
	}
	// Newest first: datasets, batches and rows.
	for i, change := range [][3]int{{0, 1, 7}, {0, 0, 0}, {0, 0, -7}, {1, 2, 15}, {2, 2, 4}} {
		want[i].DatasetsAdded, want[i].BatchesAdded, want[i].RowsAdded = &change[0], &change[1], ptr(int64(change[2]))
	}
	s := start(t, store, lookup.Options{})
	var got versionList
	if status := s.get("/v1/versions", &got); status != 200 {
		t.Fatal(status)
	}
	all := versionList{Current: want[0].Version, Total: 5, Versions: want, Returned: 5, Complete: true}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Fatalf("(-documents +served):\n%s", diff)
	}
	if !got.Versions[0].Current || got.Versions[1].Current || got.Versions[4].Parent != nil {
		t.Fatalf("%+v", got)
	}
	// Each version that is listed can be named in a request.
	for _, v := range got.Versions {
		var list datasetList
		if status := s.get("/v1/datasets?version="+v.Version, &list); status != 200 ||
			list.Total != v.Datasets || int64(list.Rows) != v.Rows {
			t.Errorf("%s: %d %+v, listed as %+v", v.Version, status, list, v)
		}
	}
}

// Following next lists every version once, newest first, also when others are published meanwhile.
func TestVersionsArePaged(t *testing.T) {
	store := versioned(t)
	s := start(t, store, lookup.Options{})
	var all versionList
	s.get("/v1/versions", &all)
	for limit := 1; limit <= 6; limit++ {
		var got []versionEntry
		for path := fmt.Sprintf("/v1/versions?limit=%d", limit); path != ""; {
			var page versionList
			if status := s.get(path, &page); status != 200 {
				t.Fatalf("%s: %d", path, status)
			}
			if page.Returned != len(page.Versions) || page.Returned > limit || page.StoppedBy != nil || page.Total != 5 ||
				page.Complete != (page.Next == nil) || page.Complete != (page.NextCursor == nil) {
				t.Fatalf("%s: %+v", path, page)
			}
			got = append(got, page.Versions...)
			if path = ""; page.Next != nil {
				path = *page.Next
			}
		}
		if diff := cmp.Diff(all.Versions, got); diff != "" {
			t.Fatalf("limit %d (-whole +paged):\n%s", limit, diff)
		}
	}
	var first, second, newest versionList
	s.get("/v1/versions?limit=2", &first)
	testlake.Ingest(t, store, "alpha", "b3", rowsOf("b3", 1))
	testlake.Publish(t, store)
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.get(*first.Next, &second)
	if diff := cmp.Diff(all.Versions[2:4], second.Versions); diff != "" || second.Total != 6 {
		t.Fatalf("%d versions, after a publish (-before +served):\n%s", second.Total, diff)
	}
	s.get("/v1/versions?limit=1000", &newest)
	old := all.Versions[0]
	old.Current = false
	if newest.Returned != 6 || !newest.Versions[0].Current || newest.StoppedBy != nil ||
		*newest.Versions[0].Parent != old.Version || !cmp.Equal(old, newest.Versions[1]) {
		t.Fatalf("%+v", newest)
	}
	if w := s.do("HEAD", "/v1/versions"); w.Code != 200 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

// sameAgain builds a version that holds what its parent does.
func sameAgain(_ context.Context, parent *catalog.Version) (*catalog.Next, error) {
	return &catalog.Next{
		CanonicalForm: parent.CanonicalForm, PublicSuffix: parent.PublicSuffix, Segments: parent.Segments,
	}, nil
}

// A page has 20 versions, and at most 100.
func TestLimitOfVersions(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b", rowsOf("a", 1))
	testlake.Publish(t, store)
	const n = lookup.MaxVersions + 2
	for i := 1; i < n; i++ {
		c := catalog.Commit{ID: fmt.Sprintf("%032x", i), BuiltBy: "test", Build: sameAgain}
		if _, err := c.Apply(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, store, lookup.Options{})
	var page versionList
	s.get("/v1/versions", &page)
	if page.Returned != lookup.DefaultVersions || page.Total != n || page.StoppedBy != nil || page.Complete {
		t.Fatalf("no limit: %d of %d versions", page.Returned, page.Total)
	}
	page = versionList{}
	s.get("/v1/versions?limit=101", &page)
	if page.Returned != lookup.MaxVersions || page.StoppedBy == nil || *page.StoppedBy != "limit" ||
		!strings.Contains(*page.Next, "limit=100") {
		t.Fatalf("limit 101: %d versions, stopped by %v, next %v", page.Returned, page.StoppedBy, page.Next)
	}
	next := *page.Next
	page = versionList{}
	if s.get(next, &page); page.Returned != 2 || !page.Complete || page.StoppedBy != nil {
		t.Fatalf("the rest: %d versions", page.Returned)
	}
}

func TestProblemsOfVersions(t *testing.T) {
	store := versioned(t)
	s := start(t, store, lookup.Options{})
	var page versionList
	s.get("/v1/versions?limit=1", &page)
	cursor := url.QueryEscape(*page.NextCursor)
	for path, kind := range map[string]string{
		"/v1/versions?limit=0":                                        "bad-parameter",
		"/v1/versions?limit=-1":                                       "bad-parameter",
		"/v1/versions?limit=all":                                      "bad-parameter",
		"/v1/versions?limit=":                                         "bad-parameter",
		"/v1/versions?limit=1&limit=1":                                "bad-parameter",
		"/v1/versions?offset=1":                                       "bad-parameter",
		"/v1/versions?version=" + page.Current:                        "bad-parameter",
		"/v1/versions?cursor=forged":                                  "bad-cursor",
		"/v1/versions?cursor=" + cursor + "A":                         "bad-cursor",
		"/v1/datasets?cursor=" + cursor:                               "bad-cursor",
		"/v1/domain/example.com?cursor=" + cursor:                     "bad-cursor",
		"/v1/domain/example.com/datasets/1/urls?cursor=" + cursor:     "bad-cursor",
		"/v1/versions?cursor=" + url.QueryEscape(urlsCursor(t, s)):    "bad-cursor",
		"/v1/versions?limit=1&cursor=" + url.QueryEscape("'\"<>\x00"): "bad-cursor",
	} {
		var p problemDocument
		if status := s.get(path, &p); status != 400 || p.Type != "/problems/"+kind {
			t.Errorf("%s: %d %+v", path, status, p)
		}
	}
	if w := s.do("POST", "/v1/versions"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	empty := start(t, blob.NewMemory(), lookup.Options{})
	var p problemDocument
	if status := empty.get("/v1/versions", &p); status != 503 || !strings.Contains(p.Detail, catalog.ErrNoVersion.Error()) {
		t.Errorf("without a version: %d %+v", status, p)
	}
}

// urlsCursor returns a cursor of a list of URLs.
func urlsCursor(t *testing.T, s *service) string {
	t.Helper()
	var page urlsAnswer
	s.get("/v1/domain/example.com/datasets/1/urls?limit=1", &page)
	return *page.NextCursor
}

// Damage of a version is a problem of the pages that show it or what changed since it. Other pages
// and queries are answered.
func TestDamagedVersionIsAProblem(t *testing.T) {
	for _, damage := range []string{"flipped", "missing"} {
		store := versioned(t)
		all := documents(t, store)
		key := catalog.VersionKey(all[2].Version)
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if damage == "missing" {
			err = store.Delete(t.Context(), key)
		} else {
			data[len(data)/3] ^= 2
			_, err = store.Put(t.Context(), key, data, blob.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, store, lookup.Options{})
		for limit, want := range map[int]int{1: 200, 2: 500, 3: 500, 20: 500} {
			w := s.do("GET", fmt.Sprintf("/v1/versions?limit=%d", limit))
			var p problemDocument
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != want {
				t.Fatalf("%s, limit %d: %d %s", damage, limit, w.Code, w.Body)
			}
			if want == 500 && (p.Type != "/problems/corrupt" || p.File != key ||
				!strings.HasSuffix(p.Detail, lake.Remedy("", key))) {
				t.Errorf("%s, limit %d: %+v", damage, limit, p)
			}
		}
	}
}

// A version that is dropped after the server has leased it is answered as one dropped before.
func TestVersionDroppedWhileItIsOpenedIsGone(t *testing.T) {
	store := small(t)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	old := m.CurrentVersion
	testlake.Ingest(t, store, "alpha", "b2", []testlake.Record{{URL: "https://example.com/2"}})
	testlake.Publish(t, store)
	faulty := blobtest.NewFaulty(store)
	s := start(t, faulty, lookup.Options{LeaseTTL: lookup.DefaultLeaseTTL})
	faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true, Do: func() {
		m, _, err := catalog.ReadManifest(t.Context(), store)
		if err != nil {
			t.Error(err)
			return
		}
		m.Generation++
		m.Versions = m.Versions[1:]
		data, err := codec.Seal(m)
		if err == nil {
			_, err = store.Put(t.Context(), catalog.ManifestKey, data, blob.Condition{})
		}
		if err != nil {
			t.Error(err)
		}
	}})
	for _, when := range []string{"between lease and manifest", "later"} {
		var p problemDocument
		status := s.get("/v1/domain/example.com?version="+old, &p)
		if status != http.StatusGone || p.Type != "/problems/version-gone" || faulty.Fired() != 1 {
			t.Errorf("dropped %s: %d %+v after %d faults", when, status, p, faulty.Fired())
		}
	}
}
