// Package rebuild makes the index of a lake's current version again from its Parquet, without the
// batches' postings objects and without the index, and holds what it makes against what is
// published. It has plain functions that a scheduler orders:
//
//	Plan     pins the version, and groups its batches into tasks
//	Extract  makes the postings of a task's batches from their parts, into staging
//	Segment  builds a segment of these postings, and of those of small batches, which it extracts
//	         itself; compares all bytes; mends what is damaged
//
// Extract may run for all tasks at once, and Segment for all segments when all tasks are done.
// Every step may be repeated, run twice at once, and die at any point: what is made again has the
// same bytes, and staged postings that are there are taken.
//
// What comes out otherwise than it is published, because another build of urlake made it, is
// replaced by a segment of this build in a new version, after that was counted against the Parquet.
//
//	staging/{run}/rebuild.json    sealed plan
//	staging/{run}/rebuilt/{key}   the postings object of that key, made again
//	staging/{run}/mended/{n}.json sealed: the keys of what the step of segment n writes again
package rebuild

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/repair"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/remedy"
)

// staged is the bytes of Parquet from which the postings of a batch are staged. To extract those of
// smaller ones again costs less than to store them. Tests set it lower.
var staged int64 = 4 << 20

const (
	// planFormat is the version of the plan.
	planFormat = 1
	// taskBytes is about how many bytes of Parquet a task reads: some seconds of work.
	taskBytes = 512 << 20
	// maxTasks bounds the history of a workflow; tasks of larger lakes are larger.
	maxTasks = 2000
	// maxLines is how many lines each list of a result has at most.
	maxLines = 100
)

// plan is rebuild.json.
type plan struct {
	lake.KeyedHeader
	Version  manifest.VersionRef `json:"version"`
	Segments []string            `json:"segments"`
	Tasks    []task              `json:"tasks"`
	Summary  Summary             `json:"summary"`
}

// task are the batches of a segment from From to To-1, in the order of the version.
type task struct {
	Segment  int `json:"segment"`
	From, To int
}

// Summary is what a plan says to the scheduler.
type Summary struct {
	// Version is the version whose index is made again, "" if nothing is published.
	Version  string `json:"version,omitempty"`
	Tasks    int    `json:"tasks"`
	Segments int    `json:"segments"`
	Batches  int    `json:"batches"`
	Rows     int64  `json:"rows"`
	// Bytes is the size of the Parquet.
	Bytes int64 `json:"bytes"`
}

func planKey(run string) string      { return lake.StagingPrefix(run) + "rebuild.json" }
func stagedFolder(run string) string { return lake.StagingPrefix(run) + "rebuilt/" }

// Plan pins the current version and stores the plan of the run. A run that has a plan keeps it.
func Plan(ctx context.Context, store blob.Store, run string) (Summary, error) {
	p := &plan{}
	if etag, err := lake.LoadKeyed(ctx, store, planKey(run), planFormat, p); err != nil || etag != "" {
		return p.Summary, err
	}
	v, ref, err := current(ctx, store)
	if errors.Is(err, manifest.ErrNoVersion) {
		return Summary{}, orLost(manifest.CheckPresent(ctx, store))
	}
	if err != nil {
		return Summary{}, fmt.Errorf("plan a rebuild: %w", err)
	}
	p = &plan{Version: ref, Summary: Summary{Version: v.ID, Segments: len(v.Segments)}}
	target := max(int64(taskBytes), v.Counts.PartBytes/maxTasks)
	for i, s := range v.Segments {
		p.Segments = append(p.Segments, s.ID)
		t := task{Segment: i}
		bytes := int64(0)
		end := func() {
			if bytes > 0 {
				p.Tasks = append(p.Tasks, t)
			}
			bytes = 0
		}
		all, err := storedIn(ctx, v, s.ID)
		if err != nil {
			return Summary{}, fmt.Errorf("plan a rebuild: %w", err)
		}
		for n, b := range all {
			p.Summary.Batches += b.batches
			p.Summary.Rows += b.rows
			p.Summary.Bytes += b.bytes
			if b.bytes >= staged {
				if bytes == 0 {
					t.From = n
				}
				t.To = n + 1
				if bytes += b.bytes; bytes >= target {
					end()
				}
			}
		}
		end()
	}
	p.Summary.Tasks = len(p.Tasks)
	_, err = lake.SaveKeyed(ctx, store, planKey(run), planFormat, p, blob.Condition{})
	return p.Summary, err
}

// stored is a batch, or a union of batches, whose postings a segment is made of.
type stored struct {
	ref         segment.BatchRef
	batches     int
	rows, bytes int64
}

// storedIn returns what a segment of a version is made of, in the order of the version: first what
// has live batches, then what has none.
func storedIn(ctx context.Context, v *manifest.Version, id string) (all []stored, err error) {
	at := map[segment.BatchRef]int{}
	for _, batches := range []iter.Seq2[manifest.Batch, error]{v.BatchesIn(ctx, id), v.DeadIn(ctx, id)} {
		for b, err := range batches {
			if err != nil {
				return nil, err
			}
			ref := lakecheck.StoredRef(b)
			i, ok := at[ref]
			if !ok {
				i = len(all)
				at[ref] = i
				all = append(all, stored{ref: ref})
			}
			s := &all[i]
			s.batches++
			s.rows += b.Rows
			s.bytes += b.Bytes
		}
	}
	return all, nil
}

// orLost is the error of a lake without a version: nil if nothing was published yet.
func orLost(err error) error {
	if err != nil {
		return fmt.Errorf("plan a rebuild: %w", err)
	}
	return nil
}

func readPlan(ctx context.Context, store blob.Store, run string) (*plan, error) {
	p := &plan{}
	return p, lake.RequireKeyed(ctx, store, planKey(run), planFormat, p)
}

// current reads the current version.
func current(ctx context.Context, store blob.Store) (*manifest.Version, manifest.VersionRef, error) {
	m, _, err := manifest.Read(ctx, store)
	if err != nil {
		return nil, manifest.VersionRef{}, err
	}
	ref, err := m.Version("")
	if err != nil {
		return nil, ref, err
	}
	v, err := manifest.ReadVersion(ctx, store, ref)
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(ref.Object, "object", -1, "one that exists", "none")
	}
	return v, ref, err
}

// work is a step at work on a segment.
type work struct {
	ctx     context.Context
	store   blob.Store
	tempDir string
	version string
	ref     segment.Ref
	batches []segment.BatchRef
	large   []bool // of batches: their postings are staged
	// mended is the document at mendedKey.
	mended    mended
	mendedKey string
}

// open reads what a step needs of the segment n of a plan. It returns nil if the current version no
// longer has the segment: another took its place, which a later rebuild looks at.
func open(ctx context.Context, store blob.Store, p *plan, n int, tempDir string) (*work, error) {
	v, _, err := current(ctx, store)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(v.Segments, func(s manifest.Segment) bool { return s.ID == p.Segments[n] })
	if at < 0 {
		return nil, nil
	}
	w := &work{ctx: ctx, store: store, tempDir: tempDir, version: p.Version.ID, ref: lakecheck.SegmentRef(v.Segments[at])}
	all, err := storedIn(ctx, v, w.ref.ID)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		w.batches = append(w.batches, b.ref)
		w.large = append(w.large, b.bytes >= staged)
	}
	return w, nil
}

// Extract makes the postings objects of a task's batches from their parts, into staging. What
// cannot be made is left to Segment, which names it.
func Extract(ctx context.Context, store blob.Store, run string, number int, tempDir string) error {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return err
	}
	t := p.Tasks[number]
	w, err := open(ctx, store, p, t.Segment, tempDir)
	if err != nil || w == nil {
		return err
	}
	folder := below{store, stagedFolder(run)}
	view := newOverlay(w.store, folder, nil)
	for i := t.From; i < min(t.To, len(w.batches)); i++ {
		if !w.large[i] {
			continue
		}
		if _, err := repair.RestorePostings(ctx, view, w.batches[i], tempDir); err != nil && !final(ctx, err) {
			return fmt.Errorf("extract the postings of batch %s of dataset %d: %w", w.batches[i].Batch, w.batches[i].DatasetID, err)
		}
	}
	return nil
}

// final reports whether an error is about damage, so that repeating the step does not help.
func final(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange))
}

// Rebuilt is the result of Segment, and the sum of several.
type Rebuilt struct {
	// Equal is how many segments came out with the bytes that are published.
	Equal int `json:"equal"`
	// Superseded is how many the current version no longer had when their turn came.
	Superseded int `json:"superseded,omitempty"`
	// Again counts the rows that were indexed again, Domains the domains of all segments.
	Again   int64 `json:"rows_again"`
	Domains int64 `json:"domains"`
	// Files are the files of segments, RestoredPostings the postings objects, that were damaged or
	// missing, and were written again.
	Files            []string `json:"files,omitempty"`
	RestoredPostings []string `json:"restored_postings,omitempty"`
	// Replaced says which segments have others in their places, in version NewVersion.
	Replaced   []string `json:"replaced,omitempty"`
	NewVersion string   `json:"new_version,omitempty"`
	// Otherwise lists batches whose postings this build makes with other bytes, since another build
	// made them. Theirs were counted against the Parquet instead.
	Otherwise []string `json:"otherwise,omitempty"`
	// Unmended lists what is damaged and cannot be made again, with the command that mends it. Its
	// segment was not compared.
	Unmended []string `json:"unmended,omitempty"`
	// More is how many lines the lists lack.
	More int `json:"more,omitempty"`
}

// Add adds the result of another segment.
func (r *Rebuilt) Add(o Rebuilt) {
	r.Equal += o.Equal
	r.Superseded += o.Superseded
	r.Again += o.Again
	r.Domains += o.Domains
	r.More += o.More
	r.add(&r.Files, o.Files...)
	r.add(&r.RestoredPostings, o.RestoredPostings...)
	r.add(&r.Replaced, o.Replaced...)
	r.add(&r.Otherwise, o.Otherwise...)
	r.add(&r.Unmended, o.Unmended...)
	if o.NewVersion > r.NewVersion {
		r.NewVersion = o.NewVersion
	}
}

// add adds lines to a list.
func (r *Rebuilt) add(to *[]string, lines ...string) {
	for _, l := range lines {
		if len(*to) < maxLines {
			*to = append(*to, l)
		} else {
			r.More++
		}
	}
}

// Segment makes the segment n of the plan again and compares it.
func Segment(ctx context.Context, store blob.Store, run string, n int, tempDir string) (Rebuilt, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return Rebuilt{}, err
	}
	w, err := open(ctx, store, p, n, tempDir)
	if err != nil {
		return Rebuilt{}, err
	}
	if w == nil {
		return Rebuilt{Superseded: 1}, nil
	}
	var out Rebuilt
	w.mendedKey = mendedKey(run, n)
	if _, err := lake.LoadKeyed(ctx, store, w.mendedKey, planFormat, &w.mended); err != nil {
		return out, err
	}
	if err := w.segment(&out, run); err != nil {
		return out, fmt.Errorf("rebuild segment %s: %w", w.ref.ID, err)
	}
	for _, key := range w.mended.Keys {
		if isPostings(key) {
			out.add(&out.RestoredPostings, key)
		} else {
			out.add(&out.Files, key)
		}
	}
	return out, nil
}

// mended is the document of what a segment's step writes again. It is written first, so that the
// step says what it found damaged also if it is repeated.
type mended struct {
	lake.KeyedHeader
	Keys []string `json:"keys"`
}

func mendedKey(run string, n int) string {
	return fmt.Sprintf("%smended/%06d.json", lake.StagingPrefix(run), n)
}

// mend writes an object of the lake again if it is damaged.
func (w *work) mend(view *overlay, o lake.Object) error {
	if intact, err := repair.Intact(w.ctx, w.store, o); intact || err != nil {
		return err
	}
	if !slices.Contains(w.mended.Keys, o.Key) {
		w.mended.Keys = append(w.mended.Keys, o.Key)
		if _, err := lake.SaveKeyed(w.ctx, w.store, w.mendedKey, planFormat, &w.mended, blob.Condition{}); err != nil {
			return err
		}
	}
	_, err := repair.ReplaceDamaged(w.ctx, w.store, view, o)
	return err
}

func (w *work) segment(out *Rebuilt, run string) error {
	dir, err := os.MkdirTemp(w.tempDir, "rebuild-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	local, err := blob.NewLocal(dir)
	if err != nil {
		return err
	}
	view := newOverlay(w.store, local, below{w.store, stagedFolder(run)})
	recount := false
	for _, ref := range w.batches {
		otherwise, err := w.batch(out, view, ref)
		if err != nil {
			return err
		}
		recount = recount || otherwise
	}
	if len(out.Unmended) > 0 {
		return nil
	}
	if err := w.compare(out, view, recount); err != nil {
		return err
	}
	out.Again, out.Domains = w.ref.Rows, w.ref.Domains
	return nil
}

// batch makes the postings of a batch, and writes those again that the lake has lost. Otherwise
// tells that this build makes other bytes, so that the lake's postings are taken.
func (w *work) batch(out *Rebuilt, view *overlay, ref segment.BatchRef) (otherwise bool, err error) {
	data, _, err := w.store.Get(w.ctx, ref.Key())
	if err != nil {
		return false, w.unmended(out, ref, err)
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return false, w.unmended(out, ref, err)
	}
	_, err = repair.RestorePostings(w.ctx, view, ref, w.tempDir)
	var corrupt *codec.CorruptError
	if errors.As(err, &corrupt) && isPostings(corrupt.File) {
		// The parts are what they were, and what is made of them is not.
		for _, o := range record.Postings {
			view.let(o.Key)
		}
		if _, err := indexbuild.CheckBatch(w.ctx, w.store, ref, true); err != nil {
			return false, w.unmended(out, ref, err)
		}
		out.add(&out.Otherwise, fmt.Sprintf("batch %s of dataset %d", ref.Batch, ref.DatasetID))
		return true, nil
	}
	if err != nil {
		return false, w.unmended(out, ref, err)
	}
	for _, o := range record.Postings {
		if err := w.mend(view, o.Object); err != nil {
			return false, err
		}
	}
	return false, nil
}

// unmended lists an error about damage, and returns any other.
func (w *work) unmended(out *Rebuilt, ref segment.BatchRef, err error) error {
	if err == nil || !final(w.ctx, err) && !errors.As(err, new(*postings.DamageError)) {
		return err
	}
	out.add(&out.Unmended, lakecheck.Reason(w.ctx, w.store, ref, err))
	return nil
}

// compare builds the segment, and compares it with the published one.
func (w *work) compare(out *Rebuilt, view *overlay, recount bool) error {
	batches := slices.Clone(w.batches)
	if err := segment.SortBatches(batches); err != nil {
		return err
	}
	_, damage := verify.Segment(w.ctx, w.store, w.ref, recount, w.tempDir)
	if damage != nil && !errors.Is(damage, codec.ErrCorrupt) {
		return damage
	}
	builder, ok, err := segment.FindBuilder(w.ctx, w.store, w.ref.ID, batches)
	if err != nil {
		return err
	}
	if !ok {
		return w.replace(out, view, batches)
	}
	view.segment = segment.Prefix(w.ref.ID)
	got, err := indexbuild.BuildSegment(w.ctx, view, batches, indexbuild.Options{TempDir: w.tempDir, Builder: builder})
	if err != nil {
		return err
	}
	if got != w.ref {
		return w.replace(out, view, batches)
	}
	out.Equal = 1
	if damage == nil {
		return nil
	}
	info, err := segment.ReadInfo(w.ctx, view, got)
	if err != nil {
		return err
	}
	objects := make([]lake.Object, 0, len(info.Files)+1)
	for _, f := range info.Files {
		objects = append(objects, lake.Object{Key: view.segment + f.Name, Bytes: f.Bytes, XXH64: f.XXH64})
	}
	// As in any build, segment.json is written last.
	objects = append(objects, lake.Object{Key: view.segment + segment.InfoName, Bytes: got.Bytes - info.Bytes(), XXH64: got.XXH64})
	for _, o := range objects {
		if err := w.mend(view, o); err != nil {
			return err
		}
	}
	_, err = verify.Segment(w.ctx, w.store, got, recount, w.tempDir)
	return err
}

// replace builds the segment as this build of urlake does, counts it against the Parquet, and
// commits a version that has it in the place of the published one.
func (w *work) replace(out *Rebuilt, view *overlay, batches []segment.BatchRef) error {
	view.segment = ""
	if id := segment.ID(batches, ""); id == w.ref.ID {
		err := codec.Corrupt(segment.Prefix(id)+segment.InfoName, "file", -1, "the bytes that the Parquet gives", "others of the same name")
		out.add(&out.Unmended, remedy.Explain(w.store.URL(), err))
		return nil
	}
	ref, err := indexbuild.BuildSegment(w.ctx, view, batches, indexbuild.Options{TempDir: w.tempDir})
	if err != nil {
		return err
	}
	if _, err := verify.Segment(w.ctx, w.store, ref, true, w.tempDir); err != nil {
		return err
	}
	version, err := publish.ReplaceSegment(w.ctx, w.store, w.version, w.ref.ID, ref)
	if err != nil {
		return err
	}
	if version == "" {
		out.Superseded = 1
		return nil
	}
	line := fmt.Sprintf("segment %s: %s takes its place in version %s", w.ref.ID, ref.ID, version)
	if ref.Rows != w.ref.Rows || ref.Domains != w.ref.Domains {
		line += fmt.Sprintf("; it had %d rows of %d domains, the Parquet has %d of %d", w.ref.Rows, w.ref.Domains, ref.Rows, ref.Domains)
	}
	out.add(&out.Replaced, line)
	out.NewVersion = version
	w.ref = ref
	return nil
}
