package activities

import (
	"cmp"
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

// Crew is the result of IngestGroups.
type Crew struct {
	// Progress is that of the groups that the activity has ended.
	Progress many.Progress `json:"progress"`
	// Begun are the activities that have begun. The others would find nothing to do.
	Begun []int `json:"begun,omitempty"`
}

// CrewProgress is what IngestGroups reports with its heartbeats.
type CrewProgress struct {
	many.Progress
	// Ended is the part of it that the groups have that it has ended.
	Ended many.Progress `json:"ended"`
}

// IngestGroups ingests groups of lists, one after the other, until none is left that nobody has.
// Crew numbers the activities that share the groups of a run. Lists that are at fault themselves
// are recorded as failed: among them one that kills workers, after its group ran alone.
func (n *Normalize) IngestGroups(ctx context.Context, lakeURL, run string, crew, deaths int) (Crew, error) {
	if err := n.check(lakeURL); err != nil {
		return Crew{}, err
	}
	return heartbeat(ctx, noWait, func(ctx context.Context, report func(any)) (Crew, error) {
		r, err := many.Open(ctx, n.Store, run)
		if err != nil {
			return Crew{}, err
		}
		c := &crewed{Normalize: n, run: r, name: run, number: crew, deaths: deaths, report: report}
		out, err := c.work(ctx)
		if err != nil && temporal.IsCanceledError(context.Cause(ctx)) {
			// What is ended counts, also if the workflow goes on with another history.
			return Crew{Progress: c.ended}, nil
		}
		return out, err
	})
}

func noWait(context.Context) (func(), error) { return func() {}, nil }

// crewed is an IngestGroups at work.
type crewed struct {
	*Normalize
	run            *many.Run
	name           string // of the run
	number, deaths int
	report         func(any)
	ended          many.Progress
}

func (c *crewed) work(ctx context.Context) (Crew, error) {
	if err := c.run.Begin(ctx, c.Store, c.number); err != nil {
		return Crew{}, err
	}
	var before CrewProgress
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &before) == nil {
		c.ended = before.Ended
	}
	left, err := c.run.Claimed(ctx, c.Store, c.number)
	if err != nil {
		return Crew{}, err
	}
	for _, group := range left {
		if err := c.group(ctx, group); err != nil {
			return Crew{}, err
		}
	}
	c.deaths = 0 // the other groups did not run when workers died
	for {
		group, ok, err := c.run.Claim(ctx, c.Store, c.number)
		if err != nil {
			return Crew{}, err
		}
		if !ok {
			begun, err := c.run.Begun(ctx, c.Store)
			return Crew{Progress: c.ended, Begun: begun}, err
		}
		if err := c.group(ctx, group); err != nil {
			return Crew{}, err
		}
	}
}

// group ingests one group as soon as it may run.
func (c *crewed) group(ctx context.Context, group int) error {
	p, err := c.attempt(ctx, group, normalizeMemory, usualPages)
	if errors.Is(err, ingest.ErrPageMemory) {
		p, err = c.attempt(ctx, group, pageMemory, 0)
	}
	if err != nil {
		return err
	}
	c.ended.Add(p)
	c.report(CrewProgress{c.ended, c.ended})
	return nil
}

// attempt ingests a group in that much memory. Pages of Parquet take at most pages bytes of it, 0
// for no limit.
func (c *crewed) attempt(ctx context.Context, group int, memory, pages int64) (many.Progress, error) {
	opt := many.GroupOptions{
		TempDir: c.TempDir, InMemory: postings.CollectInMemory, Collect: postings.Collect(c.TempDir), Fault: fault,
		Panicked: func(list string, fault any, stack []byte) {
			activity.GetLogger(ctx).Error("A list made urlake panic", "Dataset", list, "Panic", fault, "Stack", string(stack))
		},
	}
	s := step{run: c.name, name: fmt.Sprintf("group-%06d", group), deaths: c.deaths, killer: func(object string, err error) {
		opt.Killer, opt.KillerReason = object, err.Error()
	}}
	release, err := s.acquire(ctx, c.Memory, memory)
	if err != nil {
		return many.Progress{}, err
	}
	defer release()
	return watch(ctx, &c.Lake, s, func(ctx context.Context, store blob.Store) (many.Progress, error) {
		if pages > 0 {
			ctx = ingest.WithPageMemory(ctx, pages)
		}
		return c.run.Group(ctx, store, group, opt, func(p many.Progress) {
			now := c.ended
			now.Add(p)
			c.report(CrewProgress{now, c.ended})
		})
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
		out.Outcome.DatasetID, out.Outcome.Run = out.Plan.DatasetID, out.Run
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
		if err != nil || req == nil || out.Report == "" && !round.Last {
			return out, err
		}
		req.Report, req.Digest = many.ReportPrefix(run), cmp.Or(out.Report, req.Digest)
		if req.Digest == "" {
			return out, nil // there was nothing to ingest
		}
		return out, c.requestPublish(ctx, lakeURL, *req)
	})
}

// LargeRun is a large list and the run whose steps ingest it.
type LargeRun struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Run       string `json:"run"`
	Digest    string `json:"digest,omitempty"` // "" until it is finished
}

// Withdrawn is the result of WithdrawMany.
type Withdrawn struct {
	// Version is a version that has some of the batches already, Published their number.
	Version   string `json:"version,omitempty"`
	Published int    `json:"published,omitempty"`
}

// WithdrawMany makes sure that what a run of an ingest of many datasets has ingested is never
// published, as Withdraw does. Large are the large lists that no report has.
func (c *Control) WithdrawMany(ctx context.Context, lakeURL, run string, large []LargeRun) (Withdrawn, error) {
	if err := c.check(lakeURL); err != nil {
		return Withdrawn{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Withdrawn, error) {
		// First what is not finished: nothing of it can be published then.
		if err := many.Abandon(ctx, c.Store, run); err != nil {
			return Withdrawn{}, err
		}
		reported, err := many.ReadReports(ctx, c.Store, many.ReportPrefix(run))
		if err != nil {
			return Withdrawn{}, err
		}
		for _, o := range reported {
			if o.Error == "" {
				large = append(large, LargeRun{o.DatasetID, o.Batch, cmp.Or(o.Run, run), o.Digest})
			}
		}
		var out Withdrawn
		for _, l := range large {
			version, err := publish.Withdraw(ctx, c.Store, l.DatasetID, l.Batch, l.Run, l.Digest)
			if err != nil {
				return Withdrawn{}, err
			}
			if version != "" {
				out.Version = version
				out.Published++
			}
		}
		return out, nil
	})
}

// FindMany is FindVersion for all batches of a run of an ingest of many datasets: it looks for the
// version that holds them, except those that no version can hold.
func (c *Control) FindMany(ctx context.Context, lakeURL string, req PublishRequest, seen string) (Look, error) {
	if err := c.check(lakeURL); err != nil {
		return Look{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Look, error) {
		found, err := findReported(ctx, c.Store, req.Report, seen)
		switch {
		case unreadable(err):
			found.Reason = err.Error()
		case err != nil:
			return Look{}, err
		case found.Version != "":
			return found, nil
		}
		return c.lookAtPublisher(ctx, lakeURL, found)
	})
}

// unreadable reports whether an error says that objects of the lake cannot be read.
func unreadable(err error) bool {
	return errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange)
}

// findReported looks for the batches in the reports below a prefix. Version is the current version
// if that has all of them but those that are damaged, which Damaged names.
func findReported(ctx context.Context, store blob.Store, reports, seen string) (Look, error) {
	all, err := many.ReadReports(ctx, store, reports)
	if err != nil {
		return Look{}, err
	}
	var refs []segment.BatchRef
	var names []string
	for _, o := range all {
		if o.Error == "" {
			refs = append(refs, segment.BatchRef{DatasetID: o.DatasetID, Batch: o.Batch, Digest: o.Digest})
			names = append(names, o.Dataset)
		}
	}
	found, err := publish.FindAll(ctx, store, refs)
	if err != nil {
		return Look{}, err
	}
	var out Look
	version := ""
	for i, v := range found {
		if v == "" {
			// It may be another ingest's by now, or damaged.
			f, err := publish.Find(ctx, store, refs[i], seen)
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
