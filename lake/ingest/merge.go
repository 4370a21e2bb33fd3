package ingest

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/row"
)

// MergeSummary is what a scheduler needs of the merge of a run.
type MergeSummary struct {
	// Tasks is the number of merge tasks. They are numbered from 0.
	Tasks int `json:"tasks"`
	// Width is the number of hex digits of domain_prefix: 0 (any), 1 or 2.
	Width int `json:"width"`
	// Records is the number of records read. Kept of them became rows, before equal rows are
	// merged. The others are Rejected, by reason.
	Records  int64            `json:"records"`
	Kept     int64            `json:"kept"`
	Rejected map[string]int64 `json:"rejected"`
}

// mergePlan is merge.json.
type mergePlan struct {
	lake.KeyedHeader
	MergeSummary
	TaskList []row.MergeTask   `json:"task_list"`
	Shuffled []row.ShuffleFile `json:"shuffled"`
}

// PlanMerge chooses the width by which the batch is partitioned and groups its partitions into
// tasks of similar size. Both depend on the rows alone. It refuses a batch with too many rejects,
// or without any row, with an *InputError that names the first rejects.
func PlanMerge(ctx context.Context, store blob.Store, run string) (MergeSummary, error) {
	return planMerge(ctx, store, run, defaultLimits)
}

func planMerge(ctx context.Context, store blob.Store, run string, lim limits) (MergeSummary, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return MergeSummary{}, err
	}
	var m mergePlan
	ok, err := load(ctx, store, mergeKey(run), &m)
	if err != nil || ok {
		return m.MergeSummary, err
	}
	splits, err := readSplits(ctx, store, p)
	if err != nil {
		return MergeSummary{}, err
	}
	if _, err := join(run, splits); err != nil {
		return MergeSummary{}, err
	}
	if m, err = newMergePlan(p, splits, lim); err != nil {
		return MergeSummary{}, err
	}
	if err := saveFirst(ctx, store, mergeKey(run), &m); err != nil {
		return MergeSummary{}, err
	}
	return m.MergeSummary, nil
}

// newMergePlan plans the merge of all splits.
func newMergePlan(p *plan, splits []splitRecord, lim limits) (mergePlan, error) {
	m := mergePlan{MergeSummary: MergeSummary{Rejected: map[string]int64{}}}
	var parts [row.Partitions]row.PartitionSize
	for i, s := range splits {
		m.Records += s.Records
		m.Kept += s.Kept
		for reason, n := range s.Rejected {
			m.Rejected[reason] += n
		}
		m.Shuffled = append(m.Shuffled, s.Shuffled...)
		for _, q := range s.Partitions {
			if q.Partition < 0 || q.Partition >= row.Partitions {
				return mergePlan{}, codec.Corrupt(splitKey(p.Run, i), "partitions", -1, "a partition", q.Partition)
			}
			parts[q.Partition].Rows += q.Rows
			parts[q.Partition].KeyBytes += q.KeyBytes
		}
	}
	if err := refuse(p, m.MergeSummary, splits); err != nil {
		return mergePlan{}, err
	}
	m.Width, m.TaskList = row.PlanMerge(&parts, lim.merge)
	m.Tasks = len(m.TaskList)
	return m, nil
}

// refuse returns an error for a batch that must not be published.
func refuse(p *plan, m MergeSummary, splits []splitRecord) error {
	spec := &p.Spec
	rejected := m.Records - m.Kept
	e := &InputError{}
	for _, s := range splits {
		e.Rejects = append(e.Rejects, s.First[:min(len(s.First), firstRejects-len(e.Rejects))]...)
	}
	if len(e.Rejects) > 0 {
		first := e.Rejects[0]
		e.Object, e.Line, e.Offset = first.Object, first.Line, first.Offset
	}
	limit := spec.maxRejectRate()
	switch {
	case m.Records == 0:
		e.Reason = "the inputs hold no records"
		if found := joined(splits); found.UnreadCount > 0 {
			e.Reason += fmt.Sprintf("; %d files cannot be read, the first is %s: %s", found.UnreadCount, found.Unread[0].Name,
				found.Unread[0].Reason)
		}
	case m.Kept == 0:
		e.Reason = fmt.Sprintf("none of %d records could be kept (%s)", m.Records, reasons(m.Rejected))
		if spec.URLColumn != "" && m.Rejected[raw.NoURL] == m.Records {
			e.Reason += fmt.Sprintf("; no record has a URL in a column or member %q (--url-column)", spec.URLColumn)
		}
	case float64(rejected) > limit*float64(m.Records):
		e.Reason = fmt.Sprintf("%d of %d records were rejected (%s), more than the allowed share of %v",
			rejected, m.Records, reasons(m.Rejected), limit)
	default:
		return nil
	}
	// In a batch of many files, mostly one of them is at fault.
	if files := worst(splits); p.Objects > 1 && len(files) > 0 || len(files) > 1 {
		e.Reason += "; the most in " + files[0].String()
	}
	return e
}

// readSplits reads the results of all splits.
func readSplits(ctx context.Context, store blob.Store, p *plan) ([]splitRecord, error) {
	splits := make([]splitRecord, p.Count)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for i := range splits {
		g.Go(func() error { return loadRequired(ctx, store, splitKey(p.Run, i), &splits[i]) })
	}
	return splits, g.Wait()
}

// MergeResult is the result of one Merge.
type MergeResult struct {
	// Rows is the number of rows in the parts, Merged that of further records equal to one of them.
	Rows   int64 `json:"rows"`
	Merged int64 `json:"merged"`
	// Parts is the number of parts, Bytes their size.
	Parts int   `json:"parts"`
	Bytes int64 `json:"bytes"`
}

// PostingsWriter builds the postings object of the parts that a merge writes.
type PostingsWriter interface {
	part.Postings
	// Close releases what the writer holds. Without a Finish before it, nothing is written.
	Close()
}

// NewPostings starts a postings object for parts of a batch.
type NewPostings func(dataset uint32, batch string) PostingsWriter

// mergedRecord is merged/{task}.json.
type mergedRecord struct {
	lake.KeyedHeader
	Rows   int64       `json:"rows"`
	Merged int64       `json:"merged"`
	Parts  []lake.Part `json:"parts"`
	// Postings is the postings object of the parts, Domains its number of domains.
	Postings lake.FrameObject `json:"postings"`
	Domains  int64            `json:"domains"`
}

// written returns the keys of the objects that the task has written.
func (r *mergedRecord) written() (keys []string) {
	for i := range r.Parts {
		keys = append(keys, r.Parts[i].Key)
	}
	return append(keys, r.Postings.Key)
}

func (r *mergedRecord) result() MergeResult {
	out := MergeResult{Rows: r.Rows, Merged: r.Merged, Parts: len(r.Parts)}
	for _, p := range r.Parts {
		out.Bytes += p.Bytes
	}
	return out
}

// Merge sorts the rows of one task from all splits and writes their parts. At most two parts are in
// tempDir: one that is being stored and one that is being written. An empty tempDir is the
// system's. postings starts the postings object of the parts. progress may be nil; it is called
// from the caller's goroutine.
func Merge(
	ctx context.Context, store blob.Store, run string, task int, tempDir string,
	postings NewPostings, progress func(Progress),
) (MergeResult, error) {
	return merge(ctx, store, run, task, tempDir, postings, progress, defaultLimits)
}

func merge(
	ctx context.Context, store blob.Store, run string, task int, tempDir string,
	postings NewPostings, progress func(Progress), lim limits,
) (MergeResult, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return MergeResult{}, err
	}
	var m mergePlan
	if err := loadRequired(ctx, store, mergeKey(run), &m); err != nil {
		return MergeResult{}, err
	}
	var out mergedRecord
	if ok, err := loadResult(ctx, store, mergedKey(run, task), &out, (*mergedRecord).written); err != nil || ok {
		if ok && progress != nil {
			progress(Progress{Records: out.Rows + out.Merged, Kept: out.Rows})
		}
		return out.result(), err
	}
	if task < 0 || task >= len(m.TaskList) {
		return MergeResult{}, &InputError{Reason: fmt.Sprintf("merge task %d of %d", task, len(m.TaskList))}
	}
	if out, err = mergeShuffled(ctx, store, p, &m, task, tempDir, postings, progress, lim); err != nil {
		return MergeResult{}, err
	}
	return out.result(), save(ctx, store, mergedKey(run, task), &out)
}

// mergeShuffled does one task with the rows of shuffle files.
func mergeShuffled(
	ctx context.Context, store blob.Store, p *plan, m *mergePlan, task int, tempDir string,
	postings NewPostings, progress func(Progress), lim limits,
) (mergedRecord, error) {
	t := m.TaskList[task]
	source, release, err := row.FromShuffle(ctx, store, m.Shuffled, lim.mergeArena, t.Prefixes,
		func(prefix string, pass, n int) string { return spillKey(p.Run, task, prefix, pass, n) })
	if err != nil {
		return mergedRecord{}, err
	}
	defer release()
	return mergeTask(ctx, store, p, t, source, tempDir, postings, progress)
}

// mergeTask does one task with the rows of source.
func mergeTask(
	ctx context.Context, store blob.Store, p *plan, t row.MergeTask, source row.Source,
	tempDir string, postings NewPostings, progress func(Progress),
) (mergedRecord, error) {
	report := func(rows int64) error {
		if progress != nil {
			progress(Progress{Records: t.Rows, Kept: rows})
		}
		return ctx.Err()
	}
	w := postings(p.DatasetID, p.Batch)
	defer w.Close()
	opt := part.Options{Dataset: p.DatasetID, Batch: p.Batch, TempDir: tempDir}
	written, err := part.WriteTask(ctx, store, t.Prefixes, source, opt, w, report)
	if err != nil {
		return mergedRecord{}, err
	}
	out := mergedRecord{Rows: written.Rows, Merged: t.Rows - written.Rows, Postings: written.Postings, Domains: written.Domains}
	for _, w := range written.Parts {
		out.Parts = append(out.Parts, w.Part)
	}
	return out, nil
}

// MergedTask is what one Merge wrote, for the extraction of its postings.
type MergedTask struct {
	DatasetID uint32
	Batch     string
	// Rows is the number of rows in the parts.
	Rows int64
	// Parts, with their page indexes, are in the order of their prefixes and, within one prefix, of
	// their rows. Different tasks have different prefixes and hence different domains.
	Parts []part.Written
}
