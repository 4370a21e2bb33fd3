package example

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// maxLinks bounds the links that are taken from a page.
const maxLinks = 10_000

// links returns the URLs that an HTML page at a URL leads to, each once: of anchors, areas, frames
// and refreshes, and its canonical URL. It leaves out links with nofollow, and all links of a page
// that says so of itself, in a header or an element. HTML is read as browsers read it, so no page
// is an error; one that is cut off has the links before the cut.
func links(page *url.URL, header http.Header, body []byte) (found []string) {
	base := page
	seen := map[string]bool{}
	add := func(href string) {
		if u := resolve(base, href); u != "" && !seen[u] && len(found) < maxLinks {
			seen[u] = true
			found = append(found, u)
		}
	}
	follow := !nofollow(header.Values("X-Robots-Tag")...)
	r, err := charset.NewReader(bytes.NewReader(body), header.Get("Content-Type"))
	if err != nil {
		return nil // an empty page
	}
	canonical := ""
	hasBase := false
	for z := html.NewTokenizer(r); z.Next() != html.ErrorToken; {
		t := z.Token()
		if t.Type != html.StartTagToken && t.Type != html.SelfClosingTagToken {
			continue
		}
		switch t.DataAtom {
		case atom.Base:
			if u, err := page.Parse(clean(attr(t, "href"))); err == nil && attr(t, "href") != "" && !hasBase {
				base, hasBase = u, true // only the first counts
			}
		case atom.A, atom.Area:
			if !nofollow(attr(t, "rel")) {
				add(attr(t, "href"))
			}
		case atom.Frame, atom.Iframe:
			add(attr(t, "src"))
		case atom.Link:
			if hasWord(attr(t, "rel"), "canonical") && canonical == "" {
				canonical = resolve(base, attr(t, "href"))
			}
		case atom.Meta:
			switch name := strings.ToLower(attr(t, "name")); {
			case name == "robots" && nofollow(attr(t, "content")):
				follow = false
			case strings.EqualFold(attr(t, "http-equiv"), "refresh"):
				if _, to, ok := strings.Cut(attr(t, "content"), "="); ok { // 5; url=/next
					add(strings.Trim(strings.TrimSpace(to), `"'`))
				}
			}
		}
	}
	if !follow {
		found = nil
	}
	if canonical != "" && !seen[canonical] { // the page's own name is no link
		found = append(found, canonical)
	}
	return found
}

// resolve returns the URL of a link, "" if that is none of the web.
func resolve(base *url.URL, href string) string {
	if href = clean(href); href == "" {
		return ""
	}
	u, err := base.Parse(href)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	return u.String()
}

// clean drops what browsers drop from links: space around them, and line ends and tabs within.
func clean(href string) string {
	return strings.NewReplacer("\n", "", "\r", "", "\t", "").Replace(strings.TrimFunc(href, func(r rune) bool { return r <= ' ' }))
}

func attr(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// nofollow says whether any of some lists of words, as rel and robots have them, forbids to follow
// links.
func nofollow(lists ...string) bool {
	for _, l := range lists {
		if hasWord(l, "nofollow") || hasWord(l, "none") {
			return true
		}
	}
	return false
}

func hasWord(list, word string) bool {
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ':' || r <= ' ' }) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}
