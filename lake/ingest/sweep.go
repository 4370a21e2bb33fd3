package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest/deadline"
)

const (
	// SweepInterval is the least time between two sweeps after publishes. A sweep lists all of
	// staging.
	SweepInterval = time.Hour

	// unknownGrace is how long the staging of a run that Temporal does not know must stay
	// unchanged until it is removed. It may be that of a run of another Temporal, which may wait
	// for something until its deadline.
	unknownGrace = deadline.Default
)

// RunState is what Temporal knows of the workflow that a run belongs to.
type RunState int

const (
	// RunUnknown is the state of runs of another Temporal, or of one that lost its data.
	RunUnknown RunState = iota
	// RunLive may still read and write its staging, or may be continued.
	RunLive
	// RunOver will never touch its staging again.
	RunOver
)

// sweepKey is the key of sweep.json. It lies beside the folders of the runs.
const sweepKey = "staging/sweep.json"

// sweepRecord is sweep.json.
type sweepRecord struct {
	lake.KeyedHeader
	// Swept is when staging was last swept.
	Swept time.Time `json:"swept"`
	// Unknown has the runs in staging that Temporal did not know then.
	Unknown map[string]sighting `json:"unknown"`
}

// sighting is a run's staging as a sweep found it.
type sighting struct {
	// Since is when the staging was first found with these objects.
	Since time.Time `json:"since"`
	// Objects is a hash of all keys and ETags.
	Objects uint64 `json:"objects"`
}

// see notes a run that Temporal does not know, with a hash of its objects, and reports whether it
// has been so for unknownGrace.
func (r *sweepRecord) see(last *sweepRecord, run string, objects uint64) bool {
	seen := last.Unknown[run]
	if seen.Objects != objects || seen.Since.IsZero() {
		seen = sighting{Since: r.Swept, Objects: objects}
	}
	r.Unknown[run] = seen
	return r.Swept.Sub(seen.Since) >= unknownGrace
}

// Swept is the result of Sweep.
type Swept struct {
	// Runs are those whose staging was removed, Kept is the number of others.
	Runs []string `json:"runs,omitempty"`
	Kept int      `json:"kept"`
	// Objects and Bytes count what was removed.
	Objects int64 `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
}

// SweepOptions say how Sweep sweeps.
type SweepOptions struct {
	// Interval is how long ago the last sweep must be, or Sweep does nothing.
	Interval time.Duration
	// DryRun tells to remove nothing and to return what would be removed.
	DryRun bool
}

// Sweep removes the staging of runs that nobody will continue: those that are over, and those of
// unknown state whose staging has not changed for unknownGrace. State tells a run's state; ok is
// whether the run has an owner. CleanUp removes a run's staging: Cleanup, or what includes it.
func Sweep(
	ctx context.Context, store blob.Store, now time.Time, opt SweepOptions,
	state func(ctx context.Context, run string, owner Owner, ok bool) (RunState, error),
	cleanUp func(ctx context.Context, store blob.Store, run string) error,
) (Swept, error) {
	var last sweepRecord
	if _, err := load(ctx, store, sweepKey, &last); err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return Swept{}, err // a damaged record is as good as none
	}
	if age := now.Sub(last.Swept); age >= 0 && age < opt.Interval {
		return Swept{}, nil
	}
	found, err := lake.StagedRuns(ctx, store)
	if err != nil {
		return Swept{}, err
	}
	next := sweepRecord{Swept: now.UTC(), Unknown: map[string]sighting{}}
	var out Swept
	for _, f := range found {
		if checkRun(f.Run) != nil {
			continue
		}
		owner, ok, err := ReadOwner(ctx, store, f.Run)
		if codec.IsFormat(err) {
			out.Kept++ // a newer program will sweep it
			continue
		}
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return out, err
		}
		s := RunOver
		begun := ok && owner == (Owner{}) // an earlier sweep began to remove it
		if !begun {
			if s, err = state(ctx, f.Run, owner, ok); err != nil {
				return out, err
			}
		}
		if s == RunUnknown {
			if next.see(&last, f.Run, f.Hash) {
				s = RunOver
			}
		}
		// A workflow may have claimed the run since its state was asked for.
		if s == RunOver && ok && !begun && !opt.DryRun {
			removable, err := disown(ctx, store, f.Run, owner)
			if err != nil && !errors.Is(err, blob.ErrNotExist) && !errors.Is(err, codec.ErrCorrupt) {
				return out, err
			}
			if !removable {
				s = RunLive
			}
		}
		if s != RunOver {
			out.Kept++
			continue
		}
		if !opt.DryRun {
			if err := cleanUp(ctx, store, f.Run); err != nil {
				return out, err
			}
		}
		delete(next.Unknown, f.Run)
		out.Runs = append(out.Runs, f.Run)
		out.Objects, out.Bytes = out.Objects+f.Objects, out.Bytes+f.Bytes
	}
	if opt.DryRun {
		return out, nil
	}
	if err := dropLastRuns(ctx, store, found); err != nil {
		return out, err
	}
	return out, save(ctx, store, sweepKey, &next)
}

// dropLastRuns deletes the documents that name a run without staging: its clean-up has died.
func dropLastRuns(ctx context.Context, store blob.Store, staged []lake.StagedRun) error {
	for info, err := range store.List(ctx, specRoot) {
		if err != nil {
			return err
		}
		var last lastRun
		_, err = load(ctx, store, info.Key, &last)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return err
		}
		if err == nil && slices.ContainsFunc(staged, func(s lake.StagedRun) bool { return s.Run == last.Run }) {
			continue
		}
		if err := store.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}

// Writing returns the batch that the run of a plan writes, also if it has finished it. ok is false
// if there is no plan, or none that anybody can go on with.
func Writing(ctx context.Context, store blob.Store, run string) (name catalog.BatchName, ok bool, err error) {
	var p plan
	ok, err = load(ctx, store, planKey(run), &p)
	if errors.Is(err, codec.ErrCorrupt) {
		return name, false, nil
	}
	return catalog.BatchName{DatasetID: p.DatasetID, Batch: p.Batch}, ok, err
}
