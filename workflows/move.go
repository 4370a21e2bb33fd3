package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/publish"
)

// MoveProgress says what a publisher has moved to another public suffix list.
type MoveProgress struct {
	// Done of Tasks tasks are done. They looked at Batches batches, Rewritten of which have another
	// record now, and Damaged of which cannot be moved.
	Tasks     int `json:"tasks"`
	Done      int `json:"done"`
	Batches   int `json:"batches"`
	Rewritten int `json:"rewritten"`
	Damaged   int `json:"damaged,omitempty"`
	// Rows is the number of rows that have another domain, Bytes the size of the new parts and
	// postings.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// planRound plans a round. If the lake has another public suffix list than batches of the round,
// it moves them first and then plans again.
func (f *publishFlow) planRound(ctx workflow.Context, run string) (publish.Summary, error) {
	for {
		f.progress.Stage = "plan"
		var plan publish.Summary
		if err := f.steps.run(
			ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanPublish, f.Lake, run, f.progress.Rounds,
		); err != nil || plan.MoveTasks+plan.UniteTasks == 0 {
			return plan, err
		}
		if plan.UniteTasks > 0 {
			if err := f.unite(ctx, &plan, &publish.United{}); err != nil {
				return publish.Summary{}, err
			}
			if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
				return publish.Summary{}, errLongHistory // unite may have left some
			}
			continue
		}
		f.progress.Stage = "move"
		if f.progress.Move == nil {
			f.progress.Move = &MoveProgress{}
		}
		f.progress.Move.Tasks += plan.MoveTasks
		if err := f.moveBatches(ctx, &plan); err != nil {
			return publish.Summary{}, err
		}
	}
}

// moveBatches runs all tasks of a move plan, at most plan.Window at once. There are not so many
// that the publisher would have to continue as new meanwhile (publish.Summary). After a failed task
// no other one is started; its error is returned when all have ended.
func (f *publishFlow) moveBatches(ctx workflow.Context, plan *publish.Summary) error {
	wait, _ := workflow.NewDisconnectedContext(ctx) // a cancelled workflow waits for its tasks, too
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	next := 0
	var failed error
	running := workflow.NewWaitGroup(wait)
	for range min(max(plan.Window, 1), plan.MoveTasks) {
		running.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer running.Done()
			for failed == nil && next < plan.MoveTasks {
				task := next
				next++
				var m publish.Moved
				if err := f.steps.move(
					ctx, activities.PoolIndex, &m, (*activities.Index)(nil).MoveBatches, f.Lake, plan.MoveKey, task,
				); err != nil {
					if failed == nil {
						failed = err
						cancel()
					}
					return
				}
				f.progress.Move.add(&m)
			}
		})
	}
	running.Wait(wait)
	return failed
}

// add adds the result of a task.
func (p *MoveProgress) add(m *publish.Moved) {
	p.Done++
	p.Batches += m.Batches
	p.Rewritten += m.Rewritten
	p.Damaged += m.Damaged
	p.Rows += m.Rows
	p.Bytes += m.Bytes
}
