package api

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/turns"
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

	rule := catalog.Takedown{Reason: "test", Created: time.Now().UTC().Truncate(time.Second)}
	rule.ID = catalog.NewTakedownID(rule.Created)
	if rule.Target, err = catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "common.com"); err != nil {
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

// TestKeptAnswersCountAsAskedFor asks for one domain and one list again and again, whose answers
// are kept, and for others in other words each time, so that their answers are made. What was asked
// for most often is warm after a flip.
func TestKeptAnswersCountAsAskedFor(t *testing.T) {
	store := small(t)
	counting := blob.NewCounting(store)
	s := start(t, counting, lookup.Options{Warm: 2})
	list := "/v1/domain/example.com/datasets/alpha/urls?limit=1"
	for range 6 {
		for _, path := range []string{"/v1/domain/example.com", list} {
			w := s.ask("GET", path)
			if again := s.ask("GET", path, "If-None-Match", w.Header().Get("ETag")); w.Code != 200 || again.Code != 304 {
				t.Fatalf("%s: %d, %d", path, w.Code, again.Code)
			}
		}
	}
	for i := range 5 {
		s.ask("GET", fmt.Sprintf("/v1/domain/https%%3A%%2F%%2Fother.test%%2F%d", i))
		s.ask("GET", fmt.Sprintf("/v1/domain/other.test/datasets/alpha/urls?limit=%d", i+1))
	}
	for _, domain := range []string{"example.com", "other.test"} { // in segments of their own
		testlake.Ingest(t, store, "alpha", domain, []testlake.Record{{URL: "https://" + domain + "/new"}})
		testlake.Publish(t, store)
	}
	if err := s.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/v1/domain/example.com": true, list: true, "/v1/domain/other.test": false} {
		before := counting.Reads()
		if w := s.ask("GET", path); w.Code != 200 {
			t.Fatalf("%s: %d", path, w.Code)
		}
		if warm := counting.Reads() == before; warm != want {
			t.Errorf("%s is warm after a flip: %v", path, warm)
		}
	}
}

// TestGuessesAreNotKept asks a server of a lake that lacks its public suffix list: what depends on
// it is made each time, and nobody may keep it. The rest is.
func TestGuessesAreNotKept(t *testing.T) {
	store := blob.NewMemory()
	list := testlake.SetList(t, store, "com test")
	testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "https://www.example.com/a"}})
	testlake.Publish(t, store)
	testlake.LoseList(t, store, list)
	s := start(t, store, lookup.Options{})
	for path, guessed := range map[string]bool{
		"/v1/domain/example.com": true, "/v1/domain/example.com/datasets/1/urls": true, "/v1/domain/example.com/tree": true,
		"/v1/url?url=https://www.example.com/a": true, "/v1/domain/example.com/datasets/1/urls?format=csv": true,
		"/?domain=example.com": true, "/?domain=example.com&dataset=1": true, "/?url=https://www.example.com/a": true,
		"/v1/datasets": false, "/v1/domains": false, "/domains": false,
	} {
		for range 3 {
			w := s.ask("GET", path)
			etag, caching := w.Header().Get("ETag"), w.Header().Get("Cache-Control")
			if w.Code != 200 || (etag == "") != guessed || (caching == "no-store") != guessed {
				t.Errorf("%s: %d, ETag %s, %s", path, w.Code, etag, caching)
			}
		}
	}
	if n := s.metrics.state.answers.Stats().Entries; n != 2 {
		t.Errorf("%d answers are kept, want those of the lists of datasets and domains", n)
	}
}

// TestFoundPageIsKeptWhenItsClientLeaves lets a client leave while its page, which is found, waits
// for a turn to be written.
func TestFoundPageIsKeptWhenItsClientLeaves(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 600 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%d", i)})
	}
	testlake.Ingest(t, store, "alpha", "b", records)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	const path = "/v1/domain/example.com/datasets/1/urls?limit=600"
	s.ask("GET", path)
	all := s.server.Turns()
	waits := func(n int64) {
		t.Helper()
		testenv.Until(t, "somebody waits for a turn", func() bool { return all.Stats().Waits == n })
	}
	take := func() *turns.Turn {
		ctx, turn := turns.With(t.Context(), all)
		if err := turn.Take(ctx); err != nil {
			t.Error(err)
		}
		return turn
	}
	var held []*turns.Turn
	for range runtime.GOMAXPROCS(0) {
		held = append(held, take())
	}
	before := all.Stats().Waits
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var done sync.WaitGroup
	done.Go(func() { // waits to read the rows, and then to write the page
		s.web.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", path, nil))
	})
	waits(before + 1)
	next := make(chan *turns.Turn)
	go func() { next <- take() }()
	waits(before + 2)
	held[0].Give()
	held[0] = <-next
	waits(before + 3)
	leave()
	for _, turn := range held {
		turn.Give()
	}
	done.Wait()
	if st := s.metrics.state.answers.Stats(); st.Entries != 1 {
		t.Errorf("%+v, the page that was found is not kept", st)
	}
}

// BenchmarkLookup is a lookup without the time of HTTP: one whose answer is kept, and one whose
// answer is made each time.
func BenchmarkLookup(b *testing.B) {
	store := small(b)
	for _, c := range []struct {
		name string
		kept int64
	}{{"kept", DefaultAnswerCache}, {"made", 0}} {
		b.Run(c.name, func(b *testing.B) {
			s := start(b, store, lookup.Options{})
			s.web = New(s.server, slog.New(slog.DiscardHandler), NewMetrics(s.server, blob.NewCounting(store)), AnswerCache(c.kept))
			r := httptest.NewRequest("GET", "/v1/domain/example.com", nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			started := indextest.ProcessorTime(b)
			for b.Loop() {
				w.Body.Reset()
				clear(w.Header())
				s.web.ServeHTTP(w, r)
			}
			indextest.ReportPerEntry(b, started, 1)
		})
	}
}
