package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lru"
)

// counted is an authenticator that counts the tokens that it remembers.
type counted struct{ auth.Authenticator }

func (counted) Stats() lru.Stats { return lru.Stats{Hits: 5, Misses: 4, Entries: 3, Bytes: 2} }

func TestMetricsOfTheTokenCache(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	scrape := func() string {
		w := httptest.NewRecorder()
		s.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	if text := scrape(); strings.Contains(text, `cache="tokens"`) {
		t.Error("there is a cache of tokens without authentication")
	}
	s.with(WithAuth(counted{}))
	text := scrape()
	for _, line := range []string{
		`urlake_cache_hits_total{cache="tokens"} 5`, `urlake_cache_misses_total{cache="tokens"} 4`,
		`urlake_cache_entries{cache="tokens"} 3`, `urlake_cache_bytes{cache="tokens"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is not among the metrics", line)
		}
	}
}
