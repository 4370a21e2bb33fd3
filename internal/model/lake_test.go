package model

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
	"github.com/urlake/urlake/starter/retire"
)

// machine is a lake, a server of it, and the map.
type machine struct {
	tb      // of the sequence
	temp    string
	store   blob.Store
	world   *world
	server  *lookup.Server
	trees   *tree.Engine
	files   []*file
	pending []*building
	lists   []*urlnorm.SuffixList
	// published are the batches that any version has had.
	published map[batchID]bool
	steps     int
	// ahead tells that a publish has moved batches to another list, and none is committed since.
	ahead bool
	// done counts what happened in all sequences.
	done map[string]int
}

// tb lets helpers for tests fail a sequence of rapid. Rapid makes a sequence shorter only while the
// text of its failure stays the same. So that text has no digests and no times; they are logged.
type tb struct {
	testing.TB
	rt       *rapid.T
	temp     string
	cleanups *[]func()
}

func (t tb) Helper()         {}
func (t tb) TempDir() string { return t.temp }
func (t tb) Failed() bool    { return t.rt.Failed() }

func (t tb) Cleanup(f func()) { *t.cleanups = append(*t.cleanups, f) }

func (t tb) Logf(format string, args ...any) { t.rt.Logf(format, args...) }

func (t tb) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.rt.Log(text)
	line, _, _ := strings.Cut(volatile.ReplaceAllString(text, "…"), "\n")
	t.rt.Fatal(line)
}

// volatile is what differs if a sequence is repeated.
var volatile = regexp.MustCompile(`[0-9a-f]{8,}|\d{8}T\S+|run-\d+|/tmp/\S+|0x[0-9a-f]+|\d+`)

func (t tb) Fatal(args ...any)                 { t.Fatalf("%s", fmt.Sprint(args...)) }
func (t tb) Error(args ...any)                 { t.Fatal(args...) }
func (t tb) Errorf(format string, args ...any) { t.Fatalf(format, args...) }

func newMachine(t *testing.T, rt *rapid.T, done map[string]int) *machine {
	temp, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // removed when the sequence ends
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{tb: tb{t, rt, temp, new([]func())}, temp: temp, store: blob.NewMemory(), world: newWorld(), published: map[batchID]bool{}, done: done}
	if uniform(8).Draw(rt, "store in a folder") == 7 {
		if m.store, err = blob.Open(t.Context(), "file://"+filepath.Join(temp, "lake")); err != nil {
			t.Fatal(err)
		}
	}
	// In most sequences every batch that can be is taken out of its segment by a deletion table.
	publish.LeastLeft = []int64{0, 0, 0, 4 << 10}[uniform(4).Draw(rt, "least rows of a segment that stays")]
	// In half of the sequences a segment has so few rows that plans make several.
	publish.MaxSegmentRows = []int64{1 << 31, 8, 40, 1 << 31}[uniform(4).Draw(rt, "most rows of a segment")]
	for _, list := range suffixLists {
		parsed, err := urlnorm.ParseSuffixList([]byte("test\nexample\n" + strings.Join(list, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		m.lists = append(m.lists, parsed)
	}
	m.restart()
	return m
}

func (m *machine) close() {
	m.server.Close()
	for _, f := range *m.cleanups {
		f()
	}
	os.RemoveAll(m.temp)
}

// restart replaces the server by another one with an empty cache.
func (m *machine) restart() {
	if m.server != nil {
		m.server.Close()
	}
	cache, err := os.MkdirTemp(m.temp, "cache")
	if err != nil {
		m.Fatal(err)
	}
	m.server = lookup.NewServer(m.store, lookup.Options{CacheDir: cache, KeepOpen: 8})
	m.trees = tree.NewEngine(0, 0, 0)
}

// buildTrees builds the indexes of path trees of the current version, and says whether publishes
// and compactions build those of their segments.
func (m *machine) buildTrees() {
	always := uniform(3).Draw(m.rt, "always") > 0
	m.count("build trees")
	m.attempt("build trees", func(*world) {}, func(store blob.Store) error {
		if err := treebuild.SetAlways(m.Context(), store, always); err != nil {
			return err
		}
		list, _, err := catalog.ReadManifest(m.Context(), store)
		if err != nil {
			return err
		}
		v, err := catalog.ReadVersion(m.Context(), store, list.Versions[len(list.Versions)-1])
		if err != nil {
			return err
		}
		for _, s := range v.Segments {
			ref := lakecheck.SegmentRef(s)
			if _, _, err := treebuild.Ensure(m.Context(), store, ref, treebuild.Options{TempDir: m.temp, MemoryBytes: 1 << 14}); err != nil {
				return err
			}
		}
		return nil
	})
	m.trees = tree.NewEngine(0, 0, 0) // which looks for them at once
}

// attempt lets an actor work on the lake. The actor may crash at any change of the store, or miss a
// reply. Then the lake must answer as before, or as after, and the actor tries again until it
// succeeds. Change makes the change to the map.
func (m *machine) attempt(name string, change func(w *world), act func(store blob.Store) error) {
	before, after := m.world, m.world.clone()
	change(after)
	fault := uniform(6).Draw(m.rt, "fault") - 4 // 0 and 1 are faults
	if fault >= 0 {
		faulty := blobtest.NewFaulty(m.store)
		// Most actors make fewer than 16 changes, compactions and moves many more.
		nth := uniform(16<<uniform(4).Draw(m.rt, "range of changes")).Draw(m.rt, "nth change")
		if fault == 0 {
			faulty.CrashAfter(nth)
		} else {
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: nth + 1, After: true})
		}
		err := act(faulty)
		switch {
		case fault == 0 && faulty.Crashed():
			m.done["crash"]++
			m.done["crash in "+name]++
		case fault == 1 && faulty.Fired() > 0:
			m.done["lost reply"]++
		case err != nil && !lostSweep(err):
			m.Fatalf("%s: %v", name, err)
		}
		if err == nil {
			m.world = after
			return
		}
		if !errors.Is(err, blobtest.ErrCrashed) && !errors.Is(err, blobtest.ErrInjected) && !lostSweep(err) {
			m.Fatalf("%s, after a fault: %v", name, err)
		}
		if old := m.agrees(before); old != nil && m.agrees(before.again()) != nil {
			if new := m.agrees(after); new != nil {
				m.Fatalf("%s has crashed (%v): the lake is neither as before: %v\nnor as after: %v", name, err, old, new)
			}
		}
	}
	if err := act(m.store); err != nil {
		m.Fatalf("%s: %v", name, err)
	}
	m.world = after
}

// lostSweep reports whether a garbage collection was too slow for the short timeout that it has
// here.
func lostSweep(err error) bool {
	return errors.Is(err, lease.ErrSweepLost) || errors.Is(err, context.DeadlineExceeded)
}

// uniform draws a number from 0 to n-1. The numbers of rapid are small ones more often.
func uniform(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) (sum int) {
		for range bits.Len(uint(n-1)) + 3 {
			sum *= 2
			if rapid.Bool().Draw(t, "bit") {
				sum++
			}
		}
		return sum % n
	})
}

// one draws an element of a list.
func one[T any](list []T) *rapid.Generator[T] {
	return rapid.Map(uniform(len(list)), func(i int) T { return list[i] })
}

var (
	datasets = []string{"alpha", "beta", "gamma"}
	batches  = []string{"b1", "b2", "b3", "b4"}
	hosts    = []string{
		"a.test", "www.a.test", "c.example", "shared.test", "x.shared.test", "y.shared.test", "www.y.shared.test",
		"b.example", "k.b.example", "www.k.b.example",
	}
	paths = []string{"/", "/p/1", "/p/2", "/p?q=1", "/q"}
)

const epoch = int64(1_700_000_000_000)

// drawFile draws an input: one that was used before, or a new one.
func (m *machine) drawFile() *file {
	if n := len(m.files); n > 0 && rapid.Bool().Draw(m.rt, "known file") {
		return one(m.files).Draw(m.rt, "file")
	}
	rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
		r := row{
			scheme: one([]string{"https", "http"}).Draw(t, "scheme"),
			host:   one(hosts).Draw(t, "host"),
			path:   one(paths).Draw(t, "path"),
		}
		if n := uniform(5).Draw(t, "time"); n > 0 {
			r.ts, r.hasTS = epoch+int64(n)*1000, true
		}
		if n := uniform(4).Draw(t, "size"); n > 0 {
			r.size, r.hasSize = int64(n)*100, true
		}
		return r
	}), 1, 12).Draw(m.rt, "rows")
	f := &file{rows: rows}
	for _, r := range rows {
		f.records = append(f.records, testlake.Record{URL: r.url(), TS: r.ts, HasTS: r.hasTS, Size: r.size, HasSize: r.hasSize})
	}
	// One folder for all sequences: the paths of inputs are in the records of batches.
	spec := testlake.Spec(m.TB, m.store, "", "", f.records)
	f.name = spec.Inputs[0]
	m.files = append(m.files, f)
	return f
}

func (m *machine) drawContent() *content {
	first := m.drawFile()
	if second := uniform(4).Draw(m.rt, "files"); second == 3 {
		if f := m.drawFile(); f.name != first.name {
			return newContent(first, f)
		}
	}
	return newContent(first)
}

func (m *machine) drawID() batchID {
	return batchID{one(datasets).Draw(m.rt, "dataset"), one(batches).Draw(m.rt, "batch")}
}

func (m *machine) count(name string) { m.done[name]++ }

// idOf returns the id of a dataset, 0 if it is not registered.
func (m *machine) idOf(dataset string) uint32 {
	found, err := catalog.DatasetsNamed(m.Context(), m.store, dataset)
	if err != nil {
		m.Fatal(err)
	}
	return found[dataset].ID
}

// ingest ingests new content.
func (m *machine) ingest() {
	id, c := m.drawID(), m.drawContent()
	spec := ingest.Spec{}
	switch uniform(6).Draw(m.rt, "kind") {
	case 4:
		spec.Replace = true
	case 5:
		spec.NewOnly = true
	}
	m.ingestAs(id, c, spec)
}

// ingestAgain ingests the content that a batch has, or had before it was retired.
func (m *machine) ingestAgain() {
	ids := m.world.ids(func(batchID, *content, bool) bool { return true })
	id := one(ids).Draw(m.rt, "batch")
	c, _ := m.world.current(id)
	m.ingestAs(id, c, ingest.Spec{})
}

func (m *machine) ingestAs(id batchID, c *content, spec ingest.Spec) {
	spec.Lake, spec.Dataset, spec.Batch = m.store.URL(), id.dataset, id.batch
	spec.Format, spec.URLColumn, spec.TSColumn, spec.SizeField, spec.MaxRejectRate = "jsonl", "url", "ts", "size", 1
	for _, f := range c.files {
		spec.Inputs = append(spec.Inputs, f.name)
	}
	if spec.NewOnly {
		if c = m.unread(id, c); c == nil {
			m.count("ingest of nothing new")
			s, err := ingest.MakePlan(m.Context(), m.store, testlake.Run(), spec)
			if err != nil || !s.Nothing {
				m.Fatalf("plan of %v with nothing new: %+v, %v", id, s, err)
			}
			return
		}
	}
	if m.world.lost(id, c) {
		// Whether the rows come back depends on whether the record is that of the version, which
		// lacks them: on when a retirement was published, and on the lists.
		return
	}
	m.count(map[bool]string{false: "ingest", true: "replacing ingest"}[spec.Replace])
	before := m.world
	run := &ingesting{run: testlake.Run(), spec: spec, temp: m.temp}
	first := run
	anew := uniform(4).Draw(m.rt, "another run") == 3
	m.attempt("ingest", func(w *world) { w.ingest(id, c, spec.Replace) }, func(store blob.Store) (err error) {
		if anew && run.ended > 0 {
			run = &ingesting{run: testlake.Run(), spec: spec, temp: m.temp}
		}
		return run.steps(m.Context(), store)
	})
	if run.result.Rows != int64(len(c.rows)) {
		m.Fatalf("ingest of %v: %d rows, want %d", id, run.result.Rows, len(c.rows))
	}
	if run == first {
		m.checkEffect(before, id, run)
	}
}

// unread is the content without the files that other batches of the dataset have read.
func (m *machine) unread(id batchID, c *content) *content {
	read := map[string]bool{}
	for other, have := range m.world.live() {
		if other.dataset == id.dataset && other != id {
			for _, f := range have.files {
				read[f.name] = true
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(c.files), func(f *file) bool { return read[f.name] })
	if len(left) == 0 {
		return nil
	}
	return newContent(left...)
}

// checkEffect compares what the ingest of a batch says about its dataset.
func (m *machine) checkEffect(before *world, id batchID, run *ingesting) {
	e := run.result.Effect
	if e == nil {
		m.Fatalf("no effect of the ingest of %v", id)
	}
	c, retired := before.current(id)
	rows, others, fewer := int64(0), int64(0), false
	for other, c := range m.world.live() {
		if other.dataset == id.dataset && other != id {
			rows, others = rows+int64(len(c.rows)), others+1
			fewer = fewer || c.dropped
		}
	}
	if fewer { // a batch that was ingested again counts as it was read, until it is published
		rows = e.OtherRows
	}
	own, _ := m.world.current(id)
	if have := before.published()[id]; retired && have != nil && (have.name == c.name || have.name == own.name) {
		retired = e.Returned
	}
	if e.OtherRows != rows || e.OtherBatches != others || e.Replaced != (c != nil && !retired) || e.Returned != (c != nil && retired) {
		m.Fatalf("effect of the ingest of %v: %+v, want %d rows in %d other batches; before: %v, retired %v", id, e, rows, others, c, retired)
	}
}

// retire retires some batches of a dataset, or all.
func (m *machine) retire() {
	ids := m.world.ids(func(batchID, *content, bool) bool { return true })
	id := one(ids).Draw(m.rt, "batch")
	all := uniform(4).Draw(m.rt, "all batches") == 3
	opt := retire.Options{Dataset: id.dataset}
	if !all {
		opt.Batches = []string{id.batch}
	}
	m.count("retire")
	m.attempt("retire", func(w *world) {
		for _, other := range ids {
			if other == id || all && other.dataset == id.dataset {
				w.retire(other)
			}
		}
	}, func(store blob.Store) error { return m.apply(store, opt) })
}

func (m *machine) apply(store blob.Store, opt retire.Options) error {
	s, err := opt.Select(m.Context(), store)
	if err == nil {
		err = s.Apply(m.Context(), store)
	}
	return err
}

// restorable reports whether it is known what a batch is if it is restored.
func (m *machine) restorable(id batchID, c *content, retired bool) bool {
	return retired && !m.world.lost(id, c)
}

// restore restores a retired batch. A garbage collection may have deleted it, unless a version that
// is kept has its content.
func (m *machine) restore() {
	ids := m.world.ids(m.restorable)
	id := one(ids).Draw(m.rt, "batch")
	c, _ := m.world.current(id)
	opt := retire.Options{Dataset: id.dataset, Batches: []string{id.batch}, Restore: true}
	if !m.world.reaches(id, c) || m.world.moved {
		if _, err := opt.Select(m.Context(), m.store); err != nil && strings.Contains(err.Error(), "not all of it is left") {
			m.count("restore of what is lost")
			return
		}
	}
	m.count("restore")
	m.attempt("restore", func(w *world) { w.restore(id) }, func(store blob.Store) error {
		err := m.apply(store, opt)
		if err != nil && strings.Contains(err.Error(), "is not retired") {
			return nil // a first attempt, whose reply was lost
		}
		return err
	})
}

// publish publishes all finished batches.
func (m *machine) publish() {
	m.count("publish")
	changed := false
	for id := range m.world.live() {
		m.published[id] = true
	}
	var done publish.Committed
	m.attempt("publish", func(w *world) { changed = w.publish() }, func(store blob.Store) (err error) {
		done, err = publish.All(m.Context(), store, testlake.Run(), m.temp)
		return err
	})
	m.ahead = false
	if len(done.Skipped) > 0 {
		m.Fatalf("publish left out %+v", done.Skipped)
	}
	if !changed {
		m.maybeAnother()
	}
}

// maybeAnother adds versions with the same rows to the map, if the lake has one, or one of each of
// two attempts: after a compaction, or if a batch has another record with the same rows.
func (m *machine) maybeAnother() {
	list, _, err := catalog.ReadManifest(m.Context(), m.store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return
	}
	if err != nil {
		m.Fatal(err)
	}
	for range min(2, len(list.Versions)-len(m.world.versions)) {
		m.world = m.world.again()
	}
}

// compact compacts the lake.
func (m *machine) compact() {
	full := uniform(4).Draw(m.rt, "full") > 0
	if m.rowsMayReturn(m.world.published(), dropped(m.world.published(), m.world.rules)) {
		return
	}
	m.count("compact")
	m.attempt("compact", func(w *world) { w.compact() }, func(store blob.Store) error {
		_, err := publish.CompactAll(m.Context(), store, testlake.Run(), publish.Compaction{Full: full}, m.temp)
		return err
	})
	m.maybeAnother()
}

// takedown adds a rule.
func (m *machine) takedown() {
	kind := one([]string{"domain", "host", "url", "prefix"}).Draw(m.rt, "kind")
	host := one(hosts).Draw(m.rt, "host")
	text := host
	switch kind {
	case "url", "prefix":
		text = one([]string{"", "http://", "https://"}).Draw(m.rt, "scheme") + host + one(paths).Draw(m.rt, "path")
	}
	target, err := catalog.ParseTarget(m.lists[m.world.newest().list], catalog.TargetKind(kind), text)
	if err != nil {
		return // a public suffix
	}
	n := rule{kind: kind, host: target.Host, scheme: target.Scheme, path: target.Path}
	if uniform(3).Draw(m.rt, "of a dataset") == 2 {
		dataset := one(datasets).Draw(m.rt, "dataset")
		if m.idOf(dataset) != 0 {
			n.dataset = dataset
		}
	}
	if at := uniform(9).Draw(m.rt, "from"); at > 0 && at < 5 {
		ms := epoch + int64(at)*1000
		n.from = &ms
	}
	if at := uniform(9).Draw(m.rt, "to"); at > 0 && at < 5 {
		if ms := epoch + int64(at)*1000 + 1; n.from == nil || ms > *n.from {
			n.to = &ms
		}
	}
	r := catalog.Takedown{
		ID: catalog.NewTakedownID(time.Now()), Target: target, Dataset: n.dataset, From: n.from, To: n.to, Reason: "test", Created: time.Now().UTC(),
	}
	if n.dataset != "" {
		r.DatasetID = m.idOf(n.dataset)
	}
	n.id = r.ID
	for _, have := range m.world.rules {
		if sameRule(&have, &n) {
			return
		}
	}
	m.count("takedown")
	var res *suppress.Result
	m.attempt("takedown", func(w *world) { w.rules = append(w.rules, n) }, func(store blob.Store) (err error) {
		if res, err = suppress.Add(m.Context(), store, r, suppress.Options{TempDir: m.temp}); err == nil && res.Existed && res.ID != n.id {
			m.Fatalf("takedown %+v: rule %s is equal", n, res.ID)
		}
		return err
	})
	if want := n.matches(m.world.newest()); res.Current.Rows != want {
		m.Fatalf("takedown %+v matches %d rows, want %d", r, res.Current.Rows, want)
	}
}

func sameRule(a, b *rule) bool {
	same := func(x, y *int64) bool { return x == y || x != nil && y != nil && *x == *y }
	return a.kind == b.kind && a.host == b.host && a.scheme == b.scheme && a.path == b.path && a.dataset == b.dataset &&
		same(a.from, b.from) && same(a.to, b.to)
}

// lift takes a rule out of force.
func (m *machine) lift() {
	i := uniform(len(m.world.rules)).Draw(m.rt, "rule")
	id := m.world.rules[i].id
	m.count("lift")
	m.attempt("lift", func(w *world) { w.rules = slices.Delete(w.rules, i, i+1) }, func(store blob.Store) error {
		_, err := suppress.Lift(m.Context(), store, id, "me", "test", suppress.Options{TempDir: m.temp})
		if errors.Is(err, suppress.ErrUnknown) && store == m.store {
			return nil // a first attempt has lifted it
		}
		return err
	})
}

// setRules gives the lake another public suffix list. The next publish moves the rows.
func (m *machine) setRules() {
	list := uniform(len(suffixLists)).Draw(m.rt, "list")
	m.count("rules update")
	m.attempt("rules update", func(w *world) { w.list, w.moved = list, true }, func(store blob.Store) error {
		have, err := catalog.ReadRules(m.Context(), store)
		if err != nil {
			return err
		}
		return catalog.SetRules(m.Context(), store, have, m.lists[list])
	})
}

// tag names a version, or takes a name away.
func (m *machine) tag() {
	name := one([]string{"one", "two"}).Draw(m.rt, "tag")
	at := slices.IndexFunc(m.world.versions, func(v *version) bool { return slices.Contains(v.tags, name) })
	if at >= 0 && rapid.Bool().Draw(m.rt, "remove") {
		m.count("untag")
		m.attempt("untag", func(w *world) { w.versions[at].untag(name) }, func(store blob.Store) error {
			_, err := catalog.RemoveTag(m.Context(), store, name)
			if err != nil && store == m.store && m.tagged(name) == "" {
				return nil
			}
			return err
		})
		return
	}
	to := uniform(len(m.world.versions)).Draw(m.rt, "version")
	m.count("tag")
	m.attempt("tag", func(w *world) {
		if at >= 0 {
			w.versions[at].untag(name)
		}
		w.versions[to].tags = append(w.versions[to].tags, name)
		slices.Sort(w.versions[to].tags)
	}, func(store blob.Store) error {
		_, _, err := catalog.SetTag(m.Context(), store, name, m.world.versions[to].id, true)
		return err
	})
}

func (v *version) untag(name string) {
	v.tags = slices.DeleteFunc(v.tags, func(t string) bool { return t == name })
}

// tagged returns the version with a tag, "" if there is none.
func (m *machine) tagged(name string) string {
	list, _, err := catalog.ReadManifest(m.Context(), m.store)
	if err != nil {
		m.Fatal(err)
	}
	for _, t := range list.Tags {
		if t.Name == name {
			return t.Version
		}
	}
	return ""
}

// collect collects garbage, after a dry run that must find the same.
func (m *machine) collect() {
	keep := 1 + uniform(4).Draw(m.rt, "keep")
	opt := gc.Options{Keep: keep}
	m.count("garbage collection")
	m.sweep()
	dry := opt
	dry.DryRun = true
	would, err := gc.Collect(m.Context(), m.store, dry)
	if err != nil {
		m.Fatalf("dry run: %v", err)
	}
	if err := m.agrees(m.world); err != nil {
		m.Fatalf("after a dry run: %v", err)
	}
	var res gc.Result
	attempts := 0
	m.attempt("garbage collection", func(w *world) { w.collect(keep) }, func(store blob.Store) (err error) {
		attempts++
		opt := opt
		if store != m.store {
			opt.Timeout = 200 * time.Millisecond // others wait for so long if this one dies
		}
		res, err = gc.Collect(m.Context(), store, opt)
		return err
	})
	for info, err := range m.store.List(m.Context(), "") {
		if err != nil {
			m.Fatal(err)
		}
		if _, _, ok := gc.KindOf(info.Key); !ok {
			m.Fatalf("%s is of no kind that package gc knows", info.Key)
		}
	}
	if attempts == 1 && would.Deleted.Total() != res.Deleted.Total() {
		m.Fatalf("dry run: would delete %+v; then %+v was deleted", would.Deleted, res.Deleted)
	}
}

// sweep removes what dead runs have left in staging.
func (m *machine) sweep() {
	runs, err := lake.StagedRuns(m.Context(), m.store)
	if err != nil {
		m.Fatal(err)
	}
	for _, r := range runs {
		if slices.ContainsFunc(m.pending, func(p *building) bool { return p.run == r.Run }) {
			continue
		}
		if err := ingest.Cleanup(m.Context(), m.store, r.Run); err != nil {
			m.Fatalf("clean up %s: %v", r.Run, err)
		}
	}
}

const piecesOfVersions = "index/pieces/"

// derived are the objects that can be made again from others without any loss.
var derived = []string{"index/segments/", lake.DeletionRoot, piecesOfVersions, "/postings-", "registry/datasets.json"}

// damage damages some objects of the index, and has them mended.
func (m *machine) damage() {
	m.sweep()
	kind := one(derived).Draw(m.rt, "kind")
	var keys []string
	postings := m.postings()
	named := map[string]bool{} // by earlier versions, for which nothing is made again
	if len(m.world.versions) > 1 {
		named = m.tables()
	}
	for info, err := range m.store.List(m.Context(), "") {
		if err != nil {
			m.Fatal(err)
		}
		made := kind != "/postings-" || postings[info.Key]
		if strings.Contains(info.Key, kind) && info.Size > 0 && made && !named[info.Key] {
			keys = append(keys, info.Key)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	objects := 2
	if kind != "/postings-" && kind != "registry/datasets.json" && kind != lake.DeletionRoot && len(m.world.versions) > 1 {
		return // what only earlier versions have is not made again
	}
	if kind == piecesOfVersions {
		if v := m.world.newest(); len(v.tags) > 0 {
			return // the version stays as it is
		}
		objects = 1
	}
	for range 1 + uniform(objects).Draw(m.rt, "objects") {
		// Digests are not the same in each run, but the order of most objects is.
		key := one(keys).Draw(m.rt, "object")
		data, _, err := m.store.Get(m.Context(), key)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err == nil && rapid.Bool().Draw(m.rt, "lost") {
			err = m.store.Delete(m.Context(), key)
		} else if err == nil {
			data = slices.Clone(data)
			data[uniform(len(data)).Draw(m.rt, "byte")] ^= 1 << 3
			_, err = m.store.Put(m.Context(), key, data, blob.Condition{})
		}
		if err != nil {
			m.Fatal(err)
		}
	}
	m.count("damage and rebuild")
	if err := m.rebuilt(m.store); err != nil {
		m.Fatalf("rebuild after damage of %s: %v", kind, err)
	}
	m.maybeAnother()
	if kind == piecesOfVersions {
		// Other objects do not tell when the batches began. So the pieces are others, and those of
		// the version before stay damaged.
		m.world.collect(1)
		if _, err := gc.Collect(m.Context(), m.store, gc.Options{Keep: 1}); err != nil {
			m.Fatal(err)
		}
	}
	m.restart()
}

// tables returns the deletion tables that versions name.
func (m *machine) tables() map[string]bool {
	named := map[string]bool{}
	mf, _, err := catalog.ReadManifest(m.Context(), m.store)
	if err != nil {
		m.Fatal(err)
	}
	for _, ref := range mf.Versions {
		v, err := catalog.ReadVersion(m.Context(), m.store, ref)
		if err != nil {
			m.Fatal(err)
		}
		for _, s := range v.Segments {
			if s.Dead != nil {
				named[s.Dead.Table.Key] = true
			}
		}
	}
	return named
}

// postings returns the postings that a rebuild looks at: those of the newest version and of what
// waits. Others only earlier versions, or retired batches, need.
func (m *machine) postings() map[string]bool {
	state, err := catalog.LookBatches(m.Context(), m.store)
	if err != nil {
		m.Fatal(err)
	}
	keys := map[string]bool{}
	add := func(ref segment.BatchRef) {
		data, _, err := m.store.Get(m.Context(), ref.Key())
		if err != nil {
			m.Fatal(err)
		}
		record, err := lake.DecodeBatch(data, ref.Key())
		if err != nil {
			m.Fatal(err)
		}
		for _, o := range record.Postings {
			keys[o.Key] = true
		}
	}
	for b, err := range state.Version.Batches(m.Context()) {
		switch {
		case err != nil:
			m.Fatal(err)
		case b.Union != "":
			add(segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Union, Digest: b.UnionDigest})
		default:
			add(segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest})
		}
	}
	waiting, err := state.Unpublished(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	for _, b := range waiting {
		if !b.Retired {
			add(segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest})
		}
	}
	return keys
}

// rebuild rebuilds a lake in which nothing is damaged.
func (m *machine) rebuild() {
	m.count("rebuild")
	m.attempt("rebuild", func(*world) {}, m.rebuilt)
	m.maybeAnother()
}

// rebuilt rebuilds a lake that has lost nothing that cannot be made again.
func (m *machine) rebuilt(store blob.Store) error {
	r, err := publish.Rebuild(m.Context(), store, testlake.Run(), m.temp)
	if err == nil && len(r.Lost) > 0 {
		err = fmt.Errorf("lost: %q", r.Lost)
	}
	return err
}

// restartServer replaces the server.
func (m *machine) restartServer() {
	m.count("restart")
	m.restart()
}
