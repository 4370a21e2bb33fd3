package markup

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// The terms of a statement.
const (
	subject = iota
	predicate
	object
	graph
)

// term is a term of a statement: an IRI, or something else, such as a literal or a blank node.
type term struct {
	iri   []byte // with its escapes
	other []byte
}

func (t term) isZero() bool { return t.iri == nil && t.other == nil }

// parseStatement parses the statement of N-Triples or N-Quads
// (https://www.w3.org/TR/n-quads/#sec-grammar) at the beginning of a line. rest is what follows its
// full stop.
func parseStatement(line []byte) (terms [4]term, rest []byte, ok bool) {
	rest = line
	for i := range terms {
		if rest = text.TrimSpace(rest); i == graph && len(rest) > 0 && rest[0] == '.' {
			break
		}
		if terms[i], rest, ok = parseTerm(rest); !ok {
			return terms, rest, false
		}
	}
	rest = text.TrimSpace(rest)
	if terms[predicate].iri == nil || len(rest) == 0 || rest[0] != '.' ||
		terms[subject].iri == nil && terms[subject].other[0] != '_' ||
		!terms[graph].isZero() && terms[graph].iri == nil && terms[graph].other[0] != '_' {
		return terms, rest, false
	}
	return terms, text.TrimSpace(rest[1:]), true
}

func parseTerm(b []byte) (t term, rest []byte, ok bool) {
	if len(b) < 2 {
		return t, b, false
	}
	switch {
	case b[0] == '<':
		n := bytes.IndexAny(b[1:], "<>\"{}|^` \t") + 1
		if n < 2 || b[n] != '>' {
			return t, b, false
		}
		return term{iri: b[1:n]}, b[n+1:], true
	case b[0] == '_' && b[1] == ':':
		n := 2
		for n < len(b) && !text.IsSpace(b[n]) && b[n] != '<' && b[n] != '"' {
			n++
		}
		if b[n-1] == '.' { // of the statement
			n--
		}
		return term{other: b[:n]}, b[n:], n > 2
	case b[0] == '"':
		n := 1
		for n < len(b) && b[n] != '"' {
			if b[n] == '\\' {
				n++
			}
			n++
		}
		if n >= len(b) {
			return t, b, false
		}
		n++
		switch {
		case n < len(b) && b[n] == '@':
			for n++; n < len(b) && (b[n] == '-' || b[n]|0x20 >= 'a' && b[n]|0x20 <= 'z' || b[n] >= '0' && b[n] <= '9'); n++ {
			}
		case bytes.HasPrefix(b[n:], []byte("^^<")):
			_, rest, ok := parseTerm(b[n+2:])
			return term{other: b[:n]}, rest, ok
		}
		return term{other: b[:n]}, b[n:], true
	}
	return t, b, false
}

// appendIRI appends an IRI without its escapes, \u with four and \U with eight hex digits. It
// returns false if one is malformed.
func appendIRI(out, iri []byte) ([]byte, bool) {
	for {
		i := bytes.IndexByte(iri, '\\')
		if i < 0 {
			return append(out, iri...), true
		}
		out, iri = append(out, iri[:i]...), iri[i:]
		digits := 0
		if len(iri) > 1 {
			digits = map[byte]int{'u': 4, 'U': 8}[iri[1]]
		}
		if digits == 0 || len(iri) < 2+digits {
			return out, false
		}
		r, err := strconv.ParseUint(string(iri[2:2+digits]), 16, 32)
		if err != nil || !utf8.ValidRune(rune(r)) {
			return out, false
		}
		out, iri = utf8.AppendRune(out, rune(r)), iri[2+digits:]
	}
}

// tripleParser reads statements. Unless a column was named, each IRI that is the subject, the
// object or the graph is a record: predicates are words of a vocabulary.
type tripleParser struct {
	row
	in   *text.Input
	urls []int         // which terms are URLs
	text []byte        // the line
	line []byte        // the rest of the line
	at   text.Position // of the line
	// rest are the terms of the statement that are still to be returned.
	terms [4]term
	rest  []int
	iri   []byte
}

func newTripleParser(in *text.Input, r row) *tripleParser {
	p := &tripleParser{row: r, in: in, urls: []int{subject, object, graph}}
	if r.url > 0 {
		p.urls = []int{r.url - 1}
	}
	return p
}

// Next implements text.Parser.
func (p *tripleParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		if len(p.rest) > 0 {
			t := p.terms[p.rest[0]]
			p.rest = p.rest[1:]
			p.in.SetRecord(p.place(t.iri))
			rej.Reason = p.term(rec, t)
			return nil
		}
		if len(p.line) == 0 || p.line[0] == '#' {
			line, long, err := p.in.ReadLine()
			if err != nil {
				return err
			}
			p.at, p.text = p.in.Record(), line
			if long {
				rej.Reason = raw.TooLong
				return nil
			}
			switch p.line = text.TrimSpace(line); {
			case len(p.line) == 0:
				p.fields.Counts.Blank++
				continue
			case p.line[0] == '#':
				p.fields.Counts.Comments++
				continue
			}
		}
		at := p.place(p.line)
		var ok bool
		if p.terms, p.line, ok = parseStatement(p.line); !ok {
			p.in.SetRecord(at)
			p.line = nil
			rej.Reason = raw.BadTriple
			return nil
		}
		for _, i := range p.urls {
			if p.terms[i].iri != nil {
				p.rest = append(p.rest, i)
			}
		}
		if len(p.rest) == 0 {
			p.fields.Counts.Blank++ // literals and blank nodes
		}
	}
}

// place returns the position of a part of the line.
func (p *tripleParser) place(part []byte) text.Position {
	return text.Position{Line: p.at.Line, Offset: p.at.Offset + int64(cap(p.text)-cap(part))} // of one buffer
}

// term makes a record of an IRI, or returns the reason of the reject.
func (p *tripleParser) term(rec *raw.Record, t term) string {
	p.reset()
	for i, t := range p.terms {
		p.set(p.names[i+1], t.other)
		p.set(p.names[i+1], t.iri)
	}
	var ok bool
	if p.iri, ok = appendIRI(p.iri[:0], t.iri); !ok {
		return raw.BadTriple
	}
	p.values[p.url] = append(p.values[p.url][:0], p.iri...)
	return p.record(rec)
}
