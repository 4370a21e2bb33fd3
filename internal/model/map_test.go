package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urlake/urlake/internal/testlake"
)

// row is a row of a batch.
type row struct {
	scheme, host, path string
	ts, size           int64
	hasTS, hasSize     bool
}

func (r row) url() string { return r.scheme + "://" + r.host + r.path }

// GoString is short, since rapid prints what it draws.
func (r row) GoString() string {
	s := shown(r.url(), r.ts, r.hasTS)
	if r.hasSize {
		s += fmt.Sprint(" size ", r.size)
	}
	return s
}

// suffixLists are the public suffixes of more than one label that a lake can follow. The first list
// is that of a lake whose list nobody has set.
var suffixLists = [][]string{nil, {"shared.test"}, {"b.example"}, {"shared.test", "b.example"}}

// domainOf returns the domain of a host: the longest of the suffixes and a label, or else the last
// two labels.
func domainOf(host string, list int) string {
	labels := strings.Split(host, ".")
	for i := 1; i < len(labels)-1; i++ {
		if slices.Contains(suffixLists[list], strings.Join(labels[i:], ".")) {
			return strings.Join(labels[i-1:], ".")
		}
	}
	return strings.Join(labels[len(labels)-2:], ".")
}

// content is what a batch was made from, and its distinct rows. Equal contents have equal names.
type content struct {
	name  string
	files []*file
	rows  []row
	// dropped tells that rows are gone that the files have.
	dropped bool
}

// compactionDrops tells whether a compaction drops the rows that takedowns hide. They are gone from
// the version that it makes on, and stay in the versions before.
const compactionDrops = true

// without returns the content without the rows that rules hide: itself if they hide none.
func (c *content) without(dataset string, rules []rule) *content {
	left := *c
	left.rows = slices.DeleteFunc(slices.Clone(c.rows), func(r row) bool {
		return slices.ContainsFunc(rules, func(n rule) bool { return n.hides(dataset, &r) })
	})
	if len(left.rows) == len(c.rows) {
		return c
	}
	left.dropped = true
	return &left
}

// dropped returns batches after a compaction while rules are in force.
func dropped(batches map[batchID]*content, rules []rule) map[batchID]*content {
	left := maps.Clone(batches)
	for id, c := range left {
		if compactionDrops {
			left[id] = c.without(id.dataset, rules)
		}
	}
	return left
}

// file is an input.
type file struct {
	name    string
	records []testlake.Record
	rows    []row
}

func (f *file) GoString() string { return fmt.Sprintf("%#v", f.rows) }

func newContent(files ...*file) *content {
	c := &content{}
	seen := map[row]bool{}
	for _, f := range files {
		c.files = append(c.files, f)
		for _, r := range f.rows {
			if !seen[r] {
				seen[r] = true
				c.rows = append(c.rows, r)
			}
		}
	}
	slices.SortFunc(c.files, func(a, b *file) int { return strings.Compare(a.name, b.name) })
	for _, f := range c.files {
		c.name += f.name + " "
	}
	return c
}

// batchID names a batch.
type batchID struct{ dataset, batch string }

func compareIDs(a, b batchID) int {
	return cmp.Or(strings.Compare(a.dataset, b.dataset), strings.Compare(a.batch, b.batch))
}

// entry is an ingest in the order of a batch, or what retired the batch: a command, or the ingest
// with the number by of another batch, which replaced the dataset.
type entry struct {
	*content
	number  int
	retired bool
	by      int
	// replaces tells that the ingest is to be the dataset's only content.
	replaces bool
	// published tells that a version had the content since the ingest has finished, so that the
	// ingest has ended and nobody cancels it.
	published bool
	// again tells that a version had the content already. The record can be another one, as it
	// names the list of its ingest; then the next publish puts it in the place of the first.
	again bool
}

// version is a published version.
type version struct {
	id      string // "" if it is not known yet
	tags    []string
	list    int
	batches map[batchID]*content
}

func (v *version) clone() *version {
	c := *v
	c.tags, c.batches = slices.Clone(v.tags), maps.Clone(v.batches)
	return &c
}

// rule is a takedown in force.
type rule struct {
	id       string
	kind     string
	host     string // of a domain, the domain
	scheme   string // "" for all
	path     string
	dataset  string // "" for all
	from, to *int64
}

func (n *rule) hides(dataset string, r *row) bool {
	if n.dataset != "" && n.dataset != dataset {
		return false
	}
	if (n.from != nil || n.to != nil) && !r.hasTS || n.from != nil && r.ts < *n.from || n.to != nil && r.ts >= *n.to {
		return false
	}
	if n.kind == "domain" {
		return r.host == n.host || strings.HasSuffix(r.host, "."+n.host)
	}
	if r.host != n.host || n.scheme != "" && n.scheme != r.scheme {
		return false
	}
	switch n.kind {
	case "url":
		return r.path == n.path
	case "prefix":
		return strings.HasPrefix(r.path, n.path)
	}
	return true
}

// world is what the lake is to hold.
type world struct {
	orders map[batchID][]entry
	list   int // that the registry names
	// versions are those that the manifest lists, the oldest first.
	versions []*version
	rules    []rule
	numbers  int
	// moved tells that the list was changed once. From then on equal content may have other
	// records.
	moved bool
	// drops are the batches of which rows were dropped.
	drops []drop
}

// drop is a batch of which rows were dropped while it had a content.
type drop struct {
	batchID
	name string
}

func newWorld() *world { return &world{orders: map[batchID][]entry{}} }

func (w *world) clone() *world {
	c := *w
	c.orders, c.versions, c.rules, c.drops = map[batchID][]entry{}, nil, slices.Clone(w.rules), slices.Clone(w.drops)
	for id, o := range w.orders {
		c.orders[id] = slices.Clone(o)
	}
	for _, v := range w.versions {
		c.versions = append(c.versions, v.clone())
	}
	return &c
}

// current returns the content of a batch by the ledger, and whether the batch is retired. It is nil
// if the batch has no ingest.
func (w *world) current(id batchID) (c *content, retired bool) {
	o := w.orders[id]
	if len(o) == 0 {
		return nil, false
	}
	retired = o[len(o)-1].retired
	for _, e := range slices.Backward(o) {
		if !e.retired {
			return e.content, retired
		}
	}
	return nil, false
}

// ids returns the batches that have an ingest, and that keep accepts, sorted.
func (w *world) ids(keep func(id batchID, c *content, retired bool) bool) (ids []batchID) {
	for id := range w.orders {
		if c, retired := w.current(id); c != nil && keep(id, c, retired) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

// ingest adds an ingest.
func (w *world) ingest(id batchID, c *content, replace bool) {
	w.numbers++
	have := w.published()[id]
	again := have != nil && have.name == c.name
	w.orders[id] = append(w.orders[id], entry{content: c, number: w.numbers, replaces: replace, published: again, again: again})
	if !replace {
		return
	}
	for other, o := range w.orders {
		if other.dataset == id.dataset && other != id && len(o) > 0 && !o[len(o)-1].retired {
			w.orders[other] = append(o, entry{number: w.numbers, retired: true, by: w.numbers})
		}
	}
}

func (w *world) retire(id batchID) {
	if _, retired := w.current(id); !retired {
		w.numbers++
		w.orders[id] = append(w.orders[id], entry{number: w.numbers, retired: true})
	}
}

func (w *world) restore(id batchID) {
	o := w.orders[id]
	for len(o) > 0 && o[len(o)-1].retired {
		o = o[:len(o)-1]
	}
	w.orders[id] = o
}

// live are the batches that a publish has to publish. What the current version has stays as it is
// there.
func (w *world) live() map[batchID]*content {
	all := map[batchID]*content{}
	published := w.published()
	for id := range w.orders {
		if c, retired := w.current(id); c != nil && !retired {
			all[id] = c
			if have := published[id]; have != nil && have.name == c.name {
				all[id] = have
			}
		}
	}
	return all
}

// newest is the current version, nil before the first.
func (w *world) newest() *version {
	if len(w.versions) == 0 {
		return nil
	}
	return w.versions[len(w.versions)-1]
}

// published returns the batches of the current version.
func (w *world) published() map[batchID]*content {
	if v := w.newest(); v != nil {
		return v.batches
	}
	return nil
}

func sameBatches(a, b map[batchID]*content) bool {
	return maps.EqualFunc(a, b, func(x, y *content) bool { return x.name == y.name })
}

// publish adds the version of all finished batches. It returns whether it differs from the newest.
func (w *world) publish() bool {
	live := w.live()
	for id := range live {
		o := w.orders[id]
		o[len(o)-1].published, o[len(o)-1].again = true, false
	}
	if v := w.newest(); sameBatches(live, w.published()) && (len(live) == 0 || v.list == w.list) {
		return false
	}
	w.add(live, w.list)
	return true
}

func (w *world) add(batches map[batchID]*content, list int) {
	w.versions = append(w.versions, &version{list: list, batches: maps.Clone(batches)})
	for id, c := range batches {
		if c.dropped {
			w.drops = append(w.drops, drop{id, c.name})
		}
	}
}

// hides reports whether a compaction drops rows of the current version.
func (w *world) hides() bool {
	return !maps.Equal(dropped(w.published(), w.rules), w.published())
}

// compact adds the version that a compaction has to make, if takedowns hide rows that it drops.
func (w *world) compact() {
	if w.hides() {
		v := w.newest()
		w.add(dropped(v.batches, w.rules), v.list)
	}
}

// lost reports whether a version lacks rows of the content of a batch that were dropped. Then it
// depends on what garbage collections have left whether the rows come back with the batch.
func (w *world) lost(id batchID, c *content) bool {
	return slices.ContainsFunc(w.drops, func(d drop) bool { return d.batchID == id && d.name == c.name })
}

// again is the world with another version like the newest.
func (w *world) again() *world {
	c := w.clone()
	if v := w.newest(); v != nil {
		c.add(v.batches, v.list)
	}
	return c
}

// collect drops versions as a garbage collection does.
func (w *world) collect(keep int) (dropped []string) {
	first := len(w.versions) - keep
	w.versions = slices.DeleteFunc(w.versions, func(v *version) bool {
		first--
		if first >= 0 && len(v.tags) == 0 {
			dropped = append(dropped, v.id)
			return true
		}
		return false
	})
	return dropped
}

// reaches reports whether a kept version has the content of a batch.
func (w *world) reaches(id batchID, c *content) bool {
	return slices.ContainsFunc(w.versions, func(v *version) bool {
		have := v.batches[id]
		return have != nil && have.name == c.name
	})
}

// totals are the totals of a domain in a dataset.
type totals struct {
	Rows, Size      int64
	HasSize         bool
	FirstTS, LastTS int64
	HasTS           bool
}

func (t *totals) add(r *row) {
	t.Rows++
	if r.hasSize {
		t.Size, t.HasSize = t.Size+r.size, true
	}
	if r.hasTS {
		if !t.HasTS || r.ts < t.FirstTS {
			t.FirstTS = r.ts
		}
		if !t.HasTS || r.ts > t.LastTS {
			t.LastTS = r.ts
		}
		t.HasTS = true
	}
}

// place is a domain of a dataset.
type place struct{ Domain, Dataset string }

// answers is what a version answers.
type answers struct {
	totals map[place]totals
	rows   map[place][]string  // URLs with their times, sorted
	nodes  map[string]treeNode // of the trees of all domains, by dataset ("" for all), domain and path
	// datasets has the rows of each dataset of the version, also of those that are all hidden.
	datasets map[string]int64
	all      int64
}

func (w *world) answers(v *version) *answers {
	a := &answers{map[place]totals{}, map[place][]string{}, map[string]treeNode{}, map[string]int64{}, 0}
	for id, c := range v.batches {
		a.datasets[id.dataset] += 0
		for i := range c.rows {
			r := &c.rows[i]
			if slices.ContainsFunc(w.rules, func(n rule) bool { return n.hides(id.dataset, r) }) {
				continue
			}
			at := place{domainOf(r.host, v.list), id.dataset}
			t := a.totals[at]
			t.add(r)
			a.totals[at] = t
			a.rows[at] = append(a.rows[at], shown(r.url(), r.ts, r.hasTS))
			a.addNodes(at, r)
			a.datasets[id.dataset]++
			a.all++
		}
	}
	for _, list := range a.rows {
		slices.Sort(list)
	}
	return a
}

// treeNode is a host or a directory of a domain, or the domain.
type treeNode struct {
	Rows, Direct, Size int64
	HasSize            bool
}

// addNodes counts a row at all nodes above it.
func (a *answers) addNodes(at place, r *row) {
	path, _, _ := strings.Cut(r.path, "?")
	parts := strings.SplitAfter(r.host+path, "/")
	for _, dataset := range []string{"", at.Dataset} {
		for i := range parts {
			name := dataset + " " + at.Domain + " " + strings.Join(parts[:i], "")
			n := a.nodes[name]
			n.Rows++
			if i == len(parts)-1 {
				n.Direct++
			}
			if r.hasSize {
				n.Size, n.HasSize = n.Size+r.size, true
			}
			a.nodes[name] = n
		}
	}
}

// shown is a row as an answer has it.
func shown(url string, ts int64, hasTS bool) string {
	if !hasTS {
		return url
	}
	return fmt.Sprint(url, " ", ts)
}

// change is a difference between two versions.
type change struct{ Before, After totals }

func diff(before, after *answers) map[place]change {
	all := map[place]change{}
	for at, t := range before.totals {
		all[at] = change{Before: t}
	}
	for at, t := range after.totals {
		c := all[at]
		c.After = t
		all[at] = c
	}
	maps.DeleteFunc(all, func(_ place, c change) bool { return c.Before == c.After })
	return all
}

// matches is how many rows of a version a rule matches.
func (n *rule) matches(v *version) (rows int64) {
	for id, c := range v.batches {
		for i := range c.rows {
			if n.hides(id.dataset, &c.rows[i]) {
				rows++
			}
		}
	}
	return rows
}
