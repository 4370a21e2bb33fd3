package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/frontier/migrate"
)

// feedMemory holds the rows of a part that are decoded, or pages of visits, and the batches of
// lines that are under way.
const feedMemory = 160 << 20

// SeedPlan is the result of PlanSeed.
type SeedPlan struct {
	feed.SeedPlan
	// Searchable tells the workflow that it may set search attributes.
	Searchable bool `json:"searchable,omitempty"`
}

// PlanSeed pins the version whose URLs go to a frontier.
func (c *Control) PlanSeed(ctx context.Context, spec feed.SeedSpec) (SeedPlan, error) {
	if err := c.check(spec.Lake); err != nil {
		return SeedPlan{}, err
	}
	return withHeartbeat(ctx, c.Memory, planMemory, func(ctx context.Context, _ func(any)) (SeedPlan, error) {
		p, err := feed.PlanSeed(ctx, c.Store, spec)
		return SeedPlan{p, c.Search.Allowed(ctx)}, err
	})
}

// Seeded is the result of SeedFrontier. Sent counts the URLs that this step has sent.
type Seeded struct {
	feed.SeedProgress
	Sent int64 `json:"sent"`
}

// SeedFrontier adds URLs of a version to a frontier, from a position on. Its heartbeats have the
// position, from which the next attempt goes on.
func (x *Index) SeedFrontier(ctx context.Context, spec feed.SeedSpec, version string, from feed.SeedProgress) (Seeded, error) {
	if err := x.check(spec.Lake); err != nil {
		return Seeded{}, err
	}
	again := activity.GetInfo(ctx).Attempt > 1
	out, err := resumed(ctx, x.Memory, from, func(ctx context.Context, from feed.SeedProgress, report func(feed.SeedProgress)) (feed.SeedProgress, error) {
		if again {
			from.Restarts++
		}
		return feed.Seed(ctx, x.Store, spec, version, from, report)
	})
	return Seeded{out, out.URLs - from.URLs}, err
}

// resumed runs a step that says how far it is, and begins where the attempt before was at its last
// heartbeat.
func resumed[P any](
	ctx context.Context, m *Memory, from P, step func(ctx context.Context, from P, report func(P)) (P, error),
) (P, error) {
	if activity.HasHeartbeatDetails(ctx) {
		var last P
		if activity.GetHeartbeatDetails(ctx, &last) == nil {
			from = last
		}
	}
	parent := ctx
	return withHeartbeat(ctx, m, feedMemory, func(ctx context.Context, report func(any)) (P, error) {
		report(from)
		at := from
		out, err := step(ctx, from, func(p P) {
			at = p
			report(p)
		})
		if err != nil { // the SDK sends it with the error
			activity.RecordHeartbeat(parent, at)
		}
		return out, err
	})
}

// CollectVisits takes the visits that a frontier has had since the last batch.
func (x *Index) CollectVisits(ctx context.Context, spec feed.VisitsSpec) (feed.Collected, error) {
	if err := x.check(spec.Lake); err != nil {
		return feed.Collected{}, err
	}
	return withHeartbeat(ctx, x.Memory, feedMemory, func(ctx context.Context, report func(any)) (feed.Collected, error) {
		c, err := feed.Collect(ctx, x.Store, spec, func(p feed.Collecting) { report(p) })
		c.Most = visitBatches
		return c, err
	})
}

// SettleVisits notes that a batch of visits is ingested.
func (c *Control) SettleVisits(ctx context.Context, spec feed.VisitsSpec, batch string) error {
	if err := c.check(spec.Lake); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, feed.Settle(ctx, c.Store, spec, batch)
	})
	return err
}

// PlanMigration looks at the database and the frontier of a migration.
func (c *Control) PlanMigration(ctx context.Context, spec migrate.Spec) (migrate.Plan, error) {
	if err := c.check(spec.Lake); err != nil {
		return migrate.Plan{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (migrate.Plan, error) {
		return migrate.Look(ctx, spec)
	})
}

// Migrated is the result of MigrateFrontier. Sent counts the rows that this step has sent.
type Migrated struct {
	migrate.Progress
	Sent int64 `json:"sent"`
}

// MigrateFrontier sends rows of a database to a frontier, from a position on. Its heartbeats have
// the position, from which the next attempt goes on.
func (x *Index) MigrateFrontier(ctx context.Context, spec migrate.Spec, from migrate.Progress) (Migrated, error) {
	if err := x.check(spec.Lake); err != nil {
		return Migrated{}, err
	}
	again := activity.GetInfo(ctx).Attempt > 1
	out, err := resumed(ctx, x.Memory, from, func(ctx context.Context, from migrate.Progress, report func(migrate.Progress)) (migrate.Progress, error) {
		if again {
			from.Restarts++
		}
		return migrate.Migrate(ctx, spec, from, report)
	})
	return Migrated{out, out.Rows() - from.Rows()}, err
}

// VerifyMigration compares a database with a frontier.
func (x *Index) VerifyMigration(ctx context.Context, spec migrate.Spec) (migrate.Comparison, error) {
	if err := x.check(spec.Lake); err != nil {
		return migrate.Comparison{}, err
	}
	return withHeartbeat(ctx, x.Memory, feedMemory, func(ctx context.Context, report func(any)) (migrate.Comparison, error) {
		return migrate.Verify(ctx, spec, x.TempDir, func(p migrate.Verifying) { report(p) })
	})
}
