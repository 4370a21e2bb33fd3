// Package unite writes the rows of several batches of one dataset to common parts. Many small
// batches, one a day for example, have many small parts; a union of them has as few as one batch
// with all rows would, and the rows of a domain are together. Each row keeps the name of its batch,
// in the column batch, and rows that two batches have in common stay two rows. So all counts are
// those of the batches, and a batch can still be taken out of a union.
//
// A Job names the sources: batches, and unions of which some or all batches are taken. It is done
// like an ingest whose raw objects are parts. Shuffle reads the parts of a split and writes their
// rows by partition, PlanMerge divides the partitions into tasks, Merge sorts the rows of a task
// and writes parts and postings, and Finish writes the record of the union. A job whose rows fit
// into memory is one step, Whole, without shuffle files.
//
// Rows that takedowns hide can be dropped on the way: the job names the rules, and how many rows of
// each source they hide. The union says which rules were ever applied to its rows, and how many
// rows it lacks of each batch.
//
// The same members with the same takedowns have the same bytes, whatever the sources they are taken
// from, the splits and the workers. Every step may be repeated, run twice at once, and stop
// anywhere. The caller is package publish.
package unite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partwriter"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowmerge"
	"github.com/urlake/urlake/lake/rowsort"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// arena is the memory for rows of one Shuffle or Whole, in bytes.
	arena = rowmerge.Arena

	// readRows is how many rows are read at once: four pages.
	readRows = 4 * part.PageRows

	// stagingFormat is the version of the documents in staging.
	stagingFormat = 1
)

// splitBytes is the size of the parts of a split, some seconds of work. A job of one split is done
// by Whole.
var splitBytes = int64(128 << 20)

// Job is a union that is to be written.
type Job struct {
	DatasetID uint32 `json:"dataset_id"`
	// CanonicalForm and PublicSuffix are the rules that the rows of all sources follow.
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`
	// Members are the batches of the union, by name. If the job has Takedowns, the union counts
	// their rows.
	Members []lake.Member `json:"members"`
	// Takedowns are those of the union's record: those of all sources, and Rules.
	Takedowns []string `json:"takedowns,omitempty"`
	// Rules are the ids of the takedowns that are applied to the rows, ascending. Options has the
	// rules themselves.
	Rules []string `json:"rules,omitempty"`
	// Sources have the rows of the members, each in one of them.
	Sources []Source `json:"sources"`
}

// Source is a batch, or a union of which the members of a Job are taken.
type Source struct {
	Batch  string `json:"batch"` // or the name of the union
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"` // of its parts
	// Take names the members that are taken from a union, by name. A union may also have rows of
	// members that are dead there.
	Take []string `json:"take,omitempty"`
	// Hidden is how many of the rows that are taken the rules of the job hide.
	Hidden int64 `json:"hidden,omitempty"`
}

// Name is the name of the union.
func (j *Job) Name() string { return lake.UnionName(j.digest()) }

func (j *Job) digest() string { return lake.UnionDigest(j.Members, j.Takedowns) }

// NameTakedowns sets the takedowns of the job: its rules, and those that were applied to the unions
// among its sources. A union whose record is damaged has none; whoever writes the new union finds
// the damage.
func (j *Job) NameTakedowns(ctx context.Context, store blob.Store) error {
	all := slices.Clone(j.Rules)
	for _, s := range j.Sources {
		if !lake.IsUnionName(s.Batch) {
			continue
		}
		key := lake.BatchKey(j.DatasetID, s.Batch, s.Digest)
		data, _, err := store.Get(ctx, key)
		var record *lake.Batch
		if err == nil {
			record, err = lake.DecodeBatch(data, key)
		}
		switch {
		case errors.Is(err, blob.ErrNotExist), errors.Is(err, codec.ErrCorrupt):
		case err != nil:
			return err
		default:
			all = append(all, record.Takedowns...)
		}
	}
	slices.Sort(all)
	j.Takedowns = slices.Compact(all)
	return nil
}

// Bytes is the size of the parts of all sources.
func (j *Job) Bytes() (n int64) {
	for i := range j.Sources {
		n += j.Sources[i].Bytes
	}
	return n
}

// Splits is the number of splits of the job. They are numbered from 0.
func (j *Job) Splits() int { return len(j.splits()) }

// splits groups the sources by size. A source is in one split: its parts are read in order.
func (j *Job) splits() (groups [][]Source) {
	size := int64(0)
	for i, s := range j.Sources {
		if i == 0 || size+s.Bytes > splitBytes {
			groups, size = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], s)
		size += s.Bytes
	}
	return groups
}

// Options are options of all steps.
type Options struct {
	// TempDir holds at most two parts at a time, and postings; "" is the system's temporary folder.
	TempDir string
	// Progress, if not nil, is called from the caller's goroutine after some rows, with the number
	// of rows read or written by the step so far.
	Progress func(rows int64)
	// Hide are the rules of the job, nil for none. Rows that they hide are dropped.
	Hide *takedown.Rules
	// Limits divide the work; only tests set them.
	Limits rowmerge.Limits
	Arena  int64
}

func (o *Options) setDefaults() {
	if o.Limits == (rowmerge.Limits{}) {
		o.Limits = rowmerge.DefaultLimits
	}
	if o.Arena == 0 {
		o.Arena = arena
	}
}

// Result describes a union that is written.
type Result struct {
	// Name and Digest are those of its record: lake.BatchKey.
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Rows   int64  `json:"rows"`
	Parts  int64  `json:"parts"`
	Bytes  int64  `json:"bytes"` // of the parts
	// Members are those of the record, if the job has takedowns. Dropped is how many rows this job
	// has dropped.
	Members []lake.Member `json:"members,omitempty"`
	Dropped int64         `json:"dropped,omitempty"`
}

// work is one step of a job.
type work struct {
	ctx     context.Context
	store   blob.Store
	job     *Job
	staging string
	opt     Options
	members map[string]int // indices in job.Members, by batch
	taken   map[string]int // those that are taken from the union in work
	rows    int64          // so far
}

// newWork starts a step of a job. run names the staging that its steps share.
func newWork(ctx context.Context, store blob.Store, run string, j *Job, opt Options) *work {
	opt.setDefaults()
	w := &work{ctx: ctx, store: store, job: j, opt: opt, members: map[string]int{}, taken: map[string]int{}}
	w.staging = fmt.Sprintf("%sunite/%d-%s/", lake.StagingPrefix(run), j.DatasetID, j.digest())
	for i := range j.Members {
		w.members[j.Members[i].Batch] = i
	}
	return w
}

// failed adds to an error what was done. Damage of a source names it.
func (w *work) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("unite %d batches of dataset %d: %w", len(w.job.Members), w.job.DatasetID, err)
}

// Do does all steps of a job.
func Do(ctx context.Context, store blob.Store, run string, j *Job, opt Options) (Result, error) {
	splits := j.Splits()
	if splits <= 1 {
		return Whole(ctx, store, run, j, opt)
	}
	for split := range splits {
		if err := Shuffle(ctx, store, run, j, split, opt); err != nil {
			return Result{}, err
		}
	}
	tasks, err := PlanMerge(ctx, store, run, j, opt)
	if err != nil {
		return Result{}, err
	}
	for task := range tasks {
		if err := Merge(ctx, store, run, j, task, opt); err != nil {
			return Result{}, err
		}
	}
	return Finish(ctx, store, run, j, opt)
}

// Whole writes the union of a job of one split.
func Whole(ctx context.Context, store blob.Store, run string, j *Job, opt Options) (Result, error) {
	w := newWork(ctx, store, run, j, opt)
	r, err := w.whole()
	return r, w.failed(err)
}

func (w *work) whole() (Result, error) {
	buffer := rowsort.NewBuffer(w.opt.Arena)
	defer buffer.Release()
	s := shuffler{work: w, name: "whole", buffer: buffer}
	if err := w.checkRules(); err != nil {
		return Result{}, err
	}
	for _, source := range w.job.Sources {
		if err := s.source(source); err != nil {
			return Result{}, err
		}
	}
	var counts [row.Partitions]rowmerge.Partition
	var tasks []rowmerge.Task
	var source rowmerge.Source
	if len(s.out.Shuffled) == 0 { // all rows are in memory
		s.count()
		_, tasks = rowmerge.Plan(&s.out.Partitions, w.opt.Limits)
		source = func(_ string, first, last byte, sink row.Sink) error { return buffer.Rows(w.ctx, first, last, sink) }
	} else {
		if err := s.flush(); err != nil {
			return Result{}, err
		}
		buffer.Shrink()
		counts = s.out.Partitions
		_, tasks = rowmerge.Plan(&counts, w.opt.Limits)
	}
	var done []merged
	for i := range tasks {
		m, err := w.merge(i, &tasks[i], s.out.Shuffled, source)
		if err != nil {
			return Result{}, err
		}
		done = append(done, m)
	}
	return w.finish(done, &s.out.members)
}

// checkRules returns an error unless the options have the rules of the job.
func (w *work) checkRules() error {
	if w.opt.Hide == nil && len(w.job.Rules) == 0 {
		return nil
	}
	if w.opt.Hide != nil {
		if _, all := w.opt.Hide.Pick(w.job.Rules); all && w.opt.Hide.Len() == len(w.job.Rules) {
			return nil
		}
	}
	return fmt.Errorf("the job has %d takedowns, and not the same are given", len(w.job.Rules))
}

// members counts the rows of the members of a union that has takedowns.
type members struct {
	// Members are those of the sources that were read, in any order.
	Members []lake.Member `json:"members,omitempty"`
	// Dropped is how many rows were dropped.
	Dropped int64 `json:"dropped,omitempty"`
}

func (m *members) add(o *members) {
	m.Members = append(m.Members, o.Members...)
	m.Dropped += o.Dropped
}

// shuffled is shuffle-{split}.json: what a Shuffle has written.
type shuffled struct {
	lake.KeyedHeader
	Rows       int64                              `json:"rows"`
	Shuffled   []rowsort.ShuffleFile              `json:"shuffled"`
	Partitions [row.Partitions]rowmerge.Partition `json:"partitions"`
	members
}

// Shuffle writes the rows of a split to shuffle files.
func Shuffle(ctx context.Context, store blob.Store, run string, j *Job, split int, opt Options) error {
	w := newWork(ctx, store, run, j, opt)
	return w.failed(w.shuffle(split))
}

func (w *work) shuffle(split int) error {
	groups := w.job.splits()
	if split < 0 || split >= len(groups) {
		return fmt.Errorf("split %d of %d", split, len(groups))
	}
	s := shuffler{work: w, name: fmt.Sprintf("shuffle-%06d", split), buffer: rowsort.NewBuffer(w.opt.Arena)}
	defer s.buffer.Release()
	if ok, err := w.load(s.name+".json", &s.out); ok || err != nil {
		return err
	}
	if err := w.checkRules(); err != nil {
		return err
	}
	for _, source := range groups[split] {
		if err := s.source(source); err != nil {
			return err
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	return w.save(s.name+".json", &s.out)
}

// shuffler reads sources into a buffer.
type shuffler struct {
	*work
	name   string // of its shuffle files
	buffer *rowsort.Buffer
	out    shuffled

	hidden int64           // rows of the last source
	scan   map[string]bool // if not nil, rows are only looked at; the domains of hidden ones are added
}

// Hides sets how many rows of each source of a job the rules hide, and the ids of those about the
// domains of these rows. It reads all sources. The caller sets the job's takedowns.
func (j *Job) Hides(ctx context.Context, store blob.Store, rules *takedown.Rules) error {
	w := newWork(ctx, store, "", j, Options{Hide: rules})
	s := shuffler{work: w, scan: map[string]bool{}}
	for i := range j.Sources {
		if err := s.source(j.Sources[i]); err != nil {
			return w.failed(err)
		}
		j.Sources[i].Hidden = s.hidden
	}
	j.Rules = nil
	for domain := range s.scan {
		j.Rules = append(j.Rules, rules.IDs(domain, j.DatasetID)...)
	}
	slices.Sort(j.Rules)
	j.Rules = slices.Compact(j.Rules)
	return nil
}

// count adds the rows in the buffer to the result.
func (s *shuffler) count() {
	var rows, keyBytes [row.Partitions]int64
	s.buffer.Count(&rows, &keyBytes)
	s.add(&rows, &keyBytes)
}

func (s *shuffler) add(rows, keyBytes *[row.Partitions]int64) {
	for i := range rows {
		p := &s.out.Partitions[i]
		p.Rows += rows[i]
		p.KeyBytes += keyBytes[i]
		s.out.Rows += rows[i]
	}
}

// flush writes the rows in the buffer to a shuffle file.
func (s *shuffler) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	key := fmt.Sprintf("%s%s/%06d", s.staging, s.name, len(s.out.Shuffled))
	var rows, keyBytes [row.Partitions]int64
	f, err := s.buffer.WriteShuffle(s.ctx, s.store, key, &rows, &keyBytes)
	if err != nil {
		return err
	}
	s.out.Shuffled = append(s.out.Shuffled, f)
	s.add(&rows, &keyBytes)
	return nil
}

// columns are the columns from which a row can be written again; a union's rows have a batch too.
var columns = []part.Column{
	part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
	part.ColRawURL, part.ColExtras,
}

// source adds the rows of a source that belong to members to the buffer.
func (s *shuffler) source(from Source) error {
	ref := segment.BatchRef{DatasetID: s.job.DatasetID, Batch: from.Batch, Digest: from.Digest}
	data, _, err := s.store.Get(s.ctx, ref.Key())
	var record *lake.Batch
	if err == nil {
		record, err = lake.DecodeBatch(data, ref.Key())
	}
	var have []lake.Member
	if err == nil {
		have, err = s.membersOf(record, from.Take)
	}
	if err != nil {
		return postings.Damaged(ref, err)
	}
	read := columns
	if len(record.Members) > 0 {
		read = append(slices.Clone(columns), part.ColBatch)
	}
	got, dropped := int64(0), make([]int64, len(s.job.Members))
	for _, o := range record.Postings {
		object, err := postings.Open(s.ctx, s.store, ref, o)
		for n := 0; err == nil && n < len(object.Parts()); n++ {
			var rows int64
			rows, err = s.part(object, n, from.Batch, read, dropped)
			got += rows
		}
		if err != nil {
			return postings.Damaged(ref, err)
		}
	}
	want, hidden := int64(0), int64(0)
	for i := range have {
		want += have[i].Rows
		n := dropped[s.members[have[i].Batch]]
		have[i].Rows, have[i].Dropped = have[i].Rows-n, have[i].Dropped+n
		hidden += n
	}
	if got != want {
		return postings.Damaged(ref, codec.Corrupt(ref.Key(), "rows", -1, want, got))
	}
	if s.hidden = hidden; hidden != from.Hidden && s.scan == nil {
		want := fmt.Sprintf("%d that takedowns hide, as the overlays say", from.Hidden)
		return postings.Damaged(ref, codec.Corrupt(ref.Key(), "rows", -1, want, hidden))
	}
	if len(s.job.Takedowns) > 0 {
		s.out.add(&members{have, hidden})
	}
	return nil
}

// membersOf returns the members of the job that are taken from a source, as the source has them. It
// sets which these are.
func (s *shuffler) membersOf(record *lake.Batch, take []string) (have []lake.Member, err error) {
	clear(s.taken)
	if len(record.Members) == 0 {
		if _, ok := s.members[record.Batch]; !ok {
			return nil, fmt.Errorf("batch %s is not to be in the union", record.Batch)
		}
		return []lake.Member{{Batch: record.Batch, Rows: record.Rows}}, nil
	}
	for _, id := range record.Takedowns {
		if s.scan == nil && !slices.Contains(s.job.Takedowns, id) {
			return nil, fmt.Errorf("takedown %s was applied to union %s, and is not one of the new union", id, record.Batch)
		}
	}
	for _, name := range take {
		if i, ok := s.members[name]; ok {
			s.taken[name] = i
		}
	}
	for _, m := range record.Members {
		if _, ok := s.taken[m.Batch]; ok {
			have = append(have, m)
		}
	}
	return have, nil
}

// part adds the rows of members that a part has, unless they are hidden, and returns their number.
// It adds the number of those that are hidden to dropped, which has an element for each member.
// batch is that of all rows of the part, unless the columns have it.
func (s *shuffler) part(
	o *postings.Reader, n int, batch string, read []part.Column, dropped []int64,
) (rows int64, err error) {
	pages, err := o.Pages(s.ctx, n)
	if err != nil {
		return 0, err
	}
	key := o.Parts()[n].Key
	scan := postings.PartScanner{Key: key, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
		return s.store.ReadRange(ctx, key, off, n)
	}}
	var domain, host string
	var number uint32
	hasNumber := false
	var hides *takedown.Matcher // nil for a domain of which nothing is hidden
	suffix := row.Suffix{Batch: batch}
	member := s.members[batch]
	for r, err := range scan.Scan(s.ctx, pages, readRows, read) {
		if err != nil {
			return 0, err
		}
		for i := range r.Rows {
			if len(r.Batch) > 0 {
				var ok bool
				suffix.Batch = r.Batch[i]
				if member, ok = s.taken[suffix.Batch]; !ok {
					continue
				}
			}
			if r.Host[i] != host || r.Domain[i] != domain {
				if r.Domain[i] != domain {
					if hides = s.opt.Hide.For(r.Domain[i]); !hides.May(s.job.DatasetID) {
						hides = nil
					}
				}
				domain, host, hasNumber = strings.Clone(r.Domain[i]), strings.Clone(r.Host[i]), false
			}
			if hides != nil && hides.Hides(&takedown.Row{
				Dataset: s.job.DatasetID, Scheme: r.Scheme[i], Host: host, Path: r.PathQuery[i], Port: r.Port[i],
				TS: r.TS[i], HasTS: r.HasTS[i],
			}) {
				dropped[member]++
				rows++
				if s.scan != nil {
					s.scan[domain] = true
				}
				continue
			}
			if s.scan != nil {
				rows++
				continue
			}
			if !hasNumber {
				if number, err = s.buffer.Host(domain, host, urlnorm.DomainID(domain)); err != nil {
					return 0, err
				}
				hasNumber = true
			}
			suffix.Scheme, suffix.Port = r.Scheme[i], r.Port[i]
			suffix.TS, suffix.HasTS, suffix.Size, suffix.HasSize = r.TS[i], r.HasTS[i], r.Size[i], r.HasSize[i]
			suffix.Extras, suffix.RawURL = r.Extras[i], r.RawURL[i]
			if err := s.buffer.Add(number, []byte(r.PathQuery[i]), &suffix); err != nil {
				return 0, err
			}
			if rows++; s.buffer.Full() {
				if err := s.flush(); err != nil {
					return 0, err
				}
				hasNumber = false
			}
		}
		s.rows += int64(r.Rows)
		if err := s.report(s.rows); err != nil {
			return 0, err
		}
	}
	return rows, nil
}

// report reports the progress and returns an error if the context has ended.
func (w *work) report(rows int64) error {
	if w.opt.Progress != nil {
		w.opt.Progress(rows)
	}
	return w.ctx.Err()
}

// mergePlan is merge.json.
type mergePlan struct {
	lake.KeyedHeader
	Tasks    []rowmerge.Task       `json:"tasks"`
	Shuffled []rowsort.ShuffleFile `json:"shuffled"`
	members
}

// PlanMerge divides the partitions of a shuffled job into tasks, and returns their number.
func PlanMerge(ctx context.Context, store blob.Store, run string, j *Job, opt Options) (tasks int, err error) {
	w := newWork(ctx, store, run, j, opt)
	p, err := w.planMerge()
	return len(p.Tasks), w.failed(err)
}

func (w *work) planMerge() (p mergePlan, err error) {
	if ok, err := w.load("merge.json", &p); ok || err != nil {
		return p, err
	}
	var counts [row.Partitions]rowmerge.Partition
	for split := range w.job.splits() {
		var s shuffled
		if err := w.require(fmt.Sprintf("shuffle-%06d.json", split), &s); err != nil {
			return p, err
		}
		p.Shuffled = append(p.Shuffled, s.Shuffled...)
		p.add(&s.members)
		for i := range counts {
			counts[i].Rows += s.Partitions[i].Rows
			counts[i].KeyBytes += s.Partitions[i].KeyBytes
		}
	}
	_, p.Tasks = rowmerge.Plan(&counts, w.opt.Limits)
	return p, w.save("merge.json", &p)
}

// merged is merged-{task}.json: what a Merge has written.
type merged struct {
	lake.KeyedHeader
	Rows     int64            `json:"rows"`
	Parts    []lake.Part      `json:"parts"`
	Postings lake.FrameObject `json:"postings,omitzero"`
	Domains  int64            `json:"domains"`
}

// Merge sorts the rows of a task and writes their parts and postings.
func Merge(ctx context.Context, store blob.Store, run string, j *Job, task int, opt Options) error {
	w := newWork(ctx, store, run, j, opt)
	var p mergePlan
	err := w.require("merge.json", &p)
	if err == nil && (task < 0 || task >= len(p.Tasks)) {
		err = fmt.Errorf("merge task %d of %d", task, len(p.Tasks))
	}
	if err == nil {
		_, err = w.merge(task, &p.Tasks[task], p.Shuffled, nil)
	}
	return w.failed(err)
}

// merge does a task with the rows of source, or of the shuffle files if that is nil.
func (w *work) merge(
	number int, t *rowmerge.Task, files []rowsort.ShuffleFile, source rowmerge.Source,
) (m merged, err error) {
	name := fmt.Sprintf("merged-%06d.json", number)
	inMemory := source != nil
	if !inMemory {
		if ok, err := w.load(name, &m); ok || err != nil {
			return m, err
		}
		spill := func(prefix string, pass, n int) string {
			return fmt.Sprintf("%smerging/%06d/%s-%d-%06d", w.staging, number, prefix, pass, n)
		}
		var release func()
		source, release, err = rowmerge.FromShuffle(w.ctx, w.store, files, w.opt.Arena, t.Prefixes, spill)
		if err != nil {
			return m, err
		}
		defer release()
	}
	collector := postings.NewCollector(w.job.DatasetID, w.job.Name(), w.opt.TempDir)
	defer collector.Close()
	opt := partwriter.Options{Dataset: w.job.DatasetID, Batch: w.job.Name(), TempDir: w.opt.TempDir}
	out, err := rowmerge.Write(w.ctx, w.store, t.Prefixes, source, opt, collector, w.report)
	if err != nil {
		return m, err
	}
	if out.Rows != t.Rows {
		return m, fmt.Errorf("merge task %d: %d rows were written, want %d", number, out.Rows, t.Rows)
	}
	m.Rows, m.Postings, m.Domains = out.Rows, out.Postings, out.Domains
	for i := range out.Parts {
		m.Parts = append(m.Parts, out.Parts[i].Part)
	}
	if inMemory {
		return m, nil
	}
	return m, w.save(name, &m)
}

// Finish writes the record of the union.
func Finish(ctx context.Context, store blob.Store, run string, j *Job, opt Options) (Result, error) {
	w := newWork(ctx, store, run, j, opt)
	r, err := w.collect()
	return r, w.failed(err)
}

func (w *work) collect() (Result, error) {
	var p mergePlan
	if err := w.require("merge.json", &p); err != nil {
		return Result{}, err
	}
	done := make([]merged, len(p.Tasks))
	for i := range done {
		if err := w.require(fmt.Sprintf("merged-%06d.json", i), &done[i]); err != nil {
			return Result{}, err
		}
	}
	return w.finish(done, &p.members)
}

// finish writes the record over the parts of all tasks.
func (w *work) finish(done []merged, counted *members) (Result, error) {
	j := w.job
	b := lake.Batch{
		DatasetID: j.DatasetID, Batch: j.Name(), CanonicalForm: j.CanonicalForm, PublicSuffix: j.PublicSuffix,
		Members: slices.Clone(j.Members), Takedowns: j.Takedowns, Inputs: []lake.Input{}, Rejected: map[string]int64{}, Parts: []lake.Part{}, Postings: []lake.FrameObject{},
	}
	out := Result{Name: b.Batch}
	if len(j.Takedowns) > 0 {
		if err := count(b.Members, counted.Members); err != nil {
			return Result{}, err
		}
		out.Members, out.Dropped = b.Members, counted.Dropped
	}
	want := int64(0)
	for i := range b.Members {
		want += b.Members[i].Rows
	}
	for i := range done {
		b.Rows += done[i].Rows
		b.Domains += done[i].Domains
		b.Parts = append(b.Parts, done[i].Parts...)
		b.Postings = append(b.Postings, done[i].Postings)
	}
	if b.Rows != want {
		return Result{}, fmt.Errorf("%d rows were written, the batches have %d", b.Rows, want)
	}
	b.Records = b.Rows
	for i := range b.Parts {
		out.Bytes += b.Parts[i].Bytes
	}
	out.Rows, out.Parts = b.Rows, int64(len(b.Parts))
	data, digest, err := b.Encode()
	if err != nil {
		return Result{}, err
	}
	out.Digest = digest
	_, err = w.store.Put(w.ctx, lake.BatchKey(b.DatasetID, b.Batch, digest), data, blob.Condition{})
	return out, err
}

// count sets the rows of members by those of the sources. Each has to be in one source.
func count(all, counted []lake.Member) error {
	by := make(map[string]lake.Member, len(counted))
	for _, m := range counted {
		if _, twice := by[m.Batch]; twice {
			return fmt.Errorf("two sources have batch %s", m.Batch)
		}
		by[m.Batch] = m
	}
	for i := range all {
		m, ok := by[all[i].Batch]
		if !ok {
			return fmt.Errorf("no source has batch %s", all[i].Batch)
		}
		all[i].Rows, all[i].Dropped = m.Rows, m.Dropped
	}
	return nil
}

// load reads a document of an earlier attempt. It returns false if there is none.
func (w *work) load(name string, doc lake.Keyed) (bool, error) {
	etag, err := lake.LoadKeyed(w.ctx, w.store, w.staging+name, stagingFormat, doc)
	return etag != "", err
}

// require reads a document that an earlier step has written.
func (w *work) require(name string, doc lake.Keyed) error {
	return lake.RequireKeyed(w.ctx, w.store, w.staging+name, stagingFormat, doc)
}

// save writes a document.
func (w *work) save(name string, doc lake.Keyed) error {
	_, err := lake.SaveKeyed(w.ctx, w.store, w.staging+name, stagingFormat, doc, blob.Condition{})
	return err
}
