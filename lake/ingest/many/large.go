package many

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// LargeList is a list that the steps of package ingest do.
type LargeList struct {
	// Run is the run of its steps.
	Run  string
	Spec ingest.Spec
	// Outcome has what is known of the list's outcome before it is ingested.
	Outcome Outcome
}

// Large returns a large list of a run.
func Large(ctx context.Context, store blob.Store, run string, n int) (LargeList, error) {
	r, err := Open(ctx, store, run)
	if err != nil {
		return LargeList{}, err
	}
	l, err := r.largeList(ctx, store, n)
	if err != nil {
		return LargeList{}, err
	}
	out := LargeList{Run: r.largeRun(n), Spec: r.plan.Spec.Spec, Outcome: r.outcome(l)}
	out.Spec.Dataset, out.Spec.Batch = l.Dataset, r.plan.Spec.batch()
	// Selected already: the objects are named one by one.
	out.Spec.Inputs, out.Spec.Manifests, out.Spec.Include, out.Spec.Exclude = nil, nil, nil, nil
	for _, o := range l.Objects {
		out.Spec.Inputs = append(out.Spec.Inputs, o.Name)
	}
	return out, nil
}

// largeRun is the run of the steps of a large list.
func (r *Run) largeRun(n int) string { return fmt.Sprintf("%s.%06d", r.run, n) }

// largeList reads a large list.
func (r *Run) largeList(ctx context.Context, store blob.Store, n int) (*list, error) {
	if n < 0 || n >= r.plan.Large {
		return nil, inputError("large list %d of %d", n, r.plan.Large)
	}
	lists, err := r.lists(ctx, store, r.plan.Groups+n)
	if err != nil {
		return nil, err
	}
	return &lists[0], nil
}

// large returns what is known of the outcome of a large list before it is ingested.
func (r *Run) large(ctx context.Context, store blob.Store, n int) (Outcome, error) {
	l, err := r.largeList(ctx, store, n)
	if err != nil {
		return Outcome{}, err
	}
	return r.outcome(l), nil
}

// outcome returns what is known of the outcome of a list before it is ingested.
func (r *Run) outcome(l *list) Outcome {
	return Outcome{Dataset: l.Dataset, From: l.From, DatasetID: l.DatasetID, Batch: r.plan.Spec.batch(),
		Objects: len(l.Objects), Bytes: l.bytes(), Fingerprint: l.Fingerprint}
}
