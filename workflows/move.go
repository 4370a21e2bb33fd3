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
func (in *PublishInput) planRound(ctx workflow.Context, run string, progress *PublishProgress) (publish.Summary, error) {
	for {
		progress.Stage, progress.Segment = "plan", ""
		var plan publish.Summary
		if err := workflow.ExecuteActivity(
			short(ctx, in.Lake, activities.PoolPublish), (*activities.Publish)(nil).PlanPublish, in.Lake, run, progress.Rounds,
		).Get(ctx, &plan); err != nil || plan.MoveTasks == 0 {
			return plan, err
		}
		progress.Stage = "move"
		if progress.Move == nil {
			progress.Move = &MoveProgress{}
		}
		progress.Move.Tasks += plan.MoveTasks
		if err := in.move(ctx, &plan, progress.Move); err != nil {
			return publish.Summary{}, err
		}
	}
}

// move runs all tasks of a move plan, at most window at a time. There are not so many that the
// publisher would have to continue as new meanwhile (publish.Summary). After a failed task no other
// one is started; its error is returned when all have ended.
func (in *PublishInput) move(ctx workflow.Context, plan *publish.Summary, p *MoveProgress) error {
	wait, _ := workflow.NewDisconnectedContext(ctx) // a cancelled workflow waits for its tasks, too
	ctx, cancel := workflow.WithCancel(long(ctx, in.Lake, activities.PoolIndex))
	defer cancel()
	next := 0
	var failed error
	running := workflow.NewWaitGroup(wait)
	for range min(window, plan.MoveTasks) {
		running.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer running.Done()
			for failed == nil && next < plan.MoveTasks {
				task := next
				next++
				var m publish.Moved
				if err := workflow.ExecuteActivity(
					ctx, (*activities.Index)(nil).MoveBatches, in.Lake, plan.MoveKey, task,
				).Get(ctx, &m); err != nil {
					if failed == nil {
						failed = err
						cancel()
					}
					return
				}
				p.add(&m)
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
