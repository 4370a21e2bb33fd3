package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish"
)

// PlanMany lists the inputs of an ingest of many datasets, registers those that have changed, and
// writes the plan. The calling workflow, which began at start, becomes the owner of the run's
// staging.
func (c *Control) PlanMany(ctx context.Context, spec many.Spec, run string, start int64, deaths int) (many.Summary, error) {
	if err := c.check(spec.Lake); err != nil {
		return many.Summary{}, err
	}
	spec.Start = start
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
		plan.Searchable, plan.Window, plan.LargeAtOnce = c.Search.Allowed(ctx), window, largeAtOnce
		return plan, err
	})
}

// IngestGroup ingests the lists of a group. Lists that are at fault themselves are recorded as
// failed: among them one that kills workers, after its group ran alone.
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
	s := step{run: run, name: fmt.Sprintf("group-%06d", group), deaths: deaths}
	s.killer = func(object string, err error) { opt.Killer, opt.KillerReason = object, err.Error() }
	return withPages(ctx, &n.Lake, s, func(ctx context.Context, store blob.Store, report func(any)) (many.Progress, error) {
		r, err := many.Open(ctx, store, run)
		if err != nil {
			return many.Progress{}, err
		}
		return r.Group(ctx, group, opt, func(p many.Progress) { report(p) })
	})
}

// fault returns why a list failed if the list is at fault, and "" otherwise.
func fault(err error) string {
	var app *temporal.ApplicationError
	if errors.Is(err, ingest.ErrPageMemory) || !errors.As(finalError(err), &app) {
		return ""
	}
	var damage Damage
	if app.Type() == ErrInput || app.Type() == ErrCorrupt && (app.Details(&damage) != nil || !damage.Mendable) {
		return app.Message()
	}
	return ""
}

// PlanLarge is PlanIngest for a large list of an ingest of many datasets.
func (c *Control) PlanLarge(ctx context.Context, lakeURL string, list many.Ref, run string, deaths int) (ClaimedPlan, error) {
	if err := c.check(lakeURL); err != nil {
		return ClaimedPlan{}, err
	}
	return c.plan(ctx, run, deaths, func(store blob.Store) (ingest.Spec, error) { return many.Large(ctx, store, list) })
}

// NoteLarge records the outcome of a large list.
func (c *Control) NoteLarge(ctx context.Context, lakeURL string, list many.Ref, o many.Outcome) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, many.Note(ctx, c.Store, list, o)
	})
	return err
}

// FinishMany finishes the groups of an ingest of many datasets that are done and asks for a
// publish, unless ask is nil. With last it finishes all groups, and lists that are not done have
// failed for the given reason.
func (c *Control) FinishMany(
	ctx context.Context, lakeURL, run string, last bool, reason string, ask *PublishRequest,
) (many.Finished, error) {
	if err := c.check(lakeURL); err != nil {
		return many.Finished{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (many.Finished, error) {
		out, more, err := many.Finish(ctx, c.Store, run, last, reason)
		if err != nil || ask == nil || !more && !last {
			return out, err
		}
		if out.Ingested == 0 {
			// An earlier ingest may have asked for no publish, or its publish may have failed.
			state, err := catalog.LookBatches(ctx, c.Store)
			if err != nil {
				return out, err
			}
			waiting, err := state.Unpublished(ctx)
			if err != nil || len(waiting) == 0 {
				return out, err
			}
			ask = &PublishRequest{}
		}
		return out, requestPublish(ctx, c.Temporal, lakeURL, *ask)
	})
}

// findReported looks for the batches in the reports of a request. Version is the current version
// if that has all of them but those that are damaged, which Damaged names.
func findReported(ctx context.Context, store blob.Store, req PublishRequest, seen string) (Look, error) {
	all, err := many.ReadReports(ctx, store, req.Report)
	if err != nil {
		return Look{}, err
	}
	var ingests []publish.Ingest
	var names []string
	for _, o := range all {
		if o.Error == "" {
			ref := segment.BatchRef{DatasetID: o.DatasetID, Batch: o.Batch, Digest: o.Digest}
			ingests = append(ingests, publish.Ingest{BatchRef: ref, Start: req.Start})
			names = append(names, o.Dataset)
		}
	}
	found, err := publish.FindAll(ctx, store, ingests)
	if err != nil {
		return Look{}, err
	}
	var out Look
	version := ""
	for i, v := range found {
		if v == "" {
			// It may be another ingest's by now, or damaged.
			f, err := publish.Find(ctx, store, ingests[i], seen)
			out.Seen = f.Current
			switch {
			case err != nil, !f.Published && f.Damage == "":
				return out, err
			case !f.Published:
				if out.DamagedBatches++; len(out.Damaged) < maxDamaged {
					out.Damaged = append(out.Damaged, names[i]+": "+f.Damage)
				}
			}
			v = f.Current
		}
		version = v
	}
	out.Seen, out.Version = version, version
	return out, nil
}

// maxDamaged is how many damaged batches a Look names.
const maxDamaged = 20
