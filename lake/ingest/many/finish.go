package many

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
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

// Finish leaves the batches of groups that are complete and in no report yet to the next publish,
// remembers what was read, and writes a report.
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
		if err := r.finish(ctx, reports, found); err != nil {
			return Finished{}, false, err
		}
		if err := r.rememberAll(ctx, found); err != nil {
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

// finish leaves the batches of lists of groups to the next publish. Large lists have done so
// themselves. Part tells this call of Finish from others that finish something else.
func (r *Run) finish(ctx context.Context, part int, all []Outcome) error {
	var done []catalog.Change
	var names []catalog.BatchName
	for _, o := range all {
		if o.DatasetID > 0 && o.Run == "" && o.Error == "" { // not refused, not large
			names = append(names, catalog.BatchName{DatasetID: o.DatasetID, Batch: o.Batch})
			done = append(done, catalog.Change{DatasetID: o.DatasetID, Batch: o.Batch, Digest: o.Digest, Replace: r.plan.Spec.Replace})
		}
	}
	if len(done) == 0 {
		return nil
	}
	// An ingest that was cancelled leaves nothing.
	if _, err := r.store.Stat(ctx, planKey(r.run)); err != nil {
		return fmt.Errorf("%w; the run was cleaned up", err)
	}
	if err := catalog.PutPending(ctx, r.store, fmt.Sprintf("%s-%d", r.run, part), r.plan.Start, done); err != nil {
		return err
	}
	s, err := catalog.LookBatches(ctx, r.store)
	var now map[catalog.BatchName]catalog.PendingBatch
	if err == nil {
		now, err = s.Find(ctx, names...)
	}
	if err != nil && !lake.IsDamage(err) {
		return err
	}
	for i := range all {
		b, ok := now[catalog.BatchName{DatasetID: all[i].DatasetID, Batch: all[i].Batch}]
		all[i].Superseded = all[i].Superseded || ok && b.Start > r.plan.Start
	}
	return nil
}

// rememberAll remembers what was read of the lists that are now current.
func (r *Run) rememberAll(ctx context.Context, all []Outcome) error {
	more := map[catalog.BatchName]takenBatch{}
	for _, o := range all {
		if o.Error == "" && !o.Superseded && o.Fingerprint != "" {
			more[catalog.BatchName{DatasetID: o.DatasetID, Batch: o.Batch}] = takenBatch{Fingerprint: o.Fingerprint, Start: r.plan.Start}
		}
	}
	return remember(ctx, r.store, more)
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
