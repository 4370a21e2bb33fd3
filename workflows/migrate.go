package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/frontier/migrate"
)

// Stages of a migration.
const (
	StageMigrate = "migrate"
	StageVerify  = "verify"
)

// FrontierMigrateInput says which database goes to which frontier.
type FrontierMigrateInput struct {
	migrate.Spec
	// Deadline is how long the migration may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	// Resume is the state with which an earlier run continued as new. People leave it out.
	Resume *FrontierMigrateState `json:"resume,omitempty"`

	problem string // see UnmarshalJSON
}

// FrontierMigrateState is what a run of FrontierMigrateWorkflow passes to the next when its history
// grows long.
type FrontierMigrateState struct {
	Plan migrate.Plan     `json:"plan"`
	At   migrate.Progress `json:"at"`
}

// FrontierMigrateProgress answers the "progress" query. While an activity runs, its heartbeat says
// more.
type FrontierMigrateProgress struct {
	// Stage is plan, migrate, verify or done.
	Stage string `json:"stage"`
	// Rows are about how many rows the tables have; Progress is how far the migration is.
	Rows     map[string]int64 `json:"rows"`
	Progress migrate.Progress `json:"progress"`
}

// FrontierMigrateResult is the result of a migration, or of the comparison of one.
type FrontierMigrateResult struct {
	migrate.Progress
	// Compared is what verifying found; nil if nothing was verified.
	Compared *migrate.Comparison `json:"compared,omitempty"`
}

// FrontierMigrateWorkflow brings the tables of a crawler that had its frontier in PostgreSQL into a
// frontier (package migrate). It may be run again: what the frontier has is known. With verify in
// its input it only compares.
//
// The input has no password: workers have it.
func FrontierMigrateWorkflow(ctx workflow.Context, in FrontierMigrateInput) (*FrontierMigrateResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("migration: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("migration: lake: it is missing", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	p := FrontierMigrateProgress{Stage: StagePlan}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (FrontierMigrateProgress, error) { return p, nil }); err != nil {
		return nil, err
	}
	state := in.Resume
	switch {
	case state != nil:
		if err := checkResume(ctx); err != nil {
			return nil, err
		}
	default:
		state = &FrontierMigrateState{}
		if err := s.run(ctx, activities.PoolControl, &state.Plan, (*activities.Control)(nil).PlanMigration, in.Spec); err != nil {
			return nil, err
		}
	}
	p.Rows, p.Progress = state.Plan.Rows, state.At
	if in.Verify {
		p.Stage = StageVerify
		var c migrate.Comparison
		if err := s.run(ctx, activities.PoolIndex, &c, (*activities.Index)(nil).VerifyMigration, in.Spec); err != nil {
			return nil, err
		}
		p.Stage = StageDone
		return &FrontierMigrateResult{Compared: &c}, nil
	}
	p.Stage = StageMigrate
	for !state.At.Done {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && ctx.Err() == nil {
			next := in
			next.Resume = state
			return nil, workflow.NewContinueAsNewError(ctx, FrontierMigrateWorkflow, next)
		}
		var at activities.Migrated
		if err := s.run(ctx, activities.PoolIndex, &at, (*activities.Index)(nil).MigrateFrontier, in.Spec, state.At); err != nil {
			return nil, err
		}
		state.At, p.Progress = at.Progress, at.Progress
	}
	p.Stage = StageDone
	return &FrontierMigrateResult{Progress: state.At}, nil
}
