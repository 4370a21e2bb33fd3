package markup

import (
	"bytes"
	"io"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// link is a link of application/link-format (RFC 6690 section 2, RFC 8288 section 3).
type link struct {
	uri, rel, datetime []byte
}

// is reports whether a relation type is one of the link's.
func (l *link) is(rel string) bool {
	for _, r := range strings.Fields(string(l.rel)) {
		if strings.EqualFold(r, rel) {
			return true
		}
	}
	return false
}

// parseLink parses the link at the beginning of b, which begins with <. n is the offset behind it,
// or where it ceases to be a link if ok is false. If b ends before the link does, n is -1; whole
// says that nothing follows b.
func parseLink(b []byte, whole bool) (l link, n int, ok bool) {
	ended := func() (link, int, bool) {
		if whole {
			return l, len(b), false
		}
		return l, -1, false
	}
	i := bytes.IndexAny(b[1:], "<>\r\n") + 1
	if i == 0 {
		return ended()
	}
	if b[i] != '>' {
		return l, i, false
	}
	l.uri = text.TrimSpace(b[1:i])
	for i++; ; {
		for i < len(b) && (text.IsSpace(b[i]) || b[i] == ';') {
			i++
		}
		if i == len(b) {
			if whole {
				return l, i, true
			}
			return l, -1, false
		}
		if b[i] == ',' {
			return l, i + 1, true
		}
		if b[i] == '<' { // the comma is missing
			return l, i, true
		}
		n := bytes.IndexAny(b[i:], "=;,<\"")
		if n < 0 {
			return ended()
		}
		name := text.TrimSpace(b[i : i+n])
		if i += n; b[i] != '=' {
			if b[i] == '"' {
				return l, i, false
			}
			continue // a parameter without a value
		}
		for i++; i < len(b) && text.IsSpace(b[i]); i++ {
		}
		if i == len(b) {
			return ended()
		}
		var value []byte
		if b[i] == '"' {
			i++
			n := bytes.IndexAny(b[i:], "\"<\r\n")
			if n < 0 {
				return ended()
			}
			if b[i+n] != '"' {
				return l, i + n, false
			}
			value, i = b[i:i+n], i+n+1
		} else {
			n := bytes.IndexAny(b[i:], ";,< \t\r\n")
			if n < 0 {
				if !whole {
					return l, -1, false
				}
				n = len(b) - i
			}
			value, i = b[i:i+n], i+n
		}
		switch strings.ToLower(string(name)) {
		case "rel":
			l.rel = value
		case "datetime":
			l.datetime = value
		}
	}
}

// links calls each for the links at the beginning of a TimeMap until it returns false.
func links(b []byte, whole bool, each func(link) bool) {
	for {
		i := bytes.IndexByte(b, '<')
		if i < 0 {
			return
		}
		l, n, ok := parseLink(b[i:], whole)
		if n < 0 || ok && !each(l) {
			return
		}
		b = b[i+max(n, 1):]
	}
}

// original returns the URL of the original resource in the TimeMap at the beginning of b, nil if it
// names none.
func original(b []byte, whole bool) (uri []byte) {
	links(b, whole, func(l link) bool {
		if l.is("original") {
			uri = bytes.Clone(l.uri)
		}
		return uri == nil
	})
	return uri
}

// timeMapParser reads the mementos of TimeMaps. A memento is a capture of the original.
type timeMapParser struct {
	row
	in       *text.Input
	max      int
	original []byte // of the mementos that follow
	suspect  bool   // what follows was rejected
}

func newTimeMapParser(in *text.Input, plan raw.Plan, r row) *timeMapParser {
	head, _ := in.Peek(raw.HeadSize) // Next returns the error
	return &timeMapParser{row: r, in: in, max: plan.MaxLine, original: original(head, len(head) < raw.HeadSize)}
}

// Next implements text.Parser.
func (p *timeMapParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		l, reason, err := p.link()
		switch {
		case err != nil:
			return err
		case reason != "":
			rej.Reason = reason
			return nil
		case l.is("original"):
			p.original = append(p.original[:0], l.uri...)
		case l.is("memento") && len(l.datetime) > 0:
			p.reset()
			p.set(columnURL, p.original)
			p.set(columnTimestamp, l.datetime)
			p.set("memento", l.uri)
			rej.Reason = p.record(rec)
			return nil
		case l.is("memento"), len(l.datetime) > 0, len(l.rel) == 0:
			rej.Reason = raw.BadLink
			return nil
		}
		p.fields.Counts.Comments++ // not of a memento
	}
}

// link consumes the next link, or returns why it is rejected.
func (p *timeMapParser) link() (link, string, error) {
	for {
		w := p.in.Buffered()
		i := bytes.IndexByte(w, '<')
		between := w
		if i >= 0 {
			between = w[:i]
		}
		if junk := bytes.Trim(between, " \t\r\n,"); len(junk) > 0 && !p.suspect {
			// At its start: a link that lost its <.
			p.in.Consume(bytes.Index(between, junk))
			p.in.SetRecord(p.in.Position())
			p.suspect = true
			return link{}, raw.BadLink, nil
		}
		p.in.Consume(len(between))
		if i < 0 {
			w = nil
			if ok, err := more(p.in, &w); err != nil {
				return link{}, "", err
			} else if !ok {
				return link{}, "", io.EOF
			}
			continue
		}
		return p.linkHere()
	}
}

// linkHere is link where a link begins.
func (p *timeMapParser) linkHere() (link, string, error) {
	p.in.SetRecord(p.in.Position())
	p.suspect = false
	w := p.in.Buffered()
	whole := false
	for {
		l, n, ok := parseLink(w, whole)
		switch {
		case n > p.max || n < 0 && len(w) > p.max:
			p.suspect = true
			p.in.Consume(1)
			return link{}, raw.TooLong, nil
		case ok:
			p.in.Consume(n)
			return l, "", nil
		case n >= 0 && n == len(w) && whole:
			return link{}, "", io.ErrUnexpectedEOF
		case n >= 0:
			p.suspect = true
			p.in.Consume(max(n, 1))
			return link{}, raw.BadLink, nil
		}
		ok, err := more(p.in, &w)
		if err != nil {
			return link{}, "", err
		}
		whole = !ok
	}
}
