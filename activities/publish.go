package activities

import (
	"context"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/publish"
)

// Index is the pool that extracts postings and builds segments.
type Index struct{ Lake }

// ExtractPostings writes the postings of one merge task's parts where the merge has not.
func (x *Index) ExtractPostings(ctx context.Context, lakeURL, run string, task int) (Extracted, error) {
	if err := x.check(lakeURL); err != nil {
		return Extracted{}, err
	}
	return beating(ctx, x.Memory, extractMemory, func(ctx context.Context, _ func(any)) (Extracted, error) {
		object, domains, err := postings.Extract(ctx, x.Store, run, task, x.TempDir)
		return Extracted{Postings: object, Domains: domains}, err
	})
}

// BuildSegment builds the segment of a publish plan.
func (x *Index) BuildSegment(ctx context.Context, lakeURL, planKey string) (publish.Built, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Built{}, err
	}
	return beating(ctx, x.Memory, segmentMemory, func(ctx context.Context, _ func(any)) (publish.Built, error) {
		return publish.Build(ctx, x.Store, planKey, x.TempDir)
	})
}

// RebuildSegments makes damaged segments of the current version whole again: the one with the id which, or all.
func (x *Index) RebuildSegments(ctx context.Context, lakeURL, which string) (publish.Rebuilt, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Rebuilt{}, err
	}
	return beating(ctx, x.Memory, segmentMemory, func(ctx context.Context, _ func(any)) (publish.Rebuilt, error) {
		return publish.Rebuild(ctx, x.Store, which, x.TempDir)
	})
}

// Publish is the pool that makes versions.
type Publish struct{ Lake }

// PlanPublish compares finished batches with the current version.
func (p *Publish) PlanPublish(ctx context.Context, lakeURL, run string, round int) (publish.Summary, error) {
	if err := p.check(lakeURL); err != nil {
		return publish.Summary{}, err
	}
	return beating(ctx, p.Memory, little, func(ctx context.Context, _ func(any)) (publish.Summary, error) {
		return publish.Plan(ctx, p.Store, run, round)
	})
}

// VerifySegment reads a built segment back, every byte of it.
func (p *Publish) VerifySegment(ctx context.Context, lakeURL string, built publish.Built) error {
	if err := p.check(lakeURL); err != nil {
		return err
	}
	_, err := beating(ctx, p.Memory, segmentMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, publish.Verify(ctx, p.Store, built, p.TempDir)
	})
	return err
}

// CommitVersion flips the manifest to a version with the built segment.
func (p *Publish) CommitVersion(ctx context.Context, lakeURL, planKey string, built publish.Built) (publish.Committed, error) {
	if err := p.check(lakeURL); err != nil {
		return publish.Committed{}, err
	}
	return beating(ctx, p.Memory, little, func(ctx context.Context, _ func(any)) (publish.Committed, error) {
		return publish.Commit(ctx, p.Store, planKey, built)
	})
}
