package markup

import (
	"bytes"
	"encoding/xml"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// elementParser reads the elements that scanner finds.
type elementParser struct {
	row
	scanner *scanner
	guid    []byte // of an item of RSS, if it is a URL
}

// Next implements text.Parser.
func (p *elementParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		element, reason, err := p.scanner.scan()
		if err != nil {
			return err
		}
		if reason != "" {
			rej.Reason = reason
			return nil
		}
		p.reset()
		p.guid = p.guid[:0]
		switch {
		case len(element) > p.scanner.max:
			rej.Reason = raw.TooLong
			return nil
		case p.scanner.html && !p.bookmark(element), !p.scanner.html && !p.element(element):
			rej.Reason = raw.BadMarkup
			return nil
		}
		if len(p.values[p.url]) > p.scanner.max { // an escaped or relative one gets longer
			rej.Reason = raw.TooLong
			return nil
		}
		if p.scanner.format == raw.OPML && len(p.values[0]) == 0 && !p.has("type") &&
			!bytes.HasSuffix(element, []byte("/>")) {
			p.fields.Counts.Comments++ // a folder
			continue
		}
		rej.Reason = p.record(rec)
		return nil
	}
}

// bookmark takes the values of <A HREF="…" ADD_DATE="…">title</A>. It returns false if a quote
// around the URL is missing or has another behind it.
func (p *elementParser) bookmark(element []byte) bool {
	z := html.NewTokenizer(bytes.NewReader(element))
	z.Next()
	const quotes = `"'`
	behindURL := false
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		if behindURL && bytes.ContainsAny(key, quotes) {
			return false
		}
		switch behindURL = string(key) == "href"; string(key) {
		case "href":
			if len(bytes.TrimRight(value, quotes)) < len(value) && bytes.Contains(element, append([]byte{'='}, value...)) {
				return false
			}
			p.set(columnURL, value)
		case "add_date", "time_added":
			p.set(columnTimestamp, value)
		case "last_modified", "tags":
			p.set(string(key), value)
		}
	}
	var title []byte
	for t := z.Next(); t != html.ErrorToken; t = z.Next() {
		if t == html.TextToken {
			title = append(title, z.Text()...)
		}
	}
	p.set("title", title)
	return true
}

// newDecoder returns a decoder of the tokens of one element. It keeps text that is no reference,
// such as an unescaped & in a URL.
func newDecoder(element []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(element))
	d.Strict, d.Entity = false, xml.HTMLEntity
	return d
}

// element takes the values of an element. It returns false if it is not well-formed, or if two
// values contradict each other.
func (p *elementParser) element(element []byte) bool {
	if !utf8.Valid(element) {
		element = bytes.ToValidUTF8(element, []byte("\ufffd"))
	}
	d := newDecoder(element)
	var open []xml.Name
	var content []byte // of the child that is open
	var child xml.StartElement
	base := p.scanner.base
	for {
		token, err := d.RawToken()
		if err != nil {
			return false // also at the end: the last end tag returns
		}
		switch t := token.(type) {
		case xml.StartElement:
			switch len(open) {
			case 0:
				base = rebase(base, attribute(t, "base"))
				if p.scanner.root.tagOnly {
					return p.outline(t) && !p.damaged()
				}
			case 1:
				child, content = t, content[:0]
			}
			if len(open) > maxDepth {
				return false
			}
			open = append(open, t.Name)
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != t.Name {
				return false
			}
			open = open[:len(open)-1]
			switch len(open) {
			case 1:
				if !p.child(child, open[0].Space, content, base) {
					return false
				}
			case 0:
				p.fallBack()
				return !p.damaged()
			}
		case xml.CharData:
			if len(open) == 2 {
				content = append(content, t...)
			}
		}
	}
}

// fallBack sets the URL and the time of a record from other columns if they are empty.
func (p *elementParser) fallBack() {
	switch p.scanner.format {
	case raw.RSS:
		p.set(columnURL, p.guid)
	case raw.Atom:
		p.set(columnTimestamp, p.values[p.column("updated")])
		p.set(columnTimestamp, p.values[p.column("published")])
	}
}

// maxDepth is how deep the elements of a record may be nested.
const maxDepth = 256

// damaged reports whether the URL has bytes that were no UTF-8.
func (p *elementParser) damaged() bool {
	return bytes.Contains(p.values[p.url], []byte("\ufffd"))
}

// child takes the value of a child of a record. prefix is the record's prefix. It returns false if
// the record has two URLs.
func (p *elementParser) child(e xml.StartElement, prefix string, content []byte, base string) bool {
	content = text.TrimSpace(content)
	if p.scanner.format == raw.RSS && e.Name.Space == "dc" { // Dublin Core
		switch e.Name.Local {
		case "date":
			p.set(columnTimestamp, content)
		case "creator":
			p.set("author", content)
		}
		return true
	}
	if e.Name.Space != prefix {
		return true // an extension
	}
	switch p.scanner.format {
	case raw.Sitemap:
		switch e.Name.Local {
		case "loc":
			if p.has(columnURL) && !bytes.Equal(p.values[0], content) {
				return false
			}
			p.set(columnURL, content)
		case "lastmod":
			p.set(columnTimestamp, content)
		case "changefreq", "priority":
			p.set(e.Name.Local, content)
		}
	case raw.RSS:
		switch e.Name.Local {
		case "link":
			p.setURL(base, content)
		case "guid":
			p.set("guid", content)
			// A permanent link unless it says that it is none; the link is the better one.
			if !strings.EqualFold(attribute(e, "isPermaLink"), "false") && isURL(content) {
				p.guid = append(p.guid[:0], content...)
			}
		case "pubDate":
			p.set(columnTimestamp, content)
		case "title", "author", "comments":
			p.set(e.Name.Local, content)
		}
	case raw.Atom:
		switch e.Name.Local {
		case "link":
			rel := attribute(e, "rel")
			if !p.has(columnURL) && (rel == "" || strings.EqualFold(rel, "alternate")) {
				p.setURL(rebase(base, attribute(e, "base")), []byte(attribute(e, "href")))
			}
		case "updated", "modified": // the latter in Atom 0.3
			p.set("updated", content)
		case "published", "issued":
			p.set("published", content)
		case "title", "id":
			p.set(e.Name.Local, content)
		}
	}
	return true
}

// outline takes the values of an outline of OPML. Their names are written in either case. It
// returns false if an attribute for a URL has no value, for which package xml gives its name.
func (p *elementParser) outline(e xml.StartElement) bool {
	var other string
	for _, a := range e.Attr {
		name := strings.ToLower(a.Name.Local)
		if a.Value == a.Name.Local && strings.HasSuffix(name, "url") {
			return false
		}
		switch name {
		case "htmlurl":
			p.set("htmlUrl", []byte(a.Value))
		case "xmlurl":
			p.set("xmlUrl", []byte(a.Value))
		case "url":
			other = a.Value
		case "type":
			p.set("type", []byte(a.Value))
		case "created":
			p.set(columnTimestamp, []byte(a.Value))
		case "title", "text":
			p.set("title", []byte(a.Value))
		}
	}
	for _, v := range [][]byte{p.values[p.column("htmlUrl")], p.values[p.column("xmlUrl")], []byte(other)} {
		p.set(columnURL, v)
	}
	return true
}

// setURL sets the URL, which may be relative to base.
func (p *elementParser) setURL(base string, ref []byte) {
	ref = text.TrimSpace(ref)
	if base != "" && len(ref) > 0 && !p.has(columnURL) {
		ref = []byte(resolve(base, string(ref)))
	}
	p.set(columnURL, ref)
}

// maxBase is the longest xml:base. Every URL is within it, and bases within others add up.
const maxBase = 8 << 10

// rebase is resolve for a base within another. One that is too long is none.
func rebase(base, ref string) string {
	if len(ref) > maxBase {
		return ""
	}
	if base = resolve(base, ref); len(base) > maxBase {
		return ""
	}
	return base
}

// resolve returns the URL of ref within base. It returns ref if one of them is no URL, and base if
// ref is empty.
func resolve(base, ref string) string {
	if base == "" || ref == "" {
		return base + ref
	}
	b, err := url.Parse(base)
	if err != nil {
		return ref
	}
	r, err := url.Parse(ref)
	if err != nil || r.IsAbs() {
		return ref // as it is written
	}
	return b.ResolveReference(r).String()
}

// isURL reports whether b is a URL of the web.
func isURL(b []byte) bool {
	return bytes.HasPrefix(b, []byte("http://")) || bytes.HasPrefix(b, []byte("https://"))
}

// attribute returns the value of an attribute with any prefix, "" for none.
func attribute(e xml.StartElement, local string) string {
	for _, a := range e.Attr {
		if a.Name.Local == local {
			return a.Value
		}
	}
	return ""
}

// tagAttributes returns the attributes of a start tag by their names with prefixes. There are none
// if it is not well-formed.
func tagAttributes(tag []byte) map[string]string {
	attributes := map[string]string{}
	token, _ := newDecoder(tag).RawToken()
	if e, ok := token.(xml.StartElement); ok {
		for _, a := range e.Attr {
			name := a.Name.Local
			if a.Name.Space != "" {
				name = a.Name.Space + ":" + name
			}
			attributes[name] = a.Value
		}
	}
	return attributes
}
