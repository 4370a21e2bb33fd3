package api

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

// TestDamageFailsClosed holds that nobody reads what is not known to be public: when the list of
// readers is damaged, lost or newer, nobody reads anything, and when the tokens are, nobody with a
// token does.
func TestDamageFailsClosed(t *testing.T) {
	newer := func(key string) []byte {
		data, err := codec.Seal(struct {
			Format int    `json:"format"`
			Object string `json:"object"`
		}{99, key})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, damage := range map[string]func(store blob.Store, key string) error{
		"flipped": func(store blob.Store, key string) error {
			data, _, err := store.Get(t.Context(), key)
			if err == nil {
				data[len(data)/2] ^= 1
				_, err = store.Put(t.Context(), key, data, blob.Condition{})
			}
			return err
		},
		"newer": func(store blob.Store, key string) error {
			_, err := store.Put(t.Context(), key, newer(key), blob.Condition{})
			return err
		},
		"lost": func(store blob.Store, key string) error { return store.Delete(t.Context(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			store, _, _ := closedLake(t, func(string) bool { return true })
			setReaders(t, store)
			c := startClosed(t, store)
			late := func() *closed { // a server that starts with the damage
				late := *c
				follower := access.NewFollower(store)
				late.service = start(t, store, lookup.Options{Access: follower})
				late.web, late.routes = routes(late.server, slog.New(slog.NewJSONHandler(io.Discard, nil)), NewMetrics(late.server, blob.NewCounting(store)),
					WithAuth(auth.Tokens(follower, nil)))
				return &late
			}
			tokens, _, err := store.Get(t.Context(), access.TokensKey)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(store, access.TokensKey); err != nil {
				t.Fatal(err)
			}
			if err := c.server.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*closed{c, late()} {
				if w := c.as("ops", "/v1/datasets"); w.Code == 200 || w.Code == 401 && name != "lost" || strings.Contains(w.Body.String(), "alpha") {
					t.Errorf("with tokens that are %s: %d %s", name, w.Code, w.Body)
				}
				if w := c.as("", "/v1/datasets"); w.Code != 200 {
					t.Errorf("nobody needs the tokens to read what is public: %d %s", w.Code, w.Body)
				}
			}
			if _, err := store.Put(t.Context(), access.TokensKey, tokens, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			if err := damage(store, access.ListKey); err != nil {
				t.Fatal(err)
			}
			if err := c.server.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*closed{c, late()} {
				for _, principal := range principals {
					for _, path := range []string{"/v1/datasets", "/v1/domain/common.com", "/readyz", "/v1/versions", "/v1/diff"} {
						w := c.as(principal, path)
						if w.Code < 500 || strings.Contains(w.Body.String(), "alpha") || strings.Contains(w.Body.String(), "access/") {
							t.Errorf("%s as %q with a list that is %s: %d %s", path, principal, name, w.Code, w.Body)
						}
					}
				}
			}
			_, _, err = access.Repair(t.Context(), store)
			if (name == "newer") != codec.IsFormat(err) || name != "newer" && err != nil {
				t.Fatalf("repair: %v", err)
			}
			if name == "newer" {
				return
			}
			if err := c.server.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			var list struct {
				Total int `json:"total_datasets"`
			}
			if decode(t, c.as("ada", "/v1/datasets"), &list); list.Total != 3 {
				t.Errorf("%d datasets after the repair", list.Total)
			}
		})
	}
}

// TestStoreFailsWhileFollowing holds that a store that does not answer leaves all as it was.
func TestStoreFailsWhileFollowing(t *testing.T) {
	store, _, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	away := errors.New("away")
	faulty := blobtest.NewFaulty(store)
	c := startClosed(t, faulty)
	faulty.Inject(blobtest.Fault{Key: func(key string) bool { return strings.HasPrefix(key, access.Root) }, Err: away})
	if err := c.server.Refresh(t.Context()); !errors.Is(err, away) {
		t.Fatalf("refresh: %v", err)
	}
	if w := c.as("ada", "/v1/domain/common.com/datasets/alpha/urls"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := c.as("", "/v1/domain/common.com/datasets/alpha/urls"); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
