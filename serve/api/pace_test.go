package api

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

// slowStore is a store whose reads of ranges take a time.
type slowStore struct {
	blob.Store
	took time.Duration
}

func (s *slowStore) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	select {
	case <-time.After(s.took):
		return s.Store.ReadRange(ctx, key, off, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowStore) Unwrap() blob.Store { return s.Store }

// TestListsOfDomainsKeepPace lists domains from stores that take various times. A list is two reads
// of the store, one after another.
func TestListsOfDomainsKeepPace(t *testing.T) {
	inner, _, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, inner)
	token, _, err := access.NewToken(t.Context(), inner, "ops", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		read, paced time.Duration
		stopped     bool
	}{
		{0, 200 * time.Millisecond, false},
		{30 * time.Millisecond, 200 * time.Millisecond, false},
		{150 * time.Millisecond, 400 * time.Millisecond, false},
		{time.Second, 3200 * time.Millisecond, false},
		{3500 * time.Millisecond, 10 * time.Second, false}, // and not 12.8 s, when the request is over
		{5500 * time.Millisecond, 11 * time.Second, true},
	} {
		for _, path := range []string{"/v1/domains?limit=3", "/v1/domains?limit=1&prefix=a&suffix=m", "/domains?prefix=a"} {
			for _, all := range []bool{false, true} {
				testenv.Bubble(t, func(t *testing.T) {
					store := &slowStore{Store: inner}
					follower := access.NewFollower(store)
					s := start(t, store, lookup.Options{Access: follower, Pace: 200 * time.Millisecond})
					s.web, s.routes = routes(s.server, slog.New(slog.NewJSONHandler(&s.log, nil)), s.metrics, WithAuth(auth.Tokens(follower, nil)))
					r := httptest.NewRequest("GET", path, nil)
					want := c.paced
					if all {
						r.Header.Set("Authorization", "Bearer "+token)
						want = 2 * c.read
					}
					store.took = c.read
					began := time.Now()
					var w *httptest.ResponseRecorder
					var took time.Duration
					done := make(chan struct{})
					go func() {
						defer close(done)
						w, _ = s.send(r)
						took = time.Since(began)
					}()
					synctest.Wait() // the request reads, or waits for its time
					tick := time.NewTicker(time.Millisecond)
					for _, g := range s.metrics.state.gates {
						for g.stats().working != 0 {
							<-tick.C
						}
					}
					tick.Stop()
					if made := time.Since(began); made > 2*c.read+time.Millisecond { // it is looked at every millisecond
						t.Errorf("%+v: the answer keeps its place at the gate for %s", c, made)
					}
					<-done
					if w.Code != 200 || took != want {
						t.Errorf("%+v, %s, all %t: %d after %s\n%s", c, path, all, w.Code, took, w.Body)
					}
					if path == "/v1/domains?limit=3" && !all && strings.Contains(w.Body.String(), `"deadline","next_cursor":"`) != c.stopped {
						t.Errorf("%+v: %s", c, w.Body)
					}
				})
			}
		}
	}
}
