package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// PlanMany lists the inputs of an ingest of many datasets, registers those that have changed, and
// writes the plan. The calling workflow becomes the owner of the run's staging.
func (c *Control) PlanMany(ctx context.Context, spec many.Spec, run string, deaths int) (many.Summary, error) {
	if err := c.check(spec.Lake); err != nil {
		return many.Summary{}, err
	}
	s := step{run: run, name: "plan", deaths: deaths}
	return contained(ctx, &c.Lake, s, planMemory, func(ctx context.Context, store blob.Store, _ func(any)) (many.Summary, error) {
		owner, err := c.owner(ctx)
		if err != nil {
			return many.Summary{}, err
		}
		if err := ingest.Own(ctx, store, run, owner); err != nil {
			return many.Summary{}, err
		}
		plan, err := many.Plan(ctx, store, run, spec)
		plan.Searchable = c.Search.Allowed(ctx)
		return plan, err
	})
}

// IngestGroup ingests the lists of one group. Lists that are at fault themselves are recorded as
// failed: one that kills workers after the group ran alone.
func (n *Normalize) IngestGroup(ctx context.Context, lakeURL, run string, group, deaths int) (many.Progress, error) {
	if err := n.check(lakeURL); err != nil {
		return many.Progress{}, err
	}
	opt := many.GroupOptions{
		TempDir: n.TempDir, InMemory: postings.CollectInMemory, Collect: postings.Collect(n.TempDir), Fault: fault,
		Panicked: func(list string, fault any, stack []byte) {
			activity.GetLogger(ctx).Error("A list made urlake panic", "Dataset", list, "Panic", fault, "Stack", string(stack))
		},
	}
	s := step{run: run, name: fmt.Sprintf("group-%06d", group), deaths: deaths, killer: func(object string, err error) {
		opt.Killer, opt.KillerReason = object, err.Error()
	}}
	return withPages(ctx, &n.Lake, s, func(ctx context.Context, store blob.Store, report func(any)) (many.Progress, error) {
		return many.Group(ctx, store, run, group, opt, func(p many.Progress) { report(p) })
	})
}

// fault returns why a list failed if the list is at fault, and "" otherwise.
func fault(err error) string {
	if errors.Is(err, ingest.ErrPageMemory) {
		return ""
	}
	var app *temporal.ApplicationError
	if !errors.As(finalError(err), &app) {
		return ""
	}
	var damage Damage
	switch {
	case app.Type() == ErrInput:
		return app.Message()
	case app.Type() == ErrCorrupt && (app.Details(&damage) != nil || !damage.Mendable):
		return app.Message()
	}
	return ""
}

// LargePlan is the result of PlanLarge.
type LargePlan struct {
	// Run is the run whose staging the steps use: the list's own, or that of an earlier ingest of
	// the list that gave up.
	Run  string             `json:"run"`
	Plan ingest.PlanSummary `json:"plan"`
	// Outcome is what is known of the list's outcome.
	Outcome many.Outcome `json:"outcome"`
}

// PlanLarge plans a large list of an ingest of many datasets.
func (c *Control) PlanLarge(ctx context.Context, lakeURL, run string, n, deaths int) (LargePlan, error) {
	if err := c.check(lakeURL); err != nil {
		return LargePlan{}, err
	}
	s := step{run: run, name: fmt.Sprintf("large-%06d", n), deaths: deaths}
	return contained(ctx, &c.Lake, s, planMemory, func(ctx context.Context, store blob.Store, _ func(any)) (LargePlan, error) {
		large, err := many.Large(ctx, store, run, n)
		if err != nil {
			return LargePlan{}, err
		}
		out := LargePlan{Outcome: large.Outcome}
		if out.Run, err = c.claim(ctx, large.Spec, large.Run); err != nil {
			return LargePlan{}, err
		}
		out.Plan, err = ingest.MakePlan(ctx, store, out.Run, large.Spec)
		out.Outcome.DatasetID = out.Plan.DatasetID
		return out, err
	})
}

// FinishMany finishes a round of an ingest of many datasets and asks for a publish, unless the
// request is nil.
func (c *Control) FinishMany(ctx context.Context, lakeURL, run string, round many.Round, req *PublishRequest) (many.Finished, error) {
	if err := c.check(lakeURL); err != nil {
		return many.Finished{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (many.Finished, error) {
		out, err := many.Finish(ctx, c.Store, run, round)
		if err != nil || req == nil || out.Report == "" {
			return out, err
		}
		req.Report, req.Digest = many.ReportPrefix(run), out.Report
		return out, c.requestPublish(ctx, lakeURL, *req)
	})
}

// AbandonMany removes the ingests of a run that have not finished from the registry.
func (c *Control) AbandonMany(ctx context.Context, lakeURL, run string) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, many.Abandon(ctx, c.Store, run)
	})
	return err
}

// FindMany is FindVersion for the batches of a report: it looks for the version that holds all of
// them but those that are damaged.
func (c *Control) FindMany(ctx context.Context, lakeURL string, req PublishRequest, seen string) (Look, error) {
	if err := c.check(lakeURL); err != nil {
		return Look{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Look, error) {
		version, current, err := findReport(ctx, c.Store, req.Report, seen)
		out := Look{Seen: current}
		switch {
		case errors.Is(err, codec.ErrCorrupt), errors.Is(err, blob.ErrNotExist), errors.Is(err, blob.ErrRange):
			out.Reason = err.Error()
		case err != nil:
			return Look{}, err
		case version != "":
			out.Version = version
			return out, nil
		}
		return c.lookAtPublisher(ctx, lakeURL, out)
	})
}

// findReport returns the current version if it holds every batch of a report.
func findReport(ctx context.Context, store blob.Store, report, seen string) (version, current string, err error) {
	all, err := many.ReadReports(ctx, store, report)
	if err != nil {
		return "", "", err
	}
	var refs []segment.BatchRef
	for _, o := range all {
		if o.Error == "" && !o.Superseded {
			refs = append(refs, segment.BatchRef{DatasetID: o.DatasetID, Batch: o.Batch, Digest: o.Digest})
		}
	}
	found, err := publish.FindAll(ctx, store, refs)
	if err != nil {
		return "", "", err
	}
	for i, v := range found {
		if v == "" {
			f, err := publish.Find(ctx, store, refs[i], seen)
			if err != nil || !f.Published && f.Damage == "" {
				return "", f.Current, err
			}
			v = f.Current
		}
		version = v
	}
	return version, version, nil
}
