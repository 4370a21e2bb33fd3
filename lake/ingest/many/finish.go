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

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Round is a part of a run that is finished at once, so that it can be published.
type Round struct {
	// Number counts the rounds of a run from 0.
	Number int `json:"number"`
	// Groups are the groups that have ended. Unfinished has the reason for each of them that ended
	// with an error, by its number: those of its lists that are not done have failed for it.
	Groups     []int          `json:"groups"`
	Unfinished map[int]string `json:"unfinished,omitempty"`
	// Large are the outcomes of large lists. Their ingests are finished already.
	Large []Outcome `json:"large,omitempty"`
}

// Finished is the result of Finish. Its sums are those of the lists that were ingested.
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
	// Report is the key of the report, "" for a round without lists.
	Report string `json:"report,omitempty"`
	// Failures are the first outcomes with errors.
	Failures []Outcome `json:"failures,omitempty"`
}

// maxFailures is how many failures a result names. The report has all.
const maxFailures = 20

// Add adds another round's result.
func (f *Finished) Add(g Finished) {
	f.Ingested += g.Ingested
	f.Failed += g.Failed
	f.Objects += g.Objects
	f.Bytes += g.Bytes
	f.Records += g.Records
	f.Rows += g.Rows
	f.Merged += g.Merged
	f.Domains += g.Domains
	f.PartBytes += g.PartBytes
	for reason, n := range g.Rejected {
		if f.Rejected == nil {
			f.Rejected = map[string]int64{}
		}
		f.Rejected[reason] += n
	}
	f.Failures = append(f.Failures, g.Failures[:min(len(g.Failures), maxFailures-len(f.Failures))]...)
	f.Report = cmp.Or(g.Report, f.Report)
}

// Finish finishes the ingests of a round in the registry, so that a publish takes them up, abandons
// those of lists that failed, remembers what was read, and writes the round's report. A report that
// exists is kept: Finish then only repeats what may not have been done.
func Finish(ctx context.Context, store blob.Store, run string, r Round) (Finished, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return Finished{}, err
	}
	var all []Outcome
	for _, group := range r.Groups {
		lists, err := p.lists(ctx, store, group)
		if err != nil {
			return Finished{}, err
		}
		done, err := readOutcomes(ctx, store, run, group, len(lists))
		if err != nil {
			return Finished{}, err
		}
		for i, o := range done.Lists {
			if o.Dataset == "" {
				l := &lists[i]
				o = Outcome{Dataset: l.Dataset, From: l.From, DatasetID: l.DatasetID, Batch: p.Spec.batch(),
					Objects: len(l.Objects), Bytes: l.bytes(), Error: cmp.Or(r.Unfinished[group], "it was not begun")}
			}
			all = append(all, o)
		}
	}
	if err := finishGroups(ctx, store, run, p.Spec.batch(), all); err != nil {
		return Finished{}, err
	}
	all = append(all, r.Large...)
	if len(all) == 0 {
		return Finished{}, nil
	}
	slices.SortFunc(all, func(a, b Outcome) int { return strings.Compare(a.Dataset, b.Dataset) })
	if err := rememberAll(ctx, store, all); err != nil {
		return Finished{}, err
	}
	out := Finished{Rejected: map[string]int64{}, Report: reportKey(run, r.Number)}
	for _, o := range all {
		if o.Error != "" {
			if out.Failed++; len(out.Failures) < maxFailures {
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

// finishGroups finishes the ingests of the lists of groups, and abandons those that failed.
func finishGroups(ctx context.Context, store blob.Store, run, batch string, all []Outcome) error {
	var done []Outcome
	var at []int
	var failed []uint32
	for i, o := range all {
		if o.Error != "" {
			failed = append(failed, o.DatasetID)
		} else {
			done, at = append(done, o), append(at, i)
		}
	}
	if err := AbandonIngests(ctx, store, failed, batch, run); err != nil {
		return err
	}
	current, err := FinishIngests(ctx, store, done, run)
	for i := range current {
		all[at[i]].Superseded = !current[i]
	}
	return err
}

// rememberAll remembers what was read of the lists that are now current.
func rememberAll(ctx context.Context, store blob.Store, all []Outcome) error {
	more := map[string]takenBatch{}
	for _, o := range all {
		if o.Error == "" && !o.Superseded && o.Fingerprint != "" {
			more[takenName(o.DatasetID, o.Batch)] = takenBatch{Fingerprint: o.Fingerprint, Digest: o.Digest}
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
	var all []uint32
	for group := range p.Groups {
		lists, err := p.lists(ctx, store, group)
		if err != nil {
			return err
		}
		for i := range lists {
			all = append(all, lists[i].DatasetID)
		}
	}
	return AbandonIngests(ctx, store, all, p.Spec.batch(), run)
}
