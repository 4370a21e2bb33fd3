package published

import (
	"context"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

// Withdraw makes sure that what a run has ingested is never published, and returns the version that
// has it if it was published already. Digest is that of the batch if the caller knows it. Objects
// that the run wrote stay: they are named by their content, which a version may have from another
// ingest.
//
// A commit looks into the registry before it replaces the manifest. Withdraw first changes the
// registry and then touches the manifest, so a commit that looked too early has to look again. Only
// the first commit of a lake, which has no manifest to touch, can come in between.
func Withdraw(ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string) (version string, err error) {
	own, registered, err := registry.FindIngest(ctx, store, dataset, batch, run, digest)
	if err != nil {
		return "", err
	}
	if !registered { // perhaps an attempt before has removed it, and its place in the order is lost
		own = registry.Ingest{Run: run, Digest: digest}
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
		in, removed, err := registry.WithdrawIngest(ctx, store, dataset, batch, run, digest)
		if err != nil || removed && in.Digest == "" {
			return "", err // nothing was finished, so no commit can have it
		}
		if removed {
			own = in
		}
		if err := manifest.Touch(ctx, store); err != nil {
			return "", err
		}
		if version, err = holds(); err != nil || version == "" {
			return "", err
		}
	}
	// A commit came first. The registry has to agree with the version.
	return version, registry.ReturnIngest(ctx, store, dataset, batch, own)
}
