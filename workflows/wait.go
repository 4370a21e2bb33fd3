package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// A waiting ingest looks for its version itself if it is not told: at first after firstLook, then
// after pauses that double up to lastLook. So nothing depends on a signal that arrives or on a
// publisher that lives, and ten thousand waiting ingests look less than twenty times a second.
const (
	firstLook = time.Minute
	lastLook  = 10 * time.Minute
)

// publish requests a publish from the lake's publisher and waits for the version that holds the
// batch. A publish that fails is no failure of the ingest: the batch is sound, and is published
// when the reason is gone. Only a batch that no version can hold is one.
func (f *ingestFlow) publish(ctx workflow.Context) (version string, err error) {
	req := f.request(ctx)
	pause := firstLook
	if f.steps.until.IsZero() { // the workflow was reset
		f.steps.until = workflow.Now(ctx).Add(f.steps.limit)
	}
	if !f.Result.Superseded { // else any later content of the batch will do
		req.Digest = f.Result.Digest
	}
	told := workflow.GetSignalChannel(ctx, activities.PublishedSignal)
	look := activities.Look{Ask: !f.asked}
	for {
		if look.Ask {
			if err := f.steps.run(
				ctx, activities.PoolControl, nil, (*activities.Control)(nil).RequestPublish, f.Lake, req,
			); err != nil {
				return "", f.unpublished(err)
			}
		}
		var p activities.Published
		for {
			ok, _ := told.ReceiveWithTimeout(ctx, min(pause, f.steps.left(ctx)), &p)
			if !ok || p.Digest == "" || p.Digest == f.Result.Digest {
				break
			}
			p = activities.Published{} // it was for an earlier workflow of this id
		}
		switch {
		case p.Error != "":
			return "", f.never(p.Error)
		case p.Version != "":
			return p.Version, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case f.steps.left(ctx) <= 0:
			return "", f.unpublished(f.steps.missed("a version held it", nil))
		}
		seen := look.Seen
		look = activities.Look{}
		if err := f.steps.run(
			ctx, activities.PoolControl, &look, (*activities.Control)(nil).FindVersion, f.Lake, req, seen,
		); err != nil {
			return "", f.unpublished(err)
		}
		f.Progress.Waiting = look.Reason
		f.Progress.Updated = workflow.Now(ctx)
		switch {
		case look.Version != "":
			return look.Version, nil
		case look.Error != "":
			return "", f.never(look.Error)
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return "", f.continueAsNew(ctx)
		}
		pause = min(2*pause, lastLook)
	}
}

// never returns the error of a batch that no version can hold.
func (f *ingestFlow) never(reason string) error {
	return temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("batch %s is finished but not published: %s", f.Result.Batch, reason), activities.ErrPublish, nil)
}

// unpublished returns the error of an ingest that could not wait for its version to the end.
func (f *ingestFlow) unpublished(err error) error {
	if workflow.IsContinueAsNewError(err) || temporal.IsCanceledError(err) {
		return err
	}
	text := fmt.Sprintf("batch %s is finished but not published; the next publish adds it: %s", f.Result.Batch, message(err))
	if f.Progress.Waiting != "" {
		text += "; the last publish: " + f.Progress.Waiting
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrDeadline, nil)
}
