// Package client asks a urlake read server: which datasets contain a domain, which URLs of the
// domain a dataset holds, who holds exactly one URL, and what changed between two versions. It has
// everything of the server's HTTP interface, and uses nothing else of urlake.
//
//	c, err := client.New("http://localhost:8080", client.Options{})
//	domain, err := c.Domain(ctx, "example.com", client.Query{})
//	for u, err := range c.URLs(ctx, "example.com", "smallweb", client.URLsOptions{}) { … }
//
// Lists come as iterators that ask for page after page, or read streams. All pages of a list are of
// one version, also if another one is published meanwhile. An iterator ends after its first error:
// without one, the list is complete. A stream that breaks off is the error [ErrCut].
//
// An error answer of the server is a [*Problem], whose [Kind] says what is wrong:
//
//	if errors.Is(err, client.UnknownDataset) { … }
//
// A server that answers 429 or 503 is asked again after the time that it names in Retry-After.
// Nothing else is repeated.
//
// The server's page /api describes the interface, and docs/api.md what the answers mean. Members of
// answers that this package does not know are ignored.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// DefaultAttempts and DefaultMaxWait are what Options that are zero mean.
	DefaultAttempts = 5
	DefaultMaxWait  = 30 * time.Second

	// firstWait is the mean of the wait after a first 429 or 503 without Retry-After. It doubles
	// each time.
	firstWait = 500 * time.Millisecond
)

// Options are the settings of a Client. The zero value is usable.
type Options struct {
	// HTTP sends the requests. Nil means http.DefaultClient, which has no timeout: contexts bound
	// how long a request may take.
	HTTP *http.Client
	// Token is sent as Authorization: Bearer if it is not empty.
	Token string
	// Attempts is how often a request is sent at most while the answer is 429 or 503. 1 means no
	// retries.
	Attempts int
	// MaxWait is the longest wait before a retry. If the server asks for more, its answer is
	// returned as a *Problem. So a request waits at most Attempts-1 times MaxWait.
	MaxWait time.Duration
}

// Client asks one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	opt  Options
}

// New returns a client of the server at base, such as https://urls.example.org. A path in base is
// put before the paths of all requests, for a server behind a proxy.
func New(base string, opt Options) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("urlake: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("urlake: %q is no address of a server; use e.g. http://localhost:8080", base)
	}
	if opt.HTTP == nil {
		opt.HTTP = http.DefaultClient
	}
	if opt.Attempts <= 0 {
		opt.Attempts = DefaultAttempts
	}
	if opt.MaxWait <= 0 {
		opt.MaxWait = DefaultMaxWait
	}
	return &Client{base: u, opt: opt}, nil
}

// segment escapes a domain, URL or name as one element of a path. A server would take . and .. for
// steps in the path, if they were not escaped.
func segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

// at returns the path with a query, without parameters that are empty.
func at(path string, parameters ...string) string {
	v := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			v.Set(parameters[i], parameters[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// number formats n for a query, 0 as "".
func number[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// flag formats a parameter that is there if it is set.
func flag(set bool, text string) string {
	if !set {
		return ""
	}
	return text
}

// request is what is asked. Its path begins with a slash. Accept is the media type of the answer.
type request struct {
	path, accept string
	// body is sent by POST, if contentType is not empty.
	body        []byte
	contentType string
}

func (q *request) String() string {
	if q.contentType != "" {
		return "POST " + q.path
	}
	return "GET " + q.path
}

// get asks for path and decodes the answer, a JSON document, into v.
func (c *Client) get(ctx context.Context, path string, v any) error {
	q := &request{path: path, accept: "application/json"}
	resp, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("urlake: %s: %w", q, err)
	}
	return nil
}

// text asks for path and returns the whole answer.
func (c *Client) text(ctx context.Context, path, accept string) ([]byte, error) {
	q := &request{path: path, accept: accept}
	resp, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("urlake: %s: %w", q, err)
	}
	return body, nil
}

// send asks until there is an answer that is not 429 or 503, as the options allow. The answer has
// status 200 and is of the type that is accepted.
func (c *Client) send(ctx context.Context, q *request) (*http.Response, error) {
	waits := backoff.NewExponentialBackOff()
	// A wait is up to half longer or shorter than the interval.
	waits.Multiplier, waits.MaxInterval = 2, c.opt.MaxWait*2/3
	waits.InitialInterval = min(firstWait, waits.MaxInterval)
	var busy *Problem
	resp, err := backoff.Retry(ctx, func() (*http.Response, error) {
		resp, err := c.sendOnce(ctx, q)
		busy = nil
		var p *Problem
		if !errors.As(err, &p) || p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable ||
			p.RetryAfter > c.opt.MaxWait {
			return resp, backoff.Permanent(err)
		}
		if busy = p; p.RetryAfter > 0 {
			return nil, errors.Join(err, &backoff.RetryAfterError{Duration: p.RetryAfter})
		}
		return nil, err
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(uint(c.opt.Attempts)), backoff.WithMaxElapsedTime(0))
	var permanent *backoff.PermanentError // the last attempt's error comes as it is
	switch {
	case err == nil:
		return resp, nil
	case busy != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w (while waiting after: %w)", context.Cause(ctx), busy)
	case busy != nil:
		return nil, busy
	case errors.As(err, &permanent):
		return nil, permanent.Unwrap()
	}
	return nil, err
}

// sendOnce is send without retries.
func (c *Client) sendOnce(ctx context.Context, q *request) (*http.Response, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if q.contentType != "" {
		method, body = http.MethodPost, bytes.NewReader(q.body)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+q.path, body)
	if err != nil {
		return nil, fmt.Errorf("urlake: %w", err)
	}
	r.Header.Set("Accept", q.accept+", application/problem+json")
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	if c.opt.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	resp, err := c.opt.HTTP.Do(r)
	if err != nil {
		return nil, fmt.Errorf("urlake: %w", err)
	}
	contentType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		err = problem(resp, contentType)
	case contentType != q.accept:
		err = fmt.Errorf("urlake: %s is %q, not %s; is %s a urlake server?", q, contentType, q.accept, c.base.Redacted())
	default:
		return resp, nil
	}
	resp.Body.Close()
	return nil, err
}
