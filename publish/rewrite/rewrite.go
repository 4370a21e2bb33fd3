// Package rewrite reads rows of parts and writes them to other parts. A compaction writes the rows
// of several batches of a dataset to the common parts of a union, drops rows that takedowns hide,
// and takes batches out of a union. After a change of the public suffix list, a batch with rows
// that get another domain is written again under its own name.
//
// Many small batches, one a day for example, have many small parts; a union of them has as few as
// one batch with all rows would, and the rows of a domain are together. Each row of a union keeps
// the name of its batch, in the column batch, and rows that two batches have in common stay two
// rows. So counts do not change, and a batch can still be taken out of a union.
//
// A Job names the sources: batches, and unions of which some or all batches are taken. Do does it
// like an ingest whose raw objects are parts: it reads the parts of all sources, sorts their rows
// by partition, some partitions at a time, and writes parts, postings and a record. Rows that do
// not fit into memory go through shuffle files. So a batch that follows another list has the parts
// that an ingest by this list would have.
//
// Rows that takedowns hide can be dropped on the way: the job names the rules, and how many rows of
// each source they hide. The union says which rules were ever applied to its rows, and how many
// rows it lacks of each batch.
//
// The same members with the same takedowns and the same list have the same bytes, whatever the
// sources they are taken from and the memory. Do may be repeated, run twice at once, and stop
// anywhere. The caller is package publish.
package rewrite

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
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// arena is the memory for rows, in bytes.
	arena = row.MergeArena

	// readRows is how many rows are read at once: four pages.
	readRows = 4 * part.PageRows
)

// Job is a union that is to be written, or a batch that is to be written again.
type Job struct {
	DatasetID uint32 `json:"dataset_id"`
	// CanonicalForm and PublicSuffix are the rules that the written rows follow.
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`
	// Members are the batches of the union, by name. If the job has Takedowns, the union counts
	// their rows. Without members, the only source is a batch that is written again.
	Members []lake.Member `json:"members,omitempty"`
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

// Name is the name of the union or the batch.
func (j *Job) Name() string {
	if len(j.Members) == 0 {
		return j.Sources[0].Batch
	}
	return lake.UnionName(lake.UnionDigest(j.Members, j.Takedowns))
}

// Again returns the job that writes a batch or a union again by another public suffix list. Record
// is the one that ref names.
func Again(ref segment.BatchRef, record *lake.Batch, list string) *Job {
	j := &Job{
		DatasetID: ref.DatasetID, CanonicalForm: record.CanonicalForm, PublicSuffix: list, Members: record.Members,
		Takedowns: record.Takedowns, Sources: []Source{{Batch: ref.Batch, Digest: ref.Digest}},
	}
	for _, m := range record.Members {
		j.Sources[0].Take = append(j.Sources[0].Take, m.Batch)
	}
	return j
}

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

// Options are options of Do.
type Options struct {
	// TempDir holds at most two parts at a time, and postings; "" is the system's temporary folder.
	TempDir string
	// Progress, if not nil, is called from the caller's goroutine after some rows, with the number
	// of rows read and written so far.
	Progress func(rows int64)
	// Hide are the rules of the job, nil for none. Rows that they hide are dropped.
	Hide *catalog.Takedowns
	// Domain returns the domain of a canonical host by the job's public suffix list. Nil says that
	// the rows of the sources follow this list.
	Domain func(host string) string
	// Limits divide the work; only tests set them.
	Limits row.MergeLimits
	Arena  int64
}

func (o *Options) setDefaults() {
	if o.Limits == (row.MergeLimits{}) {
		o.Limits = row.DefaultMergeLimits
	}
	if o.Arena == 0 {
		o.Arena = arena
	}
}

// Result describes a union or a batch that is written.
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
	// Moved is the number of rows that have another domain than in their source.
	Moved int64 `json:"moved,omitempty"`
}

// work is one run of a job.
type work struct {
	ctx     context.Context
	store   blob.Store
	job     *Job
	staging string
	opt     Options
	members map[string]int // indices in job.Members, by batch
	taken   map[string]int // those that are taken from the union in work
	rows    int64          // so far
	moved   int64          // rows with another domain
}

// newWork begins a job, with staging in that of run.
func newWork(ctx context.Context, store blob.Store, run string, j *Job, opt Options) *work {
	opt.setDefaults()
	w := &work{ctx: ctx, store: store, job: j, opt: opt, members: map[string]int{}, taken: map[string]int{}}
	w.staging = fmt.Sprintf("%srewrite/%d-%s/", lake.StagingPrefix(run), j.DatasetID,
		lake.Digest(fmt.Appendf(nil, "%s\t%+v\t%s", j.Name(), j.Sources, j.PublicSuffix)))
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
	if len(w.job.Members) == 0 {
		return fmt.Errorf("write batch %s of dataset %d again: %w", w.job.Name(), w.job.DatasetID, err)
	}
	return fmt.Errorf("unite %d batches of dataset %d: %w", len(w.job.Members), w.job.DatasetID, err)
}

// Do does a job. A damaged or missing object of a source is a *postings.DamageError. Rows that do
// not fit into memory are in the staging of run, which the caller deletes.
func Do(ctx context.Context, store blob.Store, run string, j *Job, opt Options) (Result, error) {
	w := newWork(ctx, store, run, j, opt)
	r, err := w.do()
	return r, w.failed(err)
}

func (w *work) do() (Result, error) {
	buffer := row.NewBuffer(w.opt.Arena)
	defer buffer.Release()
	s := shuffler{work: w, buffer: buffer}
	if err := w.checkRules(); err != nil {
		return Result{}, err
	}
	for _, source := range w.job.Sources {
		if err := s.source(source); err != nil {
			return Result{}, err
		}
	}
	var source row.Source
	if len(s.files) == 0 { // all rows are in memory
		s.count()
		source = func(_ string, first, last byte, sink row.Sink) error { return buffer.Rows(w.ctx, first, last, sink) }
	} else {
		if err := s.flush(); err != nil {
			return Result{}, err
		}
		buffer.Shrink()
	}
	_, tasks := row.PlanMerge(&s.partitions, w.opt.Limits)
	var done []merged
	for i := range tasks {
		m, err := w.merge(i, &tasks[i], s.files, source)
		if err != nil {
			return Result{}, err
		}
		done = append(done, m)
	}
	return w.finish(done, s.record, s.counted, s.dropped)
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

// shuffler reads sources into a buffer.
type shuffler struct {
	*work
	buffer     *row.Buffer
	files      []row.ShuffleFile
	partitions [row.Partitions]row.PartitionSize
	counted    []lake.Member // members of the sources that were read, in any order, if takedowns apply
	dropped    int64         // rows
	record     *lake.Batch   // of the last source
}

// count adds the rows in the buffer to the result.
func (s *shuffler) count() {
	var rows, keyBytes [row.Partitions]int64
	s.buffer.Count(&rows, &keyBytes)
	s.add(&rows, &keyBytes)
}

func (s *shuffler) add(rows, keyBytes *[row.Partitions]int64) {
	for i := range rows {
		s.partitions[i].Rows += rows[i]
		s.partitions[i].KeyBytes += keyBytes[i]
	}
}

// flush writes the rows in the buffer to a shuffle file.
func (s *shuffler) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	key := fmt.Sprintf("%sshuffle/%06d", s.staging, len(s.files))
	var rows, keyBytes [row.Partitions]int64
	f, err := s.buffer.WriteShuffle(s.ctx, s.store, key, &rows, &keyBytes)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	s.add(&rows, &keyBytes)
	return nil
}

// columns are the columns from which a row can be written again; a union's rows have a batch too.
var columns = append([]part.Column{part.ColDomain, part.ColHost, part.ColPathQuery}, part.SuffixColumns...)

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
	s.record = record
	got, dropped := int64(0), make([]int64, max(len(s.job.Members), 1))
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
	if hidden != from.Hidden {
		want := fmt.Sprintf("%d that takedowns hide, as the deletion tables say", from.Hidden)
		return postings.Damaged(ref, codec.Corrupt(ref.Key(), "rows", -1, want, hidden))
	}
	if len(s.job.Takedowns) > 0 {
		s.counted, s.dropped = append(s.counted, have...), s.dropped+hidden
	}
	return nil
}

// membersOf returns the members of the job that are taken from a source, as the source has them. It
// sets which these are.
func (s *shuffler) membersOf(record *lake.Batch, take []string) (have []lake.Member, err error) {
	clear(s.taken)
	if len(record.Members) == 0 {
		if _, ok := s.members[record.Batch]; !ok && len(s.job.Members) > 0 {
			return nil, fmt.Errorf("batch %s is not to be in the union", record.Batch)
		}
		return []lake.Member{{Batch: record.Batch, Rows: record.Rows}}, nil
	}
	for _, id := range record.Takedowns {
		if !slices.Contains(s.job.Takedowns, id) {
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
	var domain, host, own string // own is the domain of the host in the new part
	var number uint32
	hasNumber := false
	var hides *catalog.Matcher // nil for a domain without hidden rows
	inBatch := ""              // the batch of a union's row
	if len(s.job.Members) > 0 {
		inBatch = batch
	}
	member := s.members[batch]
	for r, err := range scan.Scan(s.ctx, pages, readRows, read) {
		if err != nil {
			return 0, err
		}
		for i := range r.Rows {
			if len(r.Batch) > 0 {
				var ok bool
				inBatch = r.Batch[i]
				if member, ok = s.taken[inBatch]; !ok {
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
				if own = domain; s.opt.Domain != nil {
					own = strings.Clone(s.opt.Domain(host))
				}
			}
			if hides != nil && hides.Hides(&catalog.Row{
				Dataset: s.job.DatasetID, Scheme: r.Scheme[i], Host: host, Path: r.PathQuery[i], Port: r.Port[i],
				TS: r.TS[i], HasTS: r.HasTS[i],
			}) {
				dropped[member]++
				rows++
				continue
			}
			if !hasNumber {
				if number, err = s.buffer.Host(own, host, urlnorm.DomainID(own)); err != nil {
					return 0, err
				}
				hasNumber = true
			}
			suffix := r.Suffix(i)
			suffix.Batch = inBatch
			if err := s.buffer.Add(number, []byte(r.PathQuery[i]), &suffix); err != nil {
				return 0, err
			}
			if own != domain {
				s.moved++
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

// merged is what a task has written.
type merged struct {
	rows     int64
	parts    []lake.Part
	postings lake.FrameObject
	domains  int64
}

// merge does a task with the rows of source, or of the shuffle files if that is nil.
func (w *work) merge(
	number int, t *row.MergeTask, files []row.ShuffleFile, source row.Source,
) (m merged, err error) {
	if source == nil {
		spill := func(prefix string, pass, n int) string {
			return fmt.Sprintf("%smerging/%06d/%s-%d-%06d", w.staging, number, prefix, pass, n)
		}
		var release func()
		source, release, err = row.FromShuffle(w.ctx, w.store, files, w.opt.Arena, t.Prefixes, spill)
		if err != nil {
			return m, err
		}
		defer release()
	}
	collector := postings.NewCollector(w.job.DatasetID, w.job.Name(), w.opt.TempDir)
	defer collector.Close()
	opt := part.Options{Dataset: w.job.DatasetID, Batch: w.job.Name(), TempDir: w.opt.TempDir}
	out, err := part.WriteTask(w.ctx, w.store, t.Prefixes, source, opt, collector, w.report)
	if err != nil {
		return m, err
	}
	if out.Rows != t.Rows {
		return m, fmt.Errorf("merge task %d: %d rows were written, want %d", number, out.Rows, t.Rows)
	}
	m = merged{rows: out.Rows, postings: out.Postings, domains: out.Domains}
	for i := range out.Parts {
		m.parts = append(m.parts, out.Parts[i].Part)
	}
	return m, nil
}

// finish writes the record over the parts of all tasks. Old is the record of the last source.
func (w *work) finish(done []merged, old *lake.Batch, counted []lake.Member, dropped int64) (Result, error) {
	j := w.job
	b := lake.Batch{
		DatasetID: j.DatasetID, Batch: j.Name(), Members: slices.Clone(j.Members), Takedowns: j.Takedowns,
		Inputs: []lake.Input{}, Rejected: map[string]int64{},
	}
	want := int64(0)
	if len(j.Members) == 0 {
		b, want = *old, old.Rows
		b.MovedFrom = j.Sources[0].Digest
	}
	b.CanonicalForm, b.PublicSuffix = j.CanonicalForm, j.PublicSuffix
	b.Rows, b.Domains, b.Parts, b.Postings = 0, 0, []lake.Part{}, []lake.FrameObject{}
	out := Result{Name: b.Batch, Moved: w.moved}
	if len(j.Takedowns) > 0 {
		if err := count(b.Members, counted); err != nil {
			return Result{}, err
		}
		out.Members, out.Dropped = b.Members, dropped
	}
	for i := range b.Members {
		want += b.Members[i].Rows
	}
	for i := range done {
		b.Rows += done[i].rows
		b.Domains += done[i].domains
		b.Parts = append(b.Parts, done[i].parts...)
		b.Postings = append(b.Postings, done[i].postings)
	}
	if b.Rows != want {
		return Result{}, fmt.Errorf("%d rows were written, the batches have %d", b.Rows, want)
	}
	if len(j.Members) > 0 {
		b.Records = b.Rows
	}
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
