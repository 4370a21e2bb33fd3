package published

import (
	"context"
	"errors"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

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
	own, registered, err := registry.FindIngest(ctx, store, dataset, batch, run, digest)
	if err == nil && !registered {
		own, err = markedIngest(ctx, store, dataset, batch, run, digest)
	}
	if err != nil {
		return "", err
	}
	// A version may have the record that the ingest finished with, although the registry names the
	// one to which it is being moved.
	holds := func() (string, error) {
		v, err := Current(ctx, store)
		if err != nil || v == nil {
			return "", err
		}
		live, ok, err := v.FindBatch(ctx, dataset, batch)
		if err != nil {
			return "", err
		}
		if ok && (own.Is(live.Digest) || live.Digest == digest) {
			return v.ID, nil
		}
		return "", nil
	}
	if version, err = holds(); err != nil || version != "" && registered {
		return version, err
	}
	if version == "" {
		if err := mark(ctx, store, dataset, batch, run, own); err != nil {
			return "", err
		}
		in, removed, err := registry.WithdrawIngest(ctx, store, dataset, batch, run, digest)
		if err != nil || removed && in.Digest == "" {
			return "", err // nothing was finished, so no commit can have it
		}
		if removed && in != own { // it has finished, or was moved, meanwhile
			own = in
			if err := mark(ctx, store, dataset, batch, run, own); err != nil {
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
		if err := registry.ReturnIngest(ctx, store, dataset, batch, own); err != nil {
			return "", err
		}
	}
	return version, unmark(ctx, store, dataset, batch, own)
}

// markFormat is the format version of the marks of withdrawn ingests.
const markFormat = 1

// withdrawnMark is the document at lake.WithdrawnKey.
type withdrawnMark struct {
	Format int `json:"format"`
	// Run is the run that was withdrawn, Ingest its entry in the registry: a restored one has
	// another run.
	Run    string          `json:"run"`
	Ingest registry.Ingest `json:"ingest"`
}

// markKeys returns the keys of the marks of an ingest: of its record, and of the record from which
// that was moved.
func markKeys(dataset uint32, batch string, in registry.Ingest) (keys []string) {
	for _, digest := range []string{in.Digest, in.MovedFrom} {
		if digest != "" {
			keys = append(keys, lake.WithdrawnKey(dataset, batch, digest))
		}
	}
	return keys
}

func mark(ctx context.Context, store blob.Store, dataset uint32, batch, run string, in registry.Ingest) error {
	for _, key := range markKeys(dataset, batch, in) {
		if err := lake.WriteSealed(ctx, store, key, withdrawnMark{markFormat, run, in}); err != nil {
			return err
		}
	}
	return nil
}

func unmark(ctx context.Context, store blob.Store, dataset uint32, batch string, in registry.Ingest) error {
	return store.Delete(ctx, markKeys(dataset, batch, in)...)
}

// markedIngest returns the ingest of a run that a mark of that digest keeps. Without a mark that
// can be read, it is an ingest of which only the digest is known.
func markedIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (registry.Ingest, error) {
	unknown := registry.Ingest{Run: run, Digest: digest}
	if digest == "" {
		return unknown, nil
	}
	var m withdrawnMark
	err := lake.ReadSealed(ctx, store, lake.WithdrawnKey(dataset, batch, digest), markFormat, &m)
	switch {
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, codec.ErrCorrupt):
		return unknown, nil
	case err == nil && m.Format == markFormat && m.Run == run:
		return m.Ingest, nil
	}
	return unknown, err
}

// unmarkUnlessGone removes the marks of an ingest that was withdrawn if another registered ingest
// has the same record. That ingest may have finished before the marks were written.
func unmarkUnlessGone(ctx context.Context, store blob.Store, dataset uint32, batch string, in registry.Ingest) error {
	id := registry.BatchID{DatasetID: dataset, Batch: batch}
	ingests, err := registry.IngestsOf(ctx, store, []registry.BatchID{id})
	if err == nil && slices.ContainsFunc(ingests[id], func(i registry.Ingest) bool {
		return i.Is(in.Digest) || i.Is(in.MovedFrom)
	}) {
		err = unmark(ctx, store, dataset, batch, in)
	}
	return err
}
