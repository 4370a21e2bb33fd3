package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"sync"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/auth"
)

// The values of --auth. A key set has a URL.
const (
	authOff    = "off"
	authTokens = "tokens"
	authJWKS   = "jwks="
)

// authentication is what --auth asks for. It is zero for off.
type authentication struct {
	follower *access.Follower // of the readers of datasets
	options  []api.Option
	run      func(context.Context) // keeps what it needs up to date, nil if there is nothing
}

func authenticate(o options, store blob.Store, log *slog.Logger) (a authentication, err error) {
	keys, jwks := strings.CutPrefix(o.auth, authJWKS)
	switch {
	case !jwks && (o.issuer != "" || o.audience != ""):
		return a, cli.Usagef("--auth-issuer and --auth-audience are for --auth jwks=URL")
	case o.auth == authOff:
		return a, nil
	case o.auth == authTokens:
		a.follower = access.NewFollower(store)
		a.options = []api.Option{api.WithAuth(auth.Tokens(a.follower, nil))}
	case jwks:
		provider, err := auth.NewJWKS(auth.Provider{Keys: keys, Issuer: o.issuer, Audience: o.audience, Log: log})
		if err != nil {
			return a, cli.Usagef("--auth jwks=URL with --auth-issuer and --auth-audience: %w", err)
		}
		a.follower, a.run = access.NewFollower(store), provider.Run
		a.options = []api.Option{api.WithAuth(provider)}
	default:
		return a, cli.Usagef("--auth %q is unknown; use off, tokens, or jwks=URL", o.auth)
	}
	return a, nil
}

// address is where clients reach the server.
func (o *options) address() string {
	switch {
	case o.listen != "":
		return o.listen
	case o.auth != authOff:
		return authListen
	}
	return openListen
}

// handleProfiles adds the profiles of the process.
func handleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// certificate is a certificate with its key that is read again when one of the two files changes.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	files  [2]os.FileInfo // as they were last read
	loaded *tls.Certificate
	failed string // why the files as they are now cannot be used, "" if they can
}

// newCertificate reads both files. From then on files that cannot be used are only logged: the
// certificate stays the last one that can.
func newCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
}

// current returns the certificate for a handshake. To look at two files costs little beside one.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := c.load(); {
	case err == nil:
		c.failed = ""
	case err.Error() != c.failed:
		c.failed = err.Error()
		c.log.Warn("the certificate cannot be read again; the one before stays", "error", c.failed)
	}
	return c.loaded
}

// load reads the files if they are others than those that were read, or have changed.
func (c *certificate) load() error {
	var files [2]os.FileInfo
	for i, name := range []string{c.cert, c.key} {
		var err error
		if files[i], err = os.Stat(name); err != nil {
			return err
		}
	}
	if c.loaded != nil && same(files[0], c.files[0]) && same(files[1], c.files[1]) {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err // the other file may still have to be written, so it is tried again
	}
	if c.loaded != nil {
		c.log.Info("the certificate has changed")
	}
	c.loaded, c.files = &loaded, files
	return nil
}

// same reports whether a file is what it was.
func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
