package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/registry"
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
		if err != nil {
			return many.Summary{}, err
		}
		plan.Searchable, plan.Crews = c.Search.Allowed(ctx), c.crews(ctx)
		plan.LargeAtOnce, plan.Round = largeAtOnce, roundLists
		return plan, nil
	})
}

// crews returns how many activities should share the groups of a run: two for each worker that
// polls now, so that others that start meanwhile find work, too.
func (c *Control) crews(ctx context.Context) int {
	d, err := c.Temporal.DescribeTaskQueue(ctx, TaskQueue(c.URL, QueueGroups), enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return minCrews // the groups are done by fewer workers
	}
	workers := map[string]bool{}
	for _, p := range d.GetPollers() {
		workers[p.GetIdentity()] = true
	}
	return min(max(minCrews, 2*len(workers)), maxCrews)
}

// minCrews and maxCrews bound how many activities share the groups of a run.
const minCrews, maxCrews = 4, 64

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

// IngestGroups ingests groups of lists until none is left that nobody has: as many at once as the
// pool has slots in this process. Crew numbers the activities that share the groups of a run. Lists
// that are at fault themselves are recorded as failed: among them one that kills workers, after its
// group ran alone.
func (n *Normalize) IngestGroups(ctx context.Context, lakeURL, run string, crew, deaths int) (Crew, error) {
	if err := n.check(lakeURL); err != nil {
		return Crew{}, err
	}
	return heartbeat(ctx, noWait, func(ctx context.Context, report func(any)) (Crew, error) {
		c := &crewed{Normalize: n, run: run, number: crew, report: report, running: map[int]many.Progress{}}
		out, err := c.work(ctx, deaths)
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
	run    string
	number int
	report func(any)

	mu sync.Mutex // guards what is below
	// ended is the progress of the groups that have ended, running that of the others.
	ended   many.Progress
	running map[int]many.Progress
}

func (c *crewed) work(ctx context.Context, deaths int) (Crew, error) {
	r, err := many.Open(ctx, c.Store, c.run)
	if err != nil {
		return Crew{}, err
	}
	if err := r.Begin(ctx, c.Store, c.number); err != nil {
		return Crew{}, err
	}
	var before CrewProgress
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &before) == nil {
		c.ended = before.Ended
	}
	left, err := r.Claimed(ctx, c.Store, c.number)
	if err != nil {
		return Crew{}, err
	}
	for _, group := range left {
		if err := c.group(ctx, r, func() (int, bool, error) { return group, true, nil }, deaths); err != nil {
			return Crew{}, err
		}
	}
	// The other groups did not run when workers died.
	if err := c.others(ctx); err != nil {
		return Crew{}, err
	}
	// An attempt that lost its connection to Temporal may have claimed more until it noticed.
	for {
		left, err := r.Claimed(ctx, c.Store, c.number)
		if err != nil {
			return Crew{}, err
		}
		if len(left) == 0 {
			break
		}
		for _, group := range left {
			if err := c.group(ctx, r, func() (int, bool, error) { return group, true, nil }, 0); err != nil {
				return Crew{}, err
			}
		}
	}
	begun, err := r.Begun(ctx, c.Store)
	return Crew{Progress: c.ended, Begun: begun}, err
}

// others ingests groups that nobody has.
func (c *crewed) others(ctx context.Context) error {
	g, within := errgroup.WithContext(ctx)
	for range max(1, c.Slots) {
		g.Go(func() error {
			r, err := many.Open(within, c.Store, c.run)
			for err == nil {
				err = c.group(within, r, func() (int, bool, error) { return r.Claim(within, c.Store, c.number) }, 0)
			}
			if errors.Is(err, errNoGroup) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// errNoGroup means that no group is left.
var errNoGroup = errors.New("no group is left")

// group ingests the group that next returns, as soon as one may run. A group is claimed only then,
// so that other workers find those that this one has no slot for.
func (c *crewed) group(ctx context.Context, r *many.Run, next func() (int, bool, error), deaths int) error {
	var group int
	taken := false
	claim := func() (err error) {
		if taken {
			return nil
		}
		if group, taken, err = next(); err == nil && !taken {
			err = errNoGroup
		}
		return err
	}
	p, err := c.attempt(ctx, r, claim, &group, deaths, normalizeMemory, usualPages)
	if errors.Is(err, ingest.ErrPageMemory) {
		p, err = c.attempt(ctx, r, claim, &group, deaths, pageMemory, 0)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, group)
	c.ended.Add(p)
	c.tell()
	return nil
}

// tell reports the progress. The caller holds mu.
func (c *crewed) tell() {
	now := c.ended
	for _, p := range c.running {
		now.Add(p)
	}
	c.report(CrewProgress{now, c.ended})
}

// attempt ingests a group in that much memory, after claim has set it. Pages of Parquet take at
// most pages bytes of it, 0 for no limit.
func (c *crewed) attempt(
	ctx context.Context, r *many.Run, claim func() error, group *int, deaths int, memory, pages int64,
) (many.Progress, error) {
	done, err := c.Memory.acquireGroup(ctx)
	if err != nil {
		return many.Progress{}, err
	}
	defer done()
	s := step{run: c.run, deaths: deaths}
	release, err := s.acquire(ctx, c.Memory, memory)
	if err != nil {
		return many.Progress{}, err
	}
	defer release()
	if err := claim(); err != nil {
		return many.Progress{}, err
	}
	opt := many.GroupOptions{
		TempDir: c.TempDir, InMemory: postings.CollectInMemory, Collect: postings.Collect(c.TempDir), Fault: fault,
		Panicked: func(list string, fault any, stack []byte) {
			activity.GetLogger(ctx).Error("A list made urlake panic", "Dataset", list, "Panic", fault, "Stack", string(stack))
		},
	}
	s.name = fmt.Sprintf("group-%06d", *group)
	s.killer = func(object string, err error) { opt.Killer, opt.KillerReason = object, err.Error() }
	return watch(ctx, &c.Lake, s, func(ctx context.Context, store blob.Store) (many.Progress, error) {
		if pages > 0 {
			ctx = ingest.WithPageMemory(ctx, pages)
		}
		return r.Group(ctx, store, *group, opt, func(p many.Progress) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running[*group] = p
			c.tell()
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
		out.Plan.Window = window
		out.Outcome.DatasetID, out.Outcome.Run = out.Plan.DatasetID, out.Run
		return out, err
	})
}

// FinishMany finishes a round of an ingest of many datasets and asks for a publish, unless the
// request is nil. If there was nothing to ingest, it asks if finished batches wait for a publish.
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
		if req.Digest == "" { // there was nothing to ingest
			// An earlier ingest may have asked for no publish, or its publish may have failed.
			waiting, _, err := registry.PendingBatches(ctx, c.Store, func(int, error) {})
			if err != nil || len(waiting) == 0 {
				return out, err
			}
			req = &PublishRequest{Deadline: req.Deadline}
		}
		return out, requestPublish(ctx, c.Temporal, lakeURL, *req)
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
			version, err := published.Withdraw(ctx, c.Store, l.DatasetID, l.Batch, l.Run, l.Digest)
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
	found, err := published.FindAll(ctx, store, refs)
	if err != nil {
		return Look{}, err
	}
	var out Look
	version := ""
	for i, v := range found {
		if v == "" {
			// It may be another ingest's by now, or damaged.
			f, err := published.Find(ctx, store, refs[i], seen)
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
