package api

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

// TestKeptAnswersAreThoseOfAServerWithoutACache asks two handlers of one server, of which one keeps
// answers, for the same as every principal, many times in random order, with and without
// compression: before and after a dataset gets other readers, a domain is taken down, and a version
// is published.
func TestKeptAnswersAreThoseOfAServerWithoutACache(t *testing.T) {
	store, versions, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	counting := blob.NewCounting(store)
	c := startClosed(t, counting)
	metrics := NewMetrics(c.server, counting)
	handler := func(m *Metrics, bytes int64) http.Handler {
		return New(c.server, slog.New(slog.DiscardHandler), m, WithAuth(auth.Tokens(c.follower, nil)), AnswerCache(bytes))
	}
	keeps, plain := handler(metrics, 4<<20), handler(NewMetrics(c.server, counting), 0)

	var paths []string
	for _, version := range []string{"", "&version=" + versions[0], "&version=", "&bad=1"} {
		for _, domain := range []string{"common.com", "secret-only.com", "alpha-only.com", "unknown.test", "a,b"} {
			paths = append(paths, "/v1/domain/"+domain+"?"+version, "/v1/url?url=https://"+domain+"/"+version)
			for _, dataset := range []string{"secret", "open", "beta", "none"} {
				paths = append(paths, "/v1/domain/"+domain+"/datasets/"+dataset+"/urls?limit=1"+version)
			}
		}
		paths = append(paths, "/v1/datasets?"+version, "/v1/datasets/secret?"+version, "/v1/domains?limit=2"+version)
	}
	rng := rand.New(rand.NewPCG(1, 8))
	answer := func(h http.Handler, principal, path string, compressed bool) (int, string, http.Header) {
		r := httptest.NewRequest("GET", path, nil)
		if principal != "" {
			r.Header.Set("Authorization", "Bearer "+c.tokens[principal])
		}
		if compressed {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		w.Header().Del("X-Request-Id")
		return w.Code, w.Body.String(), w.Header()
	}
	compare := func(when string) {
		t.Helper()
		before := metrics.state.answers.Stats().Hits
		for range 2 * len(paths) {
			path, principal, compressed := paths[rng.IntN(len(paths))], principals[rng.IntN(len(principals))], rng.IntN(2) == 0
			wantCode, want, wantHeader := answer(plain, principal, path, compressed)
			for range 3 {
				code, got, header := answer(keeps, principal, path, compressed)
				if code == 503 && wantCode == 200 || wantCode == 503 && code == 200 {
					continue // what is being computed is there meanwhile
				}
				if diff := cmp.Diff(wantHeader, header); code != wantCode || got != want || diff != "" {
					t.Fatalf("%s: %s as %q: %d, %s\nwithout a cache: %d, %s\n%s", when, path, principal, code, got, wantCode, want, diff)
				}
			}
		}
		if hits := metrics.state.answers.Stats().Hits - before; hits < int64(len(paths)/2) {
			t.Errorf("%s: only %d answers were kept ones", when, hits)
		}
	}
	refresh := func() {
		t.Helper()
		if err := c.server.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	compare("at first")

	// A kept answer takes no read.
	path := "/v1/domain/common.com"
	for range 2 {
		answer(keeps, "ada", path, false)
	}
	reads := counting.Reads()
	answer(keeps, "ada", path, false)
	if now := counting.Reads(); now != reads {
		t.Errorf("a kept answer: %+v, before %+v", now, reads)
	}

	readers, err := access.ParseReaders("ada")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := access.Change(t.Context(), store, access.Edit{Dataset: "beta", Readers: &readers}); err != nil {
		t.Fatal(err)
	}
	refresh()
	compare("after a change of readers")

	rule := takedown.Rule{Reason: "test", Created: time.Now().UTC().Truncate(time.Second)}
	rule.ID = takedown.NewID(rule.Created)
	if rule.Target, err = takedown.ParseTarget(urlnorm.BuiltinSuffixes(), takedown.Domain, "common.com"); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Add(t.Context(), store, rule, suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	refresh()
	compare("after a takedown")

	testlake.Ingest(t, store, "open", "b9", []testlake.Record{{URL: "https://alpha-only.com/new"}})
	testlake.Publish(t, store)
	refresh()
	compare("after a flip")
}

// TestUnknownDomainsAreAnsweredWithoutReads asks for domains that no dataset has.
func TestUnknownDomainsAreAnsweredWithoutReads(t *testing.T) {
	counting := blob.NewCounting(small(t))
	s := start(t, counting, lookup.Options{})
	before := counting.Reads()
	for i := range 100 {
		for _, path := range []string{"/v1/domain/no%d.example", "/v1/domain/no%d.example/datasets/1/urls", "/v1/url?url=https://no%d.example/"} {
			if w := s.do("GET", fmt.Sprintf(path, i)); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
	}
	if now := counting.Reads(); now != before {
		t.Errorf("%+v, before %+v", now, before)
	}
}

// TestOnlyWholeAnswersAreKept holds that what has no validator, an error or a page without a body
// is made each time.
func TestOnlyWholeAnswersAreKept(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/domain/example.com?explain=1"}, {"HEAD", "/v1/domain/example.com"}, {"GET", "/v1/domain/a%20b"},
		{"GET", "/v1/versions"}, {"GET", "/?domain=example.com"}, {"GET", "/v1/domain/example.com/datasets/1/urls?format=csv"},
	} {
		for range 4 {
			s.do(c.method, c.path)
		}
	}
	if st := s.metrics.state.answers.Stats(); st.Entries != 0 || st.Hits != 0 {
		t.Errorf("%+v", st)
	}
	for range 4 {
		s.do("GET", "/v1/domain/example.com")
	}
	if st := s.metrics.state.answers.Stats(); st.Entries != 1 || st.Hits != 2 || st.Bytes == 0 {
		t.Errorf("%+v", st)
	}
	if w := s.do("HEAD", "/v1/domain/example.com"); w.Body.Len() != 0 || w.Header().Get("ETag") == "" {
		t.Errorf("HEAD: %v %s", slices.Sorted(maps.Keys(w.Header())), w.Body)
	}
}
