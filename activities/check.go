package activities

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
)

// RebuildTasks is the result of StartRebuild.
type RebuildTasks struct {
	// Tasks is the number of tasks of InspectForRebuild.
	Tasks int `json:"tasks"`
	// Window is how many steps the workflow may have in flight.
	Window int `json:"window"`
}

// StartRebuild makes lost documents of a lake again, and divides the work of a rebuild.
func (p *Publish) StartRebuild(ctx context.Context, lakeURL, run string) (RebuildTasks, error) {
	if err := p.check(lakeURL); err != nil {
		return RebuildTasks{}, err
	}
	return withHeartbeat(ctx, p.Memory, segmentMemory, func(ctx context.Context, _ func(any)) (RebuildTasks, error) {
		tasks, err := publish.StartRebuild(ctx, p.Store, run, p.TempDir)
		return RebuildTasks{tasks, window}, err
	})
}

// InspectForRebuild looks for damage in a segment and its batches, and extracts lost postings.
func (x *Index) InspectForRebuild(ctx context.Context, lakeURL, run string, task, deaths int) (publish.Inspected, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Inspected{}, err
	}
	s := step{run: run, name: fmt.Sprintf("inspect-%06d", task), deaths: deaths, ofLake: true}
	return contained(ctx, &x.Lake, s, extractMemory, func(ctx context.Context, store blob.Store, _ func(any)) (publish.Inspected, error) {
		return publish.Inspect(ctx, store, run, task, x.TempDir)
	})
}

// RebuildPlan is the result of PlanRebuild.
type RebuildPlan struct {
	publish.Summary
	Rebuilt publish.Rebuilt `json:"rebuilt"`
}

// PlanRebuild plans the version in which damaged segments are built again.
func (p *Publish) PlanRebuild(ctx context.Context, lakeURL, run string, round int) (RebuildPlan, error) {
	if err := p.check(lakeURL); err != nil {
		return RebuildPlan{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, _ func(any)) (RebuildPlan, error) {
		s, out, err := publish.PlanRebuild(ctx, p.Store, run, round)
		s.Searchable, s.Window = p.Search.Allowed(ctx), window
		return RebuildPlan{s, out}, err
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
