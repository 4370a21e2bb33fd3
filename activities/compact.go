package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/unite"
	"github.com/urlake/urlake/lake/blob"
)

// CompactorID is the id of the workflow that compacts a lake.
func CompactorID(lakeURL string) string { return "compact@" + lakeURL }

// PlanCompaction chooses what a compaction merges and writes the plan of the next version.
func (p *Publish) PlanCompaction(
	ctx context.Context, lakeURL, run string, round int, c publish.Compaction,
) (publish.Summary, error) {
	if err := p.check(lakeURL); err != nil {
		return publish.Summary{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.Summary, error) {
		plan, err := publish.PlanCompaction(ctx, p.Store, run, round, c)
		plan.Window = window
		plan.Large = publish.Large(plan.Rows, p.RangePairs)
		return plan, err
	})
}

// UniteBatches writes the unions of a task of a list of unions. If it crashes again and again at
// one union, it notes that union's batches as damaged and goes on when it is retried.
func (w *Write) UniteBatches(ctx context.Context, lakeURL, uniteKey string, task, deaths int) (publish.United, error) {
	if err := w.check(lakeURL); err != nil {
		return publish.United{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("%s-%06d", documentName(uniteKey), task), deaths)
	united, err := contained(ctx, &w.Lake, s, mergeMemory, func(ctx context.Context, store blob.Store, report func(any)) (publish.United, error) {
		return publish.Unite(ctx, store, uniteKey, task, w.TempDir, func(p publish.UniteProgress) { report(p) })
	})
	_, reason, ok := crashOf(err)
	if !ok {
		return united, err
	}
	return withHeartbeat(ctx, w.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.United, error) {
		if noted, noteErr := publish.NoteUniteCrash(ctx, w.Store, uniteKey, task, reason); noteErr != nil {
			return publish.United{}, noteErr
		} else if !noted {
			return publish.United{}, err
		}
		return publish.United{}, retrySoon("a union that crashes is not written", "Noted")
	})
}

// UniteShuffle reads a split of a large union. damaged tells that a source is damaged, which
// UniteBatches then notes.
func (w *Write) UniteShuffle(ctx context.Context, lakeURL, uniteKey string, task, split, deaths int) (damaged bool, err error) {
	return w.uniteStep(ctx, lakeURL, uniteKey, fmt.Sprintf("%06d-shuffle-%06d", task, split), deaths,
		func(ctx context.Context, store blob.Store, opt unite.Options) error {
			return publish.UniteShuffle(ctx, store, uniteKey, task, split, opt)
		})
}

// UniteMerges divides the rest of the work on a large union into tasks of UniteMerge.
func (w *Write) UniteMerges(ctx context.Context, lakeURL, uniteKey string, task int) (int, error) {
	if err := w.check(lakeURL); err != nil {
		return 0, err
	}
	return withHeartbeat(ctx, w.Memory, smallMemory, func(ctx context.Context, _ func(any)) (int, error) {
		return publish.UniteMerges(ctx, w.Store, uniteKey, task)
	})
}

// UniteMerge writes the parts of some partitions of a large union.
func (w *Write) UniteMerge(ctx context.Context, lakeURL, uniteKey string, task, merge, deaths int) (damaged bool, err error) {
	return w.uniteStep(ctx, lakeURL, uniteKey, fmt.Sprintf("%06d-merge-%06d", task, merge), deaths,
		func(ctx context.Context, store blob.Store, opt unite.Options) error {
			return publish.UniteMerge(ctx, store, uniteKey, task, merge, opt)
		})
}

func (w *Write) uniteStep(
	ctx context.Context, lakeURL, uniteKey, name string, deaths int,
	do func(ctx context.Context, store blob.Store, opt unite.Options) error,
) (damaged bool, err error) {
	if err := w.check(lakeURL); err != nil {
		return false, err
	}
	s := publishStep(ctx, documentName(uniteKey)+"-"+name, deaths)
	damaged, err = contained(ctx, &w.Lake, s, mergeMemory, func(ctx context.Context, store blob.Store, report func(any)) (bool, error) {
		err := do(ctx, store, unite.Options{TempDir: w.TempDir, Progress: func(rows int64) { report(rows) }})
		if errors.Is(err, publish.ErrDamagedUnion) {
			return true, nil
		}
		return false, err
	})
	if _, _, crashed := crashOf(err); crashed {
		return true, nil // UniteBatches, which does the rest, finds out and notes it
	}
	return damaged, err
}
