package activities

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/rebuild"
	"github.com/urlake/urlake/lake/blob"
)

// RebuildPlan is the result of PlanRebuild.
type RebuildPlan struct {
	rebuild.Summary
	// Searchable tells the workflow that it may set search attributes.
	Searchable bool `json:"searchable,omitempty"`
	// Window is how many steps the workflow may have in flight.
	Window int `json:"window"`
}

// PlanRebuild pins the current version, whose index is made again, and divides the work.
func (p *Publish) PlanRebuild(ctx context.Context, lakeURL, run string) (RebuildPlan, error) {
	if err := p.check(lakeURL); err != nil {
		return RebuildPlan{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, _ func(any)) (RebuildPlan, error) {
		s, err := rebuild.Plan(ctx, p.Store, run)
		return RebuildPlan{s, p.Search.Allowed(ctx), window}, err
	})
}

// RebuildPostings makes the postings of a task's batches from their Parquet.
func (x *Index) RebuildPostings(ctx context.Context, lakeURL, run string, task, deaths int) error {
	if err := x.check(lakeURL); err != nil {
		return err
	}
	s := step{run: run, name: fmt.Sprintf("rebuild-postings-%06d", task), deaths: deaths, ofLake: true}
	_, err := contained(ctx, &x.Lake, s, extractMemory, func(ctx context.Context, store blob.Store, _ func(any)) (struct{}, error) {
		return struct{}{}, rebuild.Extract(ctx, store, run, task, x.TempDir)
	})
	return err
}

// RebuildSegment builds a segment of these postings, compares it with the published one, and mends
// what is damaged.
func (x *Index) RebuildSegment(ctx context.Context, lakeURL, run string, number, deaths int) (rebuild.Rebuilt, error) {
	if err := x.check(lakeURL); err != nil {
		return rebuild.Rebuilt{}, err
	}
	s := step{run: run, name: fmt.Sprintf("rebuild-segment-%06d", number), deaths: deaths, ofLake: true}
	return contained(ctx, &x.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (rebuild.Rebuilt, error) {
		return rebuild.Segment(ctx, store, run, number, x.TempDir)
	})
}

// VerifySpec says what of a lake is checked.
type VerifySpec struct {
	Lake string `json:"lake"`
	// Version is the version that is checked, "" for the current one. Deep and AllVersions are
	// those of lakecheck.Options.
	Version     string `json:"version,omitempty"`
	Deep        bool   `json:"deep,omitempty"`
	AllVersions bool   `json:"all_versions,omitempty"`
}

// Options returns the options of the check.
func (s *VerifySpec) Options() lakecheck.Options {
	return lakecheck.Options{Version: s.Version, Deep: s.Deep, AllVersions: s.AllVersions}
}

// Verified is the result of VerifyLake.
type Verified struct {
	Deep        bool `json:"deep,omitempty"`
	AllVersions bool `json:"all_versions,omitempty"`
	// Version is the version that was checked, "" if nothing is published. The numbers count what
	// it holds.
	Version  string `json:"version,omitempty"`
	Segments int    `json:"segments"`
	Domains  int64  `json:"domains"`
	Batches  int    `json:"batches"`
	Parts    int64  `json:"parts"`
	Rows     int64  `json:"rows"`
	// Unpublished is how many finished batches were checked that no version has.
	Unpublished int `json:"unpublished"`
	// Problems are the first of Found: each names a damaged object, and the command that mends it.
	Problems []string `json:"problems,omitempty"`
	Found    int      `json:"found"`
}

// maxProblems is how many problems a result has. starter verify prints all.
const maxProblems = 100

// VerifyLake checks a lake. Damage is part of the result.
func (x *Index) VerifyLake(ctx context.Context, spec VerifySpec, deaths int) (Verified, error) {
	if err := x.check(spec.Lake); err != nil {
		return Verified{}, err
	}
	s := publishStep(ctx, "verify-lake", deaths)
	return contained(ctx, &x.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (Verified, error) {
		opt := spec.Options()
		opt.TempDir = x.TempDir
		r, err := lakecheck.Lake(ctx, store, opt)
		if err != nil {
			return Verified{}, err
		}
		out := Verified{Deep: spec.Deep, AllVersions: spec.AllVersions, Version: r.Version, Segments: len(r.Segments),
			Batches: r.Batches, Parts: r.Parts, Rows: r.Rows, Unpublished: r.Unpublished,
			Found: len(r.Problems), Problems: r.Problems[:min(maxProblems, len(r.Problems))]}
		for _, s := range r.Segments {
			out.Domains += s.Domains
		}
		return out, nil
	})
}
