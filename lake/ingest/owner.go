package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Owner names who may continue a run and remove its staging: a workflow of one Temporal.
type Owner struct {
	// Namespace is the id of a namespace. No two have the same, whatever Temporal they are in.
	Namespace  string `json:"namespace"`
	WorkflowID string `json:"workflow_id"`
}

// ownership is owner.json.
type ownership struct {
	lake.KeyedHeader
	Owner
}

func ownerKey(run string) string { return lake.StagingPrefix(run) + "owner.json" }

// ReadOwner returns the owner of a run's staging. ok is false if there is none: it is the
// staging of a publish.
func ReadOwner(ctx context.Context, store blob.Store, run string) (o Owner, ok bool, err error) {
	var doc ownership
	ok, err = load(ctx, store, ownerKey(run), &doc)
	return doc.Owner, ok, err
}

// Claim makes owner the owner of a run, and returns the run. If an earlier run of the same ingest
// has ended before it finished, Claim returns that run instead: its staging has what it has done.
// Ended reports whether the workflow of an owner has ended, so that it will not touch its staging
// again. If another workflow continues the run meanwhile, which can only be where the caller was
// reset, Claim fails until that has ended.
//
// The earlier run must be the last one of the same spec, and its inputs must be those of spec now.
func Claim(
	ctx context.Context, store blob.Store, run string, spec Spec, owner Owner,
	ended func(context.Context, Owner) (bool, error),
) (string, error) {
	if err := checkRun(run); err != nil {
		return "", err
	}
	if err := spec.Check(); err != nil {
		return "", err
	}
	spec, err := spec.OnDate()
	if err != nil {
		return "", err
	}
	now, planned, err := ReadOwner(ctx, store, run)
	if err != nil {
		return "", err
	}
	if planned && now == (Owner{}) { // a sweep began to remove it
		if err := Cleanup(ctx, store, run); err != nil {
			return "", err
		}
		planned = false
	}
	if planned {
		took, err := take(ctx, store, run, owner, ended)
		if err == nil && !took {
			err = fmt.Errorf("the staging of run %s belongs to workflow %s, which continues it; this ingest waits until that has ended",
				run, now.WorkflowID)
		}
		return run, err
	}
	earlier, err := resumable(ctx, store, spec)
	if err != nil {
		return "", err
	}
	if earlier != "" {
		if took, err := take(ctx, store, earlier, owner, ended); took || err != nil {
			return earlier, err
		}
	}
	if err := save(ctx, store, ownerKey(run), &ownership{Owner: owner}); err != nil {
		return "", err
	}
	return run, save(ctx, store, specKey(spec), &lastRun{Run: run})
}

// lastRun is the document at a specKey: the run that an ingest of the spec continues.
type lastRun struct {
	lake.KeyedHeader
	Run string `json:"run"`
}

// specRoot begins the keys of the last runs. They lie beside the folders of the runs.
const specRoot = "staging/last-"

// specKey is the key of the last run of a spec.
func specKey(spec Spec) string {
	spec.Deadline = ""
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err) // strings and numbers
	}
	return specRoot + lake.Digest(data) + ".json"
}

// Own makes owner the owner of a run that continues no other. Staging that a sweep has begun to
// remove is removed first.
func Own(ctx context.Context, store blob.Store, run string, owner Owner) error {
	if err := checkRun(run); err != nil {
		return err
	}
	now, ok, err := ReadOwner(ctx, store, run)
	if err != nil || ok && now == owner {
		return err
	}
	if ok {
		if err := lake.DeleteStaging(ctx, store, run); err != nil {
			return err
		}
	}
	return save(ctx, store, ownerKey(run), &ownership{Owner: owner})
}

// disown takes a run away from its owner before a sweep removes it. ok is false if the owner is no
// longer the one that the sweep has found.
func disown(ctx context.Context, store blob.Store, run string, found Owner) (ok bool, err error) {
	before, info, err := store.Get(ctx, ownerKey(run))
	if err != nil {
		return false, err
	}
	var doc ownership
	if err := codec.Unseal(before, ownerKey(run), stagingFormat, &doc); err != nil || doc.Owner != found {
		return false, err
	}
	return replaceOwner(ctx, store, run, before, info.ETag, Owner{})
}

// replaceOwner makes owner the owner of a run whose document is before. ok is false if the document
// was written again since.
func replaceOwner(ctx context.Context, store blob.Store, run string, before []byte, etag string, owner Owner) (ok bool, err error) {
	doc := ownership{KeyedHeader: lake.KeyedHeader{Format: stagingFormat, Object: ownerKey(run)}, Owner: owner}
	data, err := codec.Seal(&doc)
	if err != nil || bytes.Equal(data, before) {
		return err == nil, err
	}
	_, err = store.Put(ctx, ownerKey(run), data, blob.Condition{IfMatch: etag})
	if errors.Is(err, blob.ErrPrecondition) {
		return false, nil
	}
	return err == nil, err
}

// take makes owner the owner of an earlier run, unless somebody else still is.
func take(
	ctx context.Context, store blob.Store, run string, owner Owner, ended func(context.Context, Owner) (bool, error),
) (bool, error) {
	before, info, err := store.Get(ctx, ownerKey(run))
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var doc ownership
	ok, err := load(ctx, store, ownerKey(run), &doc)
	if errors.Is(err, codec.ErrCorrupt) {
		return false, nil // it is not known whose the run is, as with a damaged plan
	}
	if err != nil || !ok || doc.Owner == (Owner{}) { // a sweep began to remove it
		return false, err
	}
	if doc.Owner != owner {
		if over, err := ended(ctx, doc.Owner); err != nil || !over {
			return false, err
		}
	}
	return replaceOwner(ctx, store, run, before, info.ETag, owner)
}

// resumable returns the run that an ingest of spec would repeat, "" if there is none.
func resumable(ctx context.Context, store blob.Store, spec Spec) (string, error) {
	var last lastRun
	ok, err := load(ctx, store, specKey(spec), &last)
	if errors.Is(err, codec.ErrCorrupt) {
		return "", nil
	}
	run := last.Run
	if err != nil || !ok || !runName.MatchString(run) {
		return "", err
	}
	sel, err := newSelection(spec.Include, spec.Exclude)
	if err != nil {
		return "", err
	}
	in := inputs{planning: true}
	objects, err := in.ofSpec(ctx, &spec, sel, defaultLimits.objects)
	if err != nil {
		return "", err
	}
	if objects, err = onlyNew(ctx, store, &spec, objects); err != nil || len(objects) == 0 {
		return "", err
	}
	var p plan
	ok, err = load(ctx, store, planKey(run), &p)
	if errors.Is(err, codec.ErrCorrupt) {
		ok, err = false, nil // a damaged plan is not continued
	}
	if err != nil || !ok {
		return "", err
	}
	same, err := sameSpec(p.Spec, spec)
	if err != nil || !same || p.check(run) != nil {
		return "", err
	}
	planned, err := p.objects(ctx, store)
	if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
		planned, err = nil, nil
	}
	if err != nil || !slices.Equal(planned, objects) {
		return "", err
	}
	return run, nil
}

// objects returns the objects of a plan, in order.
func (p *plan) objects(ctx context.Context, store blob.Store) ([]object, error) {
	var all []object
	add := func(pieces []piece) {
		for i := range pieces {
			if len(all) == 0 || all[len(all)-1] != pieces[i].object {
				all = append(all, pieces[i].object)
			}
		}
	}
	if p.Count == 1 {
		add(p.Pieces)
		return all, nil
	}
	for split := range p.Count {
		pieces, err := p.pieces(ctx, store, split)
		if err != nil {
			return nil, err
		}
		add(pieces)
	}
	return all, nil
}
