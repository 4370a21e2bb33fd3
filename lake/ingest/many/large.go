package many

import (
	"context"
	"errors"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// Ref names a large list of a run.
type Ref struct {
	Run    string `json:"run"`
	Number int    `json:"number"`
}

// Large returns what package ingest is to ingest for a large list.
func Large(ctx context.Context, store blob.Store, ref Ref) (ingest.Spec, error) {
	r, l, err := large(ctx, store, ref)
	if err != nil {
		return ingest.Spec{}, err
	}
	spec := r.plan.Spec.Spec
	spec.Dataset, spec.Batch, spec.Start = l.Dataset, r.plan.Spec.batch(), r.plan.Start
	// The objects are selected already, so they are named one by one.
	spec.Inputs, spec.Manifests, spec.Include, spec.Exclude = nil, nil, nil, nil
	for _, o := range l.Objects {
		spec.Inputs = append(spec.Inputs, o.Name)
	}
	return spec, nil
}

// Note records the outcome of a large list. The first one that is recorded stays. What the plan
// knows of the outcome is set by Note.
func Note(ctx context.Context, store blob.Store, ref Ref, o Outcome) error {
	r, l, err := large(ctx, store, ref)
	if err != nil {
		return err
	}
	known := r.outcome(l)
	o.Dataset, o.From, o.DatasetID, o.Batch = known.Dataset, known.From, known.DatasetID, known.Batch
	o.Objects, o.Bytes, o.Fingerprint = known.Objects, known.Bytes, known.Fingerprint
	err = save(ctx, store, groupKey(ref.Run, ref.Number), &outcomes{Lists: []Outcome{o}}, "")
	if errors.Is(err, blob.ErrPrecondition) {
		return nil
	}
	return err
}

func large(ctx context.Context, store blob.Store, ref Ref) (*Run, *list, error) {
	r, err := Open(ctx, store, ref.Run)
	if err != nil {
		return nil, nil, err
	}
	lists, err := r.lists(ctx, ref.Number)
	if err == nil && ref.Number < r.plan.Groups {
		err = inputError("list %d is in a group", ref.Number)
	}
	if err != nil {
		return nil, nil, err
	}
	return r, &lists[0], nil
}
