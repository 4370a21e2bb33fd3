package example

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/urlake/urlake/frontier/journal"
)

// page is the answer to a request.
type page struct {
	status int
	header http.Header
	// body is empty unless the content type is wanted. Cut says that it was longer.
	body []byte
	cut  bool
	// redirect is where a redirect leads to, retryAfter how long the server wants to be left alone.
	redirect   string
	retryAfter time.Duration
}

// newClient returns a client that follows no redirect and uses no proxy. Pages of strangers must
// not make it ask services that trust their own network, so it connects to public addresses only.
// It looks at the address of each connection after its name was resolved: before, there would be
// time to change it.
func newClient(o *Options) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !o.AllowPrivate {
		dialer.Control = ssrf.New(ssrf.WithAnyPort()).Safe
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, o.resolve(address))
			},
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConns: 1000,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// resolve returns the address to dial instead of that of a host, as Options.Resolve says.
func (o *Options) resolve(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	for name, to := range o.Resolve {
		if suffix, ok := strings.CutPrefix(name, "*"); host == name || ok && strings.HasSuffix(host, suffix) {
			return to
		}
	}
	return address
}

// get fetches a URL. Of the body it reads max bytes, if the content type is one of types or types
// is empty.
func (c *Crawler) get(ctx context.Context, address string, types []string, max int64) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", c.o.UserAgent)
	req.Header.Set("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.5")
	res, err := c.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	p := &page{status: res.StatusCode, header: res.Header, retryAfter: retryAfter(res.Header.Get("Retry-After"))}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		p.redirect = resolve(req.URL, res.Header.Get("Location"))
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if len(types) == 0 || slices.Contains(types, kind) {
		p.body, err = io.ReadAll(io.LimitReader(res.Body, max+1))
		if p.cut = int64(len(p.body)) > max; p.cut {
			p.body = p.body[:max]
		}
	}
	return p, err
}

// retryAfter reads a Retry-After: seconds or a date. More than a day is taken for a day.
func retryAfter(value string) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), 24*time.Hour)
}

// store writes a body to a file of the folder for pages, named after its hash, and returns its path
// there. It is on the disk before the frontier learns of it.
func store(dir string, body []byte) (string, error) {
	sum := sha256.Sum256(body)
	name := hex.EncodeToString(sum[:])
	name = filepath.Join(name[:2], name)
	path := filepath.Join(dir, name)
	folder := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil {
		return name, journal.SyncDir(folder) // who wrote it may have died before this
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(folder, ".tmp-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(body)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return name, errors.Join(journal.SyncDir(folder), journal.SyncDir(dir))
}
