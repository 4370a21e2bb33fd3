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

// sniffObjects returns JSON if a document continues on the next line, or the first line is several,
// else JSONLines. The caller has already recognised text with objects in half of its lines.
func (d *detector) sniffObjects(lines [][]byte) string {
	if len(lines) == 0 {
		return raw.JSON // longer than a record
	}
	var doc jsondoc.Document
	format := raw.JSONLines
	for i, l := range lines[:min(len(lines), sniffedLines)] {
		l = trimJSONLine(l)
		n, ok := doc.ParsePrefix(l)
		switch {
		case ok && len(bytes.Trim(l[n:], ", ")) == 0:
			format = raw.JSONLines
		case ok && i == 0:
			format = raw.JSON
		case !ok && doc.Truncated && i+1 < len(lines):
			// A line that was cut in the middle does not go on with the next one.
			two := slices.Concat(l, []byte{'\n'}, lines[i+1])
			if _, ok := doc.ParsePrefix(two); ok || doc.Truncated {
				return raw.JSON
			}
		}
	}
	return format
}

// isGlued reports whether a text has two objects with nothing between them. The second one is
// whole; the first may be broken.
func isGlued(b []byte) bool {
	i := bytes.Index(b, []byte(`}{"`)) + 1
	if i == 0 {
		return false
	}
	var doc jsondoc.Document
	_, ok := doc.ParsePrefix(b[i:])
	return ok
}

// isObjectLine reports whether a line is a JSON object.
func isObjectLine(l []byte) bool {
	var doc jsondoc.Document
	l = trimJSONLine(l)
	return len(l) > 0 && l[0] == '{' && doc.Parse(l)
}

// checkJSON refuses a damaged document, whose records would be lost for a few rejects: its first
// value or line is malformed, and so are more than few of all.
func (d *detector) checkJSON() error {
	malformed, all := d.malformed, d.values
	if lines := d.lines(); d.plan.Format == raw.JSONLines && len(lines) > 0 && !isWholeLine(lines[0]) {
		for _, l := range lines {
			if all++; !isWholeLine(l) {
				malformed++
			}
		}
	}
	if d.opt.Format == raw.Auto && d.whole && malformed > 0 && !few(malformed, all) {
		return d.rejectJSON()
	}
	return nil
}

// rejectJSON returns the error that refuses damaged JSON.
func (d *detector) rejectJSON() error {
	return d.reject("it is malformed JSON",
		"see where it is damaged (jq . FILE) and mend it, or read the records that are whole with --format json")
}

// isMemberLine reports whether a line begins with a member of an object.
func isMemberLine(l []byte) bool {
	var doc jsondoc.Document
	l = trimJSONLine(l)
	n, ok := doc.ParsePrefix(l)
	return ok && doc.Nodes[0].Kind == '"' && bytes.HasPrefix(text.TrimSpace(l[n:]), []byte{':'})
}

// isWholeLine reports whether a line begins with a JSON value, behind which it ends or another one
// begins.
func isWholeLine(l []byte) bool {
	var doc jsondoc.Document
	l = trimJSONLine(l)
	n, ok := doc.ParsePrefix(l)
	if !ok {
		return false
	}
	rest := bytes.TrimLeft(l[n:], ", \t")
	return len(rest) == 0 || strings.IndexByte(`{["`, rest[0]) >= 0
}

// sniffedLines is how many lines tell JSON from JSON Lines.
const sniffedLines = 100

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
	values, urls, hosts int      // numbers of values that are not blank
	names               []string // the first values of text that are no URLs
	time                *timeColumn
}

// observeText counts a value of text that is not blank.
func (l *leaf) observeText(v string) {
	switch {
	case looksURL(v):
		l.urls++
		return
	case looksHost(v):
		l.hosts++
	}
	if len(l.names) < sampleRows && len(v) < 256 {
		l.names = append(l.names, v)
	}
}

// isReversed reports whether the values are hosts with the last label first.
func (l *leaf) isReversed() bool { return len(l.names)*2 > l.values && areReversed(l.names) }

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
		has := func(doc *jsondoc.Document) bool { return doc.Find(0, path) > 0 }
		if !slices.ContainsFunc(docs, has) {
			d.note("no record at the beginning has the member %q", name)
		}
	}
}

// planJSON chooses members for the columns that the options do not name. A document that is one
// object around its records becomes a plan with Depth, arrays become one with Rows.
func (d *detector) planJSON() error {
	if err := d.planNamed(jsonColumn, jsonColumn); err != nil {
		return err
	}
	docs := d.documents(false)
	var leaves []*leaf
	var arrays []*jsondoc.Document
	strs, objects := 0, 0
	for _, doc := range docs {
		switch {
		case doc.Nodes[0].Kind == '"':
			strs++
		case doc.Nodes[0].Kind == '[':
			arrays = append(arrays, doc)
		case doc.Nodes[0].Kind == '{':
			objects++
			leaves = d.collect(leaves, doc, 0, nil)
		}
	}
	if strs > 0 && objects == 0 && d.plan.Format == raw.JSON {
		// Arrays that follow one another may be rows.
		if rows := d.documents(true); len(rows) > 1 && isRows(rows) {
			docs, arrays = rows, rows
		}
	}
	if len(arrays) > 0 && len(arrays)*10 >= len(docs)*9 {
		return d.planArrays(arrays)
	}
	d.noteAbsent(docs)
	if objects > 0 && d.opt.URLColumn == "" && (d.planHAR(docs[0]) || d.planKeys(docs)) {
		return nil
	}
	one := len(docs) == 1 && objects == 1 && d.opt.Format != raw.JSONLines
	if one && d.planNested(docs[0], true) {
		return nil
	}
	if d.opt.URLColumn != "" {
		path := jsondoc.SplitPath(d.opt.URLColumn)
		if one && len(path) == 1 && docs[0].Nodes[docs[0].Find(0, path)].Kind == '[' {
			d.plan.Format, d.plan.Depth = raw.JSON, raw.AnyDepth // a list of URLs, however long
			d.chooseTS(leaves)
			return nil
		}
		if one && docs[0].Find(0, path) == 0 &&
			(d.planMap(docs[0], nil) || d.planNested(docs[0], false)) {
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
	inside := one && (best == nil || len(best.path) > 1)
	if inside && d.planMap(docs[0], nil) {
		return nil
	}
	if one && !inside && d.ext != ".jsonl" && d.ext != ".ndjson" && d.planMap(docs[0], best) {
		return nil
	}
	if one && isMISP(d.text) {
		return d.reject("it is a MISP event, whose attributes are URLs, hosts and other things",
			`write the URLs as lines first `+
				`(jq -r '.. | objects | select(.type? | IN("url", "uri", "domain", "hostname")) | .value')`)
	}
	if inside && d.planNested(docs[0], false) {
		return nil
	}
	if (best == nil || inside) && d.planLists(docs, one) {
		d.chooseTS(leaves)
		return nil
	}
	if best == nil {
		return d.reject("no member of its JSON objects looks like a URL",
			"name it by its path (--url-column attributes.url), or write its URLs as lines first ("+
				jqURLs+")")
	}
	if inside {
		return d.reject("it is one JSON document with its URLs inside, not a sequence of records",
			"write its records as lines first (jq -c '.. | objects | select(.url)'), or its URLs ("+jqURLs+")")
	}
	if one && best.class == 0 && len(also) > 1 {
		return d.reject("it is one JSON object whose members are URLs", "write them as lines first ("+jqURLs+")")
	}
	d.plan.URL.Name = jsondoc.JoinPath(best.path)
	d.noteURL(best, also)
	d.chooseTS(leaves)
	for _, doc := range docs {
		if d.noteInside(doc, best.path, 0) || one && d.noteLinks(doc) {
			break
		}
	}
	if start := text.TrimSpace(text.TrimBOM(d.text)); d.plan.Format == raw.JSON && start[0] == '[' &&
		slices.ContainsFunc(docs, d.isGroup) {
		d.plan.Depth = 1 // where groups are read
		d.note("objects in the lists of those without %q are records too", d.plan.URL.Name)
	}
	return nil
}

// isGroup reports whether a document has no URL and a list of objects that have.
func (d *detector) isGroup(doc *jsondoc.Document) bool {
	path := jsondoc.SplitPath(d.plan.URL.Name)
	for i := range doc.Nodes {
		if doc.Nodes[i].Kind != '[' || doc.Find(0, path) > 0 {
			continue
		}
		for c := range doc.Children(i) {
			if hasURL(doc, c, path) {
				return true
			}
		}
	}
	return false
}

// hasURL reports whether a node is an object with a URL at path.
func hasURL(doc *jsondoc.Document, node int, path []string) bool {
	if doc.Nodes[node].Kind != '{' {
		return false
	}
	at := doc.Find(node, path)
	return at > 0 && doc.Nodes[at].Kind == '"' && looksURL(doc.Text(&doc.Nodes[at]))
}

// noteInside notes that records have objects with the URL inside them, which are no records. It
// reports whether one has.
func (d *detector) noteInside(doc *jsondoc.Document, path []string, records ...int) bool {
	for _, record := range records {
		inside := doc.Nodes[record+1 : doc.End(record)]
		if !slices.ContainsFunc(inside, func(n jsondoc.Node) bool { return n.Kind == '{' }) || !hasURL(doc, record, path) {
			continue
		}
		for i := range inside {
			if hasURL(doc, record+1+i, path) {
				d.note("records have objects with %q inside, which are no records "+
					"(jq -c '.. | objects | select(.%[1]s)' FILE writes all as lines)", d.plan.URL.Name)
				return true
			}
		}
	}
	return false
}

// noteLinks notes that a document that is one record has URLs inside, and reports whether it has.
func (d *detector) noteLinks(doc *jsondoc.Document) bool {
	url, members := doc.Find(0, jsondoc.SplitPath(d.plan.URL.Name)), membersOf(doc)
	for i := range doc.Nodes {
		n := &doc.Nodes[i]
		inside := i != url && !members[i]
		if inside && n.Kind == '"' && looksURL(doc.Text(n)) {
			d.note("the document is one record; the URLs inside it are none (write all as lines: %s)",
				jqURLs)
			return true
		}
	}
	return false
}

// membersOf returns the members of a document that is an object. Of members with one name the last
// one counts.
func membersOf(doc *jsondoc.Document) map[int]bool {
	members := map[int]bool{}
	if doc.Nodes[0].Kind == '{' {
		last := map[string]int{}
		for c := range doc.Children(0) {
			last[string(doc.Name(&doc.Nodes[c]))] = c
		}
		for _, c := range last {
			members[c] = true
		}
	}
	return members
}

// planLists plans records whose URL is a list of URLs, or of hosts: each element becomes a record.
// It takes the list with the best name. A list without a name for URLs needs half of all values. In
// one document the list may be anywhere. planLists reports whether there is one.
func (d *detector) planLists(docs []*jsondoc.Document, one bool) bool {
	var lists []*leaf
	values := 0
	for _, doc := range docs {
		members := membersOf(doc)
		for i := range doc.Nodes {
			n := &doc.Nodes[i]
			if n.Kind != '{' && n.Kind != '[' {
				values++
			}
			name := string(doc.Name(n))
			if n.Kind != '[' || name == "" || !utf8.ValidString(name) ||
				!one && !members[i] {
				continue
			}
			for c := range doc.Children(i) {
				lists = d.observe(lists, doc, c, []string{name})
			}
		}
	}
	lists = slices.DeleteFunc(lists, func(l *leaf) bool {
		return (l.urls+l.hosts)*2 < l.values || l.urls+l.hosts == 0 ||
			l.class == 0 && l.urls*2 < values
	})
	best, also := chooseLeaf(lists, 1)
	if best == nil {
		return false
	}
	if one {
		d.plan.Format, d.plan.Depth = raw.JSON, raw.AnyDepth
	}
	d.plan.URL.Name = jsondoc.JoinPath(best.path)
	d.note("the elements of %q are the URLs%s (--url-column chooses)", d.plan.URL.Name, couldBe(also))
	return true
}

// planHAR plans an HTTP archive (HAR 1.2, http://www.softwareishard.com/blog/har-12-spec/): a
// record for every request.
func (d *detector) planHAR(doc *jsondoc.Document) bool {
	log := doc.Find(0, []string{"log"})
	has := func(name string) bool { return doc.Find(log, []string{name}) > 0 }
	if log == 0 || d.opt.Format == raw.JSONLines || !has("version") || !has("entries") && !has("creator") {
		return false
	}
	d.plan.Format, d.plan.Depth = raw.JSON, raw.AnyDepth
	d.plan.URL = raw.Column{Name: text.HARURL}
	if d.plan.TS == nil && !d.noTime {
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "startedDateTime"}, true
	}
	fields := []raw.Column{{Name: raw.Status, From: "response.status", Capture: true},
		{Name: raw.MIME, From: "response.content.mimeType", Capture: true}}
	if _, defaults := d.opt.WantsExtras(); defaults {
		d.plan.Extras = fields
	}
	for i, x := range d.plan.Extras {
		for _, f := range fields {
			if x.Name == f.Name {
				d.plan.Extras[i] = f
			}
		}
	}
	return true
}

// planKeys plans documents whose URLs are the names of members: nine of ten names at one depth, and
// not the members of one record. It reports whether the documents are such.
func (d *detector) planKeys(docs []*jsondoc.Document) bool {
	if !slices.ContainsFunc(docs, hasURLName) {
		return false
	}
	level := make([][]int, len(docs))
	for i := range docs {
		level[i] = []int{0}
	}
	for depth := 1; depth <= sampleDepth; depth++ {
		names, urls := 0, 0
		for i, doc := range docs {
			var next []int
			for _, node := range level[i] {
				if doc.Nodes[node].Kind != '{' {
					continue
				}
				for c := range doc.Children(node) {
					next = append(next, c)
					if names++; looksURL(doc.Name(&doc.Nodes[c])) {
						urls++
					}
				}
			}
			level[i] = next
		}
		if urls > 0 && urls*10 >= names*9 {
			d.plan.Format, d.plan.Depth, d.plan.Keys = raw.JSON, depth, true
			d.plan.URL.Name = "key"
			d.note("the URLs are the names of the members at depth %d (--url-column chooses others)", depth)
			return true
		}
	}
	return false
}

// hasURLName reports whether the name of a member is a URL.
func hasURLName(doc *jsondoc.Document) bool {
	for i := range doc.Nodes {
		if looksURL(doc.Name(&doc.Nodes[i])) {
			return true
		}
	}
	return false
}

// planNested plans a document whose records are inside one another, or inside groups inside one
// another (bookmarks of browsers): every object with the URL is a record. With several, they are at
// more than one depth. It reports whether the document is such: at least two objects, nine in ten
// objects with the URL, and a quarter of all objects are records. Records have three quarters of
// their members in common.
func (d *detector) planNested(doc *jsondoc.Document, several bool) bool {
	if doc.Nodes[0].Kind != '{' {
		return false
	}
	path, class := jsondoc.SplitPath(d.opt.URLColumn), 0
	if path == nil {
		for i := range doc.Nodes {
			if doc.Nodes[i].Kind != '{' {
				continue
			}
			for c := range doc.Children(i) {
				m := &doc.Nodes[c]
				if m.Kind != '"' || !looksURL(doc.Text(m)) {
					continue
				}
				name := string(doc.Name(m))
				if k := nameClass(name); k > 0 && (class == 0 || k < class) && utf8.ValidString(name) {
					path, class = []string{name}, k
				}
			}
		}
		if path == nil {
			return false
		}
	}
	// The records by the names of their members, and the depths of all of a kind.
	type kind struct {
		names  []string
		count  int
		depths map[int]bool
		leaves []*leaf
	}
	var kinds []*kind
	objects, with := 0, 0
	var walk func(node, depth int)
	walk = func(node, depth int) {
		if doc.Nodes[node].Kind == '{' {
			objects++
		}
		if hasURL(doc, node, path) {
			with++
			var names []string
			for c := range doc.Children(node) {
				names = append(names, string(doc.Name(&doc.Nodes[c])))
			}
			i := slices.IndexFunc(kinds, func(k *kind) bool {
				return similar(k.names, names) || !several && within(k.names, names)
			})
			if i < 0 && len(kinds) < maxLeaves {
				kinds = append(kinds, &kind{names: names, depths: map[int]bool{}})
				i = len(kinds) - 1
			}
			if i >= 0 {
				k := kinds[i]
				k.count++
				k.depths[depth] = true
				k.leaves = d.collect(k.leaves, doc, node, nil)
			}
		}
		if k := doc.Nodes[node].Kind; k == '{' || k == '[' {
			for c := range doc.Children(node) {
				walk(c, depth+1)
			}
		}
	}
	walk(0, 0)
	if len(kinds) == 0 {
		return false
	}
	most := slices.MaxFunc(kinds, func(a, b *kind) int { return a.count - b.count })
	if most.count < 2 || most.count*10 < with*9 || most.count*4 < objects || several && len(most.depths) < 2 {
		return false
	}
	d.plan.Format, d.plan.Depth = raw.JSON, raw.AnyDepth
	d.plan.URL.Name = jsondoc.JoinPath(path)
	d.chooseTS(most.leaves)
	d.note("its records are inside one another or at several depths; their URL is %q (--url-column chooses)",
		d.plan.URL.Name)
	d.noteStrings(doc, 0, path)
	return true
}

// noteStrings notes that a list beside the records below node has URLs, and reports whether one
// has.
func (d *detector) noteStrings(doc *jsondoc.Document, node int, path []string) bool {
	if hasURL(doc, node, path) {
		return false
	}
	for c := range doc.Children(node) {
		n := &doc.Nodes[c]
		if n.Kind == '"' && doc.Nodes[node].Kind == '[' && looksURL(doc.Text(n)) {
			d.note("lists beside its records have URLs, which are not read (write all URLs as lines: %s)",
				jqURLs)
			return true
		}
		if d.noteStrings(doc, c, path) {
			return true
		}
	}
	return false
}

// jqURLs writes all URLs of JSON as lines.
const jqURLs = `jq -r '.. | strings | select(test("^https?://"))' FILE > urls.txt`

// similar reports whether two sets of names have three quarters of all their names in common.
func similar(a, b []string) bool {
	n := common(a, b)
	return n*4 >= (len(a)+len(b)-n)*3
}

// within reports whether two sets of names have three quarters of the smaller one in common, and
// more than the URL.
func within(a, b []string) bool {
	n := common(a, b)
	return n > 1 && n*4 >= min(len(a), len(b))*3
}

// common returns how many names a and b have in common, 0 if there are too many to compare.
func common(a, b []string) (n int) {
	if len(a)+len(b) > maxLeaves {
		return 0
	}
	for _, name := range a {
		if slices.Contains(b, name) {
			n++
		}
	}
	return n
}

// chooseTS chooses the time among the members of the object that has the URL, and of those around
// it.
func (d *detector) chooseTS(leaves []*leaf) {
	url := jsondoc.SplitPath(d.plan.URL.Path())
	var candidates []*timeColumn
	for _, l := range leaves {
		parents := len(ofMember(l.path)) - 1
		if parents < len(url) && slices.Equal(l.path[:parents], url[:parents]) && !slices.Equal(l.path, url) {
			candidates = append(candidates, l.time)
		}
	}
	d.chooseTime(candidates)
}

// ofMember returns a path without the names of types at its end, which MongoDB's exports have
// ({"$date": {"$numberLong": "1457067967000"}}): the path of the member of that type.
func ofMember(path []string) []string {
	for len(path) > 1 && strings.HasPrefix(path[len(path)-1], "$") {
		path = path[:len(path)-1]
	}
	return path
}

// noteURL notes which member was chosen for the URL, unless only that one has a name for URLs and
// it is in no inner object.
func (d *detector) noteURL(best *leaf, also []string) {
	if best.class == 0 || len(also) > 0 || len(best.path) > 1 {
		d.note("the URL is read from %q%s (--url-column chooses)", d.plan.URL.Name, couldBe(also))
	}
	if best.isReversed() {
		d.reverse(best.names[0])
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
// links in it, does not meet the conditions. If the document itself has a URL, in the member own,
// the records' member must have as good a name; with the same name, the document is a record too.
func (d *detector) planMap(doc *jsondoc.Document, own *leaf) bool {
	if d.opt.Format == raw.JSONLines || doc.Nodes[0].Kind != '{' {
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
		if own != nil && own.class > 0 && (best.class == 0 || own.class < best.class) {
			return false
		}
		d.plan.Format, d.plan.Depth = raw.JSON, depth
		d.plan.URL.Name = jsondoc.JoinPath(best.path)
		if own != nil && slices.Equal(own.path, best.path) || areGroups(doc, values, best.path) {
			d.plan.Depth = raw.AnyDepth
		}
		d.chooseTS(leaves)
		d.note("it is one JSON object around its records, at depth %d; their URL is %q%s (--url-column chooses)",
			depth, d.plan.URL.Name, couldBe(also))
		if d.plan.Depth == depth {
			d.noteInside(doc, best.path, values...)
		}
		return true
	}
	return false
}

// areGroups reports whether records have more objects with the URL in their lists than there are
// records: groups of records that have a URL too.
func areGroups(doc *jsondoc.Document, records []int, path []string) bool {
	n, inside := 0, 0
	for _, record := range records {
		if !hasURL(doc, record, path) {
			continue
		}
		n++
		for i := record; i < doc.End(record); i++ {
			if doc.Nodes[i].Kind != '[' {
				continue
			}
			for c := range doc.Children(i) {
				if hasURL(doc, c, path) {
					inside++
				}
			}
		}
	}
	return inside > n
}

// isMISP reports whether text is an event of the Malware Information Sharing Platform
// (https://www.misp-standard.org/rfc/misp-standard-core.html).
func isMISP(text []byte) bool {
	has := func(name string) bool { return bytes.Contains(text, []byte(name)) }
	return has(`"Event"`) && (has(`"orgc_id"`) || has(`"Attribute"`))
}

// documents parses the first sampleRows values. A value that continues past the head has the
// members in the head. rows is as for [text.NewValues].
func (d *detector) documents(rows bool) []*jsondoc.Document {
	var docs []*jsondoc.Document
	if d.plan.Format == raw.JSONLines {
		for _, l := range d.lines() {
			doc := &jsondoc.Document{Deep: true}
			if _, ok := doc.ParsePrefix(trimJSONLine(l)); (ok || doc.Truncated) && len(doc.Nodes) > 0 {
				docs = append(docs, doc)
			}
		}
		return docs
	}
	// A value that is too long for a record may hold records.
	values := text.NewValues(text.NewBytesInput(d.text, d.eol(), len(d.text)), rows)
	malformed, first := 0, false
	for len(docs) < sampleRows {
		doc := &jsondoc.Document{Deep: true}
		reason, err := values.Next(doc)
		if (err == nil && reason == "" || errors.Is(err, text.ErrTruncated)) && len(doc.Nodes) > 0 {
			docs = append(docs, doc)
		}
		if reason != "" {
			malformed++
			first = first || len(docs) == 0 && bytes.HasPrefix(text.TrimSpace(d.text), []byte{'{'})
		}
		if err != nil {
			break
		}
	}
	if d.malformed, d.values = 0, 0; first {
		d.malformed, d.values = malformed, malformed+len(docs)
	}
	return docs
}

// collect adds the members in node to leaves, in the order in which they are first met. It leaves
// out names that are not UTF-8: a plan, which is stored as JSON, could not name them.
func (d *detector) collect(leaves []*leaf, doc *jsondoc.Document, node int, path []string) []*leaf {
	path = append(slices.Clip(path), "")
	for c := range doc.Children(node) {
		m := &doc.Nodes[c]
		name := doc.Name(m)
		if !utf8.Valid(name) || string(name) == "@context" || string(name) == "$schema" {
			continue // the URL of a vocabulary or schema is that of no record
		}
		path[len(path)-1] = string(name)
		if m.Kind == '{' && len(path) < sampleDepth {
			leaves = d.collect(leaves, doc, c, path)
			continue
		}
		leaves = d.observe(leaves, doc, c, path)
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
		member := ofMember(path)
		leaves = append(leaves, &leaf{path: slices.Clone(path), class: nameClass(path[len(path)-1]),
			time: d.newTimeColumn(raw.Column{Name: jsondoc.JoinPath(path)}, member[len(member)-1])})
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
	if m.Kind == '"' {
		l.observeText(v)
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
	_ = choose(func(l *leaf) bool { return l.class > 0 && ((l.urls+l.hosts)*2 >= l.values || l.isReversed()) }) ||
		choose(func(l *leaf) bool { return l.urls*2 >= l.values && l.urls*2 >= docs }) ||
		// Only a name says that this is the URL. The reader rejects the values that are none.
		choose(func(l *leaf) bool { return l.class > 0 && l.class <= classLink && len(l.path) == 1 })
	return best, also
}
