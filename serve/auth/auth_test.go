package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/auth"
)

// idp is an identity provider. It makes tokens with the standard library alone, so that the tests
// do not share a mistake with what verifies them.
type idp struct {
	signing
	t       testing.TB
	rotated atomic.Bool
	// withdrawn takes the key "ed" out of the set.
	withdrawn atomic.Bool
	down      atomic.Bool
	fetches   atomic.Int64
	server    *httptest.Server
}

// signing are the keys of a provider.
type signing struct {
	rsa  *rsa.PrivateKey
	ec   *ecdsa.PrivateKey
	p384 *ecdsa.PrivateKey
	ed   ed25519.PrivateKey
	next ed25519.PrivateKey // of another kid, in the set once it is rotated
}

var b64 = base64.RawURLEncoding

var keysOnce = sync.OnceValue(func() (k signing) {
	k.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	k.ec, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.p384, _ = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, k.ed, _ = ed25519.GenerateKey(rand.Reader)
	_, k.next, _ = ed25519.GenerateKey(rand.Reader)
	return k
})

func provider(t testing.TB) *idp {
	p := &idp{t: t, signing: keysOnce()}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		switch {
		case r.URL.Path == "/redirect":
			http.Redirect(w, r, "/keys", http.StatusFound)
			return
		case p.down.Load():
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
		p.keys(w)
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *idp) keys(w http.ResponseWriter) {
	rsaKey := func(kid string, k *rsa.PublicKey, more map[string]any) map[string]any {
		m := map[string]any{"kty": "RSA", "kid": kid, "n": b64.EncodeToString(k.N.Bytes()), "e": b64.EncodeToString(big.NewInt(int64(k.E)).Bytes())}
		maps.Copy(m, more)
		return m
	}
	ecKey := func(kid, curve string, k *ecdsa.PublicKey) map[string]any {
		raw, err := k.Bytes() // 4, x, y
		if err != nil {
			p.t.Error(err)
		}
		n := (len(raw) - 1) / 2
		return map[string]any{"kty": "EC", "kid": kid, "crv": curve, "x": b64.EncodeToString(raw[1 : 1+n]), "y": b64.EncodeToString(raw[1+n:])}
	}
	edKey := func(kid string, k ed25519.PrivateKey) map[string]any {
		return map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "use": "sig", "x": b64.EncodeToString(k.Public().(ed25519.PublicKey))}
	}
	set := []map[string]any{
		rsaKey("rsa", &p.rsa.PublicKey, map[string]any{"alg": "RS256", "use": "sig"}),
		rsaKey("enc", &p.rsa.PublicKey, map[string]any{"use": "enc"}),
		rsaKey("pss", &p.rsa.PublicKey, map[string]any{"alg": "PS256"}),
		ecKey("ec", "P-256", &p.ec.PublicKey), ecKey("p384", "P-384", &p.p384.PublicKey),
		{"kty": "oct", "kid": "secret", "k": b64.EncodeToString([]byte("a secret that no set should have"))},
		{"kty": "future", "kid": "odd"},
	}
	if !p.withdrawn.Load() {
		set = append(set, edKey("ed", p.ed))
	}
	if p.rotated.Load() {
		set = append(set, edKey("next", p.next))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
}

func (p *idp) sign(kid, alg string, claims map[string]any) string {
	return p.signWith(nil, kid, alg, claims)
}

// signWith signs a token whose header has more members.
func (p *idp) signWith(more map[string]any, kid, alg string, claims map[string]any) string {
	p.t.Helper()
	header := map[string]any{"alg": alg, "typ": "JWT"}
	if kid != "" {
		header["kid"] = kid
	}
	maps.Copy(header, more)
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			p.t.Fatal(err)
		}
		return b64.EncodeToString(data)
	}
	text := part(header) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	var err error
	switch alg {
	case "RS256":
		sig, err = rsa.SignPKCS1v15(rand.Reader, p.rsa, crypto.SHA256, sum[:])
	case "PS256":
		sig, err = rsa.SignPSS(rand.Reader, p.rsa, crypto.SHA256, sum[:], nil)
	case "ES256":
		key := p.ec
		if kid == "p384" {
			key = p.p384
		}
		var r, s *big.Int
		if r, s, err = ecdsa.Sign(rand.Reader, key, sum[:]); err == nil {
			sig = append(r.FillBytes(make([]byte, 48)), s.FillBytes(make([]byte, 48))...)
			if kid != "p384" {
				sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
			}
		}
	case "EdDSA":
		key := p.ed
		if kid == "next" {
			key = p.next
		}
		sig = ed25519.Sign(key, []byte(text))
	case "HS256": // the public key taken for a shared secret
		der, e := x509.MarshalPKIXPublicKey(&p.rsa.PublicKey)
		if e != nil {
			p.t.Fatal(e)
		}
		secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		if kid == "secret" {
			secret = []byte("a secret that no set should have")
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		sig = mac.Sum(nil)
	case "none", "None", "":
	default:
		p.t.Fatalf("no signature %q", alg)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return text + "." + b64.EncodeToString(sig)
}

func request(header string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func TestJWKS(t *testing.T) {
	p := provider(t)
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	j, err := auth.NewJWKS(auth.Provider{
		Keys: p.server.URL + "/keys", Issuer: "https://id.example", Audience: "urlake", Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims := func(changes ...any) map[string]any {
		m := map[string]any{"iss": "https://id.example", "aud": "urlake", "sub": "auth0|ada", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()}
		for i := 0; i < len(changes); i += 2 {
			if m[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
				delete(m, changes[i].(string))
			}
		}
		return m
	}
	tampered := p.sign("ed", "EdDSA", claims())
	at := strings.IndexByte(tampered, '.') + 10
	tampered = tampered[:at] + string(tampered[at]^1) + tampered[at+1:]
	for name, c := range map[string]struct{ token, want string }{
		"RS256":                     {p.sign("rsa", "RS256", claims()), "auth0|ada"},
		"ES256":                     {p.sign("ec", "ES256", claims()), "auth0|ada"},
		"EdDSA":                     {p.sign("ed", "EdDSA", claims()), "auth0|ada"},
		"the only key of its kind":  {p.sign("", "EdDSA", claims()), "auth0|ada"},
		"one of several audiences":  {p.sign("ed", "EdDSA", claims("aud", []string{"x", "urlake"})), "auth0|ada"},
		"expired within the leeway": {p.sign("ed", "EdDSA", claims("exp", now.Add(-10*time.Second).Unix())), "auth0|ada"},

		"expired":             {p.sign("ed", "EdDSA", claims("exp", now.Add(-time.Minute).Unix())), "expired"},
		"no expiry":           {p.sign("ed", "EdDSA", claims("exp", nil)), "not valid"},
		"not yet":             {p.sign("ed", "EdDSA", claims("nbf", now.Add(time.Minute).Unix())), "not valid yet"},
		"made in the future":  {p.sign("ed", "EdDSA", claims("iat", now.Add(time.Hour).Unix())), "not valid yet"},
		"another audience":    {p.sign("ed", "EdDSA", claims("aud", "other")), "audience"},
		"no audience":         {p.sign("ed", "EdDSA", claims("aud", nil)), "not valid"},
		"another issuer":      {p.sign("ed", "EdDSA", claims("iss", "https://evil.example")), "issuer"},
		"no issuer":           {p.sign("ed", "EdDSA", claims("iss", nil)), "not valid"},
		"no subject":          {p.sign("ed", "EdDSA", claims("sub", nil)), "subject"},
		"a word for readers":  {p.sign("ed", "EdDSA", claims("sub", "public")), "subject"},
		"two names":           {p.sign("ed", "EdDSA", claims("sub", "ada,bea")), "subject"},
		"none":                {p.sign("", "none", claims()), "not valid"},
		"None":                {p.sign("ed", "None", claims()), "not valid"},
		"no algorithm":        {p.sign("ed", "", claims()), "not valid"},
		"HS256, public key":   {p.sign("rsa", "HS256", claims()), "not valid"},
		"HS256, a set's key":  {p.sign("secret", "HS256", claims()), "not valid"},
		"PS256":               {p.sign("rsa", "PS256", claims()), "not valid"},
		"key of PS256":        {p.sign("pss", "RS256", claims()), "not valid"},
		"key for encryption":  {p.sign("enc", "RS256", claims()), "not valid"},
		"P-384":               {p.sign("p384", "ES256", claims()), "not valid"},
		"another kind of key": {p.sign("rsa", "EdDSA", claims()), "not valid"},
		"critical extensions": {p.signWith(map[string]any{"crit": []string{"exp"}, "exp": 1}, "ed", "EdDSA", claims()), "not valid"},
		"unknown key":         {p.sign("gone", "EdDSA", claims()), "not valid"},
		"tampered":            {tampered, "not valid"},
		"cut":                 {p.sign("ed", "EdDSA", claims())[:200], "not valid"},
		"three dots":          {"a.b.c.d", "not valid"},
		"no token":            {"x", "not valid"},
		"padded":              {p.sign("ed", "EdDSA", claims()) + "=", "not valid"},
		"long":                {strings.Repeat("a", 17<<10), "longer"},
	} {
		got, err := j.Principal(request("Bearer " + c.token))
		var refused *auth.RefusedError
		switch {
		case c.want == "auth0|ada":
			if err != nil || got != c.want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		case !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.want) || got != "":
			t.Errorf("%s: %q, %v; want %s", name, got, err, c.want)
		case strings.Contains(err.Error(), c.token):
			t.Errorf("%s: the error repeats the token", name)
		}
	}
	if name, err := j.Principal(request("")); name != "" || err != nil {
		t.Errorf("no header: %q, %v", name, err)
	}
}

// TestKeysRotate holds that a new key is found at once, that forged tokens do not cause a fetch
// each, and that keys which cannot be fetched again are given up after a while.
func TestKeysRotate(t *testing.T) {
	p := provider(t)
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1_800_000_000+clock.Load(), 0) }
	j, err := auth.NewJWKS(auth.Provider{Keys: p.server.URL + "/keys", Issuer: "i", Audience: "a", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	token := func(kid string) string {
		return "Bearer " + p.sign(kid, "EdDSA", map[string]any{"iss": "i", "aud": "a", "sub": "ada", "exp": now().Add(time.Hour).Unix()})
	}
	var unavailable *auth.UnavailableError
	var refused *auth.RefusedError
	p.down.Store(true)
	if _, err := j.Principal(request(token("ed"))); !errors.As(err, &unavailable) {
		t.Fatalf("without keys: %v", err)
	}
	p.down.Store(false)
	clock.Add(11)
	if name, err := j.Principal(request(token("ed"))); name != "ada" {
		t.Fatalf("the keys are fetched for the first token: %v", err)
	}
	fetches := p.fetches.Load()
	for range 50 {
		if _, err := j.Principal(request(token("next"))); !errors.As(err, &refused) {
			t.Fatalf("a key that is not there yet: %v", err)
		}
	}
	if n := p.fetches.Load() - fetches; n != 0 {
		t.Errorf("%d fetches within ten seconds", n)
	}
	p.rotated.Store(true)
	clock.Add(11)
	if name, err := j.Principal(request(token("next"))); name != "ada" {
		t.Fatalf("a new key: %v", err)
	}
	// The provider is away: keys last an hour.
	p.down.Store(true)
	clock.Add(3500)
	if name, err := j.Principal(request(token("ed"))); name != "ada" {
		t.Fatalf("keys of 3500 seconds ago: %v", err)
	}
	clock.Add(200)
	if _, err := j.Principal(request(token("ed"))); !errors.As(err, &unavailable) {
		t.Fatalf("keys of more than an hour ago: %v", err)
	}
}

func TestProviders(t *testing.T) {
	for _, bad := range []auth.Provider{
		{Keys: "http://id.example/keys", Issuer: "i", Audience: "a"}, {Keys: "file:///keys", Issuer: "i", Audience: "a"},
		{Keys: "", Issuer: "i", Audience: "a"}, {Keys: "https://user:secret@id.example/", Issuer: "i", Audience: "a"},
		{Keys: "https://id.example/keys", Audience: "a"}, {Keys: "https://id.example/keys", Issuer: "i"}, {Keys: "https://%zz", Issuer: "i", Audience: "a"},
	} {
		if _, err := auth.NewJWKS(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	p := provider(t)
	for path, want := range map[string]string{"/redirect": "status 302", "/keys": "status 500"} {
		p.down.Store(path == "/keys")
		j, err := auth.NewJWKS(auth.Provider{Keys: p.server.URL + path, Issuer: "i", Audience: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, body := range []string{"", "[]", "{}", `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"AAAA"}]}`, strings.Repeat(" ", 2<<20)} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		j, err := auth.NewJWKS(auth.Provider{Keys: s.URL, Issuer: "i", Audience: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Fetch(t.Context()); err == nil {
			t.Errorf("a set of %.30q is taken", body)
		}
		s.Close()
	}
}

// TestFailuresHaveNoURL holds that what is logged of a failing provider does not have its URL,
// which can have a secret.
func TestFailuresHaveNoURL(t *testing.T) {
	p := provider(t)
	p.server.Close()
	j, err := auth.NewJWKS(auth.Provider{Keys: p.server.URL + "/keys?secret", Issuer: "i", Audience: "a"})
	if err != nil {
		t.Fatal(err)
	}
	err = j.Fetch(t.Context())
	if err == nil {
		t.Fatal("a provider that is away answers")
	}
	if text := auth.Reason(err); strings.Contains(text, "secret") || strings.Contains(text, "http") {
		t.Errorf("%s", text)
	}
}

func TestTokens(t *testing.T) {
	store := blob.NewMemory()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	f := access.NewFollower(store)
	a := auth.Tokens(f, func() time.Time { return now })
	var unavailable *auth.UnavailableError
	if _, err := a.Principal(request("Bearer x")); !errors.As(err, &unavailable) {
		t.Fatalf("before the first poll: %v", err)
	}
	soon := now.Add(time.Hour)
	token, _, err := access.NewToken(t.Context(), store, "ada", now, &soon)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if name, err := a.Principal(request("Bearer " + token)); name != "ada" || err != nil {
		t.Fatalf("%q, %v", name, err)
	}
	now = soon
	var refused *auth.RefusedError
	if _, err := a.Principal(request("Bearer " + token)); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "expired") {
		t.Fatalf("%v", err)
	}
}

// FuzzPrincipal holds that no header is anything but refused.
func FuzzPrincipal(f *testing.F) {
	store := blob.NewMemory()
	follower := access.NewFollower(store)
	if err := follower.Poll(f.Context()); err != nil {
		f.Fatal(err)
	}
	tokens := auth.Tokens(follower, nil)
	for _, seed := range []string{"", "Bearer", "Bearer x", "bearer urlake_" + strings.Repeat("A", 43), "Basic x", "Bearer a.b.c", "Bearer eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	}))
	f.Cleanup(server.Close)
	jwks, err := auth.NewJWKS(auth.Provider{Keys: server.URL, Issuer: "i", Audience: "a"})
	if err == nil {
		err = jwks.Fetch(f.Context())
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"] = []string{header}
		for _, a := range []auth.Authenticator{tokens, jwks} {
			name, err := a.Principal(r)
			var refused *auth.RefusedError
			if name != "" || !errors.As(err, &refused) {
				t.Fatalf("%q is %q, %v", header, name, err)
			}
		}
	})
}
