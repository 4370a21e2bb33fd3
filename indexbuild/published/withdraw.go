package published

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

// Withdraw makes sure that what a run has ingested is never published, and returns the version that
// has it if it was published already. Digest is that of the batch if the caller knows it. Objects
// that the run wrote stay: they are named by their content, which a version may have from another
// ingest. A document in the run's staging keeps the ingest's place in the order for a repetition.
//
// A commit looks into the registry before it replaces the manifest. Withdraw first changes the
// registry and then touches the manifest, so a commit that looked too early has to look again. Only
// the first commit of a lake, which has no manifest to touch, can come in between.
func Withdraw(ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string) (version string, err error) {
	own, registered, err := registry.FindIngest(ctx, store, dataset, batch, run, digest)
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("%swithdrawn-%d-%s.json", lake.StagingPrefix(run), dataset, batch)
	doc := withdrawal{Ingest: own}
	if !registered { // perhaps an attempt before has removed it
		doc.Ingest = registry.Ingest{Run: run, Digest: digest}
		if _, err := lake.LoadKeyed(ctx, store, key, withdrawalFormat, &doc); err != nil {
			return "", err
		}
		own = doc.Ingest
	}
	save := func(in registry.Ingest) error {
		own, doc.Ingest = in, in
		_, err := lake.SaveKeyed(ctx, store, key, withdrawalFormat, &doc, blob.Condition{})
		return err
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
		if registered {
			if err := save(own); err != nil {
				return "", err
			}
		}
		in, removed, err := registry.WithdrawIngest(ctx, store, dataset, batch, run, digest)
		if err == nil && removed && in != own { // it has finished, or was moved, meanwhile
			err = save(in)
		}
		// If nothing was finished, no commit can have it.
		if err == nil && (!removed || in.Digest != "") {
			if err = manifest.Touch(ctx, store); err == nil {
				version, err = holds()
			}
		}
		if err != nil {
			return "", err
		}
	}
	// If a commit came first, the registry has to agree with the version.
	if version != "" && own.Seq > 0 {
		if err := registry.ReturnIngest(ctx, store, dataset, batch, own); err != nil {
			return "", err
		}
	}
	return version, store.Delete(ctx, key)
}

// withdrawal is the document of an ingest that is being withdrawn.
type withdrawal struct {
	lake.KeyedHeader
	Ingest registry.Ingest `json:"ingest"`
}

const withdrawalFormat = 1
