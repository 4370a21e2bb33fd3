// Package published tells what became of finished batches: whether a version has them (Find), or
// that none shall ever have them (Withdraw). It also tells again what lost pieces of a version had
// of batches and datasets.
package published

import (
	"context"
	"errors"
	"slices"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

// Found is the result of Find.
type Found struct {
	// Current is the id of the current version, "" if there is none.
	Current string `json:"current"`
	// Published tells that the current version has the batch, with the digest asked for or with
	// that of a later ingest.
	Published bool `json:"published"`
	// Damage says why no publish can include the batch, "" if it is intact: it is damaged, or was
	// retired since.
	Damage string `json:"damage,omitempty"`
}

// Find looks for a finished batch in the current version. Seen is the id of a version that is known
// not to have the batch, "" for none. While it is the current one, Find reads nothing but the
// manifest, and finds no damage. An empty digest stands for any.
func Find(ctx context.Context, store blob.Store, batch segment.BatchRef, seen string) (out Found, err error) {
	m, _, err := manifest.ReadUnchecked(ctx, store)
	if err != nil && !errors.Is(err, manifest.ErrNoVersion) {
		return Found{}, err
	}
	if m != nil {
		out.Current = m.CurrentVersion
	}
	if out.Current != "" && out.Current == seen {
		return out, nil
	}
	later := map[string]bool{} // digests of the ingest asked for and of those that registered after it
	ingests, err := ingestsOf(ctx, store, batch)
	if err != nil {
		return Found{}, err
	}
	// The same content may have been ingested before and after another one: the last time counts.
	first := 0
	if batch.Digest != "" {
		if first = lastWith(ingests, batch.Digest); first < 0 {
			first = len(ingests)
		}
	}
	for _, i := range ingests[first:] {
		later[i.Digest] = i.Digest != ""
	}
	if m != nil {
		v, err := Version(ctx, store, m)
		if err != nil {
			return Found{}, err
		}
		live, ok, err := v.FindBatch(ctx, batch.DatasetID, batch.Batch)
		if err != nil {
			return Found{}, err
		}
		if ok {
			out.Published = batch.Digest == "" || live.Digest == batch.Digest || later[live.Digest]
		}
	}
	if out.Published {
		return out, nil
	}
	if at, retired := RetiredAt(ingests); retired && at >= first {
		out.Damage = "the batch was retired meanwhile"
		if by := ingests[at].By; by != "" {
			out.Damage += ", since batch " + by + " replaces the dataset"
		}
		out.Damage += `; "starter restore" brings it back`
		return out, nil
	}
	if batch.Digest == "" {
		return out, nil
	}
	_, _, err = lakecheck.Source(ctx, store, batch)
	var d *postings.DamageError
	if errors.As(err, &d) {
		out.Damage, err = lakecheck.Reason(ctx, store, batch, err), nil
	}
	return out, err
}

// RetiredAt returns the index of the entry that retires a batch, and whether the batch is retired.
func RetiredAt(ingests []registry.Ingest) (at int, retired bool) {
	for at = len(ingests) - 1; at >= 0; at-- {
		if ingests[at].Finished() {
			return at, ingests[at].Retired
		}
	}
	return -1, false
}

// lastWith returns the index of the last ingest that finished with the record of that digest, -1 if
// there is none.
func lastWith(ingests []registry.Ingest, digest string) int {
	for i := len(ingests) - 1; i >= 0; i-- {
		if ingests[i].Is(digest) {
			return i
		}
	}
	return -1
}

// FindAll returns for each of the batches the id of the current version if that holds it, else "".
// An empty digest stands for any.
func FindAll(ctx context.Context, store blob.Store, batches []segment.BatchRef) ([]string, error) {
	found := make([]string, len(batches))
	v, err := Current(ctx, store)
	if err != nil || v == nil {
		return found, err
	}
	names := make([]manifest.BatchName, len(batches))
	for i, b := range batches {
		names[i] = manifest.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}
	}
	all, err := v.FindBatches(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, b := range batches {
		live, ok := all[names[i]]
		if ok && b.Digest != "" && live.Digest != b.Digest {
			if ok, err = movedTo(ctx, store, b, live.Digest); err != nil {
				return nil, err
			}
		}
		if ok {
			found[i] = v.ID
		}
	}
	return found, nil
}

// movedTo reports whether a finished batch was moved to another public suffix list and has the
// record with that digest now.
func movedTo(ctx context.Context, store blob.Store, b segment.BatchRef, digest string) (bool, error) {
	ingests, err := ingestsOf(ctx, store, b)
	return slices.ContainsFunc(ingests, func(i registry.Ingest) bool { return i.Digest == digest && i.Is(b.Digest) }), err
}

// ingestsOf returns the registered ingests of a batch.
func ingestsOf(ctx context.Context, store blob.Store, b segment.BatchRef) ([]registry.Ingest, error) {
	id := registry.BatchID{DatasetID: b.DatasetID, Batch: b.Batch}
	all, err := registry.IngestsOf(ctx, store, []registry.BatchID{id})
	return all[id], err
}

// Current reads the lake's current version, or what takes its place if that is lost. It is
// nil if there is none.
func Current(ctx context.Context, store blob.Store) (*manifest.Version, error) {
	s, err := manifest.Recover(ctx, store)
	if err != nil {
		return nil, err
	}
	return s.Current, nil
}

// Version reads the current version of a manifest.
func Version(ctx context.Context, store blob.Store, m *manifest.Manifest) (*manifest.Version, error) {
	ref, err := m.Version("")
	if err != nil {
		return nil, err
	}
	return manifest.ReadVersion(ctx, store, ref)
}
