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

// Finished are the sums of the outcomes that a run has reported. All but Ingested and Failed are
// those of the lists that were ingested.
type Finished struct {
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
	// Failures are the first outcomes with errors.
	Failures []Outcome `json:"failures,omitempty"`
}

const (
	// maxFailures is how many failures a result names, and maxError how many bytes of the error of
	// each. The report has all.
	maxFailures = 20
	maxError    = 4 << 10
)

// Finish finishes the ingests of groups that are complete and in no report yet, so that a publish
// takes them up, abandons those of lists that failed, remembers what was read, and writes a report.
// With last it does so for all groups: lists that are not done have failed, for the given reason.
// The result has the sums of all reports of the run; more is true if Finish has added to them.
func Finish(ctx context.Context, store blob.Store, run string, last bool, reason string) (sum Finished, more bool, err error) {
	r, err := Open(ctx, store, run)
	if err != nil {
		return Finished{}, false, err
	}
	before, reports, err := readReports(ctx, store, ReportPrefix(run))
	if err != nil {
		return Finished{}, false, err
	}
	found, err := r.unreported(ctx, before, last, reason)
	if err != nil {
		return Finished{}, false, err
	}
	if len(found) > 0 {
		slices.SortFunc(found, byDataset)
		if err := r.finish(ctx, found); err != nil {
			return Finished{}, false, err
		}
		if err := rememberAll(ctx, store, found); err != nil {
			return Finished{}, false, err
		}
		// If another attempt has written this report, a repetition reads it.
		if err := writeReport(ctx, store, reportKey(run, reports), found); err != nil {
			return Finished{}, false, err
		}
	}
	return sumOf(append(before, found...)), len(found) > 0, nil
}

func byDataset(a, b Outcome) int { return strings.Compare(a.Dataset, b.Dataset) }

// sumOf adds up outcomes.
func sumOf(all []Outcome) Finished {
	out := Finished{Rejected: map[string]int64{}}
	for _, o := range all {
		if o.Error != "" {
			if out.Failed++; len(out.Failures) < maxFailures {
				o.Error = strings.ToValidUTF8(o.Error[:min(len(o.Error), maxError)], "")
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
	return out
}

// unreported returns the outcomes of the groups that are complete, or of all groups, and that have
// no outcome among those reported.
func (r *Run) unreported(ctx context.Context, reported []Outcome, all bool, reason string) (found []Outcome, err error) {
	done := map[string]bool{}
	for _, o := range reported {
		done[o.Dataset] = true
	}
	docs := make([]outcomes, r.plan.Groups+r.plan.Large)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i := range docs {
		g.Go(func() error {
			_, err := load(gctx, r.store, groupKey(r.run, i), &docs[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range docs {
		if !docs[i].complete() {
			if !all {
				continue
			}
			if err := r.complete(ctx, i, &docs[i], reason); err != nil {
				return nil, err
			}
		}
		if !done[docs[i].Lists[0].Dataset] {
			found = append(found, docs[i].Lists...)
		}
	}
	return found, nil
}

// complete fails the lists of a group that are not done.
func (r *Run) complete(ctx context.Context, number int, doc *outcomes, reason string) error {
	lists, err := r.lists(ctx, number)
	if err != nil {
		return err
	}
	if len(doc.Lists) != len(lists) {
		doc.Lists = make([]Outcome, len(lists))
	}
	for n := range lists {
		if doc.Lists[n].Dataset == "" {
			doc.Lists[n] = r.outcome(&lists[n])
			doc.Lists[n].Error = cmp.Or(lists[n].Refused, reason, "it was not begun")
		}
	}
	return nil
}

// finish finishes the ingests of lists of groups, and abandons those that failed. An ingest that
// was withdrawn meanwhile has failed, too. Large lists have finished their ingests themselves.
func (r *Run) finish(ctx context.Context, all []Outcome) error {
	var done []registry.Finish
	var at []int
	var failed []registry.IngestID
	for i, o := range all {
		id := registry.IngestID{DatasetID: o.DatasetID, Batch: o.Batch, Run: r.run}
		switch {
		case o.DatasetID == 0 || o.Run != "": // refused or large
		case o.Error != "":
			failed = append(failed, id)
		default:
			done, at = append(done, registry.Finish{IngestID: id, Digest: o.Digest, Replace: r.plan.Spec.Replace}), append(at, i)
		}
	}
	if err := registry.AbandonIngests(ctx, r.store, failed); err != nil {
		return err
	}
	for i, f := range registry.FinishIngests(ctx, r.store, done) {
		o := &all[at[i]]
		switch {
		case errors.Is(f.Err, registry.ErrUnknownRun):
			o.Error = f.Err.Error() + "; the registry was restored, or the ingest withdrawn, since it began"
		case f.Err != nil:
			return f.Err
		}
		o.Superseded = !f.Current
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

// writeReport writes outcomes, one line each, unless the report exists.
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
	_, err = store.Put(ctx, key, buf.Bytes(), blob.Condition{IfAbsent: true})
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

// ReadReports reads all outcomes that a run has reported, sorted by dataset. Prefix is the run's
// ReportPrefix.
func ReadReports(ctx context.Context, store blob.Store, prefix string) ([]Outcome, error) {
	all, _, err := readReports(ctx, store, prefix)
	return all, err
}

// readReports is ReadReports, and counts the reports.
func readReports(ctx context.Context, store blob.Store, prefix string) (all []Outcome, reports int, err error) {
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, 0, err
		}
		some, err := readReport(ctx, store, info.Key)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, some...)
		reports++
	}
	slices.SortStableFunc(all, byDataset)
	return all, reports, nil
}

// Abandon abandons the ingests of a run's groups that are not finished, and returns the outcomes of
// the lists whose ingests are: those that were reported, and large ones.
func Abandon(ctx context.Context, store blob.Store, run string) (finished []Outcome, err error) {
	r, err := abandon(ctx, store, run)
	if err != nil || r == nil {
		return nil, err
	}
	reported, err := ReadReports(ctx, store, ReportPrefix(run))
	if err != nil {
		return nil, err
	}
	others, err := r.unreported(ctx, reported, false, "")
	others = slices.DeleteFunc(others, func(o Outcome) bool { return o.Run == "" })
	return slices.DeleteFunc(append(reported, others...), func(o Outcome) bool { return o.Error != "" }), err
}

// abandon abandons the ingests of a run's groups that are not finished. The result is nil if there
// is no plan.
func abandon(ctx context.Context, store blob.Store, run string) (*Run, error) {
	if ok, err := Running(ctx, store, run); err != nil || !ok {
		return nil, err
	}
	r, err := Open(ctx, store, run)
	if err != nil {
		return nil, err
	}
	all, err := r.ingests(ctx)
	if err != nil {
		return nil, err
	}
	return r, registry.AbandonIngests(ctx, store, all)
}

// Cleanup is ingest.Cleanup, also for the runs of this package: it abandons ingests of groups that
// have not finished. Those of large lists belong to the staging of their own runs.
func Cleanup(ctx context.Context, store blob.Store, run string) error {
	_, err := abandon(ctx, store, run)
	// Damage does not keep staging from being removed, nor does a clean-up that died.
	if err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return ingest.Cleanup(ctx, store, run)
}
