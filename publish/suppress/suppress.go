// Package suppress makes takedowns hold: it finds the rows that the rules of package catalog hide,
// and has deletion tables written of the segments that have them (package deletion).
//
// Add and Lift change the rules of a lake. They apply the new rules to all segments of all
// versions that the manifest lists, and then replace the manifest once. So the rows vanish from
// every version at the same moment. Covering applies the rules to the segments that a publish adds,
// in the put that publishes them. Rows that are ingested after a takedown are hidden from the
// beginning.
//
// A table is always made of its segment, the version's own table and the rules alone. What one of
// two changes that come at the same time has made is thrown away, and made again on what the other
// has left.
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
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// segmentsAtOnce is how many segments are worked on at a time, versionsAtOnce how many versions
	// are read.
	segmentsAtOnce = 4
	versionsAtOnce = 8

	// looseSegments is how many segments a document may cover beyond those of the version that is
	// published before those of versions that are no longer kept are left out.
	looseSegments = 256

	// cacheBytes is what is kept of the frames of a segment.
	cacheBytes = 64 << 20
)

// applier applies rules to segments.
type applier struct {
	store   blob.Store
	tempDir string // "" for the system's

	mu       sync.Mutex
	versions map[catalog.VersionRef]*catalog.Version
	suffixes map[string]*urlnorm.SuffixList // nil for one that the lake lacks
}

func newApplier(store blob.Store, tempDir string) *applier {
	return &applier{
		store: store, tempDir: tempDir, versions: map[catalog.VersionRef]*catalog.Version{},
		suffixes: map[string]*urlnorm.SuffixList{},
	}
}

// readVersions returns all versions of a manifest.
func (a *applier) readVersions(ctx context.Context, m *catalog.Manifest) ([]*catalog.Version, error) {
	list := make([]*catalog.Version, len(m.Versions))
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
			v, err := catalog.ReadVersion(ctx, a.store, ref)
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
	return list, nil
}

// view is what versions have of a segment, and the public suffix list that they follow. The list
// that a segment names may be an older one: a batch keeps its list's name if a change of the list
// moves none of its rows.
type view struct {
	catalog.Segment
	list string
}

// viewsOf returns what versions have of segments, each view once, in their order.
func viewsOf(versions ...*catalog.Version) []view {
	all := map[string]view{}
	for _, v := range versions {
		for _, s := range v.Segments {
			all[s.View()] = view{s, v.PublicSuffix}
		}
	}
	list := make([]view, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id])
	}
	return list
}

// applied is the result of applying rules to a segment: what covers it, and what the probe matches,
// by dataset.
type applied struct {
	catalog.TakedownSegment
	matched map[uint32]*deletion.Match
}

// work says how rules are applied to segments. Suffixes and TempDir of Rules are not looked at.
type work struct {
	deletion.Rules
	// spare says what covers a segment that cannot be read, and whether it may be left at that.
	// Nothing covers it if the result has no id. It may be nil.
	spare func(s *catalog.Segment, err error) (catalog.TakedownSegment, bool)
}

// apply applies the rules to what versions have of segments, and returns those that are covered
// then. Old are those that are covered already, by id.
func (a *applier) apply(
	ctx context.Context, views []view, old func(id string) (catalog.TakedownSegment, bool), w work,
) ([]applied, error) {
	out := make([]applied, len(views))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(segmentsAtOnce)
	for i := range views {
		group.Go(func() (err error) {
			have, covered := old(views[i].View())
			todo := w.Rules
			if !covered {
				todo.Changed = nil
			}
			out[i], err = codec.Confirm(func() (applied, error) { return a.applyTo(ctx, &views[i], have, todo) })
			if w.spare != nil && lake.IsDamage(err) {
				if kept, ok := w.spare(&views[i].Segment, err); ok {
					out[i], err = applied{TakedownSegment: kept}, nil
				}
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(out, func(done applied) bool { return done.ID == "" }), err
}

// applyTo applies the rules to one segment. Have is what the rules before have made of it.
func (a *applier) applyTo(
	ctx context.Context, v *view, have catalog.TakedownSegment, r deletion.Rules,
) (out applied, err error) {
	r.TempDir = a.tempDir
	if r.Suffixes, err = a.suffixList(ctx, v.list); err != nil {
		return out, err
	}
	out.TakedownSegment, out.matched, err = deletion.OfRules(ctx, a.store, &v.Segment, have, r)
	return out, err
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
func matches(versions []*catalog.Version, bySegment map[string]map[uint32]*deletion.Match) (
	byVersion, byDataset []catalog.Matched,
) {
	seen := map[uint32]bool{}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		datasets := map[uint32]*deletion.Match{}
		var total deletion.Match
		for _, s := range v.Segments {
			for id, got := range bySegment[s.View()] {
				if datasets[id] == nil {
					datasets[id] = &deletion.Match{}
				}
				datasets[id].Add(got)
				total.Add(got)
			}
		}
		if len(datasets) == 0 {
			continue
		}
		sum := matched(&total)
		sum.Version = v.ID
		for id, got := range datasets {
			if got.Rows > 0 {
				sum.Datasets++
			}
			if !seen[id] {
				seen[id] = true
				one := matched(got)
				one.DatasetID = id
				byDataset = append(byDataset, one)
			}
		}
		byVersion = append(byVersion, sum)
	}
	slices.SortFunc(byDataset, func(a, b catalog.Matched) int { return cmp.Compare(a.DatasetID, b.DatasetID) })
	return byVersion, byDataset
}

func matched(m *deletion.Match) catalog.Matched {
	return catalog.Matched{Rows: m.Rows, Domains: int64(len(m.Domains)), Undated: m.Undated}
}
