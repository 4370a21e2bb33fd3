package many

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/seekable"
)

const (
	// maxObjects is the most objects that one run reads.
	maxObjects = 1 << 22

	// groupWeight is the size of a group: about a second of work, so that a group ends soon on
	// every core, and ordering it costs little beside that.
	groupWeight = 32 << 20
	// listWeight is the least that a list counts towards a group, and objectWeight the least for
	// each of its objects.
	listWeight   = 128 << 10
	objectWeight = 16 << 10

	// wholeShare is the share of all bytes, as a divisor, up to which a list that is not compressed
	// may be done whole although it is larger than a split: the other lists occupy the other
	// workers meanwhile.
	wholeShare = 4

	// reads is the most objects of staging that are read concurrently.
	reads = 32
)

// plan is many.json.
type plan struct {
	lake.KeyedHeader
	Summary
	Spec  Spec       `json:"spec"`
	Rules lake.Rules `json:"rules"`
	// Lists is the frame file with the lists: first those of each group, then each large list.
	Lists lake.FrameObject `json:"lists,omitzero"`
}

// Summary is what a scheduler needs of a plan.
type Summary struct {
	// Datasets is the number of datasets in the inputs. Unchanged of them are left out.
	Datasets  int `json:"datasets"`
	Unchanged int `json:"unchanged"`
	// Objects and Bytes are those of the lists to ingest.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Groups is the number of groups, Large the number of lists that are too large for one. The
	// groups are numbered from 0, the large lists from Groups, and the largest are the first.
	Groups int `json:"groups"`
	Large  int `json:"large"`
	// Notes tell the user which of the inputs are not read.
	Notes []string `json:"notes,omitempty"`
	// Searchable tells a workflow that it may set search attributes. Window is how many groups it
	// has in progress at once, and LargeAtOnce how many large lists. Plan leaves them to the
	// caller.
	Searchable  bool `json:"searchable,omitempty"`
	Window      int  `json:"window,omitempty"`
	LargeAtOnce int  `json:"large_at_once,omitempty"`
	// Batch is the batch of every dataset, if a date names it.
	Batch string `json:"batch,omitempty"`
	// Start is Spec.Start, or when the plan was made.
	Start int64 `json:"start,omitempty"`
}

// Plan lists the inputs, names the datasets, registers those that have changed, and stores the plan
// of the run. If the run has a plan already, Plan keeps it.
func Plan(ctx context.Context, store blob.Store, run string, spec Spec) (Summary, error) {
	if err := spec.Check(); err != nil {
		return Summary{}, err
	}
	var p plan
	ok, err := load(ctx, store, planKey(run), &p)
	if err != nil {
		return Summary{}, err
	}
	if ok {
		return p.Summary, catalog.AwaitSweep(ctx, store)
	}
	lists, err := p.list(ctx, spec)
	if err != nil {
		return Summary{}, err
	}
	if lists, err = p.changed(ctx, store, lists); err != nil {
		return Summary{}, err
	}
	if len(lists) > 0 {
		if err := p.registerDatasets(ctx, store, lists); err != nil {
			return Summary{}, err
		}
		if p.Lists, err = p.group(ctx, store, run, lists); err != nil {
			return Summary{}, err
		}
	}
	p.Start = cmp.Or(spec.Start, time.Now().UnixNano())
	err = save(ctx, store, planKey(run), &p, "")
	if err != nil {
		// The stored plan counts, also if the put failed because its reply was lost.
		var have plan
		if ok, readErr := load(ctx, store, planKey(run), &have); readErr != nil || !ok {
			return Summary{}, err
		}
		p = have
	}
	// From now on a garbage collection leaves the objects of the batches alone. One that has not
	// seen the plan has to end before they are written.
	return p.Summary, catalog.AwaitSweep(ctx, store)
}

// list makes the lists of all datasets in the inputs.
func (p *plan) list(ctx context.Context, spec Spec) ([]list, error) {
	dated, err := spec.OnDate()
	if err != nil {
		return nil, err
	}
	batch := ""
	if spec.Date != "" {
		batch = dated.Batch
	}
	spec.Spec = dated
	listed, notes, err := ingest.ListInputs(ctx, &spec.Spec, maxObjects)
	if err != nil {
		return nil, err
	}
	lists, loose := named(listed, spec.DatasetsFrom)
	if len(lists) == 0 {
		return nil, inputError("the inputs hold files but no folders (%s); each folder directly below an input is a dataset",
			firstOf(loose))
	}
	if len(loose) > 0 {
		notes = append(notes, "not read because they are in no folder below an input: "+firstOf(loose))
	}
	options := optionsOf(spec.Spec)
	for i := range lists {
		lists[i].Fingerprint = fingerprint(options, lists[i].Objects)
	}
	p.Spec = spec
	p.Summary = Summary{Datasets: len(lists), Notes: notes, Batch: batch}
	return lists, nil
}

// Dataset is a dataset that an ingest would make of some of its inputs.
type Dataset struct {
	// Name is the dataset's name, From the file or folder that is the dataset.
	Name, From string
	// Refused says why there is nothing to read, "" if there is.
	Refused string
	Objects []ingest.Object
}

// Datasets lists the datasets that the inputs of a spec hold, by name. It writes nothing. Notes
// tell which of the inputs are not read.
func Datasets(ctx context.Context, spec Spec) (all []Dataset, notes []string, err error) {
	var p plan
	lists, err := p.list(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lists {
		all = append(all, Dataset{Name: l.Dataset, From: l.From, Refused: l.Refused, Objects: l.Objects})
	}
	slices.SortFunc(all, func(a, b Dataset) int { return cmp.Compare(a.Name, b.Name) })
	return all, p.Notes, nil
}

// firstOf names the first of some objects.
func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// optionsOf returns the options of a Spec that decide what becomes of its objects.
func optionsOf(s ingest.Spec) []byte {
	s.Lake, s.Dataset, s.Batch, s.Inputs, s.Deadline, s.Include, s.Exclude = "", "", "", nil, "", nil, nil
	s.Manifests, s.Replace = nil, false
	s.MaxRejectRate, s.Title, s.Source, s.Licence = 0, "", "", ""
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

// fingerprint identifies objects and the options with which they are read.
func fingerprint(options []byte, objects []ingest.Object) string {
	b := slices.Clone(options)
	for _, o := range objects {
		b = fmt.Appendf(b, "\n%s\t%d\t%s", o.Name, o.Bytes, o.ETag)
	}
	return lake.Digest(b)
}

// changed returns the lists that have changed since they were taken up.
func (p *plan) changed(ctx context.Context, store blob.Store, lists []list) ([]list, error) {
	var names []string
	for i := range lists {
		if lists[i].Refused == "" {
			names = append(names, lists[i].Dataset)
		}
	}
	known, err := catalog.DatasetsNamed(ctx, store, names...)
	if err != nil {
		return nil, err
	}
	batch := p.Spec.batch()
	var ids []catalog.BatchName
	for i := range lists {
		if lists[i].Refused != "" {
			continue
		}
		if lists[i].DatasetID = known[lists[i].Dataset].ID; lists[i].DatasetID != 0 {
			ids = append(ids, catalog.BatchName{DatasetID: lists[i].DatasetID, Batch: batch})
		}
	}
	before, err := readTaken(ctx, store, ids)
	if err != nil {
		return nil, err
	}
	state, err := catalog.LookBatches(ctx, store)
	var now map[catalog.BatchName]catalog.PendingBatch
	if err == nil {
		now, err = state.Find(ctx, ids...)
	}
	var crowded map[uint32]bool
	if err == nil {
		crowded, err = p.crowded(ctx, state, ids)
	}
	if err != nil && !lake.IsDamage(err) { // of a damaged lake everything is taken up
		return nil, err
	}
	unchanged := map[string]bool{}
	for i := range lists {
		l := &lists[i]
		if l.DatasetID == 0 {
			continue
		}
		id := catalog.BatchName{DatasetID: l.DatasetID, Batch: batch}
		was, current := before[id], now[id]
		if current.Retired {
			current = catalog.PendingBatch{}
		}
		l.Current = current.Digest
		if was.Fingerprint == l.Fingerprint && current.Start == was.Start && !p.Spec.Again && !crowded[l.DatasetID] {
			unchanged[l.Dataset] = true
		}
	}
	p.Unchanged = len(unchanged)
	lists = slices.DeleteFunc(lists, func(l list) bool { return unchanged[l.Dataset] })
	for i := range lists {
		p.Objects += len(lists[i].Objects)
		p.Bytes += lists[i].bytes()
	}
	return lists, nil
}

// crowded returns the datasets that have another batch than that of the ingest, which ids names, if
// that is to be their only one.
func (p *plan) crowded(ctx context.Context, s *catalog.BatchState, ids []catalog.BatchName) (map[uint32]bool, error) {
	crowded := map[uint32]bool{}
	if !p.Spec.Replace {
		return crowded, nil
	}
	datasets := make([]uint32, len(ids))
	for i, id := range ids {
		datasets[i] = id.DatasetID
	}
	published, err := s.Version.FindDatasets(ctx, datasets)
	if err != nil {
		return nil, err
	}
	all, err := s.Find(ctx, append(s.Names(0), ids...)...)
	if err != nil {
		return nil, err
	}
	batches := map[uint32]int{} // others
	for id, d := range published {
		batches[id] = d.Batches
	}
	for id, b := range all {
		if b.Live != nil && (id.Batch == p.Spec.batch() || b.Retired) {
			batches[id.DatasetID]--
		}
		if b.Live == nil && !b.Retired && id.Batch != p.Spec.batch() {
			batches[id.DatasetID]++
		}
	}
	for id, n := range batches {
		if start, _ := s.Replaced(id); start > 0 { // which retires some of those that the version has
			all, err := s.Batches(ctx, id)
			if err != nil {
				return nil, err
			}
			n = 0
			for _, b := range all {
				if !b.Retired && b.Batch != p.Spec.batch() {
					n++
				}
			}
		}
		crowded[id] = n > 0
	}
	return crowded, nil
}

// registerDatasets registers the datasets of all lists.
func (p *plan) registerDatasets(ctx context.Context, store blob.Store, lists []list) error {
	datasets := make([]lake.Dataset, 0, len(lists))
	var at []int
	for i := range lists {
		if lists[i].Refused == "" {
			datasets = append(datasets, lake.Dataset{Name: lists[i].Dataset, Title: p.Spec.Title, Source: p.Spec.Source, Licence: p.Spec.Licence})
			at = append(at, i)
		}
	}
	registered, err := catalog.RegisterDatasets(ctx, store, datasets)
	if err != nil {
		return err
	}
	for n, i := range at {
		lists[i].DatasetID = registered[n].ID
	}
	p.Rules, _, err = catalog.LoadRules(ctx, store)
	return err
}

// group divides the lists into groups and large lists, the largest first, and stores them.
func (p *plan) group(ctx context.Context, store blob.Store, run string, lists []list) (lake.FrameObject, error) {
	slices.SortFunc(lists, func(a, b list) int {
		return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), cmp.Compare(a.Dataset, b.Dataset))
	})
	var groups, large [][]list
	var weight, all int64
	for i := range lists {
		all += lists[i].bytes()
	}
	for _, l := range lists {
		if !ingest.FitsWhole(l.Objects, !l.compressed() && l.bytes() <= all/wholeShare) {
			large = append(large, []list{l})
			continue
		}
		if len(groups) == 0 || weight+l.weight() > groupWeight {
			groups = append(groups, nil)
			weight = 0
		}
		last := &groups[len(groups)-1]
		*last = append(*last, l)
		weight += l.weight()
	}
	p.Groups, p.Large = len(groups), len(large)
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	for _, g := range append(groups, large...) {
		data, err := json.Marshal(g)
		if err != nil {
			return lake.FrameObject{}, fmt.Errorf("plan: %w", err)
		}
		if _, _, err := w.Frame(nil, data); err != nil {
			return lake.FrameObject{}, fmt.Errorf("plan: %w", err)
		}
	}
	ff, err := w.Finish()
	if err != nil {
		return lake.FrameObject{}, fmt.Errorf("plan: %w", err)
	}
	key := listsKey(run, lake.Digest(buf.Bytes()))
	if _, err := store.Put(ctx, key, buf.Bytes(), blob.Condition{}); err != nil {
		return lake.FrameObject{}, err
	}
	return lake.NewFrameObject(key, ff), nil
}

// Run is a run whose plan is made. It is not safe for concurrent use.
type Run struct {
	run    string
	store  blob.Store
	plan   *plan
	frames *seekable.Frames // nil until the first frame is read
}

// Open opens a run.
func Open(ctx context.Context, store blob.Store, run string) (*Run, error) {
	var p plan
	ok, err := load(ctx, store, planKey(run), &p)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w; the run was cleaned up", planKey(run), blob.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return &Run{run: run, store: store, plan: &p}, nil
}

// lists reads the lists of a group, or a large list.
func (r *Run) lists(ctx context.Context, number int) ([]list, error) {
	p := r.plan
	if number < 0 || number >= p.Groups+p.Large {
		return nil, inputError("group %d of %d", number, p.Groups+p.Large)
	}
	read := func(ctx context.Context, off, n int64) ([]byte, error) {
		return r.store.ReadRange(ctx, p.Lists.Key, off, n)
	}
	if r.frames == nil {
		ff, err := p.Lists.FrameFile()
		if err != nil {
			return nil, err
		}
		frames, err := seekable.OpenAt(ctx, read, ff, p.Lists.Key, 0)
		if err != nil {
			return nil, err
		}
		if frames.Len() != p.Groups+p.Large {
			return nil, codec.Corrupt(p.Lists.Key, "frames", -1, p.Groups+p.Large, frames.Len())
		}
		r.frames = frames
	}
	data, err := r.frames.Read(ctx, read, number, number+1)
	if err != nil {
		return nil, err
	}
	var out []list
	if err := json.Unmarshal(data[0], &out); err != nil || len(out) == 0 {
		return nil, codec.Corrupt(p.Lists.Key, fmt.Sprintf("frame %d", number), -1, "a list of datasets", err)
	}
	return out, nil
}

// writing returns the batches that a run writes, also those that it has finished. There are none if
// its plan is gone, or damaged, so that nobody goes on with it.
func writing(ctx context.Context, store blob.Store, run string) (all []catalog.BatchName, err error) {
	r, err := Open(ctx, store, run)
	if err == nil {
		err = r.each(ctx, func(l *list) {
			all = append(all, catalog.BatchName{DatasetID: l.DatasetID, Batch: r.plan.Spec.batch()})
		})
	}
	if lake.IsDamage(err) {
		return nil, nil
	}
	return all, err
}

// each calls do with each list that is not refused.
func (r *Run) each(ctx context.Context, do func(*list)) error {
	for number := range r.plan.Groups + r.plan.Large {
		lists, err := r.lists(ctx, number)
		if err != nil {
			return err
		}
		for i := range lists {
			if lists[i].Refused == "" {
				do(&lists[i])
			}
		}
	}
	return nil
}

// outcome returns what is known of the outcome of a list before it is ingested.
func (r *Run) outcome(l *list) Outcome {
	return Outcome{Dataset: l.Dataset, From: l.From, DatasetID: l.DatasetID, Batch: r.plan.Spec.batch(),
		Objects: len(l.Objects), Bytes: l.bytes(), Fingerprint: l.Fingerprint}
}
