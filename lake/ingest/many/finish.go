package many

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/registry"
)

// Round is a part of a run that is finished at once, so that it can be published.
type Round struct {
	// Number counts the rounds of a run from 0.
	Number int `json:"number"`
	// Before are the groups that earlier rounds have finished.
	Before []int `json:"before,omitempty"`
	// Large are large lists that have ended. Their ingests are finished already.
	Large []LargeOutcome `json:"large,omitempty"`
	// Last tells that no group is being worked on any more: lists that are not done have failed,
	// for the given reason.
	Last   bool   `json:"last,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// LargeOutcome is the outcome of a large list. One that could not be planned has only an error.
type LargeOutcome struct {
	Number int `json:"number"`
	Outcome
}

// Finished is the result of Finish. Its sums are those of the lists that were ingested.
type Finished struct {
	// Groups are the groups that the rounds have finished.
	Groups    []int            `json:"groups,omitempty"`
	Ingested  int              `json:"ingested"`
	Failed    int              `json:"failed"`
	Objects   int              `json:"objects"`
	Bytes     int64            `json:"bytes"`
	Records   int64            `json:"records"`
	Rows      int64            `json:"rows"`
	Merged    int64            `json:"merged"`
	Rejected  map[string]int64 `json:"rejected,omitempty"`
	Domains   int64            `json:"domains"` // domains of a list, added up
	PartBytes int64            `json:"part_bytes"`
	// Report is the key of the report, "" for a round without lists.
	Report string `json:"report,omitempty"`
	// Failures are the first outcomes with errors.
	Failures []Outcome `json:"failures,omitempty"`
}

// MaxFailures is how many failures a result names. The report has all.
const MaxFailures = 20

// Finish finishes the ingests of a round in the registry, so that a publish takes them up, abandons
// those of lists that failed, remembers what was read, and writes the round's report. It takes the
// groups that are complete and, in the last round, all others. A repetition may find more of them
// complete, and replaces the report.
func Finish(ctx context.Context, store blob.Store, run string, round Round) (Finished, error) {
	r, err := Open(ctx, store, run)
	if err != nil {
		return Finished{}, err
	}
	p := r.plan
	groups, all, err := r.ended(ctx, store, round)
	if err != nil {
		return Finished{}, err
	}
	if err := finishGroups(ctx, store, run, &p.Spec, all); err != nil {
		return Finished{}, err
	}
	for _, o := range round.Large {
		if o.Dataset == "" {
			planned, err := r.large(ctx, store, o.Number)
			if err != nil {
				return Finished{}, err
			}
			planned.Error = o.Error
			o.Outcome = planned
		}
		all = append(all, o.Outcome)
	}
	if len(all) == 0 {
		return Finished{}, nil
	}
	slices.SortFunc(all, func(a, b Outcome) int { return strings.Compare(a.Dataset, b.Dataset) })
	if err := rememberAll(ctx, store, all); err != nil {
		return Finished{}, err
	}
	out := Finished{Groups: groups, Rejected: map[string]int64{}, Report: reportKey(run, round.Number)}
	for _, o := range all {
		if o.Error != "" {
			if out.Failed++; len(out.Failures) < MaxFailures {
				out.Failures = append(out.Failures, o)
			}
			continue
		}
		out.Ingested++
		out.Objects += o.Objects
		out.Bytes += o.Bytes
		out.Records += o.Records
		out.Rows += o.Rows
		out.Merged += o.Merged
		out.Domains += o.Domains
		out.PartBytes += o.PartBytes
		for reason, n := range o.Rejected {
			out.Rejected[reason] += n
		}
	}
	return out, writeReport(ctx, store, out.Report, all)
}

// ended returns the groups of a round and the outcomes of their lists.
func (r *Run) ended(ctx context.Context, store blob.Store, round Round) (groups []int, all []Outcome, err error) {
	before := map[int]bool{}
	for _, g := range round.Before {
		before[g] = true
	}
	docs := make([]outcomes, r.plan.Groups)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i := range docs {
		if !before[i] {
			g.Go(func() error {
				_, err := load(gctx, store, groupKey(r.run, i), &docs[i])
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i := range docs {
		if before[i] || !docs[i].complete() && !round.Last {
			continue
		}
		groups = append(groups, i)
		if docs[i].complete() {
			all = append(all, docs[i].Lists...)
			continue
		}
		lists, err := r.lists(ctx, store, i)
		if err != nil {
			return nil, nil, err
		}
		for n := range lists {
			l, o := &lists[n], Outcome{}
			if n < len(docs[i].Lists) {
				o = docs[i].Lists[n]
			}
			if o.Dataset == "" {
				o = r.outcome(l)
				o.Error = cmp.Or(round.Reason, "it was not begun")
			}
			all = append(all, o)
		}
	}
	return groups, all, nil
}

// finishGroups finishes the ingests of the lists of groups, and abandons those that failed. An
// ingest that was withdrawn meanwhile has failed, too.
func finishGroups(ctx context.Context, store blob.Store, run string, spec *Spec, all []Outcome) error {
	var done []registry.Finish
	var at []int
	var failed []registry.IngestID
	for i, o := range all {
		id := registry.IngestID{DatasetID: o.DatasetID, Batch: spec.batch(), Run: run}
		switch {
		case o.DatasetID == 0: // refused
		case o.Error != "":
			failed = append(failed, id)
		default:
			done, at = append(done, registry.Finish{IngestID: id, Digest: o.Digest, Replace: spec.Replace}), append(at, i)
		}
	}
	if err := registry.AbandonIngests(ctx, store, failed); err != nil {
		return err
	}
	for i, r := range registry.FinishIngests(ctx, store, done) {
		o := &all[at[i]]
		switch {
		case errors.Is(r.Err, registry.ErrUnknownRun):
			o.Error = r.Err.Error() + "; the registry was restored, or the ingest withdrawn, since it began"
		case r.Err != nil:
			return r.Err
		}
		o.Superseded = !r.Current
	}
	return nil
}

// rememberAll remembers what was read of the lists that are now current.
func rememberAll(ctx context.Context, store blob.Store, all []Outcome) error {
	more := map[registry.BatchID]takenBatch{}
	for _, o := range all {
		if o.Error == "" && !o.Superseded && o.Fingerprint != "" {
			more[registry.BatchID{DatasetID: o.DatasetID, Batch: o.Batch}] = takenBatch{Fingerprint: o.Fingerprint, Digest: o.Digest}
		}
	}
	return remember(ctx, store, more)
}

// writeReport writes outcomes, one line each.
func writeReport(ctx context.Context, store blob.Store, key string, all []Outcome) error {
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	for i := range all {
		if err := enc.Encode(&all[i]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = store.Put(ctx, key, buf.Bytes(), blob.Condition{})
	return err
}

// maxReport is the most bytes of a report that are decompressed.
const maxReport = 4 << 30

func readReport(ctx context.Context, store blob.Store, key string) ([]Outcome, error) {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxReport))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []Outcome
	for dec := json.NewDecoder(r); dec.More(); {
		var o Outcome
		if err := dec.Decode(&o); err != nil {
			return nil, codec.Corrupt(key, "line", int64(len(all)+1), "an outcome", err)
		}
		all = append(all, o)
	}
	return all, nil
}

// ReadReports reads the outcomes of all rounds of a run, sorted by dataset. Prefix is the run's
// ReportPrefix.
func ReadReports(ctx context.Context, store blob.Store, prefix string) ([]Outcome, error) {
	var all []Outcome
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		some, err := readReport(ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b Outcome) int { return strings.Compare(a.Dataset, b.Dataset) })
	return all, nil
}

// Abandon abandons the ingests of a run that have not finished.
func Abandon(ctx context.Context, store blob.Store, run string) error {
	var p plan
	ok, err := load(ctx, store, planKey(run), &p)
	if err != nil || !ok {
		return err
	}
	r := &Run{run: run, plan: &p}
	all, err := r.ingests(ctx, store)
	if err != nil {
		return err
	}
	for n := range p.Large {
		l, err := r.largeList(ctx, store, n)
		if err != nil {
			return err
		}
		all = append(all, registry.IngestID{DatasetID: l.DatasetID, Batch: p.Spec.batch(), Run: r.largeRun(n)})
	}
	return registry.AbandonIngests(ctx, store, all)
}

// Cleanup is ingest.Cleanup, also for the runs of this package: it abandons ingests of groups that
// have not finished. Those of large lists belong to the staging of their own runs.
func Cleanup(ctx context.Context, store blob.Store, run string) error {
	var p plan
	ok, err := load(ctx, store, planKey(run), &p)
	if err == nil && ok {
		var all []registry.IngestID
		if all, err = (&Run{run: run, plan: &p}).ingests(ctx, store); err == nil {
			err = registry.AbandonIngests(ctx, store, all)
		}
	}
	// Damage does not keep staging from being removed, nor does a clean-up that died.
	if err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return ingest.Cleanup(ctx, store, run)
}

// ingests returns the ingests of the lists that groups do.
func (r *Run) ingests(ctx context.Context, store blob.Store) (all []registry.IngestID, err error) {
	for group := range r.plan.Groups {
		lists, err := r.lists(ctx, store, group)
		if err != nil {
			return nil, err
		}
		for i := range lists {
			if lists[i].Refused == "" {
				all = append(all, registry.IngestID{DatasetID: lists[i].DatasetID, Batch: r.plan.Spec.batch(), Run: r.run})
			}
		}
	}
	return all, nil
}
