package detect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
)

// sniffObjects returns JSONLines if a line is a whole document, JSON if the first document
// continues past its line.
func (d *detector) sniffObjects(lines [][]byte) string {
	var doc jsondoc.Document
	for i, l := range lines {
		if doc.Parse(trimJSONLine(l)) {
			return raw.JSONLines
		}
		if i == 0 && doc.Truncated && len(lines) > 1 {
			return raw.JSON
		}
	}
	return raw.JSONLines
}

// trimJSONLine removes white space and record separators (RFC 7464) around a document.
func trimJSONLine(l []byte) []byte { return text.TrimSpace(bytes.TrimLeft(l, "\x1e")) }

// stringLines reports whether the lines are JSON strings and not a CSV table of one quoted column,
// which has a header or a name that ends in .csv, .tsv or .tab.
func (d *detector) stringLines(lines [][]byte) bool {
	if d.ext == ".csv" || d.ext == ".tsv" || d.ext == ".tab" {
		return false
	}
	var doc jsondoc.Document
	for i, l := range lines {
		if !doc.Parse(trimJSONLine(l)) || doc.Nodes[0].Kind != '"' || i == 0 && !looksURL(doc.Text(&doc.Nodes[0])) {
			return false
		}
	}
	return true
}

// jsonColumn returns the column at a path.
func jsonColumn(path string) (raw.Column, error) { return raw.Column{Name: path}, nil }

// leaf is a member of the sampled documents, or a column of Parquet, and what its values look like.
type leaf struct {
	path                []string
	class               int
	values, urls, hosts int // numbers of values that are not blank
	time                *timeColumn
}

// noteAbsent notes the members that the options name and no sampled record has. They may come
// later, so that they are no error, but more often the name is wrong.
func (d *detector) noteAbsent(docs []*jsondoc.Document) {
	if len(docs) < 2 {
		return // one document may be a map of records
	}
	wanted, _ := d.opt.WantsExtras()
	for _, name := range append([]string{d.opt.URLColumn, d.opt.TSColumn, d.opt.SizeField}, wanted...) {
		if name == "" || name == "*" || name == raw.None && d.noTime {
			continue
		}
		path := jsondoc.SplitPath(name)
		has := func(doc *jsondoc.Document) bool { return len(doc.Nodes) > 0 && doc.Find(0, path) > 0 }
		if !slices.ContainsFunc(docs, has) {
			d.note("no record at the beginning has the member %q", name)
		}
	}
}

// planJSON chooses members for the columns that the options do not name. A document that is one
// object around its records becomes a plan with Depth.
func (d *detector) planJSON() error {
	if err := d.planNamed(jsonColumn, jsonColumn); err != nil {
		return err
	}
	docs := d.documents()
	var leaves []*leaf
	strs, objects := 0, 0
	for _, doc := range docs {
		switch {
		case len(doc.Nodes) == 0:
		case doc.Nodes[0].Kind == '"':
			strs++
		case doc.Nodes[0].Kind == '{':
			objects++
			leaves = d.collect(leaves, doc, 0, nil)
		}
	}
	d.noteAbsent(docs)
	if d.opt.URLColumn != "" {
		path := jsondoc.SplitPath(d.opt.URLColumn)
		if len(docs) == 1 && objects == 1 && docs[0].Find(0, path) == 0 && d.planMap(docs[0]) {
			return nil
		}
		d.chooseTS(leaves)
		return nil
	}
	if objects == 0 && strs > 0 {
		return nil
	}
	if len(docs) == 0 {
		d.plan.URL.Name = "url"
		return nil
	}
	best, also := chooseLeaf(leaves, len(docs))
	if len(docs) == 1 && (best == nil || len(best.path) > 1) && d.planMap(docs[0]) {
		return nil
	}
	if len(docs) == 1 && isMISP(d.text) {
		return d.reject("it is a MISP event, whose attributes are URLs, hosts and other things",
			`write the URLs as lines first `+
				`(jq -r '.. | objects | select(.type? | IN("url", "uri", "domain", "hostname")) | .value')`)
	}
	if best == nil {
		return d.reject("no member of its JSON objects looks like a URL",
			"name it by its path (--url-column attributes.url), "+
				"or write its records as lines first (jq -c '.. | objects | select(.url)')")
	}
	if len(docs) == 1 && len(best.path) > 1 {
		return d.reject("it is one JSON document with its URLs inside, not a sequence of records",
			"write its records as lines first (jq -c '.[]', or jq -c '.. | objects | select(.url)')")
	}
	d.plan.URL.Name = jsondoc.JoinPath(best.path)
	d.noteURL(best, also)
	d.chooseTS(leaves)
	return nil
}

// chooseTS chooses the time among the members of the object that has the URL, and of those around
// it.
func (d *detector) chooseTS(leaves []*leaf) {
	url := jsondoc.SplitPath(d.plan.URL.Path())
	var candidates []*timeColumn
	for _, l := range leaves {
		parents := len(l.path) - 1
		if parents < len(url) && slices.Equal(l.path[:parents], url[:parents]) && !slices.Equal(l.path, url) {
			candidates = append(candidates, l.time)
		}
	}
	d.chooseTime(candidates)
}

// noteURL notes which member was chosen for the URL, unless only that one has a name for URLs and
// it is in no inner object.
func (d *detector) noteURL(best *leaf, also []string) {
	if best.class == 0 || len(also) > 0 || len(best.path) > 1 {
		d.note("the URL is read from %q%s (--url-column chooses)", d.plan.URL.Name, couldBe(also))
	}
}

// couldBe returns the part of a note that names the columns as good as the chosen one.
func couldBe(also []string) string {
	if len(also) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s could be it too", raw.QuoteNames(also))
}

// planMap plans a document that is one object around its records, and reports whether the document
// is one. The members of the object are records, or arrays or objects of records, and so on to
// sampleDepth. The records are at the first level that meets these conditions:
//
//   - It has at least two objects, and nine of ten of its values are objects.
//   - A quarter of the objects have a URL in the member that the options name, else in a member
//     with a name for URLs.
//
// The reader rejects scalars beside the records and above them. A document about one thing, with
// links in it, does not meet the conditions.
func (d *detector) planMap(doc *jsondoc.Document) bool {
	if d.opt.Format == raw.JSONLines || len(doc.Nodes) == 0 || doc.Nodes[0].Kind != '{' {
		return false
	}
	level, want := []int{0}, jsondoc.SplitPath(d.opt.URLColumn)
	for depth := 1; depth <= sampleDepth; depth++ {
		var values []int
		for _, node := range level {
			n := &doc.Nodes[node]
			if n.Kind != '{' && n.Kind != '[' {
				continue
			}
			values = slices.AppendSeq(values, doc.Children(node))
		}
		level = values
		var leaves, named []*leaf
		objects := 0
		for _, v := range values {
			if doc.Nodes[v].Kind == '{' {
				objects++
				leaves = d.collect(leaves, doc, v, nil)
				if at := doc.Find(v, want); at > 0 {
					named = d.observe(named, doc, at, want)
				}
			}
		}
		if objects < 2 || objects*10 < len(values)*9 {
			continue
		}
		var best *leaf
		var also []string
		if want == nil {
			urls := slices.DeleteFunc(slices.Clone(leaves), func(l *leaf) bool {
				return l.urls+l.hosts == 0 || !isTSName(l.path[0]) && (len(l.path) > 1 || l.class == 0)
			})
			best, also = chooseLeaf(urls, objects)
		} else if len(named) > 0 && named[0].urls+named[0].hosts > 0 {
			best = named[0]
		}
		if best == nil || best.values*4 < objects {
			continue
		}
		d.plan.Format, d.plan.Depth = raw.JSON, depth
		d.plan.URL.Name = jsondoc.JoinPath(best.path)
		d.chooseTS(leaves)
		d.note("it is one JSON object around its records, at depth %d; their URL is %q%s (--url-column chooses)",
			depth, d.plan.URL.Name, couldBe(also))
		return true
	}
	return false
}

// isMISP reports whether text is an event of the Malware Information Sharing Platform
// (https://www.misp-standard.org/rfc/misp-standard-core.html).
func isMISP(text []byte) bool {
	has := func(name string) bool { return bytes.Contains(text, []byte(name)) }
	return has(`"Event"`) && (has(`"orgc_id"`) || has(`"Attribute"`))
}

// documents parses the first sampleRows values. A value that continues past the head has the
// members in the head.
func (d *detector) documents() []*jsondoc.Document {
	var docs []*jsondoc.Document
	if d.plan.Format == raw.JSONLines {
		for _, l := range d.lines() {
			doc := &jsondoc.Document{Deep: true}
			if doc.Parse(trimJSONLine(l)) || doc.Truncated {
				docs = append(docs, doc)
			}
		}
		return docs
	}
	// A value that is too long for a record may hold records.
	in := text.NewBytesInput(d.text, d.eol(), len(d.text))
	values := text.NewValues(in)
	for len(docs) < sampleRows {
		value, long, err := values.Next()
		if err != nil && !errors.Is(err, text.ErrTruncated) {
			break
		}
		doc := &jsondoc.Document{Deep: true}
		if err != nil {
			doc.Parse(in.Buffered())
			return append(docs, doc)
		}
		if !long && doc.Parse(value) {
			docs = append(docs, doc)
		}
	}
	return docs
}

// collect adds the members in node to leaves, in the order in which they are first met. It leaves
// out names that are not UTF-8: a plan, which is stored as JSON, could not name them.
func (d *detector) collect(leaves []*leaf, doc *jsondoc.Document, node int, path []string) []*leaf {
	for c := range doc.Children(node) {
		m := doc.Nodes[c]
		if !utf8.Valid(doc.Name(&m)) {
			continue
		}
		p := append(slices.Clip(path), string(doc.Name(&m)))
		if m.Kind == '{' && len(p) < sampleDepth {
			leaves = d.collect(leaves, doc, c, p)
			continue
		}
		leaves = d.observe(leaves, doc, c, p)
	}
	return leaves
}

// observe counts the value of node in the leaf with the given path, which it adds if need be.
func (d *detector) observe(leaves []*leaf, doc *jsondoc.Document, node int, path []string) []*leaf {
	m := doc.Nodes[node]
	if m.Kind != '"' && m.Kind != '0' {
		return leaves
	}
	i := slices.IndexFunc(leaves, func(l *leaf) bool { return slices.Equal(l.path, path) })
	if i < 0 {
		if len(leaves) == maxLeaves {
			return leaves
		}
		i = len(leaves)
		leaves = append(leaves, &leaf{path: path, class: nameClass(path[len(path)-1]),
			time: d.newTimeColumn(raw.Column{Name: jsondoc.JoinPath(path)}, path[len(path)-1])})
	}
	v := string(doc.Text(&m))
	if m.Escaped {
		v = string(jsondoc.AppendUnescaped(nil, doc.Text(&m)))
	}
	if v = strings.TrimSpace(v); v == "" {
		return leaves
	}
	l := leaves[i]
	l.values++
	l.time.observe(d, v)
	if m.Kind == '"' && looksURL(v) {
		l.urls++
	} else if m.Kind == '"' && looksHost(v) {
		l.hosts++
	}
	return leaves
}

// maxLeaves is how many members are compared. An object used as a map has a member for every
// record.
const maxLeaves = 500

// chooseLeaf returns the member that holds the URLs, nil for none, and the names of the members as
// good. docs is the number of documents.
func chooseLeaf(leaves []*leaf, docs int) (best *leaf, also []string) {
	better := func(a, b *leaf) bool {
		if len(a.path) != len(b.path) {
			return len(a.path) < len(b.path)
		}
		return a.class < b.class
	}
	choose := func(good func(*leaf) bool) bool {
		for _, l := range leaves {
			switch {
			case l.values == 0 || !good(l):
			case best == nil || better(l, best):
				best, also = l, nil
			case !better(best, l):
				also = append(also, jsondoc.JoinPath(l.path))
			}
		}
		return best != nil
	}
	_ = choose(func(l *leaf) bool { return l.class > 0 && (l.urls+l.hosts)*2 >= l.values }) ||
		choose(func(l *leaf) bool { return l.urls*2 >= l.values && l.urls*2 >= docs }) ||
		// Only a name says that this is the URL. The reader rejects the values that are none.
		choose(func(l *leaf) bool { return l.class > 0 && l.class <= classLink && len(l.path) == 1 })
	return best, also
}
