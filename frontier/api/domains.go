package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

// crawlAnswer counts the URLs of a domain in a crawl.
type crawlAnswer struct {
	Crawl   string `json:"crawl"`
	Waiting int64  `json:"waiting"`
	Leased  int64  `json:"leased"`
	Later   int64  `json:"later"`
	Settled int64  `json:"settled"`
}

type domainAnswer struct {
	Domain string `json:"domain"`
	// Known says that there are URLs, settings or robots.txt files of the domain.
	Known   bool          `json:"known"`
	Waiting int64         `json:"waiting"`
	Leased  int64         `json:"leased"`
	Crawls  []crawlAnswer `json:"crawls"`
	// Delay is in seconds.
	Delay    float64 `json:"delay"`
	Paused   bool    `json:"paused"`
	Excluded bool    `json:"excluded"`
	// TakenDown says that a takedown of the lake names the whole domain.
	TakenDown bool `json:"taken_down"`
	// Cap is missing if any number of URLs may wait.
	Cap          *int64    `json:"cap,omitzero"`
	Failures     int       `json:"failures"`
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	NextTime     time.Time `json:"next_time,omitzero"`
	// Robots are up to a hundred of the robots.txt files that the frontier has, without their
	// texts.
	Robots []robotsAnswer `json:"robots,omitempty"`
}

// robotsAnswer is the robots.txt of a host.
type robotsAnswer struct {
	Host    string    `json:"host"`
	Text    *string   `json:"text,omitzero"`
	Expires time.Time `json:"expires"`
	// Delay is in seconds, what the file asks for within the limit of the frontier.
	Delay float64 `json:"delay"`
}

// ofKey has do serve the key that a path means: a domain or host may be in any spelling. A key that
// is known is always meant as it is spelled: clients may give any. A host of which no URL can be is
// refused.
func (h *Handler) ofKey(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		spelled := r.PathValue("d")
		key, larger := h.f.CanonicalKey(spelled)
		// A process that sends a request on has found the key.
		if key == spelled && larger == "" || r.Header.Get(forwarded) != "" {
			do(w, r)
			return
		}
		for _, k := range slices.Compact([]string{spelled, key}) {
			known, err := h.known(r.Context(), k)
			if err != nil {
				h.failed(w, err)
				return
			}
			if known {
				key, larger = k, ""
				break
			}
		}
		if larger != "" {
			h.problem(w, http.StatusBadRequest, fmt.Sprintf("%s is a host of %s, and URLs are queued by domain here: name %s", key, larger, larger))
			return
		}
		_, rest, _ := strings.Cut(r.Pattern, "{d}")
		r.SetPathValue("d", key)
		r.URL.Path, r.URL.RawPath = "/v1/domains/"+key+rest, "/v1/domains/"+url.PathEscape(key)+rest
		do(w, r)
	}
}

// known says whether the frontier knows a key, which another process may have to be asked.
func (h *Handler) known(ctx context.Context, key string) (bool, error) {
	d, err := h.f.Domain(ctx, key)
	owner := h.f.Owner(key)
	if !errors.Is(err, frontier.ErrElsewhere) || owner == "" {
		return d.Known, err
	}
	var got domainAnswer
	data, err := h.get(ctx, owner, "/v1/domains/"+url.PathEscape(key))
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		err = errors.Join(frontier.ErrElsewhere, err)
	}
	return got.Known, err
}

func (h *Handler) domain(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("d")
	d, err := h.f.Domain(r.Context(), key)
	if errors.Is(err, frontier.ErrElsewhere) {
		h.forward(w, r, h.f.Owner(key))
		return
	}
	if err != nil {
		h.failed(w, err)
		return
	}
	got := domainAnswer{
		Domain: key, Known: d.Known, Waiting: d.Waiting, Leased: d.Leased, Crawls: []crawlAnswer{}, Delay: d.Delay.Seconds(), Paused: d.Paused,
		Excluded: d.Excluded, TakenDown: d.TakenDown, Failures: d.Failures, BlockedUntil: d.Blocked, NextTime: d.Next,
	}
	if d.Cap >= 0 {
		got.Cap = &d.Cap
	}
	for _, c := range d.Crawls {
		got.Crawls = append(got.Crawls, crawlAnswer{c.Crawl, c.Waiting(), c.Leased(), c.Later(), c.Done()})
	}
	for _, f := range d.Robots {
		got.Robots = append(got.Robots, robotsAnswer{f.Host, nil, f.Expires, f.Delay.Seconds()})
	}
	answer(w, got)
}

// robots answers with the robots.txt of a host, which is the domain's if none is named.
func (h *Handler) robots(w http.ResponseWriter, r *http.Request) {
	key, host := r.PathValue("d"), r.URL.Query().Get("host")
	f, ok, err := h.f.Robots(key, host)
	switch {
	case errors.Is(err, frontier.ErrElsewhere):
		h.forward(w, r, h.f.Owner(key))
	case errors.Is(err, frontier.ErrURL):
		h.problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		h.failed(w, err)
	case !ok:
		h.problem(w, http.StatusNotFound, "the frontier has no robots.txt of this host that holds now; fetch it, and PATCH the domain with it")
	default:
		text := strings.ToValidUTF8(string(f.Text), "\ufffd")
		answer(w, robotsAnswer{f.Host, &text, f.Expires, f.Delay.Seconds()})
	}
}

// domainChange is what PATCH changes. Delay and Block are in seconds: between two URLs, and from
// now on.
type domainChange struct {
	Delay   *float64 `json:"delay"`
	Block   *float64 `json:"block"`
	Pause   *bool    `json:"pause"`
	Exclude *bool    `json:"exclude"`
	Cap     *int64   `json:"cap"`
	Robots  *struct {
		Host    string    `json:"host"`
		Text    *string   `json:"text"`
		Expires time.Time `json:"expires"`
	} `json:"robots"`
}

// maxDomainBody bounds the body of a change: a robots.txt may be written with six bytes for one.
const maxDomainBody = 4 << 20

// maxSeconds bounds delays and blocks: some thirty years.
const maxSeconds = 1e9

// upToMaxSeconds is the duration of a number of seconds that may be larger than any that counts.
func upToMaxSeconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), maxSeconds) * float64(time.Second))
}

// seconds returns the duration of a number of seconds. It is false if it has answered with a
// problem.
func (h *Handler) seconds(w http.ResponseWriter, name string, s *float64, least float64) (*time.Duration, bool) {
	if s == nil {
		return nil, true
	}
	if !(*s >= least && *s <= maxSeconds) {
		detail := name + " has to be seconds from 0 to 1000000000"
		if least < 0 {
			detail += ", or -1 for that of the frontier"
		}
		h.problem(w, http.StatusBadRequest, detail)
		return nil, false
	}
	d := time.Duration(*s * float64(time.Second))
	return &d, true
}

func (h *Handler) changeDomain(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("d")
	if owner := h.f.Owner(key); owner != "" && r.Header.Get(forwarded) == "" {
		h.forward(w, r, owner)
		return
	}
	var q domainChange
	if !h.bodyUpTo(w, r, maxDomainBody, &q) {
		return
	}
	if q.Robots != nil && q.Robots.Text == nil {
		h.problem(w, http.StatusBadRequest, "the body: robots.text is missing; it is empty if the host has no robots.txt")
		return
	}
	change := frontier.DomainChange{Pause: q.Pause, Exclude: q.Exclude, Cap: q.Cap}
	var ok bool
	if change.Delay, ok = h.seconds(w, "delay", q.Delay, -1); !ok {
		return
	}
	if change.Block, ok = h.seconds(w, "block", q.Block, 0); !ok {
		return
	}
	err := h.f.ChangeDomain(r.Context(), key, change)
	if err == nil && q.Robots != nil {
		err = h.f.SetRobots(r.Context(), key, frontier.RobotsFile{Host: q.Robots.Host, Text: []byte(*q.Robots.Text), Expires: q.Robots.Expires})
	}
	switch {
	case errors.Is(err, frontier.ErrURL):
		h.problem(w, http.StatusBadRequest, "robots.host: "+err.Error())
		return
	case err != nil:
		h.failed(w, err)
		return
	}
	h.domain(w, r)
}
