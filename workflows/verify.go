package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// VerifyInput says which lake is checked, and what of it.
type VerifyInput struct {
	activities.VerifySpec
	// Deadline is how long the check may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// VerifyWorkflow checks a lake as "starter verify" does, and changes nothing. It fails if something
// is damaged; the error names it, and the command that mends it.
func VerifyWorkflow(ctx workflow.Context, in VerifyInput) (*activities.Verified, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("the input of the check: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a check needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	var out activities.Verified
	if err := s.move(ctx, activities.PoolIndex, &out, (*activities.Index)(nil).VerifyLake, in.VerifySpec); err != nil {
		return nil, err
	}
	if out.Found > 0 {
		return nil, damaged(out.Problems, out.Found, out)
	}
	return &out, nil
}

// maxTold is how many problems the error of a workflow names.
const maxTold = 5

// damaged returns the error of a workflow that found damage. Each line says how to mend something.
func damaged(lines []string, found int, details any) error {
	told := lines[:min(maxTold, len(lines))]
	text := fmt.Sprintf("%d objects are damaged: %s", found, strings.Join(told, "; "))
	if found == 1 {
		text = "damaged: " + told[0]
	}
	if more := found - len(told); more > 0 {
		text += fmt.Sprintf("; and %d more, which \"starter verify\" lists", more)
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrCorrupt, nil, details)
}
