package many

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// Outcome is what became of one list.
type Outcome struct {
	Dataset string `json:"dataset"`
	// From is the file or folder that is the dataset.
	From      string `json:"from"`
	DatasetID uint32 `json:"dataset_id,omitempty"`
	Batch     string `json:"batch"`
	// Run is the run of a large list.
	Run string `json:"run,omitempty"`
	// Error says why the list was not ingested. It is empty for one that was.
	Error string `json:"error,omitempty"`
	// Digest names the batch record. The other fields are those of ingest.FinishResult.
	Digest     string           `json:"digest,omitempty"`
	Objects    int              `json:"objects"`
	Bytes      int64            `json:"bytes"`
	Records    int64            `json:"records"`
	Rows       int64            `json:"rows"`
	Merged     int64            `json:"merged"`
	Rejected   map[string]int64 `json:"rejected,omitempty"`
	RejectsKey string           `json:"rejects_key,omitempty"`
	Domains    int64            `json:"domains"`
	PartBytes  int64            `json:"part_bytes"`
	Examples   []ingest.Reject  `json:"examples,omitempty"`
	// Worst, Unread and UnreadCount are those of ingest.FinishResult.
	Worst       []ingest.FileRejects `json:"worst_files,omitempty"`
	Unread      []lake.Unread        `json:"unread,omitempty"`
	UnreadCount int64                `json:"unread_count,omitempty"`
	Notes       []string             `json:"notes,omitempty"`
	Unchanged   bool                 `json:"unchanged,omitempty"`
	Superseded  bool                 `json:"superseded,omitempty"`

	// Fingerprint is that of what was read.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// outcomes is groups/{number}.json.
type outcomes struct {
	lake.KeyedHeader
	// Lists are the outcomes of lists by their index in the group. Those that are not done have no
	// dataset.
	Lists []Outcome `json:"lists"`
}

// complete reports whether all lists of a group are done.
func (o *outcomes) complete() bool {
	return len(o.Lists) > 0 && !slices.ContainsFunc(o.Lists, func(o Outcome) bool { return o.Dataset == "" })
}

// outcomes reads the outcomes of a group of n lists, and their ETag, "" for none yet.
func (r *Run) outcomes(ctx context.Context, number, n int) (done outcomes, etag string, err error) {
	if etag, err = lake.LoadKeyed(ctx, r.store, groupKey(r.run, number), documentFormat, &done); err != nil {
		return done, "", err
	}
	if len(done.Lists) != n {
		done.Lists = make([]Outcome, n)
	}
	return done, etag, nil
}

// Progress says how far a group is.
type Progress struct {
	// Progress is that of all lists of the group together.
	ingest.Progress
	// Done is the number of lists that are done, Failed how many of them failed.
	Done   int `json:"done"`
	Failed int `json:"failed"`
	// PartBytes are the bytes of Parquet of the lists that are done.
	PartBytes int64 `json:"part_bytes"`
}

// GroupOptions are what Group needs from its caller.
type GroupOptions struct {
	// TempDir is a folder for spill files.
	TempDir string
	// InMemory and Collect are as for ingest.IngestSmall.
	InMemory, Collect ingest.NewPostings
	// Fault returns why an error is the list's own fault, "" if repeating the step may help.
	Fault func(error) string
	// Killer is an object at which workers died, "" if none did. The list that has it fails with
	// KillerReason.
	Killer, KillerReason string
	// Panicked is called for a panic in a list.
	Panicked func(list string, fault any, stack []byte)
}

const (
	// lastPanic is how often a list may panic. The last time it fails.
	lastPanic = 3
	// sameFaults is after how many lists in a row that fail for a reason that may pass a group
	// ends: the reason is not in the lists.
	sameFaults = 3
	// smallList is the size up to which listsAtOnce lists are ingested at once: they wait for the
	// store for longer than they work.
	smallList   = 1 << 20
	listsAtOnce = 8
	// saveTime is how long the outcomes of a group may take to be saved after its context ended.
	saveTime = time.Minute
)

// Group ingests the lists of one group that are not done yet. The lists that are at fault
// themselves are recorded as failed. If others fail, Group goes on with the next, and returns the
// first error at the end: a repetition does what is left. The progress is that of all lists of the
// group.
func (r *Run) Group(ctx context.Context, group int, opt GroupOptions, report func(Progress)) (Progress, error) {
	if group >= r.plan.Groups {
		return Progress{}, inputError("group %d of %d", group, r.plan.Groups)
	}
	lists, err := r.lists(ctx, group)
	if err != nil {
		return Progress{}, err
	}
	g := grouped{Run: r, group: group, opt: opt, members: lists, report: report}
	var etag string
	if g.done, etag, err = r.outcomes(ctx, group, len(lists)); err != nil {
		return Progress{}, err
	}
	for i := range lists {
		g.state.BytesTotal += lists[i].bytes()
		if o := &g.done.Lists[i]; o.Dataset != "" {
			g.add(o)
		}
	}
	before := g.state.Done
	err = g.work(ctx)
	if g.state.Done > before {
		// What is done counts, also if the context has ended. If another attempt at the group has
		// recorded outcomes meanwhile, a repetition begins with those.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
		defer stop()
		err = cmp.Or(err, save(ctx, r.store, groupKey(r.run, group), &g.done, etag))
	}
	return g.state, err
}

// grouped is a group at work.
type grouped struct {
	*Run
	group   int
	opt     GroupOptions
	members []list
	report  func(Progress)

	mu    sync.Mutex // guards what is below
	done  outcomes
	state Progress
	// fault is the first error of a list that a repetition may not have, faults the number of such
	// errors in a row.
	fault  error
	faults int
}

func (g *grouped) work(ctx context.Context) error {
	var running errgroup.Group
	running.SetLimit(listsAtOnce)
	if ingest.OpeningOf(ctx).Single {
		running.SetLimit(1)
	}
	for i := range g.members { // the largest first
		g.mu.Lock()
		ended, goesOn := g.done.Lists[i].Dataset != "", ctx.Err() == nil && g.faults < sameFaults
		g.mu.Unlock()
		switch {
		case ended:
		case !goesOn:
		case g.members[i].bytes() > smallList:
			g.one(ctx, i, g.within)
		default:
			running.Go(func() error { g.one(ctx, i, func(ingest.Progress) {}); return nil })
		}
	}
	_ = running.Wait() // one notes errors
	return cmp.Or(ctx.Err(), g.fault)
}

// within reports the progress within a list, and the lists that are done.
func (g *grouped) within(p ingest.Progress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.state
	now.BytesRead += p.BytesRead
	now.Records += p.Records
	now.Kept += p.Kept
	now.Rejected += p.Rejected
	g.report(now)
}

// one ingests a list and notes its outcome, or its error if a repetition may not have that.
func (g *grouped) one(ctx context.Context, i int, report func(ingest.Progress)) {
	out, err := g.ingest(ctx, i, report)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.faults = 0
		g.done.Lists[i] = out
		g.add(&out)
		g.report(g.state)
	case ctx.Err() == nil:
		g.faults++
		g.fault = cmp.Or(g.fault, err)
	}
}

// add adds a list that is done to the progress.
func (g *grouped) add(o *Outcome) {
	g.state.Done++
	if o.Error != "" {
		g.state.Failed++
	}
	g.state.BytesRead += o.Bytes
	g.state.Records += o.Records
	g.state.Kept += o.Rows
	g.state.PartBytes += o.PartBytes
	for _, n := range o.Rejected {
		g.state.Rejected += n
	}
}

// ingest ingests a list, again if that panics. An error is one that a repetition may not have.
func (g *grouped) ingest(ctx context.Context, n int, report func(ingest.Progress)) (Outcome, error) {
	l := &g.members[n]
	out := g.outcome(l)
	switch {
	case l.Refused != "":
		out.Error = l.Refused
	case g.opt.Killer != "" && slices.ContainsFunc(l.Objects, func(o ingest.Object) bool {
		return o.Name == g.opt.Killer || strings.HasPrefix(g.opt.Killer, o.Name+"/")
	}):
		out.Error = g.opt.KillerReason
	}
	if out.Error != "" {
		return out, nil
	}
	r, fault, err := g.try(ctx, n, report)
	for tries := 1; fault != "" && tries < lastPanic; tries++ {
		r, fault, err = g.try(ctx, n, report)
	}
	switch {
	case fault != "":
		out.Error = fmt.Sprintf("%s: it made urlake panic %d times (%s); leave it out (--exclude) or convert it, "+
			"and report this as a defect", l.From, lastPanic, fault)
	case err != nil && ctx.Err() == nil:
		out.Error = g.opt.Fault(err)
	}
	if out.Error != "" {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("dataset %s: %w", l.Dataset, err)
	}
	out.Digest, out.RejectsKey = r.Digest, r.RejectsKey
	out.Records, out.Rows, out.Merged = r.Records, r.Rows, r.Merged
	out.Rejected, out.Domains, out.PartBytes = r.Rejected, r.Domains, r.PartBytes
	out.Worst, out.Unread, out.UnreadCount = r.Worst, r.Unread, r.UnreadCount
	out.Examples, out.Notes, out.Unchanged = r.Examples, r.Notes, r.Existed
	return out, nil
}

// try ingests a list. fault is the beginning of what it panicked with, "" if it did not.
func (g *grouped) try(ctx context.Context, n int, report func(ingest.Progress)) (r ingest.FinishResult, fault string, err error) {
	l := &g.members[n]
	defer func() {
		if p := recover(); p != nil {
			g.opt.Panicked(l.Dataset, p, debug.Stack())
			fault, _, _ = strings.Cut(fmt.Sprint(p), "\n")
			fault = cmp.Or(fault[:min(len(fault), 500)], "panic")
		}
	}()
	w := ingest.Whole{
		Folder: fmt.Sprintf("%s/lists/%06d-%06d", g.run, g.group, n), Spec: g.plan.Spec.Spec, DatasetID: l.DatasetID,
		Batch: g.plan.Spec.batch(), Current: l.Current, Rules: g.plan.Rules, Objects: l.Objects,
	}
	r, err = ingest.IngestWhole(ctx, g.store, &w, g.opt.TempDir, g.opt.InMemory, g.opt.Collect, report)
	return r, "", err
}
