package markup

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// root names the elements of a format.
type root struct {
	name    string // of the element around the records
	format  string
	record  string
	tagOnly bool // the start tag is the record, and what follows it may be records too
	// namespaces are the namespaces of the records. A prefix that the root binds to one of them is
	// passed.
	namespaces []string
}

var roots = []root{
	{"urlset", raw.Sitemap, "url", false, []string{"http://www.sitemaps.org/schemas/sitemap/0.9",
		"http://www.google.com/schemas/sitemap/0.84"}},
	{"sitemapindex", raw.Sitemap, "sitemap", false, []string{"http://www.sitemaps.org/schemas/sitemap/0.9",
		"http://www.google.com/schemas/sitemap/0.84"}},
	{"rss", raw.RSS, "item", false, nil},
	{"RDF", raw.RSS, "item", false, rssNamespaces},
	{"feed", raw.Atom, "entry", false, []string{"http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"}},
	{"opml", raw.OPML, "outline", true, nil},
}

// rssNamespaces are the namespaces of RSS in RDF.
var rssNamespaces = []string{"http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/",
	"http://channel.netscape.com/rdf/simple/0.9/"}

// maxName is the longest name of an element that is looked at.
const maxName = 256

// scanner cuts an object into the elements that are its records.
type scanner struct {
	in     *text.Input
	format string
	max    int
	counts *raw.Counts
	html   bool

	w       []byte   // the bytes buffered by in
	root    root     // the last root, in XML
	records []string // the names of records, with their prefixes
	base    string   // xml:base of the records: the channel's, resolved by root
	within  string   // xml:base of the root
	open    int      // how many roots, or lists of HTML, are open
	lists   bool     // a list of HTML was there
	// suspect is set behind a rejected record: the rest of it is no further reject.
	suspect bool

	comment, cdata, tag search
}

func newScanner(in *text.Input, plan raw.Plan, counts *raw.Counts) *scanner {
	s := &scanner{in: in, format: plan.Format, max: plan.MaxLine, counts: counts,
		comment: search{find: finder("-->")}, cdata: search{find: finder("]]>")}}
	s.tag.find = s.findRecordTag
	return s
}

// search repeats one search from increasing offsets, and looks at no byte twice: otherwise an
// object of opening tags without closing ones would take quadratic time.
type search struct {
	find     func(b []byte, from int) (at, safe int)
	from, at int64 // nothing is in [from, at)
	found    bool  // something is at at
}

// finder returns the find of a search for text. at is -1 if b does not have it; nothing begins
// before safe then.
func finder(s string) func(b []byte, from int) (at, safe int) {
	return func(b []byte, from int) (at, safe int) {
		if i := bytes.Index(b[from:], []byte(s)); i >= 0 {
			return from + i, 0
		}
		return -1, max(from, len(b)-len(s)+1)
	}
}

// next returns the first place in s.w from offset from on, at most limit bytes further. It returns
// -1 if there is none.
func (s *scanner) next(x *search, from, limit int) (int, error) {
	for {
		base := s.in.Offset()
		if begin := base + int64(from); begin < x.from || begin > x.at {
			x.from, x.at, x.found = begin, begin, false
		}
		if x.found {
			if at := int(x.at - base); at <= from+limit {
				return at, nil
			}
			return -1, nil
		}
		at, safe := x.find(s.w, int(x.at-base))
		if x.found = at >= 0; x.found {
			safe = at
		}
		x.at = base + int64(safe)
		if x.found {
			continue
		}
		if len(s.w) > from+limit {
			return -1, nil
		}
		if ok, err := more(s.in, &s.w); !ok {
			return -1, err
		}
	}
}

// findRecordTag finds the first start or end tag of a record, wherever it is.
func (s *scanner) findRecordTag(b []byte, from int) (at, safe int) {
	for at = from; ; at++ {
		i := bytes.IndexByte(b[at:], '<')
		if i < 0 {
			return -1, len(b)
		}
		at += i
		name, ended := s.name(b, at+1+slash(b, at))
		if !ended && len(name) < maxName {
			return -1, at
		}
		if slices.Contains(s.records, name) {
			return at, 0
		}
	}
}

// slash returns 1 if the tag at offset at is an end tag.
func slash(b []byte, at int) int {
	if at+1 < len(b) && b[at+1] == '/' {
		return 1
	}
	return 0
}

// name returns the name that begins at offset at, with its prefix, and whether it ends within b.
// The names of HTML are in lower case.
func (s *scanner) name(b []byte, at int) (string, bool) {
	b = b[min(at, len(b)):]
	n := bytes.IndexAny(b[:min(len(b), maxName)], " \t\r\n/><\"'=")
	ended := n >= 0
	if !ended {
		n = min(len(b), maxName)
	}
	if s.html {
		return strings.ToLower(string(b[:n])), ended
	}
	return string(b[:n]), ended
}

// nameAt is name in s.w. It buffers as much as the name has.
func (s *scanner) nameAt(at int) (string, error) {
	for {
		name, ended := s.name(s.w, at)
		if ended || len(name) == maxName {
			return name, nil
		}
		if ok, err := more(s.in, &s.w); !ok {
			return name, err
		}
	}
}

// ensure buffers n bytes if the object has as many.
func (s *scanner) ensure(n int) error {
	for len(s.w) < n {
		if ok, err := more(s.in, &s.w); !ok {
			return err
		}
	}
	return nil
}

// hasPrefix reports whether prefix is at offset at.
func (s *scanner) hasPrefix(at int, prefix string) (bool, error) {
	err := s.ensure(at + len(prefix))
	return bytes.HasPrefix(s.w[min(at, len(s.w)):], []byte(prefix)), err
}

// consume passes n bytes.
func (s *scanner) consume(n int) {
	s.in.Consume(n)
	s.w = s.in.Buffered()
}

// scan returns the next record, from its start tag on, or the reason of a reject. The record is
// valid until the next call. At the end of the object the error is io.EOF.
func (s *scanner) scan() (record []byte, reason string, err error) {
	s.w = s.in.Buffered()
	for {
		i := bytes.IndexByte(s.w, '<')
		if i < 0 && len(s.w) <= s.max {
			if ok, err := more(s.in, &s.w); ok {
				continue
			} else if err != nil {
				return nil, "", err
			}
			if len(s.w) == 0 && (s.open > 0 || s.html && !s.lists) {
				return nil, "", io.ErrUnexpectedEOF
			} else if len(s.w) == 0 {
				return nil, "", io.EOF
			}
		}
		if i < 0 {
			i = len(s.w)
		}
		if n := s.lost(s.w[:i]); n > 0 {
			blank := i - len(bytes.TrimLeft(s.w[:i], " \t\r\n"))
			s.consume(blank)
			s.in.SetRecord(s.in.Position())
			s.consume(n - blank)
			if reason, s.suspect = s.bad(raw.BadMarkup), false; reason != "" {
				return nil, reason, nil
			}
			continue
		}
		if s.consume(i); len(s.w) == 0 {
			continue
		}
		s.in.SetRecord(s.in.Position())
		if record, reason, err = s.markup(); record != nil || reason != "" || err != nil {
			return record, reason, err
		}
	}
}

// bookmarkURL and outlineURL match an attribute that has the URL of a record.
var (
	bookmarkURL = regexp.MustCompile(`(?i)href\s*=\s*["']`)
	outlineURL  = regexp.MustCompile(`(?i)\s(xml|html)?url\s*=\s*["']`)
)

// lost returns the length of the first tag in b, which lies outside records, that has the attribute
// of a record, 0 for none: the name of its element, or its <, is damaged.
func (s *scanner) lost(b []byte) int {
	if !s.root.tagOnly && !s.lists || bytes.IndexByte(b, '=') < 0 {
		return 0
	}
	attribute := outlineURL
	if s.html {
		attribute = bookmarkURL
	}
	m := attribute.FindIndex(b)
	if m == nil {
		return 0
	}
	if n := bytes.IndexByte(b[m[1]:], '>'); n >= 0 {
		return m[1] + n + 1
	}
	return len(b)
}

// bad returns the reason of a reject, unless the rest of an already rejected record causes it.
func (s *scanner) bad(reason string) string {
	if s.suspect {
		return ""
	}
	s.suspect = true
	return reason
}

// markup consumes the tag, comment or section at the beginning of the window, and the whole element
// if it is a record. It returns neither record nor reason if it is nothing of interest.
func (s *scanner) markup() (record []byte, reason string, err error) {
	if n, bad, err := s.section(0); n > 0 || bad || err != nil {
		const start = len("<!--")
		if bad && n == 0 && len(s.w) > s.max+start && s.w[1] == '!' && s.w[2] == '-' &&
			!bytes.Contains(s.w[start:s.max+start], []byte("--")) {
			return nil, "", s.passComment()
		}
		if bad {
			n = 1
			reason = s.bad(raw.BadMarkup)
		} else if err == nil {
			if at, err := s.next(&s.tag, 0, n); err == nil && at >= 0 && at < n {
				s.counts.Comments++ // a record that was commented out
			}
		}
		if err == nil {
			s.consume(min(n, len(s.w)))
		}
		return nil, reason, err
	}
	if err := s.ensure(2); err != nil {
		return nil, "", err
	}
	end := slash(s.w, 0)
	name, err := s.nameAt(1 + end)
	if err != nil {
		return nil, "", err
	}
	isRecord := slices.Contains(s.records, name)
	switch {
	case end == 0 && isRecord:
		return s.record(name)
	case end == 1 && isRecord && !s.html && !s.root.tagOnly:
		// It ends a record that was rejected, or one whose start was lost.
		reason, s.suspect = s.bad(raw.BadMarkup), false
	case end == 0 && s.html && s.isRoot(name):
		s.open, s.lists = s.open+1, true
	case end == 0 && !s.html:
		if err := s.startRoot(name); err != nil {
			return nil, "", err
		}
	case end == 1 && s.isRoot(name):
		n, err := s.closing(2)
		if err != nil {
			return nil, "", err
		}
		if s.w[n-1] == '>' {
			s.open, s.suspect = max(s.open-1, 0), false
		}
	}
	s.consume(1)
	return nil, reason, nil
}

// isRoot reports whether a name is the name of the root or, in HTML, of a list.
func (s *scanner) isRoot(name string) bool {
	if s.html {
		return name == "dl" || name == "ul"
	}
	return s.root.name != "" && local(name) == s.root.name
}

func local(name string) string { return name[strings.IndexByte(name, ':')+1:] }

func prefix(name string) string { return name[:max(0, strings.IndexByte(name, ':'))] }

// startRoot takes from a root what it declares about its records. It ignores other elements.
func (s *scanner) startRoot(name string) error {
	i := slices.IndexFunc(roots, func(r root) bool { return r.name == local(name) && r.format == s.format })
	channel := local(name) == "channel"
	if i < 0 && !channel {
		return nil
	}
	n, empty, err := s.tagEnd(0)
	if err != nil {
		return err
	}
	attributes := tagAttributes(s.w[:max(n, 0)])
	base := attributes["xml:base"]
	if channel {
		s.base = rebase(s.within, base)
		return nil
	}
	s.root, s.open, s.suspect, s.within = roots[i], 1, false, rebase("", base)
	s.base = s.within
	if empty {
		s.open = 0
	}
	prefixes := []string{"", prefix(name)}
	for key, value := range attributes {
		if p, ok := strings.CutPrefix(key, "xmlns:"); ok && slices.Contains(s.root.namespaces, value) {
			prefixes = append(prefixes, p)
		}
	}
	s.records = nil
	for _, p := range prefixes {
		if p != "" {
			p += ":"
		}
		if name := p + s.root.record; !slices.Contains(s.records, name) {
			s.records = append(s.records, name)
		}
	}
	s.tag.from, s.tag.at = 0, 0 // it knew the names of records before
	return nil
}

// section returns the length of the comment or the CDATA section at offset at, 0 if there is none.
// It is bad if it does not end, or if its end was lost and it ends in a later record.
func (s *scanner) section(at int) (n int, bad bool, err error) {
	find, skip := &s.comment, len("<!--")
	is, err := s.hasPrefix(at, "<!--")
	if err == nil && !is && !s.html {
		find, skip = &s.cdata, len("<![CDATA[")
		is, err = s.hasPrefix(at, "<![CDATA[")
	}
	if err != nil || !is {
		return 0, false, err
	}
	end, err := s.next(find, at+skip, s.max)
	if err != nil || end < 0 {
		return 0, err == nil, err
	}
	// A comment has no -- inside; and no CDATA section has the end of a record and not its start.
	if find == &s.comment {
		bad = bytes.Contains(s.w[at+skip:end], []byte("--"))
	}
	if tag, err := s.next(&s.tag, at+skip, end-at); err != nil || tag < 0 || tag >= end {
		bad = false
	} else if find == &s.cdata {
		bad = slash(s.w, tag) == 1
	}
	return end + len("-->") - at, bad, nil
}

// passComment passes a comment of more than s.max bytes, which are not held. One without an end is
// an error: where the records go on is unknown.
func (s *scanner) passComment() error {
	at := s.in.Offset()
	s.consume(len("<!--"))
	for {
		i := bytes.Index(s.w, []byte("--"))
		if i >= 0 {
			if is, err := s.hasPrefix(i, "-->"); is || err != nil {
				s.consume(i + len("-->"))
				s.counts.Comments++
				return err
			}
			return fmt.Errorf("the comment at byte %d has more than %d bytes and no end; mend it", at, s.max)
		}
		s.consume(max(len(s.w)-1, 0))
		if ok, err := more(s.in, &s.w); !ok {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
}

// tagEnd returns the offset behind the tag at offset at, and whether the tag is an empty element.
// If the tag does not end as it should, end is 0 if it has more than s.max bytes, and -1 if another
// tag begins in it or the object ends.
func (s *scanner) tagEnd(at int) (end int, empty bool, err error) {
	quote := byte(0)
	for i := at + 1; ; i++ {
		if i >= len(s.w) {
			if ok, err := more(s.in, &s.w); !ok {
				return -1, false, err
			}
		}
		switch c := s.w[i]; {
		case i-at > s.max:
			return 0, false, nil
		case c == '<':
			// Attributes of HTML may have tags, as bookmarklets do; but not the next bookmark.
			if quote == 0 || !s.html {
				return -1, false, nil
			}
			if err := s.ensure(i + len("<dt>")); err != nil {
				return -1, false, err
			}
			if next := strings.ToLower(string(s.w[i:min(len(s.w), i+len("<dt>"))])); next == "<dt>" || next == "<li>" {
				return -1, false, nil
			}
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			if j := bytes.TrimRight(s.w[at:i], " \t\r\n"); len(j) > 0 && j[len(j)-1] == '=' {
				quote = c
			} else if !s.html {
				return -1, false, nil
			}
		case c == '>':
			return i + 1, s.w[i-1] == '/', nil
		}
	}
}

// record returns the record at the beginning of the window, and consumes it.
func (s *scanner) record(name string) (record []byte, reason string, err error) {
	s.suspect = false
	end, empty, err := s.tagEnd(0)
	if err != nil {
		return nil, "", err
	}
	if end <= 0 {
		return nil, s.unended(end == 0), nil
	}
	if s.root.tagOnly || empty && !s.html {
		return s.take(end), "", nil
	}
	for at := end; ; {
		i := bytes.IndexByte(s.w[at:], '<')
		if i < 0 || at+i > s.max {
			if at = len(s.w); at > s.max {
				return nil, s.unended(true), nil
			}
			if ok, err := more(s.in, &s.w); !ok {
				if err == nil && s.html {
					return s.take(len(s.w)), "", nil
				}
				if err == nil {
					err = io.ErrUnexpectedEOF
				}
				return nil, "", err
			}
			continue
		}
		at += i
		n, bad, err := s.section(at)
		switch {
		case err != nil:
			return nil, "", err
		case bad:
			return nil, s.unended(false), nil
		case n > 0:
			at += n
			continue
		}
		if err := s.ensure(at + 2); err != nil {
			return nil, "", err
		}
		end := slash(s.w, at)
		other, err := s.nameAt(at + 1 + end)
		if err != nil {
			return nil, "", err
		}
		switch {
		case other == name && end == 1:
			// A tag that does not end is left to the parser, which finds that it is not whole.
			n, err := s.closing(at + 2)
			return s.take(n), "", err
		case slices.Contains(s.records, other) && end == 0, end == 1 && s.isRoot(other),
			s.html && (other == "dt" || other == "dl"):
			return s.take(at), "", nil
		}
		at++
	}
}

// closing returns the offset behind the end tag whose name is at offset at. If the end tag does not
// end, closing returns the offset of the next tag, or one behind s.max.
func (s *scanner) closing(at int) (int, error) {
	for ; ; at++ {
		if at > s.max {
			return at, nil
		}
		if at == len(s.w) {
			if ok, err := more(s.in, &s.w); !ok {
				return at, err
			}
		}
		switch s.w[at] {
		case '>':
			return at + 1, nil
		case '<':
			return at, nil
		}
	}
}

// take consumes the record of the first n bytes and returns it.
func (s *scanner) take(n int) []byte {
	record := s.w[:n:n]
	s.consume(n)
	return record
}

// unended consumes the start of a record whose end is not where it should be, and returns why it is
// rejected.
func (s *scanner) unended(long bool) string {
	s.suspect = true
	s.consume(1)
	if long {
		return raw.TooLong
	}
	return raw.BadMarkup
}
