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
	p := r.plan
	if n < 0 || n >= p.Large {
		return LargeList{}, inputError("large list %d of %d", n, p.Large)
	}
	lists, err := r.lists(ctx, store, p.Groups+n)
	if err != nil {
		return LargeList{}, err
	}
	l := &lists[0]
	out := LargeList{Run: fmt.Sprintf("%s.%06d", run, n), Spec: p.Spec.Spec}
	out.Outcome = Outcome{Dataset: l.Dataset, From: l.From, DatasetID: l.DatasetID, Batch: p.Spec.batch(),
		Objects: len(l.Objects), Bytes: l.bytes(), Fingerprint: l.Fingerprint}
	out.Spec.Dataset, out.Spec.Batch = l.Dataset, p.Spec.batch()
	// Selected already: the objects are named one by one.
	out.Spec.Inputs, out.Spec.Include, out.Spec.Exclude = nil, nil, nil
	for _, o := range l.Objects {
		out.Spec.Inputs = append(out.Spec.Inputs, o.Name)
	}
	return out, nil
}
