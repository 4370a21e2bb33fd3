package client

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
)

// DomainChange is what to change of a domain; nil leaves it.
type DomainChange struct {
	// Delay is the number of seconds between two URLs, Block that from now on without any.
	Delay   *float64 `json:"delay,omitzero"`
	Block   *float64 `json:"block,omitzero"`
	Exclude *bool    `json:"exclude,omitzero"`
	Pause   *bool    `json:"pause,omitzero"`
	Robots  *Robots  `json:"robots,omitzero"`
}

// Robots is the robots.txt of a host.
type Robots struct {
	// Host is the domain itself if it is empty. Text is empty if the host has no robots.txt.
	Host    string    `json:"host,omitzero"`
	Text    string    `json:"text"`
	Expires time.Time `json:"expires"`
}

// Domain is what the frontier has of a domain, as far as this package needs it.
type Domain struct {
	Delay    float64 `json:"delay"`
	Excluded bool    `json:"excluded"`
	// Robots are up to a hundred of its files, without their texts.
	Robots []DomainRobots `json:"robots"`
}

// DomainRobots is the robots.txt of a host of a domain, and the delay that it asks for.
type DomainRobots struct {
	Robots
	Delay float64 `json:"delay"`
}

// ChangeDomain changes a domain, and returns what it is then.
func (c *Client) ChangeDomain(ctx context.Context, domain string, change DomainChange) (d Domain, err error) {
	err = c.call(ctx, http.MethodPatch, "/v1/domains/"+url.PathEscape(domain), &change, &d)
	return d, err
}

// Domain returns what the frontier has of a domain.
func (c *Client) Domain(ctx context.Context, domain string) (d Domain, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/domains/"+url.PathEscape(domain), nil, &d)
	return d, err
}

// Import tells the frontier of visits that others have made, and returns for each Added, Known if
// it has that visit or a later one of the URL, or Rejected with a reason. The URLs are settled
// then.
func (c *Client) Import(ctx context.Context, visits []Visit) ([]Result, error) {
	lines, err := encode(visits)
	if err != nil {
		return nil, err
	}
	return c.lines(ctx, "/v1/visits", lines)
}

// Question asks for a URL.
type Question struct {
	URL   string `json:"url"`
	Crawl string `json:"crawl,omitzero"`
	Key   string `json:"key,omitzero"`
}

// Seen is what the frontier knows of a URL.
type Seen struct {
	// Seen says that the URL was added, Settled that it does not wait any more.
	Seen    bool      `json:"seen"`
	Settled bool      `json:"settled"`
	Status  uint16    `json:"status"`
	Fetched time.Time `json:"fetched"`
}

// SeenAll asks for many URLs at once. A URL that has no canonical form
// is not seen.
func (c *Client) SeenAll(ctx context.Context, questions []Question) (all []Seen, err error) {
	lines, err := encode(questions)
	if err != nil {
		return nil, err
	}
	var body []byte
	for _, l := range lines {
		body = append(append(body, l...), '\n')
	}
	err = c.again(ctx, func() (bool, error) {
		all = all[:0]
		res, err := c.send(ctx, http.MethodPost, "/v1/seen", body)
		if err != nil {
			return false, err
		}
		defer res.Body.Close()
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, maxLine)
		for in.Scan() {
			var one struct {
				Reason string `json:"reason"`
				Seen
			}
			if err := json.Unmarshal(in.Bytes(), &one); err != nil {
				return false, fmt.Errorf("POST %s/v1/seen: line %d of the answer: %w", c.base, len(all)+1, err)
			}
			if one.Reason == elsewhere {
				return false, &busyError{err: fmt.Errorf("POST %s/v1/seen: no process serves a queue", c.base)}
			}
			all = append(all, one.Seen)
		}
		if err := in.Err(); err != nil || len(all) != len(questions) {
			return false, &busyError{err: fmt.Errorf("POST %s/v1/seen: %d answers to %d lines", c.base, len(all), len(questions))}
		}
		return true, nil
	})
	return all, err
}
