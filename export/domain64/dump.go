package domain64

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Entry is a name with its code. Of the name only the label at the level of the code counts here.
type Entry struct {
	Code Code
	Name Name
}

// WriteJSON writes the tree of entries, which ascend by code and have every parent, as JSON:
// objects by the hex digits of each number, so that sorting by key is sorting by code.
//
//	{"01": {"name": "com", "children": {"000001": {"name": "jadud", "children": {"01": "research"}}}}}
//
// A subdomain or path with nothing below it is its name. Paths of a host are in a member "paths",
// since they would mix with the numbers of subdomains. Memory does not grow with the tree.
func (l Layout) WriteJSON(w io.Writer, entries iter.Seq2[Entry, error]) error {
	return l.write(w, entries, "", "")
}

// WriteJsonnet writes the same tree as Jsonnet, in the style of jsonnetfmt: it begins with a
// comment that names the layout, and every member ends with a comma. The value is that of
// WriteJSON.
func (l Layout) WriteJsonnet(w io.Writer, entries iter.Seq2[Entry, error]) error {
	return l.write(w, entries, "// domain64, layout "+l.String()+"\n", ",")
}

func (l Layout) write(w io.Writer, entries iter.Seq2[Entry, error], head, lastComma string) error {
	next, stop := iter.Pull2(entries)
	defer stop()
	d := dumper{layout: l, out: bufio.NewWriter(w), lastComma: lastComma, next: next}
	d.text(head)
	d.advance()
	d.object(0, TLD, 0)
	d.text("\n")
	switch {
	case d.err != nil:
	case d.more:
		d.err = fmt.Errorf("domain64 %s: %s after %s: want ascending codes with every parent before what is below it",
			l, l.Format(d.at.Code), l.Format(d.last))
	default:
		d.err = d.out.Flush()
	}
	return d.err
}

// dumper writes a tree while it reads it.
type dumper struct {
	layout    Layout
	out       *bufio.Writer
	lastComma string
	next      func() (Entry, error, bool)
	at        Entry // the entry that is written next
	more      bool  // there is one
	last      Code
	err       error
}

func (d *dumper) advance() {
	if d.more {
		d.last = d.at.Code
	}
	if d.at, d.err, d.more = d.next(); d.err != nil {
		d.more = false
	}
}

func (d *dumper) text(s string) { _, _ = d.out.WriteString(s) } // Flush returns the error

func (d *dumper) indent(depth int) {
	d.text("\n")
	for range depth {
		d.text("  ")
	}
}

// is reports whether the next entry is one of a level directly below parent.
func (d *dumper) is(parent Code, level Level) bool {
	if !d.more || d.at.Code <= d.last {
		return false
	}
	at, ok := d.layout.Level(d.at.Code)
	return ok && at == level && d.layout.Parent(d.at.Code) == parent
}

// object writes the entries of a level below parent.
func (d *dumper) object(parent Code, level Level, depth int) {
	d.text("{")
	first := true
	for ; d.is(parent, level); first = false {
		if !first {
			d.text(",")
		}
		d.indent(depth + 1)
		d.entry(level, depth+1)
	}
	if !first {
		d.text(d.lastComma)
		d.indent(depth)
	}
	d.text("}")
}

// entry writes the next entry and what is below it.
func (d *dumper) entry(level Level, depth int) {
	e := d.at
	d.advance()
	key := d.layout.appendHex(nil, level, d.layout.Decode(e.Code)[level])
	name, _ := json.Marshal(e.Name.Label(level)) // a string
	d.text(`"` + string(key) + `": `)
	below := level + 1
	paths, children := d.is(e.Code, Path) && level < Path, below < Path && d.is(e.Code, below)
	if !paths && !children && level >= Sub {
		d.text(string(name))
		return
	}
	d.text("{")
	d.indent(depth + 1)
	d.text(`"name": ` + string(name))
	if paths {
		d.text(",")
		d.indent(depth + 1)
		d.text(`"paths": `)
		d.object(e.Code, Path, depth+1)
	}
	if below < Path && d.is(e.Code, below) {
		d.text(",")
		d.indent(depth + 1)
		d.text(`"children": `)
		d.object(e.Code, below, depth+1)
	}
	d.text(d.lastComma)
	d.indent(depth)
	d.text("}")
}
