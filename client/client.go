// Package client asks a urlake read server which datasets contain a domain, which URLs of the
// domain a dataset holds, and what changed between two versions. It uses nothing else of urlake.
//
//	c, err := client.New("http://localhost:8080", client.Options{})
//	domain, err := c.Domain(ctx, "example.com", client.At{})
//	for u, err := range c.URLs(ctx, "example.com", "smallweb", client.URLsOptions{}) { … }
//
// Lists come as iterators that ask for page after page. All pages of a list are of one version,
// also if another one is published meanwhile. An iterator ends after its first error: without one,
// the list is complete.
//
// An error answer of the server is a *Problem, whose Kind says what is wrong. A server that answers
// 429 or 503 is asked again after the time that it names in Retry-After.
//
// The server's page /api describes the interface, and docs/api.md what the answers mean. Members of
// answers that this package does not know are ignored.
package client

import (
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
)

const (
	// DefaultAttempts and DefaultMaxWait are what Options that are zero mean.
	DefaultAttempts = 5
	DefaultMaxWait  = 30 * time.Second

	// firstWait is the wait after a first 429 or 503 without Retry-After. It doubles each time.
	firstWait = 500 * time.Millisecond
	// maxProblem is how many bytes of an error answer are read.
	maxProblem = 1 << 20
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
	// returned as a *Problem.
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

// Problem is an error answer of the server: a problem document (RFC 9457). Kinds and what to do
// about each are listed on the server's page /api.
type Problem struct {
	// Type is the URL of the server's explanation, Kind its last part, such as unknown-dataset.
	// Both are empty if the answer was no problem document, as one of a proxy.
	Type, Kind string
	// Status is the HTTP status.
	Status int
	// Title is the same for all problems of a kind, Detail is about the request. It may be empty.
	Title, Detail string
	// Members are further members that are text, such as parameter, reason or file.
	Members map[string]string
	// RetryAfter is how long to wait before another attempt, 0 if the server named no time.
	RetryAfter time.Duration
}

func (p *Problem) Error() string {
	text := "urlake: " + strconv.Itoa(p.Status) + " " + p.Title
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// IsKind reports whether err is or wraps a *Problem of that kind.
func IsKind(err error, kind string) bool {
	var p *Problem
	return errors.As(err, &p) && p.Kind == kind
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
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// get asks for path, which begins with a slash, and decodes the answer into v.
func (c *Client) get(ctx context.Context, path string, v any) error {
	wait := firstWait
	for attempt := 1; ; attempt++ {
		err := c.ask(ctx, path, v)
		var p *Problem
		busy := errors.As(err, &p) && (p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable)
		if !busy || attempt == c.opt.Attempts {
			return err
		}
		pause := min(wait, c.opt.MaxWait)
		if wait *= 2; p.RetryAfter > 0 {
			pause = p.RetryAfter
		}
		if pause > c.opt.MaxWait {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (while waiting after: %w)", context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

// ask sends one request and decodes its answer into v.
func (c *Client) ask(ctx context.Context, path string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.base.String(), "/")+path, nil)
	if err != nil {
		return fmt.Errorf("urlake: %w", err)
	}
	r.Header.Set("Accept", "application/json, application/problem+json")
	if c.opt.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	resp, err := c.opt.HTTP.Do(r)
	if err != nil {
		return fmt.Errorf("urlake: %w", err)
	}
	defer resp.Body.Close()
	contentType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK {
		return problem(resp, contentType)
	}
	if contentType != "application/json" {
		return fmt.Errorf("urlake: GET %s is %q, not JSON; is %s a urlake server?", path, contentType, c.base)
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("urlake: GET %s: %w", path, err)
	}
	return nil
}

// problem reads an error answer.
func problem(resp *http.Response, contentType string) error {
	p := &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode), RetryAfter: retryAfter(resp.Header)}
	if contentType != "application/problem+json" {
		return p
	}
	var members map[string]any
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&members); err != nil {
		return p // the status is what is known
	}
	for name, value := range members {
		text, ok := value.(string)
		if !ok {
			continue
		}
		switch name {
		case "type":
			p.Type, p.Kind = text, text[strings.LastIndexByte(text, '/')+1:]
			if u, err := resp.Request.URL.Parse(text); err == nil {
				p.Type = u.String()
			}
		case "title":
			p.Title = text
		case "detail":
			p.Detail = text
		default:
			if p.Members == nil {
				p.Members = map[string]string{}
			}
			p.Members[name] = text
		}
	}
	return p
}

// retryAfter is the time that a server asks to wait: seconds, or the time until a date.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}
