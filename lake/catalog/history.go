package catalog

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Summary describes a version that the manifest lists, as lists of versions show it.
type Summary struct {
	VersionRef
	// Current tells that the version is the manifest's current one.
	Current bool
	// Tags are the version's tags, ascending.
	Tags []string
	// The other fields of the version, see Version. Parent is "" for a lake's first.
	Parent, Created, BuiltBy, CanonicalForm, PublicSuffix string
	Counts                                                Counts
	// Views name what the version has of its segments (Segment.View).
	Views []string
	// Change is Counts less those of the parent. For a lake's first version it is Counts. It is nil
	// if the manifest no longer lists the parent.
	Change *Counts
}

// summaryReads is how many versions Summaries reads at once.
const summaryReads = 8

// Summaries describes m.Versions[from:to], in this order. It calls read for each of them, then for
// those of their parents that the manifest lists elsewhere: the parent of the first one, since a
// version follows the one before it in the list. Read returns what ReadSummary does. It is called
// concurrently.
func (m *Manifest) Summaries(
	ctx context.Context, from, to int, read func(context.Context, VersionRef) (Summary, error),
) ([]Summary, error) {
	list, err := readSummaries(ctx, m.Versions[from:to], read)
	if err != nil {
		return nil, err
	}
	counts := map[string]Counts{"": {}}
	for i := range list {
		counts[list[i].ID] = list[i].Counts
	}
	var refs []VersionRef
	for i := range list {
		id := list[i].Parent
		if _, have := counts[id]; have {
			continue
		}
		if ref, err := m.Version(id); err == nil {
			refs = append(refs, ref)
			counts[id] = Counts{} // set below
		}
	}
	parents, err := readSummaries(ctx, refs, read)
	if err != nil {
		return nil, err
	}
	for i := range parents {
		counts[parents[i].ID] = parents[i].Counts
	}
	for i := range list {
		s := &list[i]
		s.Current, s.Tags, s.Change = s.ID == m.CurrentVersion, m.TagsOf(s.ID), nil
		if before, ok := counts[s.Parent]; ok {
			change := s.Counts.less(before)
			s.Change = &change
		}
	}
	return list, nil
}

func readSummaries(
	ctx context.Context, refs []VersionRef, read func(context.Context, VersionRef) (Summary, error),
) ([]Summary, error) {
	list := make([]Summary, len(refs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(summaryReads)
	for i, ref := range refs {
		group.Go(func() (err error) {
			list[i], err = read(ctx, ref)
			return err
		})
	}
	return list, group.Wait()
}

// ReadSummary reads a version that the manifest lists, and describes it without Current,
// Tags and Change. A version that is missing is a *codec.CorruptError, as a damaged one is.
func ReadSummary(ctx context.Context, store blob.Store, ref VersionRef) (Summary, error) {
	v, err := ReadVersion(ctx, store, ref)
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(ref.Object, "object", -1, "one that exists", "none")
	}
	if err != nil {
		return Summary{}, err
	}
	views := make([]string, len(v.Segments))
	for i := range v.Segments {
		views[i] = v.Segments[i].View()
	}
	return Summary{
		Views: views, VersionRef: ref, Parent: v.Parent, Created: v.Created, BuiltBy: v.BuiltBy,
		CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix, Counts: v.Counts,
	}, nil
}

func (c Counts) less(b Counts) Counts {
	return Counts{
		Segments: c.Segments - b.Segments, Datasets: c.Datasets - b.Datasets, Batches: c.Batches - b.Batches,
		Parts: c.Parts - b.Parts, Rows: c.Rows - b.Rows,
		PartBytes: c.PartBytes - b.PartBytes, IndexBytes: c.IndexBytes - b.IndexBytes,
	}
}
