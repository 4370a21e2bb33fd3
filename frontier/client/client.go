// Package client speaks HTTP with a frontier: it adds URLs, imports and lists visits, asks what is
// known, and changes domains. A frontier that is busy, restarts or moves shards from one process to
// another is asked again; see Options.Patience. A batch is held in memory until it is answered,
// and nothing else is.
//
// docs/frontier.md describes the interface.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/lake/ingest/allow"
)

const (
	// DefaultPatience is how long a request without any progress is tried again.
	DefaultPatience = 30 * time.Second
	// firstPause is the pause before the second attempt; it doubles up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// answerTimeout bounds the time until the first byte of an answer.
	answerTimeout = 60 * time.Second
	// maxLine bounds a line of an answer: a visit has a URL and what the crawler said of it.
	maxLine = 1 << 20
	// maxProblem is how much is read of an answer that says what is wrong.
	maxProblem = 4 << 10
)

// Options of a client.
type Options struct {
	// Patience is how long the client goes on while nothing succeeds, DefaultPatience if it is 0.
	Patience time.Duration
	// HTTP is the client to use; nil for one with the time limits of this package.
	HTTP *http.Client
}

// Client asks one frontier. It is safe for concurrent use.
type Client struct {
	base     string
	patience time.Duration
	http     *http.Client
}

// RefusedError is an answer that a repetition does not change.
type RefusedError struct {
	// Status is the HTTP status, Request the method and URL.
	Status  int
	Request string
	Detail  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Request, e.Status, http.StatusText(e.Status), e.Detail)
}

// CheckURL returns an error unless base is the URL of a frontier: http or https, without user info,
// query and fragment.
func CheckURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return errors.New("it is no URL; use e.g. http://127.0.0.1:7070")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("%q is no URL of a frontier; use e.g. http://127.0.0.1:7070", u.Redacted())
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("%q has a user, a query or a fragment; use e.g. http://127.0.0.1:7070", u.Redacted())
	}
	return nil
}

// New returns a client of the frontier at base, such as http://127.0.0.1:7070. It follows no
// redirection, which no frontier sends.
func New(base string, o Options) (*Client, error) {
	if err := CheckURL(base); err != nil {
		return nil, err
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
			ResponseHeaderTimeout: answerTimeout, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Client{base: strings.TrimRight(base, "/"), patience: o.Patience, http: o.HTTP}, nil
}

// Dial is New for a step of a workflow, which connects only to the targets that its worker allows
// (package allow).
func Dial(ctx context.Context, base string) (*Client, error) {
	c, err := New(base, Options{})
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q has no port from 0 to 65535", base)
	}
	return c, allow.TargetsOf(ctx).Check(u.Hostname(), uint16(n))
}

// busyError is an answer or a failure after which the same request may succeed.
type busyError struct {
	err   error
	after time.Duration // what Retry-After says
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

// send sends a request once. The caller closes the body of the answer, which has the status 200.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	name := method + " " + c.base + path
	if at := strings.IndexByte(name, '?'); at >= 0 {
		name = name[:at] // a query may have URLs that are secrets
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, &busyError{err: fmt.Errorf("%s: %w", name, err)}
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		problem.Detail = strings.TrimSpace(string(data))
	}
	refused := &RefusedError{Status: res.StatusCode, Request: name, Detail: problem.Detail}
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return nil, &busyError{err: refused, after: min(time.Duration(seconds)*time.Second, maxPause)}
	}
	return nil, refused
}

// again calls try until it has no *busyError, or none succeeds for as long as the client has
// patience. Try says whether it has made progress.
func (c *Client) again(ctx context.Context, try func() (progress bool, err error)) error {
	last, pause := time.Now(), firstPause
	for {
		progress, err := try()
		if progress {
			last, pause = time.Now(), firstPause
		}
		var busy *busyError
		if !errors.As(err, &busy) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := max(pause, busy.after)
		if time.Since(last)+wait > c.patience {
			return fmt.Errorf("%w; tried for %s", err, time.Since(last).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		pause = min(2*pause, maxPause)
	}
}

// Result is what became of a line: a word and, of what was refused, the reason.
type Result struct {
	Result string `json:"result"`
	Reason string `json:"reason"`
}

// The words of results.
const (
	Added    = "added"
	Known    = "known"
	Updated  = "updated"
	Rejected = "rejected"

	elsewhere = "elsewhere"
)

// lines sends lines and returns a result for each, in order. Lines that nobody serves at the moment
// are sent again, and so is everything that an answer without an end left open: what a line asks
// for may therefore be done twice, so only such lines may be sent that do nothing the second time.
func (c *Client) lines(ctx context.Context, path string, lines [][]byte) ([]Result, error) {
	results := make([]Result, len(lines))
	open := make([]int, len(lines))
	for i := range open {
		open[i] = i
	}
	err := c.again(ctx, func() (progress bool, err error) {
		if len(open) == 0 {
			return true, nil
		}
		var body []byte
		for _, i := range open {
			body = append(append(body, lines[i]...), '\n')
		}
		res, err := c.send(ctx, http.MethodPost, path, body)
		if err != nil {
			return false, err
		}
		defer res.Body.Close()
		var left []int
		n := 0
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, maxLine)
		for n < len(open) && in.Scan() {
			r, err := parseResult(in.Bytes())
			if err != nil {
				return false, fmt.Errorf("POST %s%s: line %d of the answer: %w", c.base, path, n+1, err)
			}
			if r.Result == elsewhere {
				left = append(left, open[n])
			} else {
				results[open[n]] = r
			}
			n++
		}
		answered := n - len(left)
		cut := n < len(open)
		left = append(left, open[n:]...)
		open = left
		switch {
		case cut:
			return answered > 0, &busyError{err: fmt.Errorf("POST %s%s: the answer ends after %d of its lines: %w", c.base, path, n,
				errors.Join(in.Err(), io.ErrUnexpectedEOF))}
		case len(open) > 0:
			return answered > 0, &busyError{err: fmt.Errorf("POST %s%s: no process serves the queues of %d lines", c.base, path, len(open))}
		}
		return true, nil
	})
	return results, err
}

// parseResult parses a line of an answer. Nearly all are one of two.
func parseResult(line []byte) (r Result, err error) {
	switch string(line) {
	case `{"result":"added"}`:
		return Result{Result: Added}, nil
	case `{"result":"known"}`:
		return Result{Result: Known}, nil
	}
	err = json.Unmarshal(line, &r)
	return r, err
}

// post sends a JSON document until it is answered, and decodes the answer.
func (c *Client) call(ctx context.Context, method, path string, q, answer any) error {
	var body []byte
	if q != nil {
		var err error
		if body, err = json.Marshal(q); err != nil {
			return fmt.Errorf("%s %s%s: %w", method, c.base, path, err)
		}
	}
	return c.again(ctx, func() (bool, error) {
		res, err := c.send(ctx, method, path, body)
		if err != nil {
			return false, err
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			return false, &busyError{err: fmt.Errorf("%s %s%s: %w", method, c.base, path, err)}
		}
		if err := json.Unmarshal(data, answer); err != nil {
			return false, fmt.Errorf("%s %s%s: %w", method, c.base, path, err)
		}
		return true, nil
	})
}
