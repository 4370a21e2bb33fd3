package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/serve/auth"
)

// TestVerifiedTokens holds that a token which was taken before is judged again by all that changes:
// the time, the keys of the provider, and their age.
func TestVerifiedTokens(t *testing.T) {
	p := provider(t)
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1_800_000_000+clock.Load(), 0) }
	j, err := auth.NewJWKS(auth.Provider{Keys: p.server.URL + "/keys", Issuer: "i", Audience: "a", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func() {
		t.Helper()
		if err := j.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	token := func(name string, life time.Duration) string {
		return p.sign("ed", "EdDSA", map[string]any{"iss": "i", "aud": "a", "sub": name, "exp": now().Add(life).Unix()})
	}
	taken := func(token, name string) {
		t.Helper()
		for range 2 {
			if got, err := j.Principal(request("Bearer " + token)); got != name || err != nil {
				t.Fatalf("%q, %v; want %q", got, err, name)
			}
			if _, has := auth.Remembered(j, token); !has {
				t.Fatalf("the token of %s is verified each time", name)
			}
		}
	}
	refused := func(token, why string) {
		t.Helper()
		var refused *auth.RefusedError
		for range 2 {
			if name, err := j.Principal(request("Bearer " + token)); !errors.As(err, &refused) || !strings.Contains(refused.Reason, why) {
				t.Fatalf("%q, %v; want %s", name, err, why)
			}
		}
	}
	counted := func(hits, misses, entries int64) {
		t.Helper()
		if st := j.Stats(); st.Hits != hits || st.Misses != misses || st.Entries != entries || (st.Bytes > 0) != (entries > 0) {
			t.Errorf("%+v, want %d hits, %d misses, %d entries", st, hits, misses, entries)
		}
	}
	fetch()
	counted(0, 0, 0)
	ada, bea := token("ada", time.Minute), token("bea", time.Hour)
	taken(ada, "ada")
	taken(bea, "bea")

	// A token that differs in its last bits is another one, and what was refused is not remembered.
	forged := bea[:len(bea)-4] + "AAAA"
	refused(forged, "not valid")
	counted(2, 4, 2)
	if n, has := auth.Remembered(j, forged); has || n != 2 {
		t.Errorf("%d tokens are remembered, a forged one: %v", n, has)
	}

	// Expiry is that of the token, with the same leeway as for a token that is new.
	clock.Store(89)
	taken(ada, "ada")
	clock.Store(90)
	refused(ada, "expired")
	taken(bea, "bea")

	// A key that the provider withdraws is withdrawn from tokens that it has verified.
	p.withdrawn.Store(true)
	fetch()
	refused(bea, "not valid")
	p.withdrawn.Store(false)
	fetch()
	taken(bea, "bea")

	// Keys that are too old verify nothing, and neither does what they have verified.
	carl := token("carl", 3*time.Hour)
	taken(carl, "carl")
	p.down.Store(true)
	clock.Add(3601)
	var unavailable *auth.UnavailableError
	if name, err := j.Principal(request("Bearer " + carl)); !errors.As(err, &unavailable) {
		t.Fatalf("keys of more than an hour ago: %q, %v", name, err)
	}
}

// BenchmarkPrincipal is a token that is seen for the first time, and one that was verified before.
func BenchmarkPrincipal(b *testing.B) {
	p := provider(b)
	j, err := auth.NewJWKS(auth.Provider{Keys: p.server.URL + "/keys", Issuer: "https://id.example", Audience: "urlake"})
	if err == nil {
		err = j.Fetch(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ kid, alg string }{{"rsa", "RS256"}, {"ec", "ES256"}, {"ed", "EdDSA"}} {
		r := request("Bearer " + p.sign(c.kid, c.alg, map[string]any{
			"iss": "https://id.example", "aud": "urlake", "sub": "auth0|ada", "exp": time.Now().Add(time.Hour).Unix(), "scope": "read",
		}))
		for _, again := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/again=%v", c.alg, again), func(b *testing.B) {
				b.ReportAllocs()
				started := indextest.ProcessorTime(b)
				for b.Loop() {
					if !again {
						auth.Forget(j)
					}
					if name, err := j.Principal(r); name != "auth0|ada" {
						b.Fatal(name, err)
					}
				}
				indextest.ReportPerEntry(b, started, 1)
			})
		}
	}
}
