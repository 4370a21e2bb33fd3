package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/deadrows"
	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/repair"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
	"github.com/urlake/urlake/lake/remedy"
)

// RebuildAll makes Rebuild check the whole lake.
const RebuildAll = "all"

// Rebuilt is the result of Rebuild. Each list has at most maxSkipped lines.
type Rebuilt struct {
	// Checked is the number of segments that were read. Segments lists those with rewritten files.
	Checked  int      `json:"checked"`
	Segments []string `json:"segments,omitempty"`
	// Files is the number of rewritten files, Postings the number of postings objects restored from
	// Parquet.
	Files    int `json:"files"`
	Postings int `json:"postings"`
	// Replaced lists the segments that could not get their bytes back, since another build of
	// urlake made them. A new version has new segments over the same batches instead.
	Replaced []string `json:"replaced,omitempty"`
	// Unions lists the keys of the records of unions that were written again from their batches.
	Unions []string `json:"unions,omitempty"`
	// Registries lists the keys of the registry documents that were restored. Found lists the
	// batches that only their records still knew, which wait to be published, and those that are
	// retired.
	Registries []string `json:"registries,omitempty"`
	Found      []string `json:"found,omitempty"`
	// Pieces lists the keys of the pieces of versions that were restored.
	Pieces []string `json:"pieces,omitempty"`
	// Lost says which versions, whether the manifest, and which rules of the registry may be lost,
	// and what takes their place.
	Lost []string `json:"lost,omitempty"`
	// Unmended lists what cannot be repaired, such as damaged parts and batch records, with the
	// command that mends it.
	Unmended []string `json:"unmended,omitempty"`
	// Earlier lists what cannot be repaired and only versions before the current one need. No
	// command mends it.
	Earlier []string `json:"lost_to_earlier_versions,omitempty"`
}

// Add adds the result of another Rebuild.
func (r *Rebuilt) Add(o Rebuilt) {
	r.Checked += o.Checked
	r.Files += o.Files
	r.Postings += o.Postings
	for _, l := range []struct {
		to   *[]string
		from []string
	}{
		{&r.Pieces, o.Pieces}, {&r.Unions, o.Unions},
		{&r.Segments, o.Segments}, {&r.Replaced, o.Replaced}, {&r.Registries, o.Registries},
		{&r.Found, o.Found}, {&r.Lost, o.Lost}, {&r.Unmended, o.Unmended},
		{&r.Earlier, o.Earlier},
	} {
		addLines(l.to, l.from...)
	}
}

// addLines adds lines that a list lacks, up to maxSkipped.
func addLines(to *[]string, lines ...string) {
	for _, l := range lines {
		if len(*to) < maxSkipped && !slices.Contains(*to, l) {
			*to = append(*to, l)
		}
	}
}

// Rebuild checks the segment with the id which, or with RebuildAll the whole lake, and mends what
// can be made again from what is left:
//
//   - damaged and missing files of segments, of all versions that the manifest lists, and damaged
//     indexes of their path trees
//   - damaged and missing postings, from parts
//   - damaged and missing parts and records of unions, from the parts of their batches
//   - the registry's datasets, from its copy and the version; the ledger, from the version and the
//     batch records
//   - the manifest, from the versions; pieces of versions, from segments and the registry.
//
// Files get their earlier bytes and names back. A segment of the current version for which this
// build of urlake cannot do that is replaced by a new one, in a new version.
//
// The result lists what cannot be mended; an error means that something could not be tried.
// Temporary files are in tempDir.
func Rebuild(ctx context.Context, store blob.Store, which, tempDir string) (Rebuilt, error) {
	r := &rebuilder{ctx: ctx, store: store, tempDir: tempDir}
	if err := r.run(which); err != nil {
		return r.out, fmt.Errorf("rebuild: %w", err)
	}
	return r.out, nil
}

type rebuilder struct {
	ctx     context.Context
	store   blob.Store
	tempDir string
	out     Rebuilt
	mended  map[string]bool // roots of the batches of segments that were looked at
	// earlier tells that only versions before the current one need what is mended now.
	earlier bool
}

// addUnmended lists an error about an object that cannot be mended.
func (r *rebuilder) addUnmended(err error, explained string) {
	if r.earlier {
		addLines(&r.out.Earlier, err.Error())
	} else {
		addLines(&r.out.Unmended, explained)
	}
}

// unmended lists an error that no retry repairs, and returns any other.
func (r *rebuilder) unmended(err error) error {
	var format *codec.FormatError
	var collision *indexbuild.CollisionError
	final := errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange) ||
		errors.Is(err, repair.ErrOtherBytes) || errors.As(err, &format) || errors.As(err, &collision)
	if err == nil || r.ctx.Err() != nil || !final {
		return err
	}
	r.addUnmended(err, remedy.Explain(r.store.URL(), err))
	return nil
}

func (r *rebuilder) run(which string) error {
	published, err := manifest.Recover(r.ctx, r.store)
	if err != nil {
		return r.unmended(err)
	}
	addLines(&r.out.Lost, published.Lost...)
	base, older := published.Current, []*manifest.Version(nil)
	if base == nil {
		base = &manifest.Version{}
	}
	if which == RebuildAll {
		if older, err = r.olderVersions(published); err != nil {
			return err
		}
		for i, v := range append([]*manifest.Version{base}, older...) {
			r.earlier = i > 0
			next, err := r.pieces(v)
			if err != nil {
				return err
			}
			if next != nil {
				base = next
			}
		}
		r.earlier = false
		if err := r.registries(base, older); err != nil {
			return err
		}
		if err := r.suffixLists(append([]*manifest.Version{base}, older...)); err != nil {
			return err
		}
	}
	if which == RebuildAll {
		if base, err = r.unions(base, older); err != nil {
			return err
		}
	}
	done := map[string]bool{}     // segments
	overlaid := map[string]bool{} // what versions have of segments: each may have dead rows of its own
	for i, v := range append([]*manifest.Version{base}, older...) {
		for _, s := range v.Segments {
			if overlaid[s.View()] || which != RebuildAll && which != s.ID {
				continue
			}
			overlaid[s.View()] = true
			r.earlier = i > 0
			if !done[s.ID] {
				done[s.ID] = true
				err = r.segment(v, s, i == 0)
			} else {
				err = r.overlay(v, s)
			}
			if err := r.unmended(err); err != nil {
				return err
			}
		}
	}
	r.earlier = false
	if which == RebuildAll {
		return r.batches(base, older)
	}
	if r.out.Checked == 0 {
		addLines(&r.out.Unmended, fmt.Sprintf("segment %q: not in the current version %s", which, base.ID))
	}
	return nil
}

// olderVersions drops lost versions from the manifest and returns those that are left, newest
// first, without the current one.
func (r *rebuilder) olderVersions(published *manifest.State) (older []*manifest.Version, err error) {
	if published.Manifest == nil {
		return nil, nil
	}
	if len(published.Lost) == 0 {
		dropped, err := manifest.DropLost(r.ctx, r.store)
		if err != nil {
			return nil, err
		}
		for _, key := range dropped {
			addLines(&r.out.Lost, key+": it is missing or damaged; the manifest no longer lists the version")
		}
		addLines(&r.out.Lost, published.Manifest.LostTags(dropped)...)
	}
	for _, ref := range slices.Backward(published.Manifest.Versions) {
		if ref.ID == published.Current.ID {
			continue
		}
		v, err := manifest.ReadVersion(r.ctx, r.store, ref)
		if err != nil {
			if err := r.unmended(err); err != nil {
				return nil, err
			}
			continue
		}
		older = append(older, v)
	}
	return older, nil
}

// suffixLists writes lost public suffix lists of versions and of new batches again, as far as they
// are this program's.
func (r *rebuilder) suffixLists(versions []*manifest.Version) error {
	var identities []string
	if rules, err := registry.ReadRules(r.ctx, r.store); err == nil { // else the registry is unmended
		identities = append(identities, rules.PublicSuffix)
	}
	for _, v := range versions {
		identities = append(identities, v.PublicSuffix)
	}
	slices.Sort(identities)
	for _, identity := range slices.Compact(identities) {
		if identity == "" {
			continue
		}
		restored, err := lake.RestoreSuffixList(r.ctx, r.store, identity)
		if restored {
			addLines(&r.out.Registries, lake.SuffixListKey(identity))
		}
		if err := r.unmended(err); err != nil {
			return err
		}
	}
	return nil
}

// segment mends a segment of a version.
func (r *rebuilder) segment(v *manifest.Version, s manifest.Segment, current bool) error {
	r.out.Checked++
	batches, err := lakecheck.StoredIn(r.ctx, v, s.ID)
	if err != nil {
		return err
	}
	done, err := repair.RebuildSegment(r.ctx, r.store, lakecheck.SegmentRef(s), batches, r.tempDir)
	if r.out.Postings += done.Postings; len(done.Files) > 0 {
		addLines(&r.out.Segments, s.ID)
		r.out.Files += len(done.Files)
	}
	switch {
	case err == nil:
		return errors.Join(r.overlay(v, s), r.trees(s))
	case !current || !errors.Is(err, repair.ErrOtherBytes):
		return err
	case s.Dead != nil:
		// Another segment over the same batches would number its rows anew.
		return fmt.Errorf("%w; it has dead rows: compact the lake in full, which writes its other batches to another segment", err)
	}
	return r.replace(v, s, batches)
}

// trees makes the index of a segment's path trees again if it is damaged, or if it is missing and
// the lake is to have it.
func (r *rebuilder) trees(s manifest.Segment) error {
	type inspected struct {
		state treebuild.State
		why   error
	}
	found, err := codec.Confirm(func() (inspected, error) {
		state, _, why, err := treebuild.Inspect(r.ctx, r.store, s.ID)
		return inspected{state, why}, cmp.Or(err, why)
	})
	if err != nil && found.state != treebuild.Damaged {
		return err
	}
	wanted := found.state == treebuild.Damaged
	if found.state == treebuild.Missing {
		// A damaged setting is listed, and says nothing about the segment.
		if wanted, err = treebuild.Always(r.ctx, r.store); err != nil {
			return r.unmended(err)
		}
	}
	if !wanted {
		return nil
	}
	_, err = treebuild.Build(r.ctx, r.store, lakecheck.SegmentRef(s), treebuild.Options{TempDir: r.tempDir, MemoryBytes: treeMemory})
	if err == nil {
		addLines(&r.out.Segments, s.ID)
		r.out.Files++
	}
	return err
}

// overlay writes the overlay of a segment's dead rows again if it is lost. It follows from the dead
// batches.
func (r *rebuilder) overlay(v *manifest.Version, s manifest.Segment) error {
	if s.Dead == nil {
		return nil
	}
	o, err := overlay.Open(r.ctx, r.store, overlay.Ref(s.Dead.Overlay), nil)
	if err == nil {
		for _, err = range o.All(r.ctx) {
			if err != nil {
				break
			}
		}
	}
	if err == nil || !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	var batches []planned
	for b, err := range v.DeadIn(r.ctx, s.ID) {
		if err != nil {
			return err
		}
		batches = append(batches, liveOf(&b))
	}
	whole := s
	whole.Dead = nil
	dead, err := deadrows.Write(r.ctx, r.store, &whole, dying(batches))
	if err != nil {
		return err
	}
	if dead.Overlay != s.Dead.Overlay {
		return codec.Corrupt(s.Dead.Overlay.Object, "file", -1, "what the dead batches give", dead.Overlay.Object)
	}
	addLines(&r.out.Segments, s.ID)
	r.out.Files++
	return nil
}

// replace builds a segment anew and commits a version that has it instead of the old one.
func (r *rebuilder) replace(v *manifest.Version, old manifest.Segment, batches []segment.BatchRef) error {
	n, err := repair.RestoreDamaged(r.ctx, r.store, batches, r.tempDir)
	if r.out.Postings += n; err != nil {
		return err
	}
	opt := indexbuild.Options{TempDir: r.tempDir}
	ref, err := buildOne(r.ctx, r.store, batches, opt)
	if err != nil {
		return err
	}
	warn := func(err error) { r.addUnmended(err, remedy.Explain(r.store.URL(), err)) }
	if err := Verify(r.ctx, r.store, Built{Segments: []segment.Ref{ref}}, r.tempDir, warn); err != nil {
		return err
	}
	made, err := ReplaceSegment(r.ctx, r.store, v.ID, old.ID, ref)
	if err != nil || made == "" { // another publish has replaced the segment
		return err
	}
	addLines(&r.out.Replaced, fmt.Sprintf("segment %s: %s takes its place in version %s", old.ID, ref.ID, made))
	return nil
}

// ReplaceSegment commits a version that has a segment in the place of another one over the same
// batches, and returns its id. It is "" if the current version does not have the old one. Version
// is the version in which it was found.
func ReplaceSegment(ctx context.Context, store blob.Store, version, old string, ref segment.Ref) (string, error) {
	c := manifest.Commit{
		ID:      lake.Digest(fmt.Appendf(nil, "replace segment %s of version %s by %s %s", old, version, ref.ID, ref.XXH64)),
		BuiltBy: builder(),
		Build: func(ctx context.Context, parent *manifest.Version) (*manifest.Next, error) {
			return withSegment(ctx, parent, old, ref)
		},
		Check: func(ctx context.Context, _ uint64) error { return complete(ctx, store, ref) },
		Cover: suppress.Covering(store, ""),
	}
	made, err := c.Apply(ctx, store)
	if errors.Is(err, errStale) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return made.Version.ID, nil
}

// withSegment returns what a version holds that is like parent, with another segment over the
// batches of the segment old.
func withSegment(
	ctx context.Context, parent *manifest.Version, old string, ref segment.Ref,
) (*manifest.Next, error) {
	if parent == nil || !slices.ContainsFunc(parent.Segments, func(s manifest.Segment) bool { return s.ID == old }) {
		return nil, errStale
	}
	next := same(parent)
	next.Batches = map[string]iter.Seq2[manifest.Batch, error]{ref.ID: parent.BatchesIn(ctx, old)}
	for i, s := range next.Segments {
		if s.ID == old {
			next.Segments[i] = manifest.NewSegment(ref.ID, ref.XXH64, ref.Bytes, ref.Domains, ref.Rows)
		}
	}
	return next, nil
}

// same returns what a version holds that is like parent.
func same(parent *manifest.Version) *manifest.Next {
	return &manifest.Next{
		CanonicalForm: parent.CanonicalForm, PublicSuffix: parent.PublicSuffix, Segments: slices.Clone(parent.Segments),
	}
}

// batches restores the postings of all batches that a version needs or that wait to be published,
// and lists those of their other objects that are lost.
func (r *rebuilder) batches(base *manifest.Version, older []*manifest.Version) error {
	var all []segment.BatchRef
	known := map[segment.BatchRef]bool{}
	add := func(ref segment.BatchRef) {
		if !known[ref] {
			known[ref] = true
			all = append(all, ref)
		}
	}
	finished, err := finishedBatches(r.ctx, r.store, func(err error) {
		addLines(&r.out.Unmended, remedy.Explain(r.store.URL(), err))
	})
	if err := r.unmended(err); err != nil {
		return err
	}
	united := map[segment.BatchRef]bool{} // batches that need no parts of their own
	live := map[segment.BatchRef]bool{}
	for b, err := range base.Batches(r.ctx) {
		if err != nil {
			break // listed below
		}
		live[lakecheck.BatchRef(b)] = true
		if b.Union != "" {
			united[lakecheck.BatchRef(b)] = true
		}
	}
	for i := range finished {
		ref := finished[i].ref()
		if !live[ref] {
			// A restored batch may be left in a union only, from which the next publish takes it.
			if ref, _, err = lakecheck.Source(r.ctx, r.store, ref); err != nil && !errors.As(err, new(*postings.DamageError)) {
				return err
			}
		}
		if !united[ref] {
			add(ref)
		}
	}
	needed := 0
	for i, v := range append([]*manifest.Version{base}, older...) {
		for b, err := range v.Needed(r.ctx) {
			if err != nil {
				if err := r.unmended(err); err != nil {
					return err
				}
				break
			}
			add(lakecheck.StoredRef(b))
		}
		if i == 0 {
			needed = len(all)
		}
	}
	defer func() { r.earlier = false }()
	for i, ref := range all {
		r.earlier = i >= needed
		n, err := repair.RestorePostings(r.ctx, r.store, ref, r.tempDir)
		if r.out.Postings += n; err != nil {
			if err := r.unmendedBatch(ref, err); err != nil {
				return err
			}
		}
		if err := r.unmendedObjects(ref); err != nil {
			return err
		}
	}
	return nil
}

// unmendedBatch is unmended for an error about a batch's objects.
func (r *rebuilder) unmendedBatch(ref segment.BatchRef, err error) error {
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange) || errors.Is(err, codec.ErrCorrupt) {
		r.addUnmended(err, lakecheck.Reason(r.ctx, r.store, ref, err))
		return nil
	}
	return r.unmended(err)
}

// unmendedObjects lists the lost parts and rejects of a batch.
func (r *rebuilder) unmendedObjects(ref segment.BatchRef) error {
	data, _, err := r.store.Get(r.ctx, ref.Key())
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) {
		return nil // RestorePostings has said so
	}
	if err != nil {
		return err
	}
	b, err := lake.DecodeBatch(data, ref.Key())
	if errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	if err != nil {
		return err
	}
	var objects []lake.Object
	for _, p := range b.Parts {
		objects = append(objects, p.Object)
	}
	if b.Rejects != nil {
		objects = append(objects, *b.Rejects)
	}
	for _, o := range objects {
		if err := r.unmended(lakecheck.Object(r.ctx, r.store, o, false)); err != nil {
			return err
		}
	}
	return nil
}

// registries writes lost registry documents again.
func (r *rebuilder) registries(base *manifest.Version, older []*manifest.Version) error {
	datasets := make([]lake.Dataset, 0, base.Counts.Datasets)
	for d, err := range base.Datasets(r.ctx, 0) {
		if err != nil {
			if err := r.unmended(err); err != nil {
				return err
			}
			break
		}
		datasets = append(datasets, lake.Dataset{
			ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence,
		})
	}
	rules, err := r.rules(base)
	if err != nil {
		return err
	}
	restored, err := registry.RestoreRegistry(r.ctx, r.store, rules, datasets)
	addLines(&r.out.Registries, append(restored.Keys, restored.Lost...)...)
	if restored.Anew {
		addLines(&r.out.Lost, fmt.Sprintf("%s: the lake has the public suffix list %s again, that of its version or batches; "+
			"if \"starter rules update\" set another one that no version has yet, run it again", lake.RegistryKey, rules.PublicSuffix))
	}
	for _, id := range restored.Nameless {
		addLines(&r.out.Unmended, fmt.Sprintf("dataset %d: its name is lost with the registry, "+
			"since nothing of it is published; ingest it again as a new dataset", id))
	}
	if err != nil {
		return r.unmended(err)
	}
	replaced := map[string]bool{}
	for _, v := range older {
		for b, err := range v.Batches(r.ctx) {
			if err != nil {
				if err := r.unmended(err); err != nil {
					return err
				}
				break
			}
			replaced[b.Digest] = true
		}
	}
	for shard := range registry.Shards {
		if err := r.ledger(shard, base, replaced); err != nil {
			return err
		}
	}
	marks, err := registry.RestoreMarks(r.ctx, r.store)
	addLines(&r.out.Registries, marks...)
	return r.unmended(err)
}

// ledger writes a lost shard of the ledger again.
func (r *rebuilder) ledger(shard int, base *manifest.Version, replaced map[string]bool) error {
	live := func() (map[registry.BatchID]string, error) {
		all := map[registry.BatchID]string{}
		for b, err := range base.Batches(r.ctx) {
			if err != nil {
				return nil, err
			}
			if registry.ShardOf(b.DatasetID) == shard {
				all[registry.BatchID{DatasetID: b.DatasetID, Batch: b.Batch}] = b.Digest
			}
		}
		return all, nil
	}
	restored, err := registry.RestoreShard(r.ctx, r.store, shard, live, replaced)
	addLines(&r.out.Registries, restored.Keys...)
	names, namesErr := registry.FindDatasets(r.ctx, r.store, datasetsIn(slices.Concat(restored.Found, restored.Retired)))
	if err := r.unmended(namesErr); err != nil {
		return err
	}
	for _, b := range restored.Found {
		addLines(&r.out.Found, fmt.Sprintf("batch %s of %s: it was finished and waits to be published",
			b.Batch, names[b.DatasetID].Name))
	}
	for _, b := range restored.Retired {
		addLines(&r.out.Found, fmt.Sprintf(`batch %s of %s: it is retired; "starter restore" brings it back`,
			b.Batch, names[b.DatasetID].Name))
	}
	addLines(&r.out.Unmended, restored.Unclear...)
	return r.unmended(err)
}

func datasetsIn(batches []registry.BatchID) []uint32 {
	ids := make([]uint32, len(batches))
	for i := range batches {
		ids[i] = batches[i].DatasetID
	}
	return ids
}

// rules returns the rules of a lake: those of its version, or else of one of its batch records.
func (r *rebuilder) rules(base *manifest.Version) (lake.Rules, error) {
	if base.CanonicalForm != "" {
		return lake.Rules{CanonicalForm: base.CanonicalForm, PublicSuffix: base.PublicSuffix}, nil
	}
	for info, err := range r.store.List(r.ctx, "batches/") {
		if err != nil {
			return lake.Rules{}, err
		}
		if !strings.HasSuffix(info.Key, ".json") {
			continue
		}
		data, _, err := r.store.Get(r.ctx, info.Key)
		if err != nil {
			return lake.Rules{}, err
		}
		if b, err := lake.DecodeBatch(data, info.Key); err == nil {
			return lake.Rules{CanonicalForm: b.CanonicalForm, PublicSuffix: b.PublicSuffix}, nil
		}
	}
	return lake.CurrentRules(), nil
}
