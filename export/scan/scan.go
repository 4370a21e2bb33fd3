// Package scan reads the rows of a version of a lake, or of a slice of it, part by part: what an
// export reads. It yields exactly the rows that the read server lists, without those of retired and
// replaced batches and those that takedowns hide.
//
// A Slice is pinned to one version and one state of the takedowns. Its tasks are in one order,
// independent of each other, and always the same for the same state, so exports can divide and
// repeat them.
package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
)

const (
	// batchRows is how many rows are decoded at once.
	batchRows = 32 << 10
	// atOnce is how many small objects are read at a time while a slice is opened.
	atOnce = 16
	// cacheBytes is what is kept of the frames of all segments.
	cacheBytes = 32 << 20
)

// ErrUnknownDataset tells that a version lacks a dataset, ErrUnknownBatch that it lacks a batch.
var (
	ErrUnknownDataset = errors.New("it has no dataset")
	ErrUnknownBatch   = errors.New("it has no batch")
)

// Options say what a slice has.
type Options struct {
	// Version is the id or a tag of a version, "" for the current one.
	Version string
	// Datasets are ids or names, none for all.
	Datasets []string
	// Batches are names of batches of these datasets, none for all. Datasets in the slice still
	// count the rows of all their batches.
	Batches []string
	// Hosts are hosts in canonical form, whose registrable domains are read; none for all. The
	// public suffix list of the version decides which these are.
	Hosts []string
	// Pinned tells that Takedowns, nil for none, hide rows, and not those that are in force.
	Pinned    bool
	Takedowns *catalog.TakedownRef
	// CountOnly leaves out the tasks.
	CountOnly bool
}

// Slice is the rows of a version that Options select.
type Slice struct {
	// Version is the id of the version, Epoch counts the changes of the takedowns, and Takedowns
	// are those that hide rows, nil for none.
	Version   string
	Epoch     uint64
	Takedowns *catalog.TakedownRef
	// Datasets are those of the slice, by id, with the rows that they have in it. These are from
	// the totals of the index, which know nothing of what Read does.
	Datasets []catalog.Dataset
	// Domains are those that Options.Hosts belong to, ascending.
	Domains []string
	// Tasks are the parts to read.
	Tasks []Task

	store   blob.Store
	cache   *segment.FrameCache
	version *catalog.Version
	doc     *catalog.TakedownDocument
	rules   *catalog.Takedowns
	domains map[string]bool
	ids     map[uint32]bool
	batches []string // nil for all
}

// Task is a part of the lake.
type Task struct {
	Dataset uint32
	// Key is the object.
	Key string
	// Rows are all rows of the part, or of the domains of the slice; Read yields some of them.
	Rows int64

	batch  string // "" for a union, whose rows name theirs
	ref    segment.BatchRef
	object lake.FrameObject
	number int             // of the part in the object
	live   map[string]bool // batches of a union whose rows count
	runs   []Run           // the rows to look at, nil for all
}

// Open plans to read a slice. A version, dataset or tag that is not there is an error.
func Open(ctx context.Context, store blob.Store, opt Options) (*Slice, error) {
	for {
		m, _, err := catalog.ReadManifest(ctx, store)
		if err != nil {
			return nil, err
		}
		s, err := open(ctx, store, m, opt)
		if err == nil {
			return s, nil
		}
		// What a later manifest refers to no longer may be collected meanwhile.
		if now, _, readErr := catalog.ReadManifestUnchecked(ctx, store); readErr != nil || now.Generation == m.Generation {
			return nil, err
		}
	}
}

func open(ctx context.Context, store blob.Store, m *catalog.Manifest, opt Options) (*Slice, error) {
	ref, err := m.Version(opt.Version)
	if err != nil {
		return nil, err
	}
	s := &Slice{Version: ref.ID, Epoch: m.TakedownEpoch, store: store, cache: segment.NewFrameCache(cacheBytes), ids: map[uint32]bool{},
		batches: opt.Batches}
	if s.version, err = catalog.ReadVersion(ctx, store, ref); err != nil {
		return nil, err
	}
	if s.Takedowns = m.Takedowns; opt.Pinned {
		s.Takedowns = opt.Takedowns
	}
	if s.doc, err = catalog.ReadTakedowns(ctx, store, s.Takedowns); err != nil {
		return nil, err
	}
	if s.rules, err = s.doc.Rules(ctx, store); err != nil {
		return nil, err
	}
	if len(opt.Hosts) > 0 {
		list, err := lake.LoadSuffixList(ctx, store, s.version.PublicSuffix)
		if err != nil {
			return nil, err
		}
		s.domains = map[string]bool{}
		for _, host := range opt.Hosts {
			s.domains[list.Domain(host)] = true
		}
		s.Domains = slices.Sorted(maps.Keys(s.domains))
	}
	if err := s.pick(ctx, opt.Datasets); err != nil {
		return nil, err
	}
	if err := s.count(ctx); err != nil {
		return nil, fmt.Errorf("version %s: %w", s.Version, err)
	}
	if opt.CountOnly {
		return s, nil
	}
	if err := s.plan(ctx); err != nil {
		return nil, fmt.Errorf("version %s: %w", s.Version, err)
	}
	return s, nil
}

// Manifest is the version, Rules are the takedowns that hide rows.
func (s *Slice) Manifest() *catalog.Version { return s.version }
func (s *Slice) Rules() *catalog.Takedowns  { return s.rules }

// Having returns the datasets of the version that have rows of some domains, hidden ones or not.
func (s *Slice) Having(ctx context.Context, domains []string) (map[uint32]int64, error) {
	return Count(ctx, s.store, s.version, s.doc, domains, nil, s.cache)
}

// pick finds the datasets of the slice. Rows are those of the whole version at first.
func (s *Slice) pick(ctx context.Context, wanted []string) error {
	found := make([]bool, len(wanted))
	for d, err := range s.version.Datasets(ctx, 0) {
		if err != nil {
			return err
		}
		take := len(wanted) == 0
		for i, w := range wanted {
			if id, ok := lake.DatasetID(w); ok && id == d.ID || !ok && w == d.Name {
				take, found[i] = true, true
			}
		}
		if take {
			s.Datasets = append(s.Datasets, d)
			s.ids[d.ID] = true
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		return fmt.Errorf("version %s: %w %q", s.Version, ErrUnknownDataset, wanted[i])
	}
	return nil
}

// count sets how many rows the slice has of each dataset, by the index.
func (s *Slice) count(ctx context.Context) error {
	all := map[uint32]int64{}
	for _, d := range s.Datasets {
		all[d.ID] = d.Rows
	}
	shown, err := Count(ctx, s.store, s.version, s.doc, s.Domains, all, s.cache)
	for i := range s.Datasets {
		s.Datasets[i].Rows = shown[s.Datasets[i].ID]
	}
	return err
}

// stored is a batch, or a union of batches, whose parts have rows of the slice.
type stored struct {
	ref   segment.BatchRef
	live  map[string]bool // of a union, else nil
	runs  map[string][]Run
	tasks []Task
}

// plan finds the parts.
func (s *Slice) plan(ctx context.Context) error {
	var all []*stored
	byRef := map[segment.BatchRef]*stored{}
	found := map[string]bool{}
	for i := range s.version.Segments {
		at := &s.version.Segments[i]
		var here []*stored
		for b, err := range s.version.BatchesIn(ctx, at.ID) {
			if err != nil {
				return err
			}
			if !s.ids[b.DatasetID] || len(s.batches) > 0 && !slices.Contains(s.batches, b.Batch) {
				continue
			}
			found[b.Batch] = true
			name, digest := b.Stored()
			ref := segment.BatchRef{DatasetID: b.DatasetID, Batch: name, Digest: digest}
			st := byRef[ref]
			if st == nil {
				st = &stored{ref: ref}
				byRef[ref] = st
				here = append(here, st)
			}
			if b.Union != "" {
				if st.live == nil {
					st.live = map[string]bool{}
				}
				st.live[b.Batch] = true
			}
		}
		if s.domains != nil && len(here) > 0 {
			if err := s.findRuns(ctx, at, here); err != nil {
				return fmt.Errorf("segment %s: %w", at.ID, err)
			}
			here = slices.DeleteFunc(here, func(st *stored) bool { return len(st.runs) == 0 })
		}
		all = append(all, here...)
	}
	for _, name := range s.batches {
		if !found[name] {
			return fmt.Errorf("%w %q", ErrUnknownBatch, name)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, st := range all {
		group.Go(func() (err error) {
			st.tasks, err = s.tasksOf(ctx, st)
			return postings.Damaged(st.ref, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, st := range all {
		s.Tasks = append(s.Tasks, st.tasks...)
	}
	return nil
}

// findRuns finds the rows of the slice's domains in the parts of a segment.
func (s *Slice) findRuns(ctx context.Context, at *catalog.Segment, here []*stored) error {
	type name struct {
		dataset uint32
		batch   string
	}
	byName := map[name]*stored{}
	for _, st := range here {
		byName[name{st.ref.DatasetID, st.ref.Batch}] = st
		st.runs = map[string][]Run{}
	}
	seg, err := OpenSegment(ctx, s.store, at, s.cache)
	if err != nil {
		return err
	}
	defer seg.Close()
	for _, domain := range s.Domains {
		entries, err := seg.Entries(ctx, segment.KeyOf(domain), 0, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !s.ids[e.Dataset] {
				continue
			}
			tuples, err := seg.Tuples(ctx, e)
			if err != nil {
				return err
			}
			for _, t := range tuples {
				f, err := seg.File(ctx, t.FileID)
				if err != nil {
					return err
				}
				if st := byName[name{f.DatasetID, f.Batch}]; st != nil {
					st.runs[f.Path] = append(st.runs[f.Path], Run{t.RowGroup, t.FirstRow, t.Rows})
				}
			}
		}
	}
	return nil
}

// tasksOf returns the parts of what is stored that have rows of the slice.
func (s *Slice) tasksOf(ctx context.Context, st *stored) ([]Task, error) {
	data, _, err := s.store.Get(ctx, st.ref.Key())
	if err != nil {
		return nil, err
	}
	record, err := lake.DecodeBatch(data, st.ref.Key())
	if err != nil {
		return nil, err
	}
	var tasks []Task
	for _, o := range record.Postings {
		r, err := postings.Open(ctx, s.store, st.ref, o)
		if err != nil {
			return nil, err
		}
		for n, p := range r.Parts() {
			t := Task{Dataset: st.ref.DatasetID, Key: p.Key, Rows: p.Rows, ref: st.ref, object: o, number: n, live: st.live}
			if st.live == nil {
				t.batch = st.ref.Batch
			}
			if s.domains != nil {
				if t.runs = st.runs[p.Key]; len(t.runs) == 0 {
					continue
				}
				slices.SortFunc(t.runs, func(a, b Run) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.First, b.First)) })
				t.Rows = 0
				for _, r := range t.runs {
					t.Rows += r.Rows
				}
			}
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

// Read yields some columns of the rows of a task, in the order of the part. It reads the columns by
// which rows are chosen as well. Rows are valid until the next ones. An error is the last thing
// that it yields.
func (s *Slice) Read(ctx context.Context, task int, columns ...part.Column) iter.Seq2[Rows, error] {
	return func(yield func(Rows, error) bool) {
		t := &s.Tasks[task]
		fail := func(err error) { yield(Rows{}, fmt.Errorf("export part %s: %w", t.Key, err)) }
		object, err := postings.Open(ctx, s.store, t.ref, t.object)
		if err != nil {
			fail(err)
			return
		}
		blocks, err := object.Pages(ctx, t.number)
		if err != nil {
			fail(postings.Damaged(t.ref, err))
			return
		}
		p := Part{Dataset: t.Dataset, Key: t.Key, Batch: t.batch, Rules: s.rules, Live: func(batch string) bool { return t.live[batch] }}
		for r, err := range p.Read(ctx, s.store, blocks, t.runs, columns...) {
			if err != nil {
				fail(postings.Damaged(t.ref, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
