package activities

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
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
		return plan, err
	})
}

// RewriteParts does a task of a list of parts to write. If it crashes again and again at one union
// or batch, it notes that as damaged and goes on when it is retried.
func (w *Write) RewriteParts(ctx context.Context, lakeURL, key string, task, deaths int) (publish.Rewritten, error) {
	if err := w.check(lakeURL); err != nil {
		return publish.Rewritten{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("%s-%06d", documentName(key), task), deaths)
	done, err := contained(ctx, &w.Lake, s, mergeMemory, func(ctx context.Context, store blob.Store, report func(any)) (publish.Rewritten, error) {
		return publish.Rewrite(ctx, store, key, task, w.TempDir, func(p publish.RewriteProgress) { report(p) })
	})
	_, reason, ok := crashOf(err)
	if !ok {
		return done, err
	}
	return withHeartbeat(ctx, w.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.Rewritten, error) {
		if noted, noteErr := publish.NoteRewriteCrash(ctx, w.Store, key, task, reason); noteErr != nil {
			return publish.Rewritten{}, noteErr
		} else if !noted {
			return publish.Rewritten{}, err
		}
		return publish.Rewritten{}, retrySoon("what crashes is not written", "Noted")
	})
}
