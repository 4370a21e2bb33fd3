package workflows

import (
	"regexp"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/lake/ingest"
)

// scheduledStart is the search attribute in which Temporal says when a schedule was due. In a
// backfill that is the time which is made up for.
var scheduledStart = temporal.NewSearchAttributeKeyTime("TemporalScheduledStartTime")

// dueSuffix is the same time at the end of the id that a schedule gives a workflow.
var dueSuffix = regexp.MustCompile(`-(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$`)

// due returns the time at which the schedule was due that started the workflow. It does not depend
// on when the workflow runs. A workflow that was started again by hand, with the id that a schedule
// gave it, has the same time.
func due(ctx workflow.Context) (at time.Time, ok bool) {
	if at, ok := workflow.GetTypedSearchAttributes(ctx).GetTime(scheduledStart); ok {
		return at, true
	}
	if m := dueSuffix.FindStringSubmatch(workflow.GetInfo(ctx).WorkflowExecution.ID); m != nil {
		at, err := time.Parse(time.RFC3339, m[1])
		return at, err == nil
	}
	return time.Time{}, false
}

// takeDate sets the date of an ingest that takes it from its schedule. If no schedule started it,
// the plan says what is wrong.
func takeDate(ctx workflow.Context, spec *ingest.Spec) {
	if at, ok := due(ctx); ok && spec.Date == ingest.ScheduledDate {
		spec.Date = at.UTC().Format(time.RFC3339)
	}
}
