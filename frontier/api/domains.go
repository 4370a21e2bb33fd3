package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/urlake/urlake/frontier"
)

// crawlAnswer counts the URLs of a domain in a crawl.
type crawlAnswer struct {
	Crawl   string `json:"crawl"`
	Waiting int64  `json:"waiting"`
	Leased  int64  `json:"leased"`
}

type domainAnswer struct {
	Domain  string        `json:"domain"`
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
		Domain: key, Waiting: d.Waiting, Leased: d.Leased, Crawls: []crawlAnswer{}, Delay: d.Delay.Seconds(), Paused: d.Paused,
		Excluded: d.Excluded, TakenDown: d.TakenDown, Failures: d.Failures, BlockedUntil: d.Blocked, NextTime: d.Next,
	}
	if d.Cap >= 0 {
		got.Cap = &d.Cap
	}
	for _, c := range d.Crawls {
		got.Crawls = append(got.Crawls, crawlAnswer(c))
	}
	answer(w, got)
}

// domainChange is what PATCH changes. Delay and Block are in seconds: between two URLs, and from
// now on.
type domainChange struct {
	Delay   *float64 `json:"delay"`
	Block   *float64 `json:"block"`
	Pause   *bool    `json:"pause"`
	Exclude *bool    `json:"exclude"`
	Cap     *int64   `json:"cap"`
}

// maxSeconds bounds delays and blocks: some thirty years.
const maxSeconds = 1e9

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
	if !h.body(w, r, &q) {
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
	if err := h.f.ChangeDomain(r.Context(), key, change); err != nil {
		h.failed(w, err)
		return
	}
	h.domain(w, r)
}
