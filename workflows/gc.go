package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// GCInput says which lake to collect garbage of, and what is kept.
type GCInput struct {
	activities.GarbageSpec
	// Deadline is how long the collection may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// GCWorkflow collects the garbage of a lake: it drops old versions, and deletes what neither a kept
// version nor anything that is under way refers to. It may run beside ingests, publishes and other
// collections.
func GCWorkflow(ctx workflow.Context, in GCInput) (*activities.Garbage, error) {
	invalid := func(problem string) error {
		return temporal.NewNonRetryableApplicationError("garbage collection: "+problem, activities.ErrInput, nil)
	}
	if in.problem != "" {
		return nil, invalid(in.problem)
	}
	if in.Lake == "" {
		return nil, invalid("lake: it is missing")
	}
	if _, err := in.Options(); err != nil {
		return nil, invalid(err.Error())
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	var out activities.Garbage
	err = s.run(ctx, activities.PoolControl, &out, (*activities.Control)(nil).CollectGarbage, in.GarbageSpec)
	if err != nil {
		return nil, err
	}
	return &out, nil
}
