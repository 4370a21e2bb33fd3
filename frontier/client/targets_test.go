package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/ingest/allow"
)

// TestDialLeavesTargetsAlone asks a frontier that is not a target, and a frontier that redirects to
// another host.
func TestDialLeavesTargetsAlone(t *testing.T) {
	asked := false
	away := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer away.Close()
	leads := httptest.NewServer(http.RedirectHandler(away.URL+"/v1/stats", http.StatusTemporaryRedirect))
	defer leads.Close()
	ctx := allow.WithTargets(t.Context(), allow.Loopback())
	for _, base := range []string{"http://192.0.2.1:7070", "http://frontier.example", "https://frontier.example:0443"} {
		if _, err := client.Dial(ctx, base); !errors.Is(err, allow.ErrRefused) {
			t.Errorf("%s: %v", base, err)
		}
	}
	c, err := client.Dial(ctx, leads.URL)
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.RefusedError
	if _, err := c.Stats(ctx); !errors.As(err, &refused) || refused.Status != http.StatusTemporaryRedirect || asked {
		t.Errorf("%v, and the other server was asked: %v", err, asked)
	}
}
