// Package sites is a small web for crawlers to be tried on: sites of several domains, told apart by
// the Host header, with what makes crawlers stumble. It knows which requests a polite crawler makes
// of it, and compares them with those that it got.
package sites

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Times is how often a URL is to be fetched.
type Times int

const (
	// Never is for what robots.txt forbids, and what only links lead to that must not be followed.
	Never Times = 0
	Once  Times = 1
	// UntilTries is for URLs that always fail: as often as the frontier hands out a URL.
	UntilTries Times = -1
)

// page is the answer for a URL.
type page struct {
	serve func(w http.ResponseWriter, visit int)
	times Times
}

// Hit is a request that was answered.
type Hit struct {
	Time time.Time
	Host string
	// Path has the query, too.
	Path      string
	UserAgent string
}

// URL returns the URL that was asked for.
func (h Hit) URL() string { return "http://" + h.Host + h.Path }

// Web is the sites and what was asked of them.
type Web struct {
	pages  map[string]*page // by host and path
	delays map[string]time.Duration
	depth  int

	mu     sync.Mutex
	hits   []Hit
	visits map[string]int
}

// Seeds are the URLs from which all that is to be fetched can be reached.
var Seeds = []string{
	"http://plain.test/", "http://www.plain.test/", "http://slow.test/", "http://rules.test/", "http://moved.test/a", "http://busy.test/",
	"http://broken.test/", "http://failing.test/", "http://closed.test/", "http://trap.test/", "http://far.test/",
}

// CrawlDelay is what slow.test asks for in its robots.txt.
const CrawlDelay = time.Second

// New makes the sites. The plain one has so many pages, and the trap is one deeper than the crawler
// is to go.
func New(pages, depth int) *Web {
	w := &Web{pages: map[string]*page{}, delays: map[string]time.Duration{"slow.test": CrawlDelay}, depth: depth, visits: map[string]int{}}
	w.plain(pages)
	w.rules()
	w.moved()
	w.faults()
	w.trap()
	return w
}

// html adds a page.
func (w *Web) html(at string, times Times, body string) {
	w.add(at, times, func(rw http.ResponseWriter, _ int) {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = rw.Write([]byte(body))
	})
}

// text adds a robots.txt, or another text.
func (w *Web) text(at string, times Times, body string) {
	w.add(at, times, func(rw http.ResponseWriter, _ int) {
		rw.Header().Set("Content-Type", "text/plain")
		_, _ = rw.Write([]byte(body))
	})
}

func (w *Web) redirect(at, to string) {
	w.add(at, Once, func(rw http.ResponseWriter, _ int) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusMovedPermanently)
	})
}

// status adds a page that has a status and no body.
func (w *Web) status(at string, times Times, status int) {
	w.add(at, times, func(rw http.ResponseWriter, _ int) { rw.WriteHeader(status) })
}

func (w *Web) add(at string, times Times, serve func(rw http.ResponseWriter, visit int)) {
	w.pages[at] = &page{serve, times}
}

// plain is a tree of pages in two hosts, with links in all their forms, and one of a site that asks
// for a delay.
func (w *Web) plain(n int) {
	w.text("plain.test/robots.txt", Once, "User-agent: *\nDisallow:\n")
	w.status("www.plain.test/robots.txt", Once, http.StatusNotFound)
	w.html("www.plain.test/", Once, `<a href="//plain.test/">the other host</a> <a href="/about#team">about</a>`)
	w.html("www.plain.test/about", Once, `<a href=about>itself</a>`)
	for i := range n {
		at := "plain.test/"
		if i > 0 {
			at = fmt.Sprintf("plain.test/page/%d", i)
		}
		body := fmt.Sprintf("<title>Page %d</title><a href='/'>home</a> ", i)
		for child := 4*i + 1; child <= 4*i+4 && child < n; child++ {
			form := []string{"/page/%d", "http://plain.test/page/%d", "HTTP://PLAIN.test:80/x/../page/%d#part", "\n //plain.test/page/%d "}[child%4]
			body += fmt.Sprintf("<a href=\""+form+"\">child</a><img src=/image.png>", child)
		}
		w.html(at, Once, body)
	}
	w.text("slow.test/robots.txt", Once, "User-agent: *\nCrawl-delay: 1\n")
	w.html("slow.test/", Once, `<base href="/docs/"><a href="1">one</a><area href="2"><iframe src="3"></iframe>`)
	for i := range 3 {
		w.html(fmt.Sprintf("slow.test/docs/%d", i+1), Once, "<p>nothing more")
	}
}

// rules has a robots.txt, and links that must not be followed.
func (w *Web) rules() {
	w.text("rules.test/robots.txt", Once, "User-agent: otherbot\nDisallow: /\n\nUser-agent: *\nDisallow: /secret\nAllow: /secret/open\nDisallow: /*.pdf$\nDisallow: /%7Ejoe\nDisallow: /x//y\n"+
		"Sitemap: http://rules.test/sitemap.xml\n")
	w.html("rules.test/", Once, `<a href="/secret/x">s</a><a href="/secret/open/y">o</a><a href="/a.pdf">p</a><a href="/a.pdf?v=1">q</a>
		<a rel="ugc nofollow" href="/nofollow">n</a><a href="/meta">m</a><a href="/header">h</a><a href="/copy">c</a><a href="/~joe">j</a><a href="/x//y">x</a><a href="mailto:a@rules.test">@</a>`)
	w.html("rules.test/secret/x", Never, "secret")
	w.html("rules.test/secret/open/y", Once, "open")
	w.html("rules.test/~joe", Never, "joe")
	w.html("rules.test/x/y", Never, "not under this name, either")
	w.text("rules.test/a.pdf", Never, "pdf")
	w.text("rules.test/a.pdf?v=1", Once, "pdf")
	w.html("rules.test/nofollow", Never, "nobody")
	w.html("rules.test/meta", Once, `<meta name=robots content="noindex, nofollow"><a href="/hidden/1">h</a>`)
	w.html("rules.test/hidden/1", Never, "hidden")
	w.add("rules.test/header", Once, func(rw http.ResponseWriter, _ int) {
		rw.Header().Set("X-Robots-Tag", "nofollow")
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte(`<a href="/hidden/2">h</a>`))
	})
	w.html("rules.test/hidden/2", Never, "hidden")
	w.html("rules.test/copy", Once, `<link rel="canonical" href="/original">`)
	w.html("rules.test/original", Once, "the original")
}

// moved has redirects: a chain to another host, a loop, one that leads nowhere; and a robots.txt
// that is at another host.
func (w *Web) moved() {
	w.status("moved.test/robots.txt", Once, http.StatusGone)
	w.redirect("moved.test/a", "b")
	w.redirect("moved.test/b", "http://new.moved.test/c")
	w.text("new.moved.test/robots.txt", Once, "")
	w.html("new.moved.test/c", Once, `<a href="http://moved.test/loop/1">loop</a><a href="http://moved.test/nowhere">nowhere</a>
		<meta http-equiv=refresh content="5; url='/fresh'">`)
	w.html("new.moved.test/fresh", Once, "fresh")
	w.redirect("moved.test/loop/1", "/loop/2")
	w.redirect("moved.test/loop/2", "/loop/1")
	w.redirect("moved.test/nowhere", "ftp://moved.test/")
	w.redirect("far.test/robots.txt", "http://robots.far.test/for/far.txt")
	w.text("robots.far.test/for/far.txt", Once, "User-agent: *\nDisallow: /no")
	w.html("far.test/", Once, `<a href="/no">no</a><a href="/yes">yes</a>`)
	w.html("far.test/no", Never, "no")
	w.html("far.test/yes", Once, "yes")
}

// faults has pages that fail at first, or always, or are broken.
func (w *Web) faults() {
	w.text("busy.test/robots.txt", Once, "")
	w.html("busy.test/", Once, `<a href="/limited">l</a><a href="/flaky">f</a><a href="/missing">m</a><a href="/gone">g</a>`)
	w.add("busy.test/limited", 2, func(rw http.ResponseWriter, visit int) {
		if visit == 1 {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusTooManyRequests)
		}
	})
	w.add("busy.test/flaky", 2, func(rw http.ResponseWriter, visit int) {
		if visit == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	w.status("busy.test/missing", Once, http.StatusNotFound)
	w.status("busy.test/gone", Once, http.StatusGone)

	w.status("broken.test/robots.txt", Once, http.StatusForbidden)
	w.html("broken.test/", Once, `<html><body><a href=/unclosed>u<a href='/tag soup'>t</a><a href="/cut"><table><a href="/binary">
		<!-- <a href="/comment"> --><script>"<a href='/script'>"</script><a href="http://[broken/">b</a><a href="/latin`)
	w.html("broken.test/unclosed", Once, "\x00\xff<a <a href=\"/late\" href=/second>late")
	w.html("broken.test/late", Once, "late")
	w.html("broken.test/second", Never, "the first attribute counts")
	w.html("broken.test/tag%20soup", Once, "soup")
	w.html("broken.test/comment", Never, "a comment")
	w.html("broken.test/script", Never, "a script")
	w.html("broken.test/cut", Once, strings.Repeat("<p>long", 1<<18)+`<a href="/behind">b</a>`)
	w.html("broken.test/behind", Never, "behind what is read of a page")
	w.add("broken.test/binary", Once, func(rw http.ResponseWriter, _ int) {
		rw.Header().Set("Content-Type", "application/octet-stream")
		_, _ = rw.Write([]byte(`<a href="/behind">b</a>`))
	})

	w.text("failing.test/robots.txt", Once, "")
	w.html("failing.test/", Once, `<a href="/error">e</a><a href="/slow">s</a>`)
	w.status("failing.test/error", UntilTries, http.StatusInternalServerError)
	w.add("failing.test/slow", Once, func(rw http.ResponseWriter, _ int) {
		time.Sleep(300 * time.Millisecond)
		rw.WriteHeader(http.StatusNoContent)
	})
	w.add("closed.test/robots.txt", UntilTries, func(rw http.ResponseWriter, _ int) { rw.WriteHeader(http.StatusServiceUnavailable) })
	w.html("closed.test/", Never, "nobody knows whether this may be fetched")
}

// trap leads to a new page from each.
func (w *Web) trap() {
	w.text("trap.test/robots.txt", Once, "")
	w.html("trap.test/", Once, `<a href="/?n=1">next</a>`)
	for n := 1; n <= w.depth+1; n++ {
		times := Once
		if n > w.depth {
			times = Never
		}
		w.html(fmt.Sprintf("trap.test/?n=%d", n), times, fmt.Sprintf(`<a href="/?n=%d">next</a>`, n+1))
	}
}

// ServeHTTP implements http.Handler.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	at := host + r.URL.RequestURI()
	w.mu.Lock()
	w.hits = append(w.hits, Hit{time.Now(), host, r.URL.RequestURI(), r.UserAgent()})
	w.visits[at]++
	visit := w.visits[at]
	w.mu.Unlock()
	if p := w.pages[at]; p != nil {
		p.serve(rw, visit)
		return
	}
	http.NotFound(rw, r)
}

// Hits returns the requests until now.
func (w *Web) Hits() []Hit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.hits)
}
