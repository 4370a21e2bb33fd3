package many

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/registry"
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

	// reads is the most objects of the registry that are read concurrently.
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
		return p.Summary, p.registerIngests(ctx, store, run)
	}
	lists, err := p.list(ctx, spec)
	if err != nil {
		return Summary{}, err
	}
	if lists, err = p.changed(ctx, store, lists); err != nil {
		return Summary{}, err
	}
	if len(lists) > registry.MaxRunning {
		return Summary{}, inputError("%d datasets have changed, and one ingest takes up at most %d; name fewer inputs at a time",
			len(lists), registry.MaxRunning)
	}
	if len(lists) > 0 {
		if err := p.registerDatasets(ctx, store, lists); err != nil {
			return Summary{}, err
		}
		if p.Lists, err = p.group(ctx, store, run, lists); err != nil {
			return Summary{}, err
		}
	}
	err = save(ctx, store, planKey(run), &p, "")
	if err != nil {
		// The stored plan counts, also if the put failed because its reply was lost.
		var have plan
		if ok, readErr := load(ctx, store, planKey(run), &have); readErr != nil || !ok {
			return Summary{}, err
		}
		p = have
	}
	return p.Summary, p.registerIngests(ctx, store, run)
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
	known, err := registry.DatasetsNamed(ctx, store, names...)
	if err != nil {
		return nil, err
	}
	batch := p.Spec.batch()
	var ids []registry.BatchID
	for i := range lists {
		if lists[i].Refused != "" {
			continue
		}
		if lists[i].DatasetID = known[lists[i].Dataset].ID; lists[i].DatasetID != 0 {
			ids = append(ids, registry.BatchID{DatasetID: lists[i].DatasetID, Batch: batch})
		}
	}
	before, err := readTaken(ctx, store, ids)
	if err != nil {
		return nil, err
	}
	ingests, err := registry.IngestsOf(ctx, store, ids)
	if err != nil {
		return nil, err
	}
	crowded, err := p.crowded(ctx, store)
	if err != nil {
		return nil, err
	}
	unchanged := map[string]bool{}
	for i := range lists {
		l := &lists[i]
		if l.DatasetID == 0 {
			continue
		}
		id := registry.BatchID{DatasetID: l.DatasetID, Batch: batch}
		current := currentOf(ingests[id])
		l.Current = current.Digest
		was := before[id]
		if was.Fingerprint == l.Fingerprint && current.Is(was.Digest) && !p.Spec.Again && !crowded[l.DatasetID] {
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

// crowded returns the datasets that have another batch than that of the ingest, if that is to be
// their only one.
func (p *plan) crowded(ctx context.Context, store blob.Store) (map[uint32]bool, error) {
	if !p.Spec.Replace {
		return nil, nil
	}
	all, err := registry.AllBatches(ctx, store, func(int, error) {})
	datasets := map[uint32]bool{}
	for _, b := range all {
		if !b.Retired && b.Batch != p.Spec.batch() {
			datasets[b.DatasetID] = true
		}
	}
	return datasets, err
}

// currentOf returns the current entry of a batch: the last ingest that has finished, or, without a
// record, what retired the batch after that.
func currentOf(ingests []registry.Ingest) (current registry.Ingest) {
	for _, i := range ingests {
		if i.Finished() {
			current = i
		}
	}
	return current
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
	registered, err := registry.RegisterDatasets(ctx, store, datasets)
	if err != nil {
		return err
	}
	for n, i := range at {
		lists[i].DatasetID = registered[n].ID
	}
	p.Rules, _, err = registry.LoadRules(ctx, store)
	return err
}

// registerIngests registers the ingests of all lists that groups do. The plan is stored before, so
// that Abandon finds them. Large lists are registered when they are planned.
func (p *plan) registerIngests(ctx context.Context, store blob.Store, run string) error {
	small, err := (&Run{run: run, store: store, plan: p}).ingests(ctx)
	if err != nil {
		return err
	}
	for _, r := range registry.RegisterIngests(ctx, store, small) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
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

// ingests returns the ingests of the lists of all groups.
func (r *Run) ingests(ctx context.Context) (all []registry.IngestID, err error) {
	for group := range r.plan.Groups {
		lists, err := r.lists(ctx, group)
		if err != nil {
			return nil, err
		}
		for i := range lists {
			if lists[i].Refused == "" {
				all = append(all, registry.IngestID{DatasetID: lists[i].DatasetID, Batch: r.plan.Spec.batch(), Run: r.run})
			}
		}
	}
	return all, nil
}

// outcome returns what is known of the outcome of a list before it is ingested.
func (r *Run) outcome(l *list) Outcome {
	return Outcome{Dataset: l.Dataset, From: l.From, DatasetID: l.DatasetID, Batch: r.plan.Spec.batch(),
		Objects: len(l.Objects), Bytes: l.bytes(), Fingerprint: l.Fingerprint}
}
