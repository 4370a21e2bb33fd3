package publish

import (
	"context"
	"errors"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish/lakecheck"
)

// Ingest is an ingest that has finished.
type Ingest struct {
	segment.BatchRef
	// Start is when it began, as for catalog.PendingBatch.
	Start int64
}

func (i *Ingest) name() catalog.BatchName {
	return catalog.BatchName{DatasetID: i.DatasetID, Batch: i.Batch}
}

// in reports whether a batch of a version is that of the ingest, or of a later one.
func (i *Ingest) in(live *catalog.Batch) bool {
	return live != nil && (live.Start >= i.Start || live.Digest == i.Digest)
}

// Found is the result of Find.
type Found struct {
	// Current is the id of the current version, "" if there is none.
	Current string `json:"current"`
	// Published tells that the current version has the batch, by this ingest or a later one.
	Published bool `json:"published"`
	// Damage says why no publish can include the batch, "" if it is intact: it is damaged, or was
	// retired since.
	Damage string `json:"damage,omitempty"`
}

// Find looks for a finished batch in the current version. Seen is the id of a version that is known
// not to have the batch, "" for none. While it is the current one, Find reads nothing but the
// manifest, and finds no damage.
func Find(ctx context.Context, store blob.Store, in Ingest, seen string) (out Found, err error) {
	m, err := current(ctx, store)
	if err != nil || m != nil && m.CurrentVersion == seen {
		return Found{Current: seen}, err
	}
	s, err := catalog.ReadWaiting(ctx, store, in.DatasetID)
	if err != nil {
		return Found{}, err
	}
	// What is published meanwhile waits no longer.
	if m, err = current(ctx, store); err != nil {
		return Found{}, err
	}
	if m != nil {
		ref, err := m.Version("")
		if err != nil {
			return Found{}, err
		}
		if s.Version, err = catalog.ReadVersion(ctx, store, ref); err != nil {
			return Found{}, err
		}
		out.Current = m.CurrentVersion
	}
	found, err := s.Find(ctx, in.name())
	if err != nil {
		return Found{}, err
	}
	b, ok := found[in.name()]
	switch {
	case in.in(b.Live):
		out.Published = true
	case b.Retired && b.Start > in.Start:
		out.Damage = "the batch was retired meanwhile"
		if b.By != "" {
			out.Damage += ", since batch " + b.By + " replaces the dataset"
		}
		out.Damage += `; "starter restore" brings it back`
	case ok && b.Start > in.Start: // a later ingest waits
	case ok && b.Start == in.Start:
		_, _, err = lakecheck.Source(ctx, store, in.BatchRef)
		var d *postings.DamageError
		if errors.As(err, &d) {
			out.Damage, err = lakecheck.Reason(ctx, store, in.BatchRef, err), nil
		}
	default:
		out.Damage = "what names the finished batch is lost; ingest it again"
		for _, d := range s.Damaged {
			out.Damage += "; " + lake.Explain(store.URL(), d.Err)
		}
	}
	return out, err
}

// current reads the manifest, nil if there is none.
func current(ctx context.Context, store blob.Store) (*catalog.Manifest, error) {
	m, _, err := catalog.ReadManifestUnchecked(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return nil, nil
	}
	return m, err
}

// FindAll returns for each of the ingests the id of the current version if that has its batch, by
// this ingest or a later one, else "".
func FindAll(ctx context.Context, store blob.Store, ingests []Ingest) ([]string, error) {
	found := make([]string, len(ingests))
	state, err := catalog.Look(ctx, store)
	if err != nil || state.Current == nil {
		return found, err
	}
	names := make([]catalog.BatchName, len(ingests))
	for i := range ingests {
		names[i] = ingests[i].name()
	}
	all, err := state.Current.FindBatches(ctx, names)
	if err != nil {
		return nil, err
	}
	for i := range ingests {
		if live, ok := all[names[i]]; ok && ingests[i].in(&live) {
			found[i] = state.Current.ID
		}
	}
	return found, nil
}
