package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// Index is the pool that builds segments.
type Index struct{ Lake }

// BuildSegment runs a task of publish.Build, which builds a segment of a publish plan. If the task
// crashes again and again while it reads a batch, it notes that batch as damaged, and the next plan
// leaves it out.
func (x *Index) BuildSegment(ctx context.Context, lakeURL, planKey string, task, deaths int) (publish.Built, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Built{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("build-%s-%d", documentName(planKey), task), deaths)
	built, err := contained(ctx, &x.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (publish.Built, error) {
		return publish.Build(ctx, store, planKey, task, x.TempDir)
	})
	object, reason, ok := crashOf(err)
	if !ok {
		return built, err
	}
	return withHeartbeat(ctx, x.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.Built, error) {
		n, noteErr := publish.NoteCrash(ctx, x.Store, planKey, object, reason)
		if noteErr == nil && n == 0 {
			return publish.Built{}, err
		}
		return publish.Built{Damaged: n}, noteErr
	})
}

// crashOf returns the object and the text of an error of type ErrCrash. ok is false if err is none.
func crashOf(err error) (object, reason string, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != ErrCrash || app.Details(&object) != nil {
		return "", "", false
	}
	return object, app.Message(), true
}
