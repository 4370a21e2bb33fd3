package activities

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/lake/blob"
)

// exportMemory holds the rows of a part that are decoded, what is encoded of them, and frames of a
// segment.
const exportMemory = 128 << 20

// PostgresPlan is the result of PlanPostgres.
type PostgresPlan struct {
	postgres.Planned
	// Searchable tells the workflow that it may set search attributes.
	Searchable bool `json:"searchable,omitempty"`
	// Window is how many steps the workflow may have in flight.
	Window int `json:"window"`
}

// PlanPostgres pins a version, finds the datasets that the database lacks or has otherwise, and
// divides the work.
func (p *Publish) PlanPostgres(ctx context.Context, spec postgres.Spec, run string) (PostgresPlan, error) {
	if err := p.check(spec.Lake); err != nil {
		return PostgresPlan{}, err
	}
	return withHeartbeat(ctx, p.Memory, exportMemory, func(ctx context.Context, _ func(any)) (PostgresPlan, error) {
		plan, err := postgres.Plan(ctx, p.Store, spec, run, postgres.Options{})
		return PostgresPlan{plan, p.Search.Allowed(ctx), window}, err
	})
}

// LoadPostgres copies a chunk of the rows into tables that nobody reads yet.
func (x *Index) LoadPostgres(ctx context.Context, lakeURL, run string, chunk, deaths int) (postgres.Loaded, error) {
	if err := x.check(lakeURL); err != nil {
		return postgres.Loaded{}, err
	}
	s := step{run: run, name: fmt.Sprintf("load-postgres-%06d", chunk), deaths: deaths, ofLake: true}
	return contained(ctx, &x.Lake, s, exportMemory, func(ctx context.Context, store blob.Store, _ func(any)) (postgres.Loaded, error) {
		return postgres.Load(ctx, store, run, chunk, postgres.Options{})
	})
}

// FinishPostgres gives the loaded tables their keys, and puts them in the place of those that are
// read, in one transaction.
func (p *Publish) FinishPostgres(ctx context.Context, lakeURL, run string) (postgres.Result, error) {
	if err := p.check(lakeURL); err != nil {
		return postgres.Result{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, report func(any)) (postgres.Result, error) {
		return postgres.Finish(ctx, p.Store, run, func(done postgres.Finishing) { report(done) }, postgres.Options{})
	})
}
