package publish

import (
	"context"
	"errors"
	"slices"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
)

// Found is the result of Find.
type Found struct {
	// Current is the id of the current version, "" if there is none.
	Current string `json:"current"`
	// Published tells that the current version has the batch, with the digest asked for or with
	// that of a later ingest.
	Published bool `json:"published"`
	// Damage says why no publish can include the batch, "" if it is intact.
	Damage string `json:"damage,omitempty"`
}

// Find looks for a finished batch in the current version. Seen is the id of a version that is known
// not to have the batch, "" for none. While it is the current one, Find reads nothing but the
// manifest, and finds no damage. An empty digest stands for any.
func Find(ctx context.Context, store blob.Store, batch segment.BatchRef, seen string) (out Found, err error) {
	m, _, err := manifest.Read(ctx, store)
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
	ingests, err := lake.Ingests(ctx, store, batch.DatasetID)
	if err != nil {
		return Found{}, err
	}
	after := batch.Digest == ""
	for _, i := range ingests[batch.Batch] {
		after = after || i.Is(batch.Digest)
		later[i.Digest] = after && i.Digest != ""
	}
	if m != nil {
		v, err := readVersion(ctx, store, m)
		if err != nil {
			return Found{}, err
		}
		if live, ok := v.FindBatch(batch.DatasetID, batch.Batch); ok {
			out.Published = batch.Digest == "" || live.Digest == batch.Digest || later[live.Digest]
		}
	}
	if out.Published || batch.Digest == "" {
		return out, nil
	}
	_, err = lakecheck.Batch(ctx, store, batch)
	var d *postings.DamageError
	if errors.As(err, &d) {
		out.Damage, err = lakecheck.Reason(ctx, store, batch, err), nil
	}
	return out, err
}

// FindAll returns for each of the batches the id of the current version if that holds it, else "".
// An empty digest stands for any.
func FindAll(ctx context.Context, store blob.Store, batches []segment.BatchRef) ([]string, error) {
	found := make([]string, len(batches))
	v, err := currentVersion(ctx, store)
	if err != nil || v == nil {
		return found, err
	}
	for i, b := range batches {
		live, ok := v.FindBatch(b.DatasetID, b.Batch)
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
	ingests, err := lake.Ingests(ctx, store, b.DatasetID)
	return slices.ContainsFunc(ingests[b.Batch], func(i lake.Ingest) bool { return i.Digest == digest && i.Is(b.Digest) }), err
}

// currentVersion reads the lake's current version, or what takes its place if that is lost. It is
// nil if there is none.
func currentVersion(ctx context.Context, store blob.Store) (*manifest.Version, error) {
	s, err := manifest.Recover(ctx, store)
	if err != nil {
		return nil, err
	}
	return s.Current, nil
}

func readVersion(ctx context.Context, store blob.Store, m *manifest.Manifest) (*manifest.Version, error) {
	ref, err := m.Version("")
	if err != nil {
		return nil, err
	}
	return manifest.ReadVersion(ctx, store, ref)
}

// Withdraw makes sure that what a run has ingested is never published, and returns the version that
// has it if it was published already. Digest is that of the batch if the caller knows it. Objects
// that the run wrote stay: they are named by their content, which a version may have from another
// ingest.
//
// A mark beside the record keeps it from being found again if the registry is lost, and keeps the
// ingest's place in the order for a repetition.
//
// A commit looks into the registry before it replaces the manifest. Withdraw first changes the
// registry and then touches the manifest, so a commit that looked too early has to look again. Only
// the first commit of a lake, which has no manifest to touch, can come in between.
func Withdraw(ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string) (version string, err error) {
	own, registered, err := lake.FindIngest(ctx, store, dataset, batch, run, digest)
	if err == nil && !registered {
		own, err = lake.MarkedIngest(ctx, store, dataset, batch, run, digest)
	}
	if err != nil {
		return "", err
	}
	// A version may have the record that the ingest finished with, although the registry names the
	// one to which it is being moved.
	holds := func() (string, error) {
		v, err := currentVersion(ctx, store)
		if err != nil || v == nil {
			return "", err
		}
		live, ok := v.FindBatch(dataset, batch)
		if ok && (own.Is(live.Digest) || live.Digest == digest) {
			return v.ID, nil
		}
		return "", nil
	}
	if version, err = holds(); err != nil || version != "" && registered {
		return version, err
	}
	if version == "" {
		if err := lake.MarkWithdrawn(ctx, store, dataset, batch, own); err != nil {
			return "", err
		}
		in, removed, err := lake.WithdrawIngest(ctx, store, dataset, batch, run, digest)
		if err != nil || removed && in.Digest == "" {
			return "", err // nothing was finished, so no commit can have it
		}
		if removed && in != own { // it has finished, or was moved, meanwhile
			own = in
			if err := lake.MarkWithdrawn(ctx, store, dataset, batch, own); err != nil {
				return "", err
			}
		}
		if err := manifest.Touch(ctx, store); err != nil {
			return "", err
		}
		version, err = holds()
		if err == nil && version == "" {
			err = unmarkUnlessGone(ctx, store, dataset, batch, own)
		}
		if err != nil || version == "" {
			return "", err
		}
	}
	// A commit came first. The registry has to agree with the version.
	if own.Seq > 0 {
		if err := lake.ReturnIngest(ctx, store, dataset, batch, own); err != nil {
			return "", err
		}
	}
	return version, lake.UnmarkWithdrawn(ctx, store, dataset, batch, own)
}

// unmarkUnlessGone removes the marks of an ingest that was withdrawn if another registered ingest has
// the same record. That ingest may have finished before the marks were written.
func unmarkUnlessGone(ctx context.Context, store blob.Store, dataset uint32, batch string, in lake.Ingest) error {
	ingests, err := lake.Ingests(ctx, store, dataset)
	if err == nil && slices.ContainsFunc(ingests[batch], func(i lake.Ingest) bool {
		return i.Is(in.Digest) || i.Is(in.MovedFrom)
	}) {
		err = lake.UnmarkWithdrawn(ctx, store, dataset, batch, in)
	}
	return err
}

// withdrawn reports whether an ingest whose batch is new in the plan was withdrawn since the plan
// was made.
func (p *plan) withdrawn(ctx context.Context, store blob.Store) (bool, error) {
	registered := map[uint32]map[string][]lake.Ingest{} // by dataset
	for _, b := range p.all() {
		if !b.New || b.Moved { // a batch of the version cannot be withdrawn
			continue
		}
		ingests, ok := registered[b.DatasetID]
		if !ok {
			var err error
			if ingests, err = lake.Ingests(ctx, store, b.DatasetID); err != nil {
				return false, err
			}
			registered[b.DatasetID] = ingests
		}
		if !slices.ContainsFunc(ingests[b.Batch], func(i lake.Ingest) bool { return i.Digest == b.Digest }) {
			return true, nil
		}
	}
	return false, nil
}
