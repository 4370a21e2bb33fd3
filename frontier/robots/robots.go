// Package robots reads robots.txt as RFC 9309 says: which URLs of a host a crawler may fetch, and
// how long it has to wait between two of them.
//
// Matching is that of Google's reference parser, of which the library is a port: groups of one
// product token are one group, the longest rule wins, Allow wins a tie, * and $ are special, and
// percent-encoding does not matter. Crawl-delay is no part of the RFC; it is read here.
package robots

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jimsmart/grobotstxt"
)

const (
	// MaxBytes is how much of a robots.txt is read. RFC 9309 (2.5) wants at least 500 KiB.
	MaxBytes = 500 << 10
	// MaxRedirects is how many redirects in a row are followed to a robots.txt (2.3.1.2).
	MaxRedirects = 5
	// MaxAge is how long a robots.txt may be used (2.4).
	MaxAge = 24 * time.Hour
)

// Rules are what a robots.txt says to one crawler. The zero value allows everything.
type Rules struct {
	text  string
	token string
	// Delay is the Crawl-delay, 0 if there is none.
	Delay time.Duration
}

// Token returns the product token of a User-Agent header, by which robots.txt names a crawler: the
// letters, hyphens and underscores that it begins with. It is empty if there are none.
func Token(userAgent string) string {
	end := strings.IndexFunc(userAgent, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
	if end < 0 {
		return userAgent
	}
	return userAgent[:end]
}

// Parse reads a robots.txt for the crawler of a User-Agent header. No text is an error: what is not
// understood is passed over. Beyond MaxBytes it is not read.
func Parse(text, userAgent string) Rules {
	text = text[:min(len(text), MaxBytes)]
	d := delays{token: Token(userAgent)}
	grobotstxt.Parse(text, &d)
	r := Rules{text: text, token: d.token, Delay: d.any}
	if d.named {
		r.Delay = d.own
	}
	return r
}

// OfStatus says what holds for a host that answered a request for its robots.txt with a status, as
// 2.3.1 says. Read means that the body has the rules. Otherwise known tells whether there are none,
// so that everything is allowed; if that is not known either, nothing may be fetched for now.
func OfStatus(status int) (read, known bool) {
	switch {
	case status >= 200 && status < 300:
		return true, true
	case status == http.StatusTooManyRequests:
		return false, false // asked too often, the host has said nothing about its rules
	case status >= 300 && status < 500: // 3xx: after MaxRedirects
		return false, true
	}
	return false, false
}

// Allowed says whether the crawler may fetch a URL of the host.
func (r Rules) Allowed(url string) bool {
	return r.text == "" || grobotstxt.AgentAllowed(r.text, r.token, url)
}

// delays finds the Crawl-delay of a product token: that of its groups or, if it has none, that of
// the groups of *.
type delays struct {
	token    string
	own, any time.Duration
	// named says that the token has a group.
	named bool
	// isOwn and isAny say whether the current group is for the token, or for *, and rules whether
	// the lines that name its crawlers are over.
	isOwn, isAny, rules bool
}

// HandleRobotsStart implements grobotstxt.ParseHandler.
func (d *delays) HandleRobotsStart() {}

// HandleRobotsEnd implements grobotstxt.ParseHandler.
func (d *delays) HandleRobotsEnd() {}

// HandleUserAgent implements grobotstxt.ParseHandler.
func (d *delays) HandleUserAgent(_ int, value string) {
	if d.rules {
		d.isOwn, d.isAny, d.rules = false, false, false
	}
	switch {
	case value == "*" || strings.HasPrefix(value, "* ") || strings.HasPrefix(value, "*\t"):
		d.isAny = true
	case d.token != "" && strings.EqualFold(Token(value), d.token):
		d.isOwn, d.named = true, true
	}
}

// HandleAllow implements grobotstxt.ParseHandler.
func (d *delays) HandleAllow(int, string) { d.rules = true }

// HandleDisallow implements grobotstxt.ParseHandler.
func (d *delays) HandleDisallow(int, string) { d.rules = true }

// HandleSitemap implements grobotstxt.ParseHandler.
func (d *delays) HandleSitemap(int, string) {}

// HandleUnknownAction implements grobotstxt.ParseHandler. Of several delays the longest holds.
func (d *delays) HandleUnknownAction(_ int, action, value string) {
	if !strings.EqualFold(action, "crawl-delay") {
		return
	}
	d.rules = true
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 {
		return
	}
	delay := time.Duration(min(seconds, 1e6) * float64(time.Second))
	if d.isOwn {
		d.own = max(d.own, delay)
	}
	if d.isAny {
		d.any = max(d.any, delay)
	}
}
