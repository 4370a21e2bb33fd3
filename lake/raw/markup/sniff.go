package markup

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html/charset"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// mostAttributes is how much of a root tag is looked at.
const mostAttributes = 16 << 10

// Sniff returns the format of an object that begins with head and is XML, HTML or a TimeMap. If the
// format is "", the object is not read: reason describes it, and advice says how to convert it.
func Sniff(head []byte) (format, reason, advice string) {
	const links = `extract its URLs: grep -oE 'https?://[^"<> ]+' FILE > urls.txt`
	start := text.TrimSpace(head)
	if len(start) == 0 || start[0] != '<' {
		return "", "it is XML or HTML that does not begin with <: bytes are missing, or too many, at byte 0",
			"get it again, or " + links
	}
	if IsLink(start) {
		if original(head, len(head) < raw.HeadSize) == nil {
			return "", `it is a TimeMap without its original (rel="original")`,
				"write the addresses of its mementos as lines (grep -oE 'https?://[^<>]+' FILE), and ingest these with --unwrap"
		}
		return raw.TimeMap, "", ""
	}
	if isBookmarks(start) {
		return raw.Bookmarks, "", ""
	}
	name, tag, entities, isHTML := rootTag(start)
	switch {
	case isHTML:
		return "", "it is HTML; only bookmarks that browsers export are read",
			"write its links as lines: lynx -dump -listonly -nonumbers FILE > urls.txt"
	case name == "":
		return "", "it is XML or HTML, which is not read", links
	case entities:
		return "", "it is XML that declares entities of its own, which are not expanded",
			"expand them first: xmllint --noent FILE"
	}
	attributes := tagAttributes(tag)
	for _, r := range roots {
		if r.name != local(name) {
			continue
		}
		if r.name == "RDF" && !slices.ContainsFunc(rssNamespaces, func(ns string) bool { return bytes.Contains(tag, []byte(ns)) }) {
			return "", "it is RDF in XML, which is not read",
				"write it as N-Triples: rapper -i rdfxml -o ntriples FILE > urls.nt"
		}
		return r.format, "", ""
	}
	if local(name) == "plist" {
		return "", "it is a property list, which is not read", "write it as JSON: plutil -convert json FILE"
	}
	what := fmt.Sprintf("it is XML of a kind that is not read (its root is %q", name)
	if ns := attributes["xmlns"]; ns != "" {
		what += " of " + ns
	}
	return "", what + "); sitemaps, RSS, Atom and OPML are read", links
}

// IsLink reports whether text that begins with < begins with a link of a TimeMap.
func IsLink(start []byte) bool {
	l, n, ok := parseLink(start, true)
	return ok && n > 0 && len(l.rel) > 0
}

// Notes say what a person should know of an object that begins with head.
func Notes(format string, head []byte) []string {
	switch format {
	case raw.Sitemap:
		if name, _, _, _ := rootTag(text.TrimSpace(head)); local(name) == "sitemapindex" {
			return []string{"it is a sitemap index: its URLs are those of sitemaps and not of pages; fetch these and ingest them"}
		}
	case raw.TimeMap:
		pages := map[string]bool{}
		links(head, len(head) < raw.HeadSize, func(l link) bool {
			if l.is("timemap") && !l.is("self") {
				pages[string(l.uri)] = true
			}
			if l.is("self") {
				pages[string(l.uri)] = false
			}
			return true
		})
		for uri, other := range pages {
			if !other {
				delete(pages, uri)
			}
		}
		if len(pages) > 0 {
			return []string{"it names further TimeMaps (rel=timemap), whose mementos are not read; fetch these, too"}
		}
	}
	return nil
}

// rootPattern matches the tag of a root anywhere, or without its first byte at the beginning.
var rootPattern = regexp.MustCompile(`(<(\w+:)?|^\W?\w?(rdf:)?)(urlset|sitemapindex|rss|RDF|feed|opml|html|HTML)(\s[^<]*)?>`)

// IsMarkup reports whether text that does not begin with < is XML or HTML nevertheless, which lost
// its first byte or has something before it.
func IsMarkup(head []byte) bool {
	head = head[:min(len(head), 1024)]
	return bytes.IndexByte(head, '>') >= 0 && rootPattern.Match(head)
}

var (
	netscape = []byte("<!DOCTYPE NETSCAPE-Bookmark-file-1")
	pocket   = []byte("<title>Pocket Export</title>")
	// dated matches a list of links with dates, as in exports without a document type.
	dated = regexp.MustCompile(`(?is)^(<.*?)?<dl\b.*?<dt>\s*<a\s[^<>]*\sadd_date\s*=`)
)

// isBookmarks reports whether HTML is a browser's export of bookmarks.
func isBookmarks(start []byte) bool {
	return len(start) > len(netscape) && bytes.EqualFold(start[:len(netscape)], netscape) ||
		bytes.Contains(start[:min(len(start), 1024)], pocket) || dated.Match(start[:min(len(start), 16<<10)])
}

// declarationEnd matches the end of a document type that has declarations.
var declarationEnd = regexp.MustCompile(`\]\s*>`)

// rootTag returns the name and the tag of the first element, and whether a document type declares
// entities before it. name is "" if there is none.
func rootTag(b []byte) (name string, tag []byte, entities, isHTML bool) {
	declares := bytes.Contains(b, []byte("<!ENTITY"))
	for {
		i := bytes.IndexByte(b, '<')
		if i < 0 {
			return "", nil, entities, false
		}
		b = b[i:]
		end := ">"
		switch {
		case bytes.HasPrefix(b, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(b, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(b, []byte("<!")):
			if f := bytes.Fields(b[:min(len(b), 64)]); len(f) > 1 && strings.EqualFold(string(f[0]), "<!doctype") &&
				strings.EqualFold(strings.TrimRight(string(f[1]), ">"), "html") {
				return "html", nil, false, true
			}
			closing := bytes.IndexByte(b, '>')
			if closing < 0 {
				return "", nil, entities, false
			}
			if bracket := bytes.IndexByte(b[:closing], '['); bracket >= 0 {
				// The declarations between brackets have markup of their own.
				entities = declares
				m := declarationEnd.FindIndex(b[bracket:])
				if m == nil {
					return "", nil, entities, false
				}
				b = b[bracket+m[1]:]
				continue
			}
		default:
			n := bytes.IndexAny(b[1:], " \t\r\n/>") + 1
			if n < 2 {
				return "", nil, entities, false
			}
			name = string(b[1:n])
			isHTML = slices.Contains([]string{"html", "head", "meta", "body", "div", "ul", "table"}, strings.ToLower(name))
			tag = b[:min(len(b), mostAttributes)]
			return name, tag, entities, isHTML
		}
		n := bytes.Index(b, []byte(end))
		if n < 0 {
			return "", nil, entities, false
		}
		b = b[n+len(end):]
	}
}

var (
	xmlEncoding = regexp.MustCompile(`^\s*<\?xml\s[^>]*\bencoding\s*=\s*["']([^"']{1,40})["']`)
	metaCharset = regexp.MustCompile(`(?i)<meta\s[^>]*charset\s*=\s*["']?([\w:.-]{1,40})`)
)

// Encoding returns the encoding that the XML or the bookmarks at the beginning of an object
// declare, by its name in the Encoding Standard (https://encoding.spec.whatwg.org), and whether it
// is known. It is "" for UTF-8 and if none is declared.
func Encoding(head []byte) (name string, known bool) {
	head = text.TrimBOM(head)
	first := head[:min(len(head), 1024)]
	m := xmlEncoding.FindSubmatch(first)
	if m == nil && isBookmarks(text.TrimSpace(head)) {
		m = metaCharset.FindSubmatch(first)
	}
	if m == nil {
		return "", true
	}
	label := strings.ToLower(string(m[1]))
	_, name = charset.Lookup(label)
	switch {
	case name == "":
		return label, false
	case name == "utf-8", strings.HasPrefix(name, "utf-16"), label == "us-ascii", label == "ascii":
		return "", true // a declaration that can be read is not in UTF-16
	}
	return name, true
}

// IsStatement reports whether a line is a statement of N-Triples or N-Quads.
func IsStatement(line []byte) bool {
	line = text.TrimSpace(line)
	if len(line) < 2 || line[0] != '<' && (line[0] != '_' || line[1] != ':') {
		return false
	}
	_, _, ok := parseStatement(line)
	return ok
}
