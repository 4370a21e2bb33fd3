package many

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
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

// complete reports whether all lists of a group are done.
func (o *outcomes) complete() bool {
	return len(o.Lists) > 0 && !slices.ContainsFunc(o.Lists, func(o Outcome) bool { return o.Dataset == "" })
}

// outcomes is groups/{group}.json.
type outcomes struct {
	lake.KeyedHeader
	// Lists are the outcomes of lists by their index in the group. Those that are not done have no
	// dataset.
	Lists []Outcome `json:"lists"`
}

// Add adds the progress of another group.
func (p *Progress) Add(q Progress) {
	p.Done += q.Done
	p.Failed += q.Failed
	p.Records += q.Records
	p.Kept += q.Kept
	p.Rejected += q.Rejected
	p.BytesRead += q.BytesRead
	p.BytesTotal += q.BytesTotal
	p.PartBytes += q.PartBytes
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
	// saveEvery is how often a group writes down what is done: so much is repeated if its worker
	// dies.
	saveEvery = 5 * time.Second
	// lastPanic is how often a list may panic. The last time it fails.
	lastPanic = 3
	// sameFaults is after how many lists in a row that fail for a reason that may pass a group
	// ends: the reason is not in the lists.
	sameFaults = 3
)

// Group ingests the lists of one group that are not done yet. The lists that are at fault
// themselves are recorded as failed. If others fail, Group goes on with the next, and returns the
// first error at the end: a repetition does what is left. The progress is that of all lists of the
// group.
func (r *Run) Group(
	ctx context.Context, store blob.Store, group int, opt GroupOptions, report func(Progress),
) (Progress, error) {
	if group >= r.plan.Groups {
		return Progress{}, inputError("group %d of %d", group, r.plan.Groups)
	}
	lists, err := r.lists(ctx, store, group)
	if err != nil {
		return Progress{}, err
	}
	g := grouped{Run: r, store: store, group: group, opt: opt, members: lists, report: report, saved: time.Now()}
	if g.done, g.tag, err = readOutcomes(ctx, store, r.run, group, len(lists)); err != nil {
		return Progress{}, err
	}
	for i := range lists {
		g.state.BytesTotal += lists[i].bytes()
		if o := &g.done.Lists[i]; o.Dataset != "" {
			g.add(o)
		}
	}
	err = g.work(ctx)
	// What is done is kept, also if the context has ended.
	keep, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	if g.unsaved {
		if saveErr := g.save(keep); err == nil {
			err = saveErr
		}
	}
	return g.state, err
}

// readOutcomes reads the outcomes of a group of n lists, none if the group has not begun, and their
// ETag.
func readOutcomes(ctx context.Context, store blob.Store, run string, group, n int) (done outcomes, tag string, err error) {
	if tag, err = lake.LoadKeyed(ctx, store, groupKey(run, group), documentFormat, &done); err != nil {
		return done, "", err
	}
	if len(done.Lists) != n {
		done.Lists = make([]Outcome, n)
	}
	return done, tag, nil
}

// grouped is a group at work.
type grouped struct {
	*Run
	store   blob.Store
	group   int
	opt     GroupOptions
	members []list
	done    outcomes
	report  func(Progress)

	mu      sync.Mutex // guards done and what is below
	tag     string     // ETag of done in the store, "" for none
	state   Progress
	saved   time.Time
	unsaved bool
	// fault is the first error of a list that a repetition may not have, faults the number of such
	// errors in a row.
	fault  error
	faults int
}

// smallList is the size up to which several lists are ingested at once: they wait for the store for
// longer than they work.
const (
	smallList   = 1 << 20
	listsAtOnce = 8
)

func (g *grouped) work(ctx context.Context) error {
	atOnce := listsAtOnce
	if ingest.OpeningOf(ctx).Single {
		atOnce = 1
	}
	var lists errgroup.Group
	lists.SetLimit(atOnce)
	for i := range g.members {
		if g.members[i].bytes() > smallList || g.ended(i) {
			continue
		}
		if !g.goesOn(ctx) {
			break
		}
		lists.Go(func() error { return g.one(ctx, i, func(ingest.Progress) {}) })
	}
	if err := lists.Wait(); err != nil {
		return err
	}
	for i := range g.members {
		if g.members[i].bytes() <= smallList || g.ended(i) {
			continue
		}
		if !g.goesOn(ctx) {
			break
		}
		before := g.state
		if err := g.one(ctx, i, func(p ingest.Progress) {
			now := before
			now.BytesRead += p.BytesRead
			now.Records += p.Records
			now.Kept += p.Kept
			now.Rejected += p.Rejected
			g.report(now)
		}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return g.fault
}

// ended reports whether a list is done.
func (g *grouped) ended(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done.Lists[i].Dataset != ""
}

// goesOn reports whether another list may begin.
func (g *grouped) goesOn(ctx context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ctx.Err() == nil && g.faults < sameFaults
}

// one ingests a list and notes its outcome. An error is that of the group.
func (g *grouped) one(ctx context.Context, i int, report func(ingest.Progress)) error {
	out, err := g.outcome(ctx, i, report)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		g.faults++
		if g.fault == nil {
			g.fault = err
		}
		return nil
	}
	g.faults = 0
	if g.done.Lists[i].Dataset != "" {
		return nil // another attempt was faster, see save
	}
	g.done.Lists[i] = out
	g.unsaved = true
	g.add(&out)
	g.report(g.state)
	if time.Since(g.saved) >= saveEvery {
		return g.save(ctx)
	}
	return nil
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

// save writes the outcomes of the lists that are done. An attempt that Temporal has given up may
// still be at work, so what another attempt has done stays.
func (g *grouped) save(ctx context.Context) error {
	g.saved = time.Now()
	key := groupKey(g.run, g.group)
	for {
		cond := blob.Condition{IfMatch: g.tag}
		if g.tag == "" {
			cond = blob.Condition{IfAbsent: true}
		}
		tag, err := lake.SaveKeyed(ctx, g.store, key, documentFormat, &g.done, cond)
		if err == nil {
			g.tag = tag
		}
		g.unsaved = err != nil
		if !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
		var other outcomes
		if other, g.tag, err = readOutcomes(ctx, g.store, g.run, g.group, len(g.members)); err != nil {
			return err
		}
		for i := range other.Lists {
			if g.done.Lists[i].Dataset == "" && other.Lists[i].Dataset != "" {
				g.done.Lists[i] = other.Lists[i]
				g.add(&other.Lists[i])
			}
		}
	}
}

// outcome ingests a list. An error is one that a repetition may not have.
func (g *grouped) outcome(ctx context.Context, n int, report func(ingest.Progress)) (Outcome, error) {
	l := &g.members[n]
	out := g.Run.outcome(l)
	if out.Error = l.Refused; out.Error != "" {
		return out, nil
	}
	if g.opt.Killer != "" && slices.ContainsFunc(l.Objects, func(o ingest.Object) bool {
		return o.Name == g.opt.Killer || strings.HasPrefix(g.opt.Killer, o.Name+"/")
	}) {
		out.Error = g.opt.KillerReason
		return out, nil
	}
	r, err := g.ingest(ctx, n, report)
	if err == nil {
		out.Digest, out.RejectsKey = r.Finish.Digest, r.Finish.RejectsKey
		out.Records, out.Rows, out.Merged = r.Finish.Records, r.Finish.Rows, r.Finish.Merged
		out.Rejected, out.Domains, out.PartBytes = r.Finish.Rejected, r.Finish.Domains, r.Finish.PartBytes
		out.Worst, out.Unread, out.UnreadCount = r.Finish.Worst, r.Finish.Unread, r.Finish.UnreadCount
		out.Examples, out.Notes, out.Unchanged = r.Finish.Examples, r.Finish.Notes, r.Finish.Existed
		return out, nil
	}
	var p *panicError
	if errors.As(err, &p) {
		out.Error = p.Error()
		return out, nil
	}
	if ctx.Err() == nil {
		out.Error = g.opt.Fault(err)
	}
	if out.Error == "" {
		return out, fmt.Errorf("dataset %s: %w", l.Dataset, err)
	}
	return out, nil
}

// panicError is a list that panics.
type panicError struct{ reason string }

func (e *panicError) Error() string { return e.reason }

// ingest ingests a list, again if that panics.
func (g *grouped) ingest(
	ctx context.Context, n int, report func(ingest.Progress),
) (r ingest.SmallResult, err error) {
	for tries := 1; ; tries++ {
		r, err = g.try(ctx, n, report)
		var p *panicError
		if tries == lastPanic || !errors.As(err, &p) {
			return r, err
		}
	}
}

func (g *grouped) try(
	ctx context.Context, n int, report func(ingest.Progress),
) (r ingest.SmallResult, err error) {
	l := &g.members[n]
	defer func() {
		if fault := recover(); fault != nil {
			g.opt.Panicked(l.Dataset, fault, debug.Stack())
			text, _, _ := strings.Cut(fmt.Sprint(fault), "\n")
			err = &panicError{fmt.Sprintf("%s: it made urlake panic %d times (%s); leave it out (--exclude) or convert it, "+
				"and report this as a defect", l.From, lastPanic, text[:min(len(text), 500)])}
		}
	}()
	w := ingest.Whole{
		Folder: listFolder(g.run, g.group, n), Spec: g.plan.Spec.Spec, DatasetID: l.DatasetID,
		Batch: g.plan.Spec.batch(), Current: l.Current, Rules: g.plan.Rules, Objects: l.Objects,
	}
	return ingest.IngestWhole(ctx, g.store, &w, g.opt.TempDir, g.opt.InMemory, g.opt.Collect, report)
}
