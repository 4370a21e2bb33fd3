package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

// plan is plan.json, on which all steps of a run work.
type plan struct {
	lake.KeyedHeader
	Run       string     `json:"run"`
	Spec      Spec       `json:"spec"`
	DatasetID uint32     `json:"dataset_id"`
	Batch     string     `json:"batch"`
	Rules     lake.Rules `json:"rules"`
	// Start is Spec.Start.
	Start int64 `json:"start"`
	// Current is the digest of the record that the batch had, "" if it had none.
	Current string `json:"current,omitempty"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
	// Known is how many objects Spec.NewOnly has left out.
	Known int `json:"known,omitempty"`
	// Notes tell the user which of the inputs are not read.
	Notes []string `json:"notes,omitempty"`
	// Splits is the frame file with the pieces of each split. A plan with one split has Pieces
	// instead.
	Splits lake.FrameObject `json:"splits,omitzero"`
	Pieces []piece          `json:"pieces,omitempty"`
	Count  int              `json:"split_count"`
}

// written returns the keys of the objects beside the plan's document.
func (p *plan) written() []string {
	if p.Count == 1 {
		return nil
	}
	return []string{p.Splits.Key}
}

// PlanSummary is what a scheduler needs of a plan.
type PlanSummary struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	// Splits is the number of splits to normalise. They are numbered from 0.
	Splits int `json:"splits"`
	// Bytes is the stored size of all Objects.
	Bytes   int64 `json:"bytes"`
	Objects int   `json:"objects"`
	// Known is how many objects NewOnly has left out. Nothing tells that these are all: there is no
	// plan.
	Known   int  `json:"known,omitempty"`
	Nothing bool `json:"nothing,omitempty"`
	// Start is Spec.Start, or when the plan was made.
	Start int64 `json:"start,omitempty"`
	// Small makes the workflow ingest the batch with IngestSmall.
	Small bool `json:"small,omitempty"`
	// Searchable allows the workflow to set search attributes, and Window limits its steps in
	// flight. The caller of MakePlan sets both, since they depend on Temporal.
	Searchable bool `json:"searchable,omitempty"`
	Window     int  `json:"window,omitempty"`
}

// MakePlan lists the objects to read, registers the dataset, and stores the plan of the run. If the
// run has a plan already, MakePlan keeps it, even if the inputs have changed since; only its start
// is that of the ingest that began last.
func MakePlan(ctx context.Context, store blob.Store, run string, spec Spec) (PlanSummary, error) {
	return makePlan(ctx, store, run, spec, defaultLimits)
}

func makePlan(ctx context.Context, store blob.Store, run string, spec Spec, lim limits) (PlanSummary, error) {
	if err := checkRun(run); err != nil {
		return PlanSummary{}, err
	}
	if err := spec.Check(); err != nil {
		return PlanSummary{}, err
	}
	spec, err := spec.OnDate()
	if err != nil {
		return PlanSummary{}, err
	}
	start := cmp.Or(spec.Start, time.Now().UnixNano())
	spec.Deadline = "" // another deadline is no other batch
	var p plan
	ok, err := loadResult(ctx, store, planKey(run), &p, (*plan).written)
	if err != nil {
		return PlanSummary{}, err
	}
	if !ok {
		if p, err = newPlan(ctx, store, run, spec, lim); err != nil || p.Objects == 0 {
			return PlanSummary{Known: p.Known, Nothing: err == nil}, err
		}
		p.Start = start
		if err := saveFirst(ctx, store, planKey(run), &p); err != nil {
			return PlanSummary{}, err
		}
	}
	if err := p.check(run); err != nil {
		return PlanSummary{}, err
	}
	if p.Start < spec.Start { // another workflow continues the run
		p.Start = spec.Start
		if err := save(ctx, store, planKey(run), &p); err != nil {
			return PlanSummary{}, err
		}
	}
	// From now on a garbage collection leaves the objects of the batch alone. One that has not seen
	// the plan has to end before they are written.
	if err := catalog.AwaitSweep(ctx, store); err != nil {
		return PlanSummary{}, err
	}
	same, err := sameSpec(p.Spec, spec)
	if err != nil {
		return PlanSummary{}, err
	}
	if !same {
		return PlanSummary{}, &InputError{
			Reason: fmt.Sprintf("run %s was planned for another spec; give it another name", run)}
	}
	return PlanSummary{
		DatasetID: p.DatasetID, Batch: p.Batch, Splits: p.Count, Bytes: p.Bytes, Objects: p.Objects, Known: p.Known,
		Start: p.Start, Small: isSmall(p.Count, p.Bytes, lim),
	}, nil
}

// sameSpec compares specs by their JSON, in which an empty list equals none. Deadlines may differ.
func sameSpec(a, b Spec) (bool, error) {
	a.Deadline, b.Deadline = "", ""
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return bytes.Equal(x, y), err
}

// maxDescription is how many bytes a title, a source or a licence may have. All three are in one
// value of a map (pieces.MaxValue).
const maxDescription = 16 << 10

// Check returns an *InputError for a Spec that is invalid whatever the inputs hold: bad names,
// options or patterns. MakePlan reports the same errors.
func (s *Spec) Check() error {
	bad := func(err error) error { return &InputError{Reason: err.Error(), Err: err} }
	if s.Date != "" {
		some := *s
		if s.Date == ScheduledDate { // any time will do
			some.Date = time.Unix(0, 0).UTC().Format(time.RFC3339)
		}
		some, err := some.OnDate()
		if err != nil {
			return err
		}
		return some.Check()
	}
	if s.DateZone != "" || s.DateOffset != "" {
		return &InputError{Reason: "date_zone and date_offset are for the date of a schedule; set date to scheduled"}
	}
	if err := lake.CheckDatasetName(s.Dataset); err != nil {
		return bad(err)
	}
	if s.Batch != "" {
		if err := lake.CheckBatchName(s.Batch); err != nil {
			return bad(err)
		}
	}
	if len(s.Inputs)+len(s.Manifests) == 0 {
		return &InputError{Reason: "no inputs"}
	}
	if s.NewOnly && s.Replace {
		return &InputError{Reason: "new_only and replace exclude each other: what is left out would be gone"}
	}
	if _, err := ParseDeadline(s.Deadline); err != nil {
		return bad(err)
	}
	for _, f := range []struct{ name, text string }{{"title", s.Title}, {"source", s.Source}, {"licence", s.Licence}} {
		if len(f.text) > maxDescription {
			return &InputError{Reason: fmt.Sprintf("the %s has %d bytes, more than %d", f.name, len(f.text), maxDescription)}
		}
	}
	if s.MaxRejectRate > 1 {
		return &InputError{Reason: fmt.Sprintf("max_reject_rate %v: want a share, at most 1", s.MaxRejectRate)}
	}
	if err := (urlnorm.Options{StripParams: s.StripParams}).Check(); err != nil {
		return bad(err)
	}
	if err := s.rawOptions().Check(); err != nil {
		return bad(err)
	}
	_, err := newSelection(s.Include, s.Exclude)
	return err
}

func newPlan(ctx context.Context, store blob.Store, run string, spec Spec, lim limits) (plan, error) {
	sel, err := newSelection(spec.Include, spec.Exclude)
	if err != nil {
		return plan{}, err
	}
	in := inputs{planning: true}
	objects, err := in.ofSpec(ctx, &spec, sel, lim.objects)
	if err != nil {
		return plan{}, err
	}
	known := len(objects)
	objects, err = onlyNew(ctx, store, &spec, objects)
	if known -= len(objects); err != nil || len(objects) == 0 {
		return plan{Known: known}, err
	}
	batch := spec.Batch
	if batch == "" {
		batch = defaultBatch(objects)
	}
	plans := make([]*raw.Plan, len(objects))
	if len(objects) <= maxSurvey {
		if plans, err = in.survey(ctx, objects, &spec); err != nil {
			return plan{}, err
		}
	}
	pieces, err := in.pieces(ctx, objects, plans, &spec, lim)
	if err != nil {
		return plan{}, err
	}
	dataset, err := catalog.RegisterDataset(ctx, store,
		lake.Dataset{Name: spec.Dataset, Title: spec.Title, Source: spec.Source, Licence: spec.Licence})
	var name *catalog.NameError
	if errors.As(err, &name) {
		return plan{}, &InputError{Reason: name.Error()}
	}
	if err != nil {
		return plan{}, err
	}
	current, err := currentRecord(ctx, store, catalog.BatchName{DatasetID: dataset.ID, Batch: batch})
	if err != nil {
		return plan{}, err
	}
	// All steps of the run follow these rules, also if the lake's change meanwhile.
	rules, _, err := catalog.LoadRules(ctx, store)
	if err != nil {
		return plan{}, err
	}
	p := plan{Run: run, Spec: spec, DatasetID: dataset.ID, Batch: batch, Current: current, Rules: rules,
		Objects: len(objects), Known: known, Notes: sel.notes()}
	if known > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d objects are left out, since other batches of the dataset have read "+
			"objects of these names and sizes", known, known+len(objects)))
	}
	for _, o := range objects {
		p.Bytes += o.Bytes
	}
	splits := group(pieces, lim)
	if p.Count = len(splits); p.Count == 1 {
		p.Pieces = splits[0]
		return p, nil
	}
	p.Splits, err = writeSplits(ctx, store, run, splits)
	return p, err
}

// currentRecord returns the digest of the record of a batch, "" if there is none, if the batch is
// retired, or if that cannot be read: it is only told.
func currentRecord(ctx context.Context, store blob.Store, name catalog.BatchName) (string, error) {
	s, err := catalog.LookBatches(ctx, store, name.DatasetID)
	var found map[catalog.BatchName]catalog.PendingBatch
	if err == nil {
		found, err = s.Find(ctx, name)
	}
	b := found[name]
	if b.Retired || lake.IsDamage(err) || codec.IsFormat(err) {
		return "", nil
	}
	return b.Digest, err
}

// onlyNew returns the objects without those that Spec.NewOnly leaves out.
func onlyNew(ctx context.Context, store blob.Store, spec *Spec, objects []object) ([]object, error) {
	if !spec.NewOnly {
		return objects, nil
	}
	read, err := ingestedInputs(ctx, store, spec.Dataset, spec.Batch)
	return slices.DeleteFunc(objects, func(o object) bool { return read[ingestedInput{Name: o.Name, Bytes: o.Bytes}] }), err
}

// defaultBatch names a batch by a hash of its objects.
func defaultBatch(objects []object) string {
	var b []byte
	for _, o := range objects {
		b = fmt.Appendf(b, "%s\t%d\t%s\n", o.Name, o.Bytes, o.ETag)
	}
	return lake.Digest(b)[:16]
}

const (
	// maxSurvey is the most objects that a plan inspects; so many take some seconds. In larger
	// batches a split that finds an unreadable object inspects all of its own.
	maxSurvey = 1000
	// surveyBytes is how many stored bytes of an object an inspection fetches. It is enough for the
	// beginning of any compressed object, but not for an archive whose first members hold no data.
	surveyBytes = 4 << 20
	// planReads is how many objects are inspected concurrently.
	planReads = 4
	// maxUnreadable is how many unreadable objects an error names.
	maxUnreadable = 10
)

// survey inspects the beginning of objects and returns how each is to be read, or nil where the
// beginning does not tell. Objects of an unknown format, or without the columns asked for, are
// named by an *InputError.
func (in *inputs) survey(ctx context.Context, objects []object, spec *Spec) ([]*raw.Plan, error) {
	plans := make([]*raw.Plan, len(objects))
	refused := make([]*InputError, len(objects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(objectsAtOnce(ctx, planReads))
	for i, o := range objects {
		g.Go(func() error {
			var err error
			plans[i], err = in.inspect(ctx, o, spec)
			if skips(spec, err) {
				return nil // Normalize finds it again, and notes it
			}
			if errors.As(err, &refused[i]) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	refused = slices.DeleteFunc(refused, func(e *InputError) bool { return e == nil })
	switch {
	case len(refused) == 0:
		return plans, nil
	case len(objects) == 1:
		return nil, refused[0]
	case len(refused) == 1:
		advice := "; or leave it out (--exclude, --skip-unreadable)"
		var format *raw.FormatError
		if errors.As(refused[0], &format) && format.Advice == "" {
			advice = strings.Replace(advice, "or ", "", 1)
		} else if strings.Contains(refused[0].Reason, "leave it out") {
			advice = ", or skip it (--skip-unreadable)"
		}
		refused[0].Reason += advice
		return nil, refused[0]
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%d of %d objects cannot be read; mend them, or leave them out (--exclude, or --skip-unreadable for all):",
		len(refused), len(objects))
	for _, e := range refused[:min(len(refused), maxUnreadable)] {
		s.WriteString("\n  " + e.Error())
	}
	if more := len(refused) - maxUnreadable; more > 0 {
		fmt.Fprintf(&s, "\n  and %d more", more)
	}
	return nil, &InputError{Reason: s.String(), Err: refused[0]}
}

// skips reports whether err is the fault of an object's content, and spec says to skip such
// objects.
func skips(spec *Spec, err error) bool {
	var input *InputError
	return spec.SkipUnreadable && errors.As(err, &input) && errors.Is(input.Err, raw.ErrInput)
}

// errSurveyed ends the inspection of an object whose first surveyBytes do not tell how to read it.
var errSurveyed = errors.New("the beginning of the object was read")

// inspect decides how an object is to be read. It reads no record.
func (in *inputs) inspect(ctx context.Context, o object, spec *Spec) (*raw.Plan, error) {
	if err := ctx.Err(); err != nil || o.Bytes == 0 {
		return nil, err
	}
	var plan *raw.Plan
	err := in.withinMemory(ctx, spec.rawOptions(), func(opt raw.Options) error {
		r, err := in.open(ctx, o, 0)
		if err != nil {
			return err
		}
		defer r.Close()
		first := &firstBytes{ReadCloser: r.ReadCloser, n: surveyBytes}
		r.ReadCloser = first
		rd, err := reader.New(r, o.Name, opt)
		switch {
		case first.exceeded:
			return nil
		case err != nil:
			return inputError(o, err)
		}
		p := rd.Plan()
		plan = &p
		return nil
	})
	return plan, err
}

// withinMemory calls inspect such that all concurrent inspections stay within PlanMemory. Nearly
// all objects can be opened in little memory. If inspect fails, the object may need more; it is
// inspected again without that limit, one object at a time.
func (in *inputs) withinMemory(ctx context.Context, opt raw.Options, inspect func(opt raw.Options) error) error {
	opt.LowMemory = true
	err := inspect(opt)
	var refused *raw.FormatError
	if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
		return err
	}
	in.large.Lock()
	defer in.large.Unlock()
	opt.LowMemory = false
	return inspect(opt)
}

// firstBytes reads n bytes and then fails with errSurveyed.
type firstBytes struct {
	io.ReadCloser
	n        int
	exceeded bool
}

func (f *firstBytes) Read(p []byte) (int, error) {
	if f.n == 0 {
		f.exceeded = true
		return 0, errSurveyed
	}
	n, err := f.ReadCloser.Read(p[:min(len(p), f.n)])
	f.n -= n
	return n, err
}

// unreadable returns the error of a split in which an object cannot be read. If the object's format
// is the cause, the error names all such objects of the split.
func (in *inputs) unreadable(ctx context.Context, pieces []piece, spec *Spec, err error) error {
	var format *raw.FormatError
	if !errors.As(err, &format) {
		return err
	}
	var objects []object
	for i := range pieces {
		if len(objects) == 0 || objects[len(objects)-1] != pieces[i].object {
			objects = append(objects, pieces[i].object)
		}
	}
	if _, e := in.survey(ctx, objects, spec); e != nil {
		return e
	}
	return err
}

// piece is an object, or a range of one, that is read in one go.
type piece struct {
	object
	// Range is nil for a whole object. Plan says how the object is read; it is nil if only reading
	// the object tells. All ranges of an object have the same plan.
	Range *raw.Range `json:"range,omitempty"`
	Plan  *raw.Plan  `json:"plan,omitempty"`
}

// bytes returns the stored size of a piece.
func (p *piece) bytes() int64 {
	if p.Range != nil {
		return p.Range.StoredTo - p.Range.Stored
	}
	return p.Bytes
}

// pieces cuts objects that are larger than a split into ranges, if their format allows it. plans
// are those of the objects, nil where not known.
func (in *inputs) pieces(
	ctx context.Context, objects []object, plans []*raw.Plan, spec *Spec, lim limits,
) ([]piece, error) {
	var total int64
	for _, o := range objects {
		total += o.Bytes
	}
	// Do not cut finer than the limit of splits allows: the pieces would be joined again.
	size := lim.split
	for total/size > int64(lim.splits) {
		size *= 2
	}
	cut := make([][]piece, len(objects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(objectsAtOnce(ctx, planReads))
	for i, o := range objects {
		cut[i] = []piece{{object: o, Plan: plans[i]}}
		if o.Bytes <= size {
			continue
		}
		g.Go(func() error {
			ranges, err := in.cut(ctx, o, spec, size)
			if skips(spec, err) {
				return nil // it is read whole, as far as that goes
			}
			if ranges != nil {
				cut[i] = ranges
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(cut...), nil
}

// cut inspects an object and cuts it into ranges of about size bytes. It returns none if the object
// has to be read whole.
func (in *inputs) cut(ctx context.Context, o object, spec *Spec, size int64) ([]piece, error) {
	open := func(off int64) (io.ReadCloser, error) { return in.open(ctx, o, off) }
	var plan raw.Plan
	var ranges []raw.Range
	err := in.withinMemory(ctx, spec.rawOptions(), func(opt raw.Options) (err error) {
		plan, ranges, err = reader.Ranges(open, o.Bytes, o.Name, opt, size)
		return err
	})
	if err != nil {
		return nil, inputError(o, err)
	}
	var out []piece
	for i := range ranges {
		out = append(out, piece{object: o, Range: &ranges[i], Plan: &plan})
	}
	return out, nil
}

// group divides pieces, in order, into splits. Neighbouring ranges in one split become one range.
func group(pieces []piece, lim limits) [][]piece {
	for size := lim.split; ; size *= 2 {
		var splits [][]piece
		var have int64
		for _, p := range pieces {
			weight := max(p.bytes(), lim.object)
			if len(splits) == 0 || have+weight > size {
				splits = append(splits, nil)
				have = 0
			}
			have += weight
			s := &splits[len(splits)-1]
			if n := len(*s); n > 0 && p.Range != nil && p.Range.From > 0 {
				last := &(*s)[n-1]
				last.Range = &raw.Range{From: last.Range.From, To: p.Range.To, Stored: last.Range.Stored,
					StoredTo: p.Range.StoredTo}
				continue
			}
			*s = append(*s, p)
		}
		if len(splits) <= lim.splits {
			return splits
		}
	}
}

// writeSplits stores the splits under a key made of their content, so that two plans made
// concurrently cannot read each other's splits.
func writeSplits(ctx context.Context, store blob.Store, run string, splits [][]piece) (lake.FrameObject, error) {
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	for _, s := range splits {
		data, err := json.Marshal(s)
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
	key := splitsKey(run, lake.Digest(buf.Bytes()))
	if _, err := store.Put(ctx, key, buf.Bytes(), blob.Condition{}); err != nil {
		return lake.FrameObject{}, err
	}
	return lake.NewFrameObject(key, ff), nil
}

// readPlan reads the plan of a run. The error is a *lake.FormError if this program does not make
// the canonical form of the plan.
func readPlan(ctx context.Context, store blob.Store, run string) (*plan, error) {
	if err := checkRun(run); err != nil {
		return nil, err
	}
	var p plan
	if err := loadRequired(ctx, store, planKey(run), &p); err != nil {
		return nil, err
	}
	return &p, p.check(run)
}

func (p *plan) check(run string) error {
	if p.Run != run || p.Count < 1 {
		return codec.Corrupt(planKey(run), "run", -1, run, p.Run)
	}
	return lake.CheckForm(p.Rules)
}

// pieces returns the pieces of one split.
func (p *plan) pieces(ctx context.Context, store blob.Store, split int) ([]piece, error) {
	if split < 0 || split >= p.Count {
		return nil, &InputError{Reason: fmt.Sprintf("split %d of %d", split, p.Count)}
	}
	if p.Count == 1 {
		return p.Pieces, checkPieces(p.Pieces, planKey(p.Run), split)
	}
	ff, err := p.Splits.FrameFile()
	if err != nil {
		return nil, err
	}
	read := func(ctx context.Context, off, n int64) ([]byte, error) {
		return store.ReadRange(ctx, p.Splits.Key, off, n)
	}
	frames, err := seekable.OpenAt(ctx, read, ff, p.Splits.Key, 0)
	if err != nil {
		return nil, err
	}
	if frames.Len() != p.Count {
		return nil, codec.Corrupt(p.Splits.Key, "frames", -1, p.Count, frames.Len())
	}
	data, err := frames.Read(ctx, read, split, split+1)
	if err != nil {
		return nil, err
	}
	var out []piece
	if err := json.Unmarshal(data[0], &out); err != nil {
		return nil, codec.Corrupt(p.Splits.Key, fmt.Sprintf("split %d", split), -1, "a list of objects", err)
	}
	return out, checkPieces(out, p.Splits.Key, split)
}

// checkPieces checks the pieces of a split, which were read from the object key.
func checkPieces(pieces []piece, key string, split int) error {
	for _, o := range pieces {
		if o.Range != nil && o.Plan == nil {
			return codec.Corrupt(key, fmt.Sprintf("split %d", split), -1, "a plan with every range", o.Name)
		}
	}
	return nil
}

// rawOptions returns the Spec's options for package raw.
func (s *Spec) rawOptions() raw.Options {
	return raw.Options{Format: s.Format, URLColumn: s.URLColumn, TSColumn: s.TSColumn, SizeField: s.SizeField,
		Extras: s.Extras, MaxLine: s.MaxLine, TSFormat: s.TSFormat, SkipUnreadable: s.SkipUnreadable}
}

// inputError returns an *InputError for an error of package raw, and for an input that is missing.
// It returns other errors as they are.
func inputError(o object, err error) error {
	var data *raw.DataError
	var format *raw.FormatError
	e := &InputError{Object: o.Name, Err: err}
	switch {
	case errors.Is(err, ErrPageMemory):
		return err
	case errors.Is(err, blob.ErrChanged):
		return o.errChanged()
	case errors.Is(err, blob.ErrNotExist):
		e.Reason = "the object was deleted while it was read"
	case errors.As(err, &data):
		e.Object = o.member(memberOf(o, data.Name))
		e.Line, e.Offset, e.Reason = data.Line, data.Offset, data.Reason()
	case errors.As(err, &format):
		e.Object = o.member(memberOf(o, format.Name))
		e.Reason = format.Reason
		if format.Advice != "" {
			e.Reason += "; " + format.Advice
		}
	case errors.Is(err, raw.ErrInput):
		e.Reason = err.Error()
	default:
		return err
	}
	e.Object, e.Reason = shortened(e.Object), shortened(e.Reason)
	return e
}

// memberOf returns the archive member that package raw names after the object, or "".
func memberOf(o object, name string) string {
	member, _ := strings.CutPrefix(name[min(len(o.Name), len(name)):], "/")
	return member
}
