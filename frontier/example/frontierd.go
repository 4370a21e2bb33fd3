package example

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// frontierd is the frontier as its clients see it: docs/frontier.md describes the interface.
type frontierd struct {
	base, crawl string
	client      http.Client
	log         *slog.Logger
}

// callTimeout bounds a request that does not wait, firstPause and lastPause the time between two
// attempts of one.
const (
	callTimeout = 30 * time.Second
	firstPause  = 100 * time.Millisecond
	lastPause   = 5 * time.Second
)

// claim is a URL that the crawler has to fetch, until Expires.
type claim struct {
	Lease    string    `json:"lease"`
	URL      string    `json:"url"`
	Domain   string    `json:"domain"`
	Depth    uint32    `json:"depth"`
	Priority uint16    `json:"priority"`
	Expires  time.Time `json:"expires"`
	// RobotsUntil is until when the frontier has the robots.txt of the host.
	RobotsUntil time.Time `json:"robots_until"`
}

// link is a line of POST /v1/urls.
type link struct {
	URL      string            `json:"url"`
	Crawl    string            `json:"crawl"`
	Priority uint16            `json:"priority,omitzero"`
	Depth    uint32            `json:"depth"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// result is a line of POST /v1/results.
type result struct {
	Lease      string  `json:"lease"`
	Status     int     `json:"status,omitzero"`
	Error      string  `json:"error,omitzero"`
	Final      bool    `json:"final,omitzero"`
	Content    string  `json:"content,omitzero"`
	Redirect   string  `json:"redirect,omitzero"`
	RetryAfter float64 `json:"retry_after,omitzero"`
}

// refused is an answer that no repetition changes.
type refused struct{ text string }

func (r refused) Error() string { return r.text }

// call sends a request until it is answered, and returns the answer. A frontier that is away comes
// back, so only the end of ctx and a refusal are errors.
func (f *frontierd) call(ctx context.Context, method, path string, body []byte, timeout time.Duration) ([]byte, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		answer, wait, err := f.once(ctx, method, path, body, timeout)
		var no refused
		switch {
		case err == nil, errors.As(err, &no):
			return answer, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case pause == firstPause:
			f.log.Warn("the frontier does not answer; trying again", "error", err)
		}
		if !sleep(ctx, max(pause, wait)) {
			return nil, context.Cause(ctx)
		}
	}
}

func (f *frontierd) once(ctx context.Context, method, path string, body []byte, timeout time.Duration) (answer []byte, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, refused{err.Error()}
	}
	res, err := f.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		text := fmt.Sprintf("%s %s: %s: %s", method, path, res.Status, bytes.TrimSpace(answer))
		if res.StatusCode < 500 {
			return nil, 0, refused{text}
		}
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		wait, err = time.Duration(seconds)*time.Second, errors.New(text)
	}
	return answer, wait, err
}

// lines sends a line for each value until each has an answer, and returns what became of each.
func lines[T any](ctx context.Context, f *frontierd, path string, values []T) ([]string, error) {
	results := make([]string, len(values))
	open := make([]int, len(values))
	for i := range open {
		open[i] = i
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var body bytes.Buffer
		for _, i := range open {
			if err := json.MarshalWrite(&body, values[i]); err != nil {
				return nil, err
			}
			body.WriteByte('\n')
		}
		answer, err := f.call(ctx, http.MethodPost, path, body.Bytes(), callTimeout)
		if err != nil {
			return nil, err
		}
		var again []int
		got := bytes.Split(bytes.TrimSpace(answer), []byte("\n"))
		for n, i := range open {
			var line struct{ Result, Reason string }
			if n < len(got) {
				_ = json.Unmarshal(got[n], &line, json.MatchCaseInsensitiveNames(true))
			}
			switch line.Result {
			case "", "elsewhere": // an answer that was cut off, or a shard that nobody serves for now
				again = append(again, i)
			default:
				results[i] = line.Result
			}
		}
		if open = again; len(open) == 0 {
			return results, nil
		}
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// post sends JSON and reads the answer's, once it comes.
func (f *frontierd) post(ctx context.Context, path string, v, into any, timeout time.Duration) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	answer, err := f.call(ctx, http.MethodPost, path, body, timeout)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// claims leases up to n URLs. It waits for the first for a time.
func (f *frontierd) claims(ctx context.Context, n int, wait time.Duration, worker string) ([]claim, error) {
	var got struct {
		Claims []claim `json:"claims"`
	}
	err := f.post(ctx, "/v1/claims", map[string]any{"max": n, "wait_ms": wait.Milliseconds(), "worker": worker, "crawl": f.crawl}, &got, wait+callTimeout)
	return got.Claims, err
}

// leases extends or releases leases. It says for each whether it had not ended before, and until
// when those that were extended last.
func (f *frontierd) leases(ctx context.Context, verb string, leases []string) (live []bool, until time.Time, err error) {
	var got struct {
		Extended []bool    `json:"extended"`
		Released []bool    `json:"released"`
		Expires  time.Time `json:"expires"`
	}
	err = f.post(ctx, "/v1/leases:"+verb, map[string]any{"leases": leases}, &got, callTimeout)
	live = append(got.Extended, got.Released...)
	if err == nil && len(live) != len(leases) {
		err = fmt.Errorf("%d answers for %d leases", len(live), len(leases))
	}
	return live, got.Expires, err
}

// robotsText is the robots.txt of a host, with its port if that is not the default.
type robotsText struct {
	Host    string    `json:"host"`
	Text    string    `json:"text"`
	Expires time.Time `json:"expires"`
}

// robots returns the robots.txt of a host, nil if the frontier has none.
func (f *frontierd) robots(ctx context.Context, domain, host string) (*robotsText, error) {
	var got robotsText
	answer, err := f.call(ctx, http.MethodGet, domainPath(domain)+"/robots?host="+url.QueryEscape(host), nil, callTimeout)
	var no refused
	switch {
	case errors.As(err, &no):
		return nil, nil // it is over by now
	case err != nil:
		return nil, err
	}
	return &got, json.Unmarshal(answer, &got)
}

// delay returns the time between two requests to a domain.
func (f *frontierd) delay(ctx context.Context, domain string) (time.Duration, error) {
	return f.domain(ctx, http.MethodGet, domain, nil)
}

// change changes what holds for a domain, and returns its delay.
func (f *frontierd) change(ctx context.Context, domain string, what map[string]any) (time.Duration, error) {
	body, err := json.Marshal(what)
	if err != nil {
		return 0, err
	}
	return f.domain(ctx, http.MethodPatch, domain, body)
}

func (f *frontierd) domain(ctx context.Context, method, domain string, body []byte) (time.Duration, error) {
	answer, err := f.call(ctx, method, domainPath(domain), body, callTimeout)
	if err != nil {
		return 0, err
	}
	var got struct {
		Delay float64 `json:"delay"`
	}
	err = json.Unmarshal(answer, &got)
	return time.Duration(got.Delay * float64(time.Second)), err
}

func domainPath(domain string) string { return "/v1/domains/" + url.PathEscape(domain) }

// sleep is false if ctx has ended before the time was over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
