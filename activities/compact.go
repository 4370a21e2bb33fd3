package activities

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/indexbuild/publish"
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
		plan.Large = publish.Large(plan.Rows, p.RangePairs)
		return plan, err
	})
}

// UniteBatches writes the unions of a task of a list of unions.
func (w *Write) UniteBatches(ctx context.Context, lakeURL, uniteKey string, task, deaths int) (publish.United, error) {
	if err := w.check(lakeURL); err != nil {
		return publish.United{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("%s-%06d", documentName(uniteKey), task), deaths)
	return contained(ctx, &w.Lake, s, mergeMemory, func(ctx context.Context, store blob.Store, report func(any)) (publish.United, error) {
		return publish.Unite(ctx, store, uniteKey, task, w.TempDir, func(p publish.UniteProgress) { report(p) })
	})
}
