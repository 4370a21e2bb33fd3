// Package suppress makes takedowns hold: it finds the rows that the rules of package takedown hide,
// and writes the overlays of the segments that have them (package overlay).
//
// Add and Lift change the rules of a lake. They apply the new rules to all segments of all
// versions that the manifest lists, and then replace the manifest once. So the rows vanish from
// every version at the same moment. Covering applies the rules to the segments that a publish adds,
// in the put that publishes them. Rows that are ingested after a takedown are hidden from the
// beginning.
//
// An overlay is always made of its segment and the rules alone. What one of two changes that come
// at the same time has made is thrown away, and made again on what the other has left.
//
// # Older versions of objects
//
// A bucket with versioning keeps what is replaced or deleted as older versions of its objects. So
// after a garbage collection the rows of a takedown are still in the bucket. Inspect looks for
// them, and Purge deletes them.
//
// No reader, build or collection needs an older version of an object. All of them name objects by
// key alone, and the store then answers with the current version, or with none. What an object was
// before it was deleted or replaced is needed only by whoever undoes a deletion, and a takedown has
// to prevent that. An object that is put again is a new current version, independent of the older
// ones. So a collection, a compaction or a publish beside Purge can only add older versions, which
// the next Purge finds. An older version never becomes current again, unless a person deletes what
// is newer by its id. The one id that a current version can take over is blob.NullVersion, while
// versioning is not enabled; Purge leaves that alone then. A read that goes on while its object is
// deleted fails as it does after a collection without versioning.
package suppress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// segmentsAtOnce is how many segments are worked on at a time, readsAtOnce how many runs of
	// pages of one of them are read, and versionsAtOnce how many versions.
	segmentsAtOnce = 4
	readsAtOnce    = 8
	versionsAtOnce = 8

	// fewNames is up to how many domains are looked up in the postings alone. For more the perfect
	// hash is opened, which a store other than a folder has to copy as a whole.
	fewNames = 256

	// looseSegments is how many segments a document may cover beyond those of the version that is
	// published before those of versions that are no longer kept are left out.
	looseSegments = 256

	// cacheBytes is what is kept of the frames of a segment while rules are applied to it.
	cacheBytes = 64 << 20
)

// applier applies rules to segments.
type applier struct {
	store   blob.Store
	tempDir string // "" for the system's

	mu       sync.Mutex
	versions map[manifest.VersionRef]*manifest.Version
	suffixes map[string]*urlnorm.SuffixList // nil for one that the lake lacks
	// follows has, by segment, the list that a version with the segment follows. A segment names
	// that of its first batch, and a batch of which a change of the list moves nothing keeps the
	// name of the older one.
	follows map[string]string
}

func newApplier(store blob.Store, tempDir string) *applier {
	return &applier{
		store: store, tempDir: tempDir, versions: map[manifest.VersionRef]*manifest.Version{},
		suffixes: map[string]*urlnorm.SuffixList{}, follows: map[string]string{},
	}
}

// SegmentRef returns the reference of a segment of a version.
func SegmentRef(s *manifest.Segment) segment.Ref {
	return segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
}

// readVersions returns all versions of a manifest.
func (a *applier) readVersions(ctx context.Context, m *manifest.Manifest) ([]*manifest.Version, error) {
	list := make([]*manifest.Version, len(m.Versions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(versionsAtOnce)
	for i, ref := range m.Versions {
		a.mu.Lock()
		list[i] = a.versions[ref]
		a.mu.Unlock()
		if list[i] != nil {
			continue
		}
		group.Go(func() error {
			v, err := manifest.ReadVersion(ctx, a.store, ref)
			if err != nil {
				return fmt.Errorf("version %s: %w", ref.ID, err)
			}
			a.mu.Lock()
			list[i], a.versions[ref] = v, v
			a.mu.Unlock()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, v := range list {
		a.follow(v)
	}
	return list, nil
}

// follow notes which list the segments of a version follow.
func (a *applier) follow(v *manifest.Version) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range v.Segments {
		a.follows[v.Segments[i].ID] = v.PublicSuffix
	}
}

// segmentsOf returns what versions have of segments, each view once, in the order of the views.
func segmentsOf(versions []*manifest.Version) []manifest.Segment {
	all := map[string]manifest.Segment{}
	for _, v := range versions {
		for _, s := range v.Segments {
			all[s.View()] = s
		}
	}
	list := make([]manifest.Segment, 0, len(all))
	for _, s := range all {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b manifest.Segment) int { return strings.Compare(a.View(), b.View()) })
	return list
}

// applied is the result of applying rules to a segment.
type applied struct {
	takedown.Segment
	// matched is what the probe matches, by dataset.
	matched map[uint32]*match
}

// match is what a probe matches in a dataset of a segment.
type match struct {
	rows, undated int64
	domains       map[segment.Key]bool
}

func (m *match) add(o *match) {
	m.rows += o.rows
	m.undated += o.undated
	if m.domains == nil {
		m.domains = map[segment.Key]bool{}
	}
	for k := range o.domains {
		m.domains[k] = true
	}
}

func (m *match) matched() takedown.Matched {
	return takedown.Matched{Rows: m.rows, Domains: int64(len(m.domains)), Undated: m.undated}
}

// work says how rules are applied to a segment.
type work struct {
	rules *takedown.Rules
	// changed are the rules of whose domains the overlay is made anew; others are as they were. Nil
	// stands for all rules.
	changed *takedown.Rules
	// probe are rules of which the matches are counted, undated the same without their times; both
	// may be nil.
	probe, undated *takedown.Rules
	// spare says what covers a segment that cannot be read, and whether it may be left at that.
	// Nothing covers it if the result has no id. It may be nil.
	spare func(s *manifest.Segment, err error) (takedown.Segment, bool)
}

// apply applies the rules to segments, and returns those that are covered then. Old are those that
// are covered already, by id.
func (a *applier) apply(
	ctx context.Context, segments []manifest.Segment, old func(id string) (takedown.Segment, bool), w work,
) ([]applied, error) {
	out := make([]applied, len(segments))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(segmentsAtOnce)
	for i := range segments {
		group.Go(func() (err error) {
			have, covered := old(segments[i].View())
			todo := w
			if !covered {
				todo.changed = nil
			}
			out[i], err = codec.Confirm(func() (applied, error) { return a.applyTo(ctx, &segments[i], have, todo) })
			if w.spare != nil && lake.IsDamage(err) {
				if kept, ok := w.spare(&segments[i], err); ok {
					out[i], err = applied{Segment: kept}, nil
				}
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(out, func(done applied) bool { return done.ID == "" }), err
}

// applyTo applies the rules to one segment. Have is what the rules before have made of it.
func (a *applier) applyTo(ctx context.Context, s *manifest.Segment, have takedown.Segment, w work) (applied, error) {
	old := have.Overlay
	out := applied{Segment: takedown.Segment{ID: s.View(), Overlay: old, Hidden: have.Hidden}, matched: map[uint32]*match{}}
	names := w.rules.Names()
	rules := w.rules
	if w.changed != nil {
		names, rules = w.changed.Names(), w.changed
	} else {
		old, out.Overlay, out.Hidden = nil, nil, 0
	}
	if s.Rows == 0 || len(names) == 0 {
		return out, nil
	}
	fail := func(err error) (applied, error) { return applied{}, fmt.Errorf("segment %s: %w", s.ID, err) }
	opt := segment.Options{Cache: segment.NewFrameCache(cacheBytes), PostingsOnly: len(names) <= fewNames}
	if !opt.PostingsOnly {
		dir, err := os.MkdirTemp(a.tempDir, "urlake-takedowns-")
		if err != nil {
			return applied{}, err
		}
		defer os.RemoveAll(dir)
		opt.CacheDir = dir
	}
	seg, err := segment.Open(ctx, a.store, SegmentRef(s), opt)
	if err != nil {
		return applied{}, err
	}
	defer seg.Close()
	below, err := a.namesBelow(ctx, seg, s.ID, rules.Domains())
	if err != nil {
		return fail(err)
	}
	domains, err := find(seg, append(names, below...), opt.PostingsOnly)
	if err != nil {
		return fail(err)
	}
	var b overlay.Merger
	again := map[segment.Key]bool{}
	for _, d := range domains {
		again[d.key] = true
	}
	if old != nil {
		before, err := overlay.Open(ctx, a.store, OverlayRef(old), nil)
		if err != nil {
			return fail(err)
		}
		end := b.Merge(before.All(ctx), func(e *overlay.Entry) bool { return again[e.Key] })
		defer end()
	}
	touched := w.changed == nil
	r, err := newRowReader(ctx, a.store, seg, s.Dead)
	if err != nil {
		return fail(err)
	}
	for _, d := range domains {
		entries, err := r.entries(ctx, d.key)
		if err != nil {
			return fail(err)
		}
		touched = touched || len(entries) > 0
		m, probe, undated := w.rules.For(d.name), w.probe.For(d.name), w.undated.For(d.name)
		for _, e := range entries {
			left, err := r.left(ctx, d.name, e, m, probe, undated)
			if err != nil {
				return fail(err)
			}
			if left.probed > 0 || left.undated > 0 {
				got := &match{rows: left.probed, undated: left.undated}
				if left.probed > 0 {
					got.domains = map[segment.Key]bool{d.key: true}
				}
				if out.matched[e.Dataset] == nil {
					out.matched[e.Dataset] = &match{}
				}
				out.matched[e.Dataset].add(got)
			}
			if left.Dead > 0 {
				if err := b.Add(left.Entry, left.tuples); err != nil {
					return fail(err)
				}
			}
		}
	}
	if !touched {
		return out, nil
	}
	if err := b.Drain(); err != nil {
		return fail(err)
	}
	out.Hidden = b.Dead()
	out.Overlay, err = a.write(ctx, s.View(), &b.Builder)
	return out, err
}

// OverlayRef returns the reference of an overlay.
func OverlayRef(o *takedown.Overlay) overlay.Ref { return overlay.Ref(*o) }

// write stores an overlay. It returns nil for one without entries.
func (a *applier) write(ctx context.Context, segment string, b *overlay.Builder) (*takedown.Overlay, error) {
	if b.Len() == 0 {
		return nil, nil
	}
	data, file, err := b.Finish()
	if err != nil {
		return nil, err
	}
	key := takedown.OverlayKey(segment, lake.Digest(data))
	if _, err := a.store.Put(ctx, key, data, blob.Condition{}); err != nil {
		return nil, err
	}
	o := takedown.Overlay(overlay.NewRef(key, file))
	return &o, nil
}

// found is a domain of a segment.
type found struct {
	name string
	key  segment.Key
}

// find returns those of the names that a segment may have as domains, by key.
func find(seg *segment.Segment, names []string, all bool) ([]found, error) {
	list := make([]found, 0, len(names))
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			list = append(list, found{name, segment.KeyOf(name)})
		}
	}
	slices.SortFunc(list, func(a, b found) int { return segment.CompareKeys(a.key, b.key) })
	if all {
		return list, nil
	}
	keys := make([]segment.Key, len(list))
	for i := range list {
		keys[i] = list[i].key
	}
	ordinals := make([]uint32, len(keys))
	if err := seg.Ordinals(keys, ordinals); err != nil {
		return nil, err
	}
	have := list[:0]
	for i, o := range ordinals {
		if int64(o) < seg.Info().Domains {
			have = append(have, list[i])
		}
	}
	return have, nil
}

// namesBelow returns the domains of a segment that are below one of the given domains, which the
// public suffix list of its versions has as public suffixes. Rules are made by the list that a lake
// follows; a kept version can follow another one. If no version with the segment was read, all
// domains that are below one of the given ones are returned, which may be more.
func (a *applier) namesBelow(
	ctx context.Context, seg *segment.Segment, id string, domains []string,
) (names []string, err error) {
	if len(domains) == 0 {
		return nil, nil
	}
	a.mu.Lock()
	identity, known := a.follows[id]
	a.mu.Unlock()
	var list *urlnorm.SuffixList
	if known {
		if list, err = a.suffixList(ctx, identity); err != nil {
			return nil, err
		}
	}
	parents := map[string]bool{}
	for _, d := range domains {
		if list == nil || list.Domain("a."+d) == "a."+d {
			parents[d] = true
		}
	}
	if len(parents) == 0 {
		return nil, nil
	}
	for domain, err := range seg.Domains(ctx, 0) {
		if err != nil {
			return nil, err
		}
		for name := domain; ; {
			_, above, ok := strings.Cut(name, ".")
			if !ok {
				break
			}
			if parents[above] {
				names = append(names, strings.Clone(domain))
				break
			}
			name = above
		}
	}
	return names, nil
}

// suffixList returns a public suffix list, nil if the lake lacks it.
func (a *applier) suffixList(ctx context.Context, identity string) (*urlnorm.SuffixList, error) {
	a.mu.Lock()
	list, ok := a.suffixes[identity]
	a.mu.Unlock()
	if ok {
		return list, nil
	}
	list, err := lake.LoadSuffixList(ctx, a.store, identity)
	var missing *lake.MissingListError
	if errors.As(err, &missing) || errors.Is(err, codec.ErrCorrupt) {
		list, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.suffixes[identity] = list
	a.mu.Unlock()
	return list, nil
}

// matches sums up what was matched: for each version, newest first, and for each dataset, as in the
// newest version with matching rows of it.
func matches(versions []*manifest.Version, bySegment map[string]map[uint32]*match) (
	byVersion, byDataset []takedown.Matched,
) {
	seen := map[uint32]bool{}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		datasets := map[uint32]*match{}
		var total match
		for _, s := range v.Segments {
			for id, got := range bySegment[s.View()] {
				if datasets[id] == nil {
					datasets[id] = &match{}
				}
				datasets[id].add(got)
				total.add(got)
			}
		}
		if len(datasets) == 0 {
			continue
		}
		sum := total.matched()
		sum.Version = v.ID
		for id, got := range datasets {
			if got.rows > 0 {
				sum.Datasets++
			}
			if !seen[id] {
				seen[id] = true
				one := got.matched()
				one.DatasetID = id
				byDataset = append(byDataset, one)
			}
		}
		byVersion = append(byVersion, sum)
	}
	slices.SortFunc(byDataset, func(a, b takedown.Matched) int { return cmp.Compare(a.DatasetID, b.DatasetID) })
	return byVersion, byDataset
}
