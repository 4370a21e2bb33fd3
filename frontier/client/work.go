package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ClaimRequest says what to claim.
type ClaimRequest struct {
	// Max bounds the URLs, PerDomain those of a domain; 0 is 1.
	Max       int `json:"max"`
	PerDomain int `json:"per_domain"`
	// WaitMS is how long the frontier waits for the first URL, in milliseconds: up to a minute, and
	// no longer than the HTTP client waits for an answer.
	WaitMS int64 `json:"wait_ms"`
	// Worker names who claims. Crawl is DEFAULT if it is empty.
	Worker string `json:"worker"`
	Crawl  string `json:"crawl"`
}

// Claim is a URL to be fetched and reported before Expires.
type Claim struct {
	Lease string `json:"lease"`
	URL   string `json:"url"`
	// Found is the URL as it was added, empty if it has the path and query of URL.
	Found    string         `json:"found"`
	Domain   string         `json:"domain"`
	Crawl    string         `json:"crawl"`
	Depth    uint32         `json:"depth"`
	Priority uint16         `json:"priority"`
	Tries    uint32         `json:"tries"`
	Metadata jsontext.Value `json:"metadata"`
	Expires  time.Time      `json:"expires"`
	// RobotsUntil is until when the frontier has the robots.txt of the URL's host, zero if it has
	// none.
	RobotsUntil time.Time `json:"robots_until"`
}

// Claim leases URLs, none if there were none until the end of the wait. A request whose answer is
// lost is sent again; what it had claimed comes back when its leases end.
func (c *Client) Claim(ctx context.Context, q ClaimRequest) ([]Claim, error) {
	var got struct {
		Claims []Claim `json:"claims"`
	}
	err := c.call(ctx, http.MethodPost, "/v1/claims", &q, &got)
	return got.Claims, err
}

// Outcome is what came of a claim.
type Outcome struct {
	Lease string `json:"lease"`
	// Status is the HTTP status, 0 if there was no answer; Error says why.
	Status int    `json:"status,omitzero"`
	Error  string `json:"error,omitzero"`
	// Final says that the URL is not to be handed out again, whatever came of it.
	Final bool `json:"final,omitzero"`
	// Content and Redirect are kept with the visit.
	Content  string `json:"content,omitzero"`
	Redirect string `json:"redirect,omitzero"`
	// RetryAfter is for how many seconds from now on the domain is left alone.
	RetryAfter float64 `json:"retry_after,omitzero"`
}

// The words of results of outcomes.
const (
	Settled = "settled"
	// Retried URLs are handed out again.
	Retried = "retried"
	// Ended leases were over before; a report that is sent twice gets it the second time.
	Ended = "ended"
)

// Report tells what came of claims, and returns for each Settled, Retried, Ended, or Rejected with
// a reason.
func (c *Client) Report(ctx context.Context, outcomes []Outcome) ([]Result, error) {
	lines, err := encode(outcomes)
	if err != nil {
		return nil, err
	}
	return c.lines(ctx, "/v1/results", lines)
}

// leases is the body of requests about leases, and their answer.
type leases struct {
	Leases   []string  `json:"leases,omitzero"`
	Extended []bool    `json:"extended,omitzero"`
	Released []bool    `json:"released,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
}

// Extend prolongs up to some thousand leases. It returns for each whether it had not ended before,
// and until when those last.
func (c *Client) Extend(ctx context.Context, all []string) (live []bool, until time.Time, err error) {
	var got leases
	err = c.call(ctx, http.MethodPost, "/v1/leases:extend", &leases{Leases: all}, &got)
	if err == nil && len(got.Extended) != len(all) {
		err = fmt.Errorf("POST %s/v1/leases:extend: %d answers for %d leases", c.base, len(got.Extended), len(all))
	}
	return got.Extended, got.Expires, err
}

// Release gives leases back, so that their URLs wait again at once. It returns for each whether it
// had not ended before.
func (c *Client) Release(ctx context.Context, all []string) (live []bool, err error) {
	var got leases
	err = c.call(ctx, http.MethodPost, "/v1/leases:release", &leases{Leases: all}, &got)
	if err == nil && len(got.Released) != len(all) {
		err = fmt.Errorf("POST %s/v1/leases:release: %d answers for %d leases", c.base, len(got.Released), len(all))
	}
	return got.Released, err
}

// Robots returns the robots.txt of a host. It is false if the frontier has none that holds.
func (c *Client) Robots(ctx context.Context, domain, host string) (r Robots, ok bool, err error) {
	path := "/v1/domains/" + url.PathEscape(domain) + "/robots?host=" + url.QueryEscape(host)
	err = c.call(ctx, http.MethodGet, path, nil, &r)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return r, false, nil
	}
	return r, err == nil, err
}
