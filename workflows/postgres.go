package workflows

import (
	"cmp"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/export/postgres"
)

// PostgresExportInput says what of which lake goes to which database.
type PostgresExportInput struct {
	postgres.Spec
	// Deadline is how long the export may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// PostgresExportProgress answers the "progress" query.
type PostgresExportProgress struct {
	// Stage is plan, load, finish or done.
	Stage   string `json:"stage"`
	Version string `json:"version,omitempty"`
	// Rows is about how many rows are loaded, RowsDone how many of them are. Chunks is how many
	// steps load them.
	Rows       int64 `json:"rows"`
	RowsDone   int64 `json:"rows_done"`
	Chunks     int   `json:"chunks"`
	ChunksDone int   `json:"chunks_done"`
}

// PostgresExportWorkflow brings a schema of a PostgreSQL database to a version of a lake (package
// export/postgres). Readers of the database see the version before or this one. If it fails, they
// see the one before.
//
// The input has no password: workers have it.
func PostgresExportWorkflow(ctx workflow.Context, in PostgresExportInput) (*postgres.Result, error) {
	if in.Lake == "" {
		in.problem = cmp.Or(in.problem, "lake: it is missing")
	}
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("export to PostgreSQL: "+in.problem, activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	p := PostgresExportProgress{Stage: "plan"}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (PostgresExportProgress, error) { return p, nil }); err != nil {
		return nil, err
	}
	run := workflow.GetInfo(ctx).OriginalRunID
	out, err := s.exportPostgres(ctx, in.Spec, run, &p)
	s.cleanUp(ctx, run)
	if err != nil {
		return nil, err
	}
	p.Stage = StageDone
	return out, nil
}

func (s steps) exportPostgres(
	ctx workflow.Context, spec postgres.Spec, run string, p *PostgresExportProgress,
) (*postgres.Result, error) {
	var plan activities.PostgresPlan
	if err := s.run(ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanPostgres, spec, run); err != nil {
		return nil, err
	}
	if plan.Have != nil {
		return plan.Have, nil
	}
	if err := setAttributes(ctx, plan.Searchable, activities.AttributeLake, s.lake, activities.AttributeVersion, plan.Version); err != nil {
		return nil, err
	}
	p.Stage, p.Version, p.Rows, p.Chunks = "load", plan.Version, plan.Rows, plan.Chunks
	if err := all(ctx, plan.Window, p.Chunks, func(ctx workflow.Context, i int) error {
		var loaded postgres.Loaded
		err := s.move(ctx, activities.PoolIndex, &loaded, (*activities.Index)(nil).LoadPostgres, s.lake, run, i)
		p.ChunksDone++
		p.RowsDone += loaded.Rows
		return err
	}); err != nil {
		return nil, err
	}
	p.Stage = "finish"
	var out postgres.Result
	if err := s.run(ctx, activities.PoolBackground, &out, (*activities.Publish)(nil).FinishPostgres, s.lake, run); err != nil {
		return nil, err
	}
	return &out, nil
}
