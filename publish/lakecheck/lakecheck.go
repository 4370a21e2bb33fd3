// Package lakecheck checks a whole lake: that the manifest, the versions, their segments, the
// registries, and the records, postings, parts and rejects of all finished batches are what was
// written. It only reads.
//
// Lake is what "starter verify" runs. Batch is the part of it that a publish needs for a batch that
// it is about to vouch for.
package lakecheck

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
)

// Options say how much of a lake is read.
type Options struct {
	// Version is the version whose segments and batches are checked; "" is the current one.
	Version string
	// AllVersions: also the segments and batches of all other versions of the manifest.
	AllVersions bool
	// Deep: also all postings and all Parquet, and everything is counted again. Otherwise only the
	// directories of postings and the sizes of parts are checked; small parts are hashed.
	Deep bool
	// TempDir holds temporary files; "" is the system's temporary folder.
	TempDir string
}

// Report says what Lake has read and what it has found wrong.
type Report struct {
	// Version is the version that was checked, "" if there is none. Batches, Parts and Rows count
	// what it holds.
	Version string `json:"version"`
	Batches int    `json:"batches"`
	Parts   int64  `json:"parts"`
	Rows    int64  `json:"rows"`
	// Unpublished is the number of finished batches that were checked although no version has them.
	Unpublished int             `json:"unpublished"`
	Segments    []verify.Report `json:"segments"`
	// Problems are lines that begin with the key of the damaged object, say what depends on it, and
	// end with the command that mends it. An object has one line, except for files of segments.
	Problems []string `json:"problems"`
}

// Lake checks a lake. Damage is part of the report; an error says why the check could not be
// finished.
func Lake(ctx context.Context, store blob.Store, opt Options) (*Report, error) {
	c := &checker{
		ctx: ctx, store: store, opt: opt, report: &Report{Segments: []verify.Report{}, Problems: []string{}},
		scopes: map[string]scope{}, seen: map[string]bool{}, done: map[string]bool{}, unions: map[string]map[string]lake.Member{},
	}
	err := c.run()
	if err == nil {
		err = c.needs()
	}
	return c.report, err
}

// SegmentRef returns the reference by which a version vouches for a segment.
func SegmentRef(s catalog.Segment) segment.Ref {
	return segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
}

// StoredRef returns the reference of what has the rows of a version's batch: the batch, or a union.
func StoredRef(b catalog.Batch) segment.BatchRef {
	name, digest := b.Stored()
	return segment.BatchRef{DatasetID: b.DatasetID, Batch: name, Digest: digest}
}

// BatchRef returns the reference of a version's batch.
func BatchRef(b catalog.Batch) segment.BatchRef {
	return segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
}

type checker struct {
	ctx    context.Context
	store  blob.Store
	opt    Options
	report *Report
	// versions are those that are checked.
	versions []*catalog.Version
	// scope is what is being checked, scopes has what needs the damaged objects, by key.
	scope  scope
	scopes map[string]scope
	seen   map[string]bool // keys of damaged objects
	done   map[string]bool // ids of the segments and keys of the batch records that were checked
	// unions has the members of the unions whose records were read, by key and name.
	unions map[string]map[string]lake.Member
	// manifest is the one that was read, nil if there is none or it is damaged.
	manifest *catalog.Manifest
}

// add reports an error that is a *codec.CorruptError, unless the object has a problem already. It
// returns any other error, which ends the check.
func (c *checker) add(err error) error {
	var corrupt *codec.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	if !c.seen[corrupt.File] {
		c.note(corrupt.File)
		c.report.Problems = append(c.report.Problems, lake.Explain(c.store.URL(), corrupt))
	}
	return nil
}

// note keeps that an object is damaged, and what needs it.
func (c *checker) note(key string) {
	c.seen[key] = true
	if c.scope != (scope{}) {
		c.scopes[key] = c.scope
	}
}

// enter begins the check of what a scope needs. Leave ends it, with the scope that enter returned.
func (c *checker) enter(s scope) (outer scope) {
	outer, c.scope = c.scope, s
	return outer
}

func (c *checker) leave(outer scope) { c.scope = outer }

func (c *checker) run() error {
	v, others, err := c.readVersions()
	if err != nil {
		return err
	}
	if c.versions = others; v != nil {
		c.versions = append([]*catalog.Version{v}, others...)
	}
	if v != nil {
		c.report.Version, c.report.Batches = v.ID, v.Counts.Batches
		if err := c.version(v, true); err != nil {
			return err
		}
	}
	for _, o := range others {
		if err := c.version(o, false); err != nil {
			return err
		}
	}
	if err := c.takedowns(c.manifest, c.versions); err != nil {
		return err
	}
	for _, err := range access.Check(c.ctx, c.store) {
		if err := c.add(err); err != nil {
			return err
		}
	}
	if _, err := treebuild.Always(c.ctx, c.store); err != nil {
		if err := c.add(err); err != nil {
			return err
		}
	}
	// A damaged registry is reported below.
	if rules, err := catalog.ReadRules(c.ctx, c.store); err == nil {
		if err := c.suffixList(rules.PublicSuffix); err != nil {
			return err
		}
	}
	return c.registries(v)
}

// suffixList checks the list by which a version or new batches find domains, unless it was checked
// before.
func (c *checker) suffixList(identity string) error {
	key := lake.SuffixListKey(identity)
	if identity == "" || c.done[key] {
		return nil
	}
	c.done[key] = true
	return c.add(lake.CheckSuffixList(c.ctx, c.store, identity))
}

// readVersions reads the manifest and its versions. It returns the version to check and, for
// AllVersions, the others. If the manifest or the current version is lost, it goes on with what the
// next publish would follow.
func (c *checker) readVersions() (v *catalog.Version, others []*catalog.Version, err error) {
	m, _, err := catalog.ReadManifest(c.ctx, c.store)
	if errors.Is(err, catalog.ErrNoVersion) {
		if c.opt.Version != "" {
			return nil, nil, err
		}
		err = catalog.CheckManifestPresent(c.ctx, c.store)
	}
	if other := c.add(err); other != nil {
		return nil, nil, other
	}
	c.manifest = m
	left := &catalog.State{}
	if err != nil || m != nil {
		if left, err = catalog.Look(c.ctx, c.store); err != nil {
			return nil, nil, c.add(err)
		}
	}
	if m == nil {
		m = left.Manifest
	}
	if m == nil {
		return nil, nil, nil
	}
	if err := c.add(lease.CheckSweep(c.ctx, c.store, m.Swept)); err != nil {
		return nil, nil, err
	}
	want, err := m.Version(c.opt.Version)
	if err != nil {
		return nil, nil, err
	}
	for _, ref := range m.Versions {
		got, err := catalog.ReadVersion(c.ctx, c.store, ref)
		if err := c.add(missing(ref.Object, err)); err != nil {
			return nil, nil, err
		}
		switch {
		case got == nil:
		case ref.ID == want.ID:
			v = got
		case c.opt.AllVersions:
			others = append(others, got)
		}
	}
	if v == nil && c.opt.Version == "" {
		v = left.Current
	}
	return v, others, nil
}

// version checks the segments and batches of a version that were not checked before. Counted says
// that the report counts them.
func (c *checker) version(v *catalog.Version, counted bool) error {
	defer c.leave(c.enter(scope{version: v.ID}))
	if err := c.suffixList(v.PublicSuffix); err != nil {
		return err
	}
	for _, s := range v.Segments {
		if c.done[s.ID] {
			continue
		}
		c.done[s.ID] = true
		if err := c.segment(SegmentRef(s)); err != nil {
			return err
		}
		if err := c.trees(SegmentRef(s)); err != nil {
			return err
		}
	}
	for _, s := range v.Segments {
		if s.Dead == nil || c.done[s.View()] {
			continue
		}
		c.done[s.View()] = true
		if err := c.add(c.table(v, &s, catalog.TakedownSegment{}, nil)); err != nil {
			return err
		}
	}
	sound := true
	damage := func(err error) error {
		sound = sound && err == nil
		return c.add(err)
	}
	for _, pieces := range []iter.Seq2[string, error]{v.DatasetPieces(c.ctx), v.GonePieces(c.ctx)} {
		for _, err := range pieces {
			if err := damage(err); err != nil {
				return err
			}
		}
	}
	for _, s := range v.Segments {
		name := "batches of " + s.ID
		if s.BatchPieces.Root != "" {
			name = s.BatchPieces.Root
		}
		if c.done[name] {
			continue
		}
		c.done[name] = true
		for _, pieces := range []iter.Seq2[string, error]{v.BatchPieces(c.ctx, s.ID), v.DeadPieces(c.ctx, s.ID)} {
			for _, err := range pieces {
				if err := damage(err); err != nil {
					return err
				}
			}
		}
		if err := damage(c.batches(v, s.ID, counted)); err != nil {
			return err
		}
		if err := damage(c.dead(v, s.ID)); err != nil {
			return err
		}
	}
	if !sound {
		return nil
	}
	return c.add(v.Check(c.ctx))
}

// batches checks the batches of a segment of a version that were not checked before.
func (c *checker) batches(v *catalog.Version, segment string, counted bool) error {
	for live, err := range v.BatchesIn(c.ctx, segment) {
		if err != nil {
			return err
		}
		key := live.Record()
		if !c.first(key) {
			continue
		}
		b, err := c.batch(BatchRef(live), true, live.Union != "")
		if err != nil {
			return err
		}
		dropped := int64(0)
		if live.Union != "" {
			if dropped, err = c.union(v, live, counted); err != nil {
				return err
			}
		}
		if b == nil {
			continue
		}
		if counted && live.Union == "" {
			c.report.Parts += int64(len(b.Parts))
		}
		if counted {
			c.report.Rows += live.Rows
		}
		if b.Rows-dropped != live.Rows {
			err := codec.Corrupt(key, "rows", -1, fmt.Sprintf("%d as in version %s", live.Rows+dropped, v.ID), b.Rows)
			if err := c.add(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// dead checks the dead batches of a segment of a version. A segment can be built again only with
// them.
func (c *checker) dead(v *catalog.Version, segment string) error {
	for b, err := range v.DeadIn(c.ctx, segment) {
		if err != nil {
			return err
		}
		if _, err := c.stored(b); err != nil {
			return err
		}
	}
	return nil
}

// stored checks what has the rows of a version's batch, and keeps the members of a union: the batch
// may be alive in another version. It returns the record, or nil if that was checked before or is
// damaged.
func (c *checker) stored(b catalog.Batch) (*lake.Batch, error) {
	ref := StoredRef(b)
	key := ref.Key()
	if !c.first(key) {
		return nil, nil
	}
	record, err := c.batch(ref, true, false)
	if err != nil || record == nil {
		return nil, err
	}
	if b.Union != "" {
		members := map[string]lake.Member{}
		for _, m := range record.Members {
			members[m.Batch] = m
		}
		c.unions[key] = members
	}
	return record, nil
}

// union checks the union of a batch, if it was not checked before, and that it has the batch. It
// returns how many rows of the batch the union lacks, because takedowns hid them.
func (c *checker) union(v *catalog.Version, live catalog.Batch, counted bool) (dropped int64, err error) {
	u, err := c.stored(live)
	if err != nil {
		return 0, err
	}
	if u != nil && counted {
		c.report.Parts += int64(len(u.Parts))
	}
	ref := StoredRef(live)
	key := ref.Key()
	members, sound := c.unions[key]
	got := members[live.Batch]
	want := lake.Member{Batch: live.Batch, Digest: live.Digest, Rows: live.Rows, Dropped: got.Dropped}
	if sound && got != want {
		return 0, c.add(codec.Corrupt(key, "members", -1, fmt.Sprintf("%+v as in version %s", want, v.ID), got))
	}
	return got.Dropped, nil
}

func (c *checker) segment(ref segment.Ref) error {
	defer c.leave(c.enter(scope{segment: ref.ID}))
	report, err := verify.Segment(c.ctx, c.store, ref, c.opt.Deep, c.opt.TempDir)
	if len(report.Problems) > 0 || errors.Is(err, codec.ErrCorrupt) {
		// What is damaged in the store is so the second time.
		report, err = verify.Segment(c.ctx, c.store, ref, c.opt.Deep, c.opt.TempDir)
	}
	c.report.Segments = append(c.report.Segments, report)
	if err != nil && len(report.Problems) == 0 {
		var format *codec.FormatError
		if errors.As(err, &format) {
			c.report.Problems = append(c.report.Problems, format.Error())
			return nil
		}
		return c.add(err)
	}
	seen := maps.Clone(c.seen) // one report may have several problems of an object
	for _, p := range report.Problems {
		if !seen[p.Object] {
			c.note(p.Object)
			c.report.Problems = append(c.report.Problems, p.Text)
		}
	}
	if more := report.Found - int64(len(report.Problems)); more > 0 {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf("segment %s: %d more problems", ref.ID, more))
	}
	return nil
}

// trees checks the index of path trees of a segment, if it has one.
func (c *checker) trees(ref segment.Ref) error {
	defer c.leave(c.enter(scope{segment: ref.ID}))
	_, err := codec.Confirm(func() (struct{}, error) {
		return struct{}{}, verify.Trees(c.ctx, c.store, ref, c.opt.Deep)
	})
	var format *codec.FormatError
	switch {
	case errors.As(err, &format):
		c.report.Problems = append(c.report.Problems, format.Error())
		return nil
	case errors.Is(err, blob.ErrNotExist):
		return nil // an object of the segment, or a part, whose check has reported it
	}
	return c.add(err)
}

// first reports whether a record is checked for the first time.
func (c *checker) first(key string) bool {
	first := !c.done[key]
	c.done[key] = true
	return first
}

// batch checks a batch's record, parts, postings and rejects, and returns the record, or nil if
// that is damaged. Indexed says that the check of a segment has read the parts. The parts of a
// batch in a union may be gone.
func (c *checker) batch(ref segment.BatchRef, indexed, inUnion bool) (*lake.Batch, error) {
	key := ref.Key()
	defer c.leave(c.enter(scope{record: key}))
	b, err := codec.Confirm(func() (*lake.Batch, error) {
		data, _, err := c.store.Get(c.ctx, key)
		if err != nil {
			return nil, missing(key, err)
		}
		return lake.DecodeBatch(data, key)
	})
	if err != nil {
		return nil, c.add(err)
	}
	rows := int64(0)
	for _, p := range b.Parts {
		if inUnion {
			rows += p.Rows
			continue
		}
		if c.seen[p.Key] { // the check of a segment has read it
			c.note(p.Key)
		}
		if err := c.add(Object(c.ctx, c.store, p.Object, c.opt.Deep && !indexed)); err != nil {
			return nil, err
		}
		rows += p.Rows
	}
	if rows != b.Rows {
		if err := c.add(codec.Corrupt(key, "rows", -1, b.Rows, fmt.Sprintf("%d in its parts", rows))); err != nil {
			return nil, err
		}
	}
	if b.Rejects != nil {
		if err := c.add(Object(c.ctx, c.store, *b.Rejects, c.opt.Deep)); err != nil {
			return nil, err
		}
	}
	if inUnion {
		return b, nil
	}
	for _, o := range b.Postings {
		if err := c.add(Object(c.ctx, c.store, o.Object, c.opt.Deep)); err != nil {
			return nil, err
		}
		if c.seen[o.Key] {
			return b, nil
		}
	}
	_, err = indexbuild.CheckBatch(c.ctx, c.store, ref, c.opt.Deep)
	return b, c.add(err)
}

// registries checks the registry: that the ids and names of datasets are those of the version,
// which may be nil. It also checks the finished batches that no version has.
func (c *checker) registries(v *catalog.Version) error {
	if err := catalog.CheckRegistry(c.ctx, c.store, c.add); err != nil {
		return err
	}
	for _, err := range numbers.Check(c.ctx, c.store) {
		if err := c.add(err); err != nil {
			return err
		}
	}
	if v == nil {
		v = &catalog.Version{}
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	for d, err := range v.Datasets(c.ctx, 0) {
		if err != nil {
			if err := c.add(err); err != nil {
				return err
			}
			break
		}
		if got, ok := names[d.ID]; names != nil && got != d.Name {
			if !ok {
				got = "none"
			}
			err := codec.Corrupt(lake.RegistryKey, fmt.Sprintf("dataset %d", d.ID), -1, d.Name+" as in version "+v.ID, got)
			if err := c.add(err); err != nil {
				return err
			}
		}
	}
	return c.pending(v)
}

// names returns the names of the registered datasets, nil if they are damaged, which was reported.
func (c *checker) names() (map[uint32]string, error) {
	registered, err := catalog.Datasets(c.ctx, c.store)
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, nil
	}
	names := map[uint32]string{}
	for _, d := range registered {
		names[d.ID] = d.Name
	}
	return names, err
}

// pending checks what waits to be published.
func (c *checker) pending(v *catalog.Version) error {
	state, err := catalog.ReadWaiting(c.ctx, c.store)
	if err != nil {
		return err
	}
	for _, d := range state.Damaged {
		if err := c.add(d.Err); err != nil {
			return err
		}
	}
	state.Version = v
	waiting, err := state.Unpublished(c.ctx)
	if err != nil {
		return c.add(err)
	}
	for _, b := range waiting {
		ref := segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
		if b.Retired || !c.first(ref.Key()) {
			continue
		}
		c.report.Unpublished++
		if err := c.waiting(ref); err != nil {
			return err
		}
	}
	return nil
}

// waiting checks a batch that waits for a publish. A restored batch may have lost its own objects
// to a garbage collection; what a publish takes from a union is no problem then.
func (c *checker) waiting(ref segment.BatchRef) error {
	before := len(c.report.Problems)
	if _, err := c.batch(ref, false, false); err != nil || len(c.report.Problems) == before {
		return err
	}
	source, _, err := Source(c.ctx, c.store, ref)
	var d *postings.DamageError
	if err != nil && !errors.As(err, &d) {
		return err
	}
	if err == nil && source != ref {
		c.report.Problems = c.report.Problems[:before]
	}
	return nil
}
