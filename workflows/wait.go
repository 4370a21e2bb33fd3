package workflows

import (
	"errors"
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

// errLong means that a workflow that waits should continue as new.
var errLong = errors.New("the history is long")

// version waits for the version that holds what req names, and asks the lake's publisher for it. A
// publish that fails is no failure of the ingest: its batches are sound, and are published when the
// reason is gone. With asked, the publisher has the request. Answers have the digest, or none.
// waiting is called with what went wrong with the last publish. If no version can hold the batch,
// the result has an Error.
func (s *steps) version(
	ctx workflow.Context, req activities.PublishRequest, digest string, asked bool, waiting func(reason string),
) (activities.Look, error) {
	if s.until.IsZero() { // the workflow was reset
		s.until = workflow.Now(ctx).Add(s.limit)
	}
	told := workflow.GetSignalChannel(ctx, activities.PublishedSignal)
	look := activities.Look{Ask: !asked}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if look.Ask {
			if err := s.run(ctx, activities.PoolControl, nil, (*activities.Control)(nil).RequestPublish, s.lake, req); err != nil {
				return look, err
			}
		}
		var p activities.Published
		for {
			ok, _ := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
				Timeout:      min(pause, s.left(ctx)),
				TimerOptions: workflow.TimerOptions{Summary: "wait for a version with the batch"},
			}, func() bool { return told.Len() > 0 })
			if !ok || !told.ReceiveAsync(&p) || p.Digest == "" || p.Digest == digest {
				break
			}
			p = activities.Published{} // it was for an earlier workflow of this id
		}
		switch {
		case p.Error != "" || p.Version != "":
			return activities.Look{Version: p.Version, Error: p.Error}, nil
		case ctx.Err() != nil:
			return look, ctx.Err()
		case s.left(ctx) <= 0:
			return look, s.missed("a version held it", nil)
		}
		seen := look.Seen
		look = activities.Look{}
		if err := s.run(
			ctx, activities.PoolControl, &look, (*activities.Control)(nil).FindVersion, s.lake, req, seen,
		); err != nil {
			return look, err
		}
		waiting(look.Reason)
		switch {
		case look.Version != "" || look.Error != "":
			return look, nil
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return look, errLong
		}
	}
}

// publish waits for the version that holds the batch.
func (f *ingestFlow) publish(ctx workflow.Context) (version string, err error) {
	req := f.request(ctx)
	req.Digest = f.Result.Digest
	look, err := f.steps.version(ctx, req, f.Result.Digest, f.asked, func(reason string) {
		f.Progress.Waiting, f.Progress.Updated = reason, workflow.Now(ctx)
	})
	switch {
	case errors.Is(err, errLong):
		return "", f.continueAsNew(ctx)
	case err != nil:
		return "", unpublished(fmt.Sprintf("batch %s is finished but not published; the next publish adds it", f.Result.Batch),
			f.Progress.Waiting, err)
	case look.Version == "":
		return "", temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("batch %s is finished but not published: %s", f.Result.Batch, look.Error), activities.ErrPublish, nil)
	}
	return look.Version, nil
}

// unpublished returns the error of an ingest that could not wait for its version to the end.
// Waiting is what went wrong with the last publish.
func unpublished(text, waiting string, err error) error {
	if temporal.IsCanceledError(err) {
		return err
	}
	text += ": " + message(err)
	if waiting != "" {
		text += "; the last publish: " + waiting
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrDeadline, nil)
}
