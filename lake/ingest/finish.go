package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest/effect"
)

// FinishResult is the result of an ingest.
type FinishResult struct {
	// BatchKey is the key of the batch record, Digest that of its content.
	BatchKey string `json:"batch_key"`
	Digest   string `json:"digest"`
	// RejectsKey is the key of the list of rejected records, "" if there are none. Listed is how
	// many of them are in it, the first ones; 0 if all are.
	RejectsKey string           `json:"rejects_key,omitempty"`
	Listed     int64            `json:"listed_rejects,omitempty"`
	Records    int64            `json:"records"`
	Rows       int64            `json:"rows"`
	Merged     int64            `json:"merged"`
	Rejected   map[string]int64 `json:"rejected"`
	Domains    int64            `json:"domains"`
	Parts      int              `json:"parts"`
	PartBytes  int64            `json:"part_bytes"`
	// Existed reports that the batch had this content when the run was planned. Its objects were
	// written again.
	Existed bool `json:"existed,omitempty"`
	// Current reports that the batch has this content from the next version on. It is false if an
	// ingest that began later has already finished, or if the batch was retired since.
	Current bool `json:"current"`
	// Effect is what the ingest did to the dataset, nil if that is not known.
	Effect *effect.Effect `json:"effect,omitempty"`
	// Examples are up to maxExamples of the first rejects, Worst the files with the most rejects.
	Examples []Reject      `json:"examples,omitempty"`
	Worst    []FileRejects `json:"worst_files,omitempty"`
	// Groups say how the objects were read: the first maxGroups of GroupCount.
	Groups     []Group `json:"groups,omitempty"`
	GroupCount int     `json:"group_count,omitempty"`
	// Unread are the first of UnreadCount objects and members of archives that were skipped.
	Unread      []lake.Unread `json:"unread,omitempty"`
	UnreadCount int64         `json:"unread_count,omitempty"`
	// Unwrapped is how many records were URLs of archives' copies.
	Unwrapped int64 `json:"unwrapped,omitempty"`
	// BadTS counts the rows whose time could not be read. A note has an example.
	BadTS int64 `json:"bad_ts,omitempty"`
	// Notes say which inputs were not read, and what was guessed about the others. A note names the
	// first object that it is about.
	Notes []string `json:"notes,omitempty"`
}

// Finish writes the list of rejects and the batch record, and leaves the batch to the next publish.
func Finish(ctx context.Context, store blob.Store, run string) (FinishResult, error) {
	return finish(ctx, store, run, defaultLimits.rejects)
}

func finish(ctx context.Context, store blob.Store, run string, lim rejectLimits) (FinishResult, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return FinishResult{}, err
	}
	var m mergePlan
	if err := loadRequired(ctx, store, mergeKey(run), &m); err != nil {
		return FinishResult{}, err
	}
	splits, err := readSplits(ctx, store, p)
	if err != nil {
		return FinishResult{}, err
	}
	merged := make([]mergedRecord, len(m.TaskList))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for i := range merged {
		g.Go(func() error { return loadRequired(gctx, store, mergedKey(run, i), &merged[i]) })
	}
	if err := g.Wait(); err != nil {
		return FinishResult{}, err
	}
	out, err := record(ctx, store, p, &m.MergeSummary, splits, merged, lim)
	if err != nil {
		return FinishResult{}, err
	}
	return out, p.finish(ctx, store, &out)
}

// finish leaves a batch whose record is written to the next publish, unless a later ingest of the
// batch has finished before, and says what that does to the dataset.
func (p *plan) finish(ctx context.Context, store blob.Store, out *FinishResult) error {
	e, current, err := effect.Of(ctx, store, out.BatchKey, p.Start, p.Spec.Replace)
	if err != nil { // it is only told
		e, current = nil, true
	}
	if out.Effect, out.Current = e, current; !current || ctx.Err() != nil {
		return ctx.Err()
	}
	// An ingest that was cancelled leaves nothing.
	if _, err := store.Stat(ctx, planKey(p.Run)); err != nil {
		return fmt.Errorf("%w; the run was cleaned up", err)
	}
	return catalog.PutPending(ctx, store, p.Run, p.Start, []catalog.Change{
		{DatasetID: p.DatasetID, Batch: p.Batch, Digest: out.Digest, Replace: p.Spec.Replace},
	})
}

// record makes and stores the batch record from the results of all steps, and the list of rejects
// that the record names. It leaves Current and Effect to the caller.
func record(
	ctx context.Context, store blob.Store, p *plan, m *MergeSummary, splits []splitRecord, merged []mergedRecord, lim rejectLimits,
) (out FinishResult, err error) {
	inputs, err := join(p.Run, splits)
	if err != nil {
		return out, err
	}
	b := &lake.Batch{
		Format: lake.BatchFormat, DatasetID: p.DatasetID, Batch: p.Batch,
		CanonicalForm: p.Rules.CanonicalForm, PublicSuffix: p.Rules.PublicSuffix,
		Inputs: inputs, Records: m.Records, Rejected: m.Rejected,
	}
	found := joined(splits)
	b.Unread, b.UnreadCount, b.Unwrapped = found.Unread, found.UnreadCount, found.Unwrapped
	for _, t := range merged {
		b.Rows += t.Rows
		b.Merged += t.Merged
		b.Parts = append(b.Parts, t.Parts...)
		b.Postings = append(b.Postings, t.Postings)
		b.Domains += t.Domains // no two tasks have a domain in common
	}
	if m.Kept != b.Rows+b.Merged {
		return out, codec.Corrupt(mergeKey(p.Run), "counts", -1,
			fmt.Sprintf("%d kept records", m.Kept), fmt.Sprintf("%d rows and %d merged", b.Rows, b.Merged))
	}
	if b.Rejects, b.ListedRejects, err = writeRejects(ctx, store, p, splits, lim); err != nil {
		return out, err
	}
	data, digest, err := b.Encode()
	if err != nil {
		return out, err
	}
	out = FinishResult{
		BatchKey: lake.BatchKey(p.DatasetID, p.Batch, digest), Digest: digest,
		Records: b.Records, Rows: b.Rows, Merged: b.Merged, Rejected: b.Rejected,
		Domains: b.Domains, Parts: len(b.Parts), Existed: p.Current == digest,
	}
	for _, part := range b.Parts {
		out.PartBytes += part.Bytes
	}
	if b.Rejects != nil {
		out.RejectsKey, out.Listed = b.Rejects.Key, b.ListedRejects
	}
	out.Worst = worst(splits)
	out.Groups, out.GroupCount = found.Groups[:min(len(found.Groups), maxGroups)], len(found.Groups)
	out.Unread, out.UnreadCount = found.Unread[:min(len(found.Unread), maxShownUnread)], found.UnreadCount
	out.Unwrapped, out.BadTS = found.Unwrapped, found.BadTS
	out.Notes = append(slices.Clone(p.Notes), found.notes(b.Merged)...)
	for _, s := range splits {
		out.Examples = append(out.Examples, s.First[:min(len(s.First), maxExamples-len(out.Examples))]...)
		for _, note := range s.Notes {
			if len(out.Notes) < maxNotes && !slices.Contains(out.Notes, note) {
				out.Notes = append(out.Notes, note)
			}
		}
	}
	_, err = store.Put(ctx, out.BatchKey, data, blob.Condition{})
	return out, err
}

// join makes one input of all ranges of an object. It sets the number of lines before each range,
// which was not known when the range was read, and adds it to the lines of the splits' first
// rejects.
func join(run string, splits []splitRecord) ([]lake.Input, error) {
	var out []lake.Input
	var to, lines int64 // end and lines of the object so far
	for i := range splits {
		s := &splits[i]
		for j := range s.Objects {
			o := &s.Objects[j]
			if o.Range == nil || o.Range.From == 0 {
				out = append(out, o.Input)
				lines = 0
			} else {
				if len(out) == 0 || out[len(out)-1].Name != o.Name || o.Range.From != to {
					return nil, codec.Corrupt(splitKey(run, i), "objects", -1,
						fmt.Sprintf("a range from %d", to), fmt.Sprintf("%s from %d", o.Name, o.Range.From))
				}
				last := &out[len(out)-1]
				last.Bytes += o.Bytes
				last.Records += o.Records
				last.Rejects += o.Rejects
				last.BadTS += o.BadTS
			}
			o.before = lines
			for k := range o.Worst {
				if f := &o.Worst[k].First; f.Line > 0 && f.Offset >= 0 {
					f.Line += lines
				}
			}
			lines += o.Lines
			if to = 0; o.Range != nil {
				to = o.Range.To
			}
		}
		c := cursor{pieces: s.Objects}
		for k := range s.First {
			before, ok := c.next()
			if !ok {
				return nil, codec.Corrupt(splitKey(run, i), "first_rejects", -1,
					"no more than there are rejects", len(s.First))
			}
			s.First[k].Line += before
		}
	}
	return out, nil
}

// cursor finds the piece of each reject of a split, in order.
type cursor struct {
	pieces []pieceRecord
	used   int64 // rejects of the first piece so far
}

// next returns the number of lines before the piece of the next reject. ok is false after the last
// one.
func (c *cursor) next() (before int64, ok bool) {
	for len(c.pieces) > 0 && c.used == c.pieces[0].Rejects {
		c.pieces, c.used = c.pieces[1:], 0
	}
	if len(c.pieces) == 0 {
		return 0, false
	}
	c.used++
	return c.pieces[0].before, true
}

// reasons formats counts by reason, the largest first.
func reasons(counts map[string]int64) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var s []string
	for _, k := range keys {
		s = append(s, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(s, ", ")
}

// Cleanup deletes everything that a run has in staging.
func Cleanup(ctx context.Context, store blob.Store, run string) error {
	if err := checkRun(run); err != nil {
		return err
	}
	var p plan
	// A damaged plan does not keep staging from being removed.
	if _, err := load(ctx, store, planKey(run), &p); err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	if p.Run == run {
		if err := store.Delete(ctx, specKey(p.Spec)); err != nil {
			return err
		}
	}
	return lake.DeleteStaging(ctx, store, run)
}
