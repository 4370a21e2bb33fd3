package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/serve/lru"
)

const (
	// leeway is how far the clock of the identity provider may be off.
	leeway = 30 * time.Second
	// keysEvery is how often the keys are fetched, keysAgain how soon after that they are fetched
	// once more for a token of an unknown key, or after a failure.
	keysEvery = 5 * time.Minute
	keysAgain = 10 * time.Second
	// keysLife is how long keys are used that could not be fetched again. A key that the provider
	// has withdrawn is used at most that long.
	keysLife = time.Hour
	// fetchTimeout and maxKeys bound one fetch.
	fetchTimeout = 5 * time.Second
	maxKeys      = 1 << 20
	// minRSA is the shortest RSA key, in bits.
	minRSA = 2048
)

// algorithms are the signatures that are taken. They are named here and not by the token, which
// could ask for none, or for a shared secret that is the public key.
var algorithms = []string{"RS256", "ES256", "EdDSA"}

// Provider is an identity provider that signs JSON Web Tokens.
type Provider struct {
	// Keys is the URL of its key set. It is https, or http of this machine.
	Keys string
	// Issuer and Audience are what the tokens have to say.
	Issuer, Audience string
	// Client fetches the keys. It follows no redirects. The default is a client of its own.
	Client *http.Client
	// Now is the clock, by default time.Now.
	Now func() time.Time
	// Log receives failed fetches. The default is slog's default logger.
	Log *slog.Logger
}

// JWKS authenticates by JSON Web Tokens. A token has to be signed by a key of the provider's set,
// by RS256, ES256 or EdDSA, to name the issuer and the audience, and to expire; the subject is the
// name of the principal.
type JWKS struct {
	p      Provider
	parser *jwt.Parser

	keys     atomic.Pointer[keySet] // nil before the first fetch
	fetching sync.Mutex
	tried    atomic.Int64 // when the last fetch began, in nanoseconds of Provider.Now

	hits, misses atomic.Int64 // tokens that were verified before, and others
}

// keySet is the set as it was fetched at a time, with the tokens that it has verified.
type keySet struct {
	keys     []key
	at       time.Time
	verified verified
}

type key struct {
	id, algorithm string
	public        any
}

// NewJWKS returns an authenticator that has no keys before Run or Fetch.
func NewJWKS(p Provider) (*JWKS, error) {
	u, err := url.Parse(p.Keys)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, fmt.Errorf("the URL of the key set has to be https://HOST/…; http is for this machine only")
	}
	if p.Issuer == "" || p.Audience == "" {
		return nil, fmt.Errorf("an issuer and an audience are needed: without them tokens that the provider made for others would be taken")
	}
	if p.Client == nil {
		p.Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	client := *p.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.Client = &client
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	return &JWKS{p: p, parser: jwt.NewParser(
		jwt.WithValidMethods(algorithms), jwt.WithIssuer(p.Issuer), jwt.WithAudience(p.Audience),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(p.Now), jwt.WithStrictDecoding(),
	)}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Run keeps the keys up to date until ctx ends.
func (j *JWKS) Run(ctx context.Context) {
	failing := false
	for {
		pause := keysEvery
		err := j.Fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			pause = keysAgain
			if !failing {
				j.p.Log.LogAttrs(ctx, slog.LevelWarn, "fetching the keys of the identity provider fails", slog.String("error", reason(err)))
			}
		} else if failing {
			j.p.Log.LogAttrs(ctx, slog.LevelInfo, "fetching the keys of the identity provider works again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// reason is the text of an error of a fetch without the URL.
func reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// Fetch fetches the keys. After an error the keys are those that were fetched before.
func (j *JWKS) Fetch(ctx context.Context) error {
	j.fetching.Lock()
	defer j.fetching.Unlock()
	return j.fetch(ctx)
}

func (j *JWKS) fetch(ctx context.Context) error {
	began := j.p.Now()
	j.tried.Store(began.UnixNano())
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.p.Keys, nil)
	if err != nil {
		return err
	}
	resp, err := j.p.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the provider answers with status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys+1))
	if err != nil {
		return err
	}
	if len(data) > maxKeys {
		return fmt.Errorf("the key set has more than %d bytes", maxKeys)
	}
	keys, err := parseKeys(data)
	if err != nil {
		return err
	}
	j.keys.Store(&keySet{keys: keys, at: began})
	return nil
}

// parseKeys returns those keys of a set that can verify one of the algorithms.
func parseKeys(data []byte) ([]key, error) {
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the answer is no key set")
	}
	var keys []key
	for _, m := range set.Keys {
		if m.USE != "" && m.USE != jwkset.UseSig {
			continue
		}
		j, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		if err != nil {
			continue // of a kind that is not known, or broken: others can be used
		}
		k := key{id: m.KID, public: j.Key()}
		switch public := k.public.(type) {
		case *rsa.PublicKey:
			if k.algorithm = "RS256"; public.N.BitLen() < minRSA {
				continue
			}
		case *ecdsa.PublicKey:
			if k.algorithm = "ES256"; public.Curve != elliptic.P256() {
				continue
			}
		case ed25519.PublicKey:
			k.algorithm = "EdDSA"
		default:
			continue // a secret, for example, which no set should have
		}
		if alg := m.ALG.String(); alg != "" && alg != k.algorithm {
			continue // a key has one use
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no key for RS256, ES256 or EdDSA")
	}
	return keys, nil
}

// find returns the key that a token names. A token that names none needs a set with one key of its
// algorithm.
func (s *keySet) find(id, algorithm string) (any, bool) {
	var found any
	n := 0
	for i := range s.keys {
		if k := &s.keys[i]; k.algorithm == algorithm && (id == "" || k.id == id) {
			found = k.public
			n++
		}
	}
	return found, n == 1
}

var (
	errUnknownKey = errors.New("unknown key")
	errCritical   = errors.New("the header has critical extensions")
)

// key finds the key of a token whose header was read, and the set that has it. A key that is
// unknown may be new, so the set is fetched again, unless that was done just now or is being done:
// forged tokens cost no fetch each.
func (j *JWKS) key(ctx context.Context, t *jwt.Token) (any, *keySet, error) {
	if _, has := t.Header["crit"]; has { // extensions that must be understood; none is (RFC 7515 §4.1.11)
		return nil, nil, errCritical
	}
	id, ok := t.Header["kid"].(string)
	if _, has := t.Header["kid"]; has && !ok {
		return nil, nil, errUnknownKey
	}
	set := j.fresh()
	if set != nil {
		if k, ok := set.find(id, t.Method.Alg()); ok {
			return k, set, nil
		}
	}
	again := j.p.Now().Sub(time.Unix(0, j.tried.Load())) >= keysAgain
	if again && j.fetching.TryLock() {
		err := j.fetch(context.WithoutCancel(ctx))
		j.fetching.Unlock()
		if err == nil {
			set = j.fresh()
		}
	}
	if set == nil {
		return nil, nil, &UnavailableError{errors.New("the keys of the identity provider could not be fetched")}
	}
	if k, ok := set.find(id, t.Method.Alg()); ok {
		return k, set, nil
	}
	return nil, nil, errUnknownKey
}

// fresh returns the keys, nil if there are none or they are too old.
func (j *JWKS) fresh() *keySet {
	if set := j.keys.Load(); set != nil && j.p.Now().Sub(set.at) < keysLife {
		return set
	}
	return nil
}

// Stats counts the tokens that were found among those that were verified before, and those that
// were not. Entries are the tokens that are remembered now.
func (j *JWKS) Stats() lru.Stats {
	st := lru.Stats{Hits: j.hits.Load(), Misses: j.misses.Load()}
	if set := j.keys.Load(); set != nil {
		st.Entries = set.verified.entries()
		st.Bytes = st.Entries * verifiedBytes
	}
	return st
}

// Principal implements Authenticator.
func (j *JWKS) Principal(r *http.Request) (string, error) {
	text, err := bearer(r)
	if text == "" || err != nil {
		return "", err
	}
	hash := hashed(text)
	set := j.fresh()
	if set != nil {
		if name, ok := set.verified.find(hash, j.p.Now()); ok {
			j.hits.Add(1)
			return name, nil
		}
	}
	j.misses.Add(1)
	var claims jwt.RegisteredClaims
	_, err = j.parser.ParseWithClaims(text, &claims, func(t *jwt.Token) (k any, err error) {
		k, set, err = j.key(r.Context(), t)
		return k, err
	})
	var unavailable *UnavailableError
	switch {
	case err == nil:
	case errors.As(err, &unavailable):
		return "", unavailable
	case errors.Is(err, jwt.ErrTokenExpired):
		return "", &RefusedError{"the token has expired"}
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return "", &RefusedError{"the token is not valid yet"}
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return "", &RefusedError{"the token is for another audience"}
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return "", &RefusedError{"the token is of another issuer"}
	default: // the text of other errors can repeat the token
		return "", &RefusedError{"the token is not valid"}
	}
	if access.CheckName(claims.Subject) != nil {
		return "", &RefusedError{"the token has no subject that can be the name of a reader"}
	}
	set.verified.add(hash, claim{name: claims.Subject, expires: claims.ExpiresAt.Time})
	return claims.Subject, nil
}
