package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// maxProblems is how many problems a report describes; the rest are counted.
const maxProblems = 20

// Problem is something VerifySegment found wrong.
type Problem struct {
	Place string `json:"place"`   // the object
	Text  string `json:"problem"` // one line: the object, the place in it, what is wrong
}

// Report is what VerifySegment looked at.
type Report struct {
	Segment string `json:"segment"`
	Deep    bool   `json:"deep"`

	Files   int   `json:"files"` // of the segment, segment.json included
	Bytes   int64 `json:"bytes"` // of those
	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"` // pairs of domain and dataset
	Tuples  int64 `json:"tuples"`
	Rows    int64 `json:"rows"`
	Parts   int64 `json:"parts"`
	Pages   int64 `json:"page_index_blocks"`
	// PartRows and PartBytes were read from the parts themselves; 0 unless Deep.
	PartRows  int64 `json:"part_rows"`
	PartBytes int64 `json:"part_bytes"`
	// Uncounted are the datasets whose postings could not be held against their rows, because a part of theirs is damaged or missing.
	Uncounted []uint32 `json:"uncounted_datasets,omitempty"`

	// Problems are the first found, Found is their number in all.
	Problems []Problem `json:"problems,omitempty"`
	Found    int64     `json:"problems_found"`
}

// VerifySegment reads every byte of a segment and checks it: each file's hash, each frame, the
// order of everything, that the perfect hash takes each domain to its line, that sets of
// datasets are those of the postings, that totals are the sums of tuples, and that tuples tile the
// row groups of the parts exactly. Deep also reads all parts: their hashes, every page of every
// column, and it counts all rows again.
//
// It works on all processors. It goes on after a problem as far as that makes sense, and leaves out what only follows from one
// that it has reported. The report says what was looked at and
// what was found; the error is the first problem, a *codec.CorruptError as always, or that the
// check itself could not be done. Temporary files are in tempDir, "" is the system's folder.
func VerifySegment(ctx context.Context, store blob.Store, ref SegmentRef, deep bool, tempDir string) (Report, error) {
	v := &verifier{ctx: ctx, store: store, ref: ref, tempDir: tempDir, report: Report{Segment: ref.ID, Deep: deep}}
	err := v.check()
	if err != nil {
		err = fmt.Errorf("verify segment %q: %w", ref.ID, err)
	}
	return v.report, err
}

// findings are problems in the order in which they are to be reported.
type findings struct {
	list []error // the first maxProblems
	n    int64
}

func (f *findings) add(err error) {
	if f.n++; len(f.list) < maxProblems {
		f.list = append(f.list, err)
	}
}

func (f *findings) addAll(g *findings) {
	for _, err := range g.list {
		f.add(err)
	}
	f.n += g.n - int64(len(g.list))
}

// problem adds err if it says that data are wrong, and returns any other error. Object is what was read.
func (f *findings) problem(ctx context.Context, object string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, blob.ErrNotExist):
		err = codec.Corrupt(object, "object", -1, "one that exists", "none")
	case errors.Is(err, blob.ErrRange):
		err = codec.Corrupt(object, "object", -1, "the bytes that the index names", "fewer")
	case !errors.Is(err, codec.ErrCorrupt):
		return err
	}
	// What was being done says less than the place, and names the object again.
	var c *codec.CorruptError
	if errors.As(err, &c) {
		err = c
	}
	f.add(err)
	return nil
}

// wrong notes that something is not what it has to be.
func (f *findings) wrong(file, section string, want, got any) {
	f.add(codec.Corrupt(file, section, -1, want, got))
}

type verifier struct {
	ctx     context.Context
	store   blob.Store
	ref     SegmentRef
	report  Report
	found   findings
	changed []error // files whose hash is another: reported where nothing else tells what is wrong with them
	tempDir string

	seg    *segment.Segment
	info   *segment.Info
	parts  []lake.Part // of the files, from the batch records
	groups [][]rowGroup
	// partial: something was not read to its end, so that its sums say nothing.
	partial struct{ records, pages, domains, postings bool }
	// uncounted are the datasets of parts that were not read to their end.
	uncounted map[uint32]bool
	// sets sums up all domains with their sets of datasets, if setsKnown.
	sets      uint64
	setsKnown bool
}

// rowGroup collects what is known of one row group.
type rowGroup struct {
	rows   int64 // by its page index
	number int   // in the segment
}

// tiled is what the tuples of one row group add up to.
type tiled struct {
	rows int64
	// tiles is the sum over all tuples of mix(end) - mix(start). Tuples that tile the row group
	// leave mix(rows) - mix(0), whatever their order; others do not, but for a chance of 2^-64.
	tiles uint64
}

func mix(v int64) uint64 {
	hi, lo := bits.Mul64(uint64(v)^0x9e3779b97f4a7c15, 0xd1b54a32d192ed02)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// mixSet is the part of one domain in a sum over all domains with their datasets. Sum is that of mix over its datasets. Two lists of domains and
// datasets that have the same sum are the same in another order, but for a chance of 2^-64.
func mixSet(k segment.Key, sum uint64) uint64 {
	return mix(int64(k.ID ^ mix(int64(sum+uint64(k.Check)))))
}

func (v *verifier) problem(object string, err error) error {
	return v.found.problem(v.ctx, object, err)
}

func (v *verifier) wrong(file, section string, want, got any) {
	v.found.wrong(file, section, want, got)
}

func (v *verifier) key(name string) string { return segment.Prefix(v.ref.ID) + name }

// check runs all checks and makes the report of what they found.
func (v *verifier) check() error {
	err := v.run()
	told := map[string]bool{}
	for _, p := range v.found.list {
		told[objectOf(p)] = true
	}
	for _, c := range v.changed {
		if !told[objectOf(c)] {
			v.found.add(c)
		}
	}
	v.report.Found = v.found.n
	for _, p := range v.found.list {
		v.report.Problems = append(v.report.Problems, Problem{objectOf(p), p.Error()})
	}
	if err == nil && len(v.found.list) > 0 {
		err = v.found.list[0]
	}
	return err
}

// objectOf is the object that a problem is about.
func objectOf(err error) string {
	var c *codec.CorruptError
	if errors.As(err, &c) {
		return c.File
	}
	return ""
}

func (v *verifier) run() error {
	info, err := segment.ReadInfo(v.ctx, v.store, v.ref)
	if err != nil {
		return v.problem(v.key(segment.InfoName), err)
	}
	v.info = info
	if err := v.files(); err != nil {
		return err
	}
	opt := segment.Options{}
	if _, local := blob.AsLocalFiler(v.store); !local {
		if opt.CacheDir, err = os.MkdirTemp(v.tempDir, "verify-"); err != nil {
			return err
		}
		defer os.RemoveAll(opt.CacheDir)
	}
	if v.seg, err = segment.Open(v.ctx, v.store, v.ref, opt); err != nil {
		if gone := errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange); gone && len(v.found.list)+len(v.changed) > 0 {
			return nil // the file was named
		}
		return v.problem(v.key(segment.InfoName), err)
	}
	defer v.seg.Close()
	for _, step := range []func() error{v.records, v.pages, v.domains, v.postings, v.counts} {
		if err := step(); err != nil {
			return err
		}
	}
	if !v.report.Deep {
		return nil
	}
	return v.recount()
}

// inOrder does n jobs, one on each processor, and hands the results to done in the order of the jobs. Job is told which
// processor's memory it may use.
func inOrder[T any](ctx context.Context, n int, job func(ctx context.Context, worker, i int) (T, error), done func(i int, result T) error) error {
	type slot struct {
		i   int
		out chan T
	}
	workers := runtime.GOMAXPROCS(0)
	g, ctx := errgroup.WithContext(ctx)
	jobs, order := make(chan slot), make(chan slot, 2*workers)
	g.Go(func() error {
		defer close(jobs)
		defer close(order)
		for i := range n {
			s := slot{i, make(chan T, 1)}
			for _, to := range []chan slot{order, jobs} {
				select {
				case to <- s:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for worker := range workers {
		g.Go(func() error {
			for s := range jobs {
				result, err := job(ctx, worker, s.i)
				if err != nil {
					return err
				}
				s.out <- result
			}
			return nil
		})
	}
	g.Go(func() error {
		for s := range order {
			select {
			case result := <-s.out:
				if err := done(s.i, result); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// files reads every file and hashes it.
func (v *verifier) files() error {
	total := int64(0)
	type hashed struct {
		n   int64
		sum string
		err error
	}
	err := inOrder(v.ctx, len(v.info.Files), func(ctx context.Context, _, i int) (h hashed, _ error) {
		h.n, h.sum, h.err = v.copy(ctx, v.key(v.info.Files[i].Name), io.Discard)
		return h, nil
	}, func(i int, h hashed) error {
		f := &v.info.Files[i]
		total += f.Bytes
		if h.err != nil {
			return v.problem(v.key(f.Name), h.err)
		}
		if h.n != f.Bytes || h.sum != f.XXH64 {
			v.changed = append(v.changed, codec.Corrupt(v.key(f.Name), "file", -1, fmt.Sprintf("%d bytes with xxh64 %s", f.Bytes, f.XXH64), fmt.Sprintf("%d with %s", h.n, h.sum)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	data, _, err := v.store.Get(v.ctx, v.key(segment.InfoName))
	if err != nil {
		return v.problem(v.key(segment.InfoName), err)
	}
	v.report.Files, v.report.Bytes = 1+len(v.info.Files), total+int64(len(data))
	describe := func(bytes, domains, rows int64) string {
		return fmt.Sprintf("%d bytes, %d domains, %d rows", bytes, domains, rows)
	}
	if want, got := describe(v.ref.Bytes, v.ref.Domains, v.ref.Rows), describe(v.report.Bytes, v.info.Domains, v.info.Rows); want != got {
		v.wrong(v.key(segment.InfoName), "counts", want+" as in the version", got)
	}
	return nil
}

// copy copies an object to w and hashes it.
func (v *verifier) copy(ctx context.Context, key string, w io.Writer) (n int64, sum string, err error) {
	r, err := v.store.Open(ctx, key, 0, -1)
	if err != nil {
		return 0, "", err
	}
	h := xxhash.New()
	n, err = io.CopyBuffer(io.MultiWriter(h, w), r, make([]byte, 256<<10))
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return n, fmt.Sprintf("%016x", h.Sum64()), err
}

// describeFile prints a line of files.tsv for an error.
func describeFile(f segment.FileInfo) string {
	return fmt.Sprintf("%s of %d bytes and %d rows in batch %s of dataset %d", f.Path, f.Bytes, f.Rows, f.Batch, f.DatasetID)
}

// records holds files.tsv against the batch records.
func (v *verifier) records() error {
	files := v.seg.Files()
	name := v.key(segment.FilesName)
	wrong := 0
	type read struct {
		b   *lake.Batch
		err error
	}
	err := inOrder(v.ctx, len(v.info.Batches), func(ctx context.Context, _, i int) (r read, _ error) {
		key := v.info.Batches[i].Key()
		data, _, err := v.store.Get(ctx, key)
		if err == nil {
			r.b, err = lake.DecodeBatch(data, key)
		}
		r.err = err
		return r, nil
	}, func(i int, r read) error {
		ref := v.info.Batches[i]
		if r.err != nil {
			v.partial.records = true
			return v.problem(ref.Key(), r.err)
		}
		b := r.b
		if b.CanonicalForm != v.info.CanonicalForm || b.PublicSuffix != v.info.PublicSuffix {
			v.wrong(ref.Key(), "rules", v.info.CanonicalForm+" with "+v.info.PublicSuffix, b.CanonicalForm+" with "+b.PublicSuffix)
		}
		for _, p := range b.Parts {
			id := len(v.parts)
			v.parts = append(v.parts, p)
			if v.partial.records || wrong > 0 {
				continue // lines have moved
			}
			want := segment.FileInfo{DatasetID: b.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: b.Batch, Bytes: p.Bytes, Rows: p.Rows}
			if id >= files.Len() {
				continue // told below
			}
			if got := files.Info(uint32(id)); got != want {
				wrong++
				v.wrong(name, fmt.Sprintf("line %d", id), describeFile(want), describeFile(got))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(v.parts) != files.Len() && !v.partial.records {
		v.wrong(name, "lines", fmt.Sprintf("%d files", len(v.parts)), files.Len())
	}
	v.report.Parts = int64(files.Len())
	return nil
}

// pages goes over parts.idx: every row of every part has its pages, inside the part.
func (v *verifier) pages() error {
	files := v.seg.Files()
	name := v.key(segment.PartsName)
	v.groups = make([][]rowGroup, files.Len())
	number := 0
	all := allColumns()
	for p, err := range v.seg.Pages(v.ctx) {
		if err != nil {
			v.partial.pages = true
			return v.problem(name, err)
		}
		v.report.Pages++
		if int64(p.File) >= int64(files.Len()) {
			v.wrong(name, "fences", fmt.Sprintf("a file below %d", files.Len()), p.File)
			continue
		}
		path := files.Info(p.File).Path
		g := &v.groups[p.File]
		if p.RowGroup == len(*g) {
			*g = append(*g, rowGroup{number: number})
			number++
		}
		if p.RowGroup != len(*g)-1 || p.FirstRow != (*g)[p.RowGroup].rows {
			v.wrong(name, "pages of "+path, "row groups and rows that follow each other", fmt.Sprintf("row %d of row group %d", p.FirstRow, p.RowGroup))
			continue
		}
		(*g)[p.RowGroup].rows += p.Rows()
		plan, err := p.Plan(p.FirstRow, p.Rows(), all...)
		if err != nil {
			return err
		}
		size := files.Info(p.File).Bytes
		for _, r := range plan.Ranges {
			if r.Offset < 0 || r.Bytes < 0 || r.Bytes > size-r.Offset {
				v.wrong(name, "pages of "+path, fmt.Sprintf("pages within %d bytes", size), fmt.Sprintf("%d bytes at %d", r.Bytes, r.Offset))
				break
			}
		}
	}
	for id, g := range v.groups {
		var rows int64
		for _, r := range g {
			rows += r.rows
		}
		if f := files.Info(uint32(id)); rows != f.Rows {
			v.wrong(name, "pages of "+f.Path, fmt.Sprintf("%d rows", f.Rows), rows)
		}
	}
	return nil
}

func allColumns() []lake.Column {
	all := make([]lake.Column, lake.NumColumns)
	for c := range all {
		all[c] = lake.Column(c)
	}
	return all
}

// domainsAtOnce is how many domains are looked up as one job.
const domainsAtOnce = 64 * segment.DomainsPerFrame

// domainRange is what was found in a range of ordinals.
type domainRange struct {
	first, last string
	n           int64
	sets        uint64 // sum of mixSet
	unsure      bool   // of sets
	broken      bool   // not read to its end
	found       findings
}

// domains goes over domains.txt: each is where the perfect hash says. It sums up what datasets they have.
func (v *verifier) domains() error {
	jobs := int((v.info.Domains + domainsAtOnce - 1) / domainsAtOnce)
	last := ""
	sets := v.seg.NewSetSums(func(dataset uint32) uint64 { return mix(int64(dataset)) })
	v.setsKnown = true
	return inOrder(v.ctx, jobs, func(ctx context.Context, _, i int) (r domainRange, err error) {
		return r, v.domainRange(ctx, int64(i)*domainsAtOnce, sets, &r)
	}, func(i int, r domainRange) error {
		v.found.addAll(&r.found)
		v.report.Domains += r.n
		v.partial.domains = v.partial.domains || r.broken
		v.sets += r.sets
		v.setsKnown = v.setsKnown && !r.unsure && !r.broken
		if r.n > 0 {
			if i > 0 && r.first <= last && !v.partial.domains {
				v.wrong(v.key(segment.DomainsName), fmt.Sprintf("line %d", i*domainsAtOnce), fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", r.first))
			}
			last = r.last
		}
		return nil
	})
}

func (v *verifier) domainRange(ctx context.Context, from int64, sets *segment.SetSums, r *domainRange) error {
	var keys [segment.DomainsPerFrame]segment.Key
	var ordinals [segment.DomainsPerFrame]uint32
	var sums [segment.DomainsPerFrame]uint64
	for f, err := range v.seg.DomainFrames(ctx, uint32(from), from+domainsAtOnce) {
		if err != nil {
			r.broken = true
			return r.found.problem(ctx, v.key(segment.DomainsName), err)
		}
		n := len(f.Ends)
		for i := range n {
			keys[i] = urlKey(f.Domain(i))
		}
		if r.n == 0 {
			r.first = string(f.Domain(0))
		}
		r.last = string(f.Domain(n - 1))
		if err := v.seg.Ordinals(keys[:n], ordinals[:n]); err != nil {
			r.broken = true
			return r.found.problem(ctx, v.key(segment.MPHFName), err)
		}
		for i, got := range ordinals[:n] {
			if want := uint32(f.First) + uint32(i); got != want {
				r.found.wrong(v.key(segment.MPHFName), "ordinal of "+string(f.Domain(i)), want, ordinal(got))
			}
		}
		if err := sets.Range(uint32(f.First), sums[:n]); err != nil {
			r.unsure = true // postings tells why
		}
		for i, k := range keys[:n] {
			r.sets += mixSet(k, sums[i])
		}
		r.n += int64(n)
	}
	return nil
}

// ordinal prints what a domain was looked up as.
func ordinal(o uint32) string {
	if o == mph.Absent {
		return "none"
	}
	return fmt.Sprint(o)
}

// postingsRange is what was found in some frames of a shard.
type postingsRange struct {
	run          *segment.PostingsRun
	first, last  domainSets // last is empty where there is but one
	domains      int64      // between those two
	sets         uint64     // sum of mixSet over them
	entries      int64
	rows, tuples int64
	broken       bool // could not be read
	found        findings
}

// endRange takes the range's last domain.
func (r *postingsRange) endRange(d domainSets) {
	if r.first.entries == 0 {
		r.first = d
	} else {
		r.last = d
	}
}

// endDomain counts a domain that has ended, and is not the range's last. It does nothing for none.
func (r *postingsRange) endDomain(d domainSets) {
	switch {
	case d.entries == 0:
	case r.first.entries == 0:
		r.first = d
	default:
		r.domains++
		r.sets += mixSet(d.key, d.sum)
	}
}

// domainSets is a domain and its datasets.
type domainSets struct {
	key      segment.Key
	entries  int
	sum      uint64   // of mix over the datasets
	datasets []uint32 // where each domain is looked up
}

// postings goes over all entries: domains have the sets of datasets that they have in domain_to_datasets, and tuples lie in the row groups of
// their files and tile them. Sets are compared by their sum over all domains, each of which has its own ordinal, as was seen. What is not sound
// is looked at again, domain by domain, and what that finds is reported.
func (v *verifier) postings() error {
	if v.setsKnown && v.found.n == 0 && len(v.changed) == 0 {
		before := v.report
		sound, err := v.allEntries(false)
		if sound || err != nil {
			return err
		}
		v.report, v.found, v.partial.postings = before, findings{}, false
	}
	_, err := v.allEntries(true)
	return err
}

// allEntries goes over all entries and tells whether nothing was wrong. It looks up each domain, or sums them up.
func (v *verifier) allEntries(lookUp bool) (sound bool, err error) {
	type frames struct{ shard, lo, hi int }
	var jobs []frames
	for shard := range 1 << v.info.ShardBits {
		for _, r := range v.seg.PostingsRuns(shard) {
			jobs = append(jobs, frames{shard, r[0], r[1]})
		}
	}
	groups := 0
	for _, g := range v.groups {
		groups += len(g)
	}
	checkers := make([]*membershipChecker, runtime.GOMAXPROCS(0)+1) // the last one is for domains between runs
	tiles := make([][]tiled, len(checkers)-1)
	if lookUp {
		seen := make([]atomic.Uint64, v.info.Domains/64+1)
		for i := range checkers {
			checkers[i] = &membershipChecker{v: v, seen: seen}
		}
	}
	for i := range tiles {
		tiles[i] = make([]tiled, groups)
	}
	runs := sync.Pool{New: func() any { return new(segment.PostingsRun) }}

	var domains int64
	var sets uint64
	var pending domainSets // may go on in the next frames
	endDomain := func() error {
		ended := pending
		pending = domainSets{}
		if ended.entries == 0 {
			return nil
		}
		domains++
		sets += mixSet(ended.key, ended.sum)
		if !lookUp {
			return nil
		}
		c := checkers[len(checkers)-1]
		c.add(ended.key, ended.datasets)
		return c.check(v.ctx, &v.found)
	}
	var end segment.PostingsEnd
	lost := false // frames of this shard
	endShard := func(shard int) error {
		if !lost {
			if err := v.problem(v.key(segment.PayloadsName(shard)), v.seg.EndPostings(shard, end)); err != nil {
				return err
			}
		}
		end, lost = segment.PostingsEnd{}, false
		return nil
	}
	err = inOrder(v.ctx, len(jobs), func(ctx context.Context, worker, i int) (r postingsRange, err error) {
		j := jobs[i]
		r.run = runs.Get().(*segment.PostingsRun)
		var plain func(*segment.PlainBlock)
		var p plainRange
		if !lookUp {
			plain = func(b *segment.PlainBlock) { v.plainBlock(&r, &p, b, j.shard, tiles[worker]) }
		}
		if err := v.seg.ReadPostings(ctx, j.shard, j.lo, j.hi, r.run, plain); err != nil {
			r = postingsRange{run: r.run, broken: true}
			return r, r.found.problem(ctx, v.key(segment.PostingsName(j.shard)), err)
		}
		if r.entries > 0 {
			r.endRange(p.open)
			return r, nil
		}
		return r, v.postingsRange(ctx, &r, j.shard, checkers[worker], tiles[worker])
	}, func(i int, r postingsRange) error {
		v.found.addAll(&r.found)
		j := jobs[i]
		if r.broken {
			lost, v.partial.postings = true, true
			pending = domainSets{}
		} else {
			if err := v.seg.Follow(j.shard, r.run, &end); err != nil && !lost {
				if err := v.problem(v.key(segment.PostingsName(j.shard)), err); err != nil {
					return err
				}
			}
			v.report.Entries += r.entries
			v.report.Rows += r.rows
			v.report.Tuples += r.tuples
			domains += r.domains
			sets += r.sets
			if r.first.key != pending.key {
				if err := endDomain(); err != nil {
					return err
				}
			}
			pending = domainSets{r.first.key, pending.entries + r.first.entries, pending.sum + r.first.sum, append(pending.datasets, r.first.datasets...)}
			if r.last.entries > 0 {
				if err := endDomain(); err != nil {
					return err
				}
				pending = r.last
			}
		}
		runs.Put(r.run)
		if i == len(jobs)-1 || jobs[i+1].shard != j.shard {
			return endShard(j.shard)
		}
		return nil
	})
	if err == nil {
		err = endDomain()
	}
	if err != nil || v.partial.postings {
		return false, err
	}
	if domains != v.report.Domains && !v.partial.domains {
		v.wrong(v.key("postings"), "entries", fmt.Sprintf("%d domains", v.report.Domains), domains)
	}
	if v.partial.pages {
		return sets == v.sets && v.found.n == 0, nil
	}
	for id, groups := range v.groups {
		for n, g := range groups {
			var sum tiled
			for _, t := range tiles {
				sum.rows += t[g.number].rows
				sum.tiles += t[g.number].tiles
			}
			if sum.rows != g.rows || sum.tiles != mix(g.rows)-mix(0) {
				got := fmt.Sprintf("%d rows", sum.rows)
				if sum.rows == g.rows {
					got = "some twice"
				}
				v.wrong(v.key("postings"), fmt.Sprintf("tuples of row group %d of %s", n, v.seg.Files().Info(uint32(id)).Path), fmt.Sprintf("all %d rows once", g.rows), got)
			}
		}
	}
	return sets == v.sets && v.found.n == 0, nil
}

// postingsRange checks what was read of a shard but for the first and the last domain's sets of datasets, which may go on in other frames.
// C looks up domains, where not nil.
func (v *verifier) postingsRange(ctx context.Context, r *postingsRange, shard int, c *membershipChecker, tiles []tiled) error {
	entries := r.run.Entries
	r.entries = int64(len(entries))
	for from := 0; from < len(entries); {
		key, to, sum := entries[from].Key, from, uint64(0)
		for ; to < len(entries) && entries[to].Key == key; to++ {
			e := &entries[to]
			sum += mix(int64(e.Dataset))
			r.rows += e.Rows
			tuples := r.run.Tuples(to)
			r.tuples += int64(len(tuples))
			for _, t := range tuples {
				v.tuple(&r.found, shard, t, tiles)
			}
		}
		var datasets []uint32
		if c != nil {
			c.datasets = c.datasets[:0]
			for i := range entries[from:to] {
				c.datasets = append(c.datasets, entries[from+i].Dataset)
			}
			datasets = c.datasets
		}
		switch {
		case from == 0:
			r.first = domainSets{key, to - from, sum, slices.Clone(datasets)}
		case to == len(entries):
			r.last = domainSets{key, to - from, sum, slices.Clone(datasets)}
		default:
			r.domains++
			r.sets += mixSet(key, sum)
			if c == nil {
				break
			}
			c.add(key, datasets)
			if len(c.keys) == membershipBatch {
				if err := c.check(ctx, &r.found); err != nil {
					return err
				}
			}
		}
		from = to
	}
	if c == nil {
		return nil
	}
	return c.check(ctx, &r.found)
}

// plainRange is what is known while the blocks of a range are gone over.
type plainRange struct {
	open   domainSets // the domain of the entry that was last seen
	files  []plainFile
	starts []uint32
	sums   []uint64 // of what the entries before each add
}

// plainFile is what the entries of a file have in common.
type plainFile struct {
	mixed  uint64 // the dataset
	groups []rowGroup
}

// plainBlock is postingsRange, without looking up domains, for one block of a range: most of what verifying postings takes is here.
func (v *verifier) plainBlock(r *postingsRange, p *plainRange, b *segment.PlainBlock, shard int, tiles []tiled) {
	p.files = p.files[:0]
	for i, id := range b.FileIDs {
		f := plainFile{mixed: mix(int64(b.Datasets[i]))}
		if int64(id) < int64(len(v.groups)) && !v.partial.pages {
			f.groups = v.groups[id]
		}
		p.files = append(p.files, f)
	}
	n := len(b.FileIndexes)
	allRows, groups, firsts := b.Rows[:n], b.Groups[:n], b.Firsts[:n]
	p.sums = slices.Grow(p.sums[:0], n+1)[:n+1]
	sets, sums := uint64(0), p.sums[:n]
	for i, place := range b.FileIndexes {
		f := &p.files[place]
		sums[i] = sets
		sets += f.mixed
		rows, first := allRows[i], firsts[i]
		r.rows += rows
		if group := groups[i]; uint64(group) < uint64(len(f.groups)) {
			if g := &f.groups[group]; first >= 0 && rows >= 1 && rows <= g.rows-first {
				sum := &tiles[g.number]
				sum.rows += rows
				sum.tiles += mix(first+rows) - mix(first)
				continue
			}
		}
		v.tuple(&r.found, shard, segment.Tuple{FileID: b.FileIDs[place], RowGroup: uint32(groups[i]), FirstRow: first, Rows: rows}, tiles)
	}
	p.sums[n] = sets
	p.starts = b.Starts(p.starts)
	open := p.open
	for i, k := range b.Keys {
		from, to := p.starts[i], p.starts[i+1]
		if k != open.key { // else it goes on in this block
			r.endDomain(open)
			open = domainSets{key: k}
		}
		open.entries += int(to - from)
		open.sum += p.sums[to] - p.sums[from]
	}
	p.open = open
	r.entries += int64(n)
	r.tuples += int64(n)
}

// membershipChecker holds the sets of datasets of domains against those of their entries. It is for one goroutine.
type membershipChecker struct {
	v        *verifier
	seen     []atomic.Uint64 // a bit for each ordinal, of all checkers
	keys     []segment.Key
	ends     []int    // of each key's datasets
	flat     []uint32 // datasets of all keys
	ordinals []uint32
	datasets []uint32 // scratch memory
}

// membershipBatch is how many domains are looked up at once.
const membershipBatch = 1 << 10

func (c *membershipChecker) add(k segment.Key, datasets []uint32) {
	if c.ordinals == nil {
		c.ordinals = make([]uint32, membershipBatch)
	}
	c.keys = append(c.keys, k)
	c.flat = append(c.flat, datasets...)
	c.ends = append(c.ends, len(c.flat))
}

// check checks the domains added.
func (c *membershipChecker) check(ctx context.Context, found *findings) error {
	v := c.v
	defer func() { c.keys, c.ends, c.flat = c.keys[:0], c.ends[:0], c.flat[:0] }()
	if len(c.keys) == 0 {
		return nil
	}
	if err := v.seg.Ordinals(c.keys, c.ordinals); err != nil {
		return found.problem(ctx, v.key(segment.MPHFName), err)
	}
	from := 0
	for i, k := range c.keys {
		datasets, ordinal := c.flat[from:c.ends[i]], c.ordinals[i]
		from = c.ends[i]
		if ordinal == mph.Absent {
			found.wrong(v.key(segment.MPHFName), domainName(k), "an ordinal", "none")
			continue
		}
		bit := uint64(1) << (ordinal % 64)
		if c.seen[ordinal/64].Or(bit)&bit != 0 {
			found.wrong(v.key(segment.MPHFName), domainName(k), "an ordinal of its own", ordinal)
		}
		set, err := v.seg.Datasets(ordinal)
		if err != nil {
			return found.problem(ctx, v.key(segment.MembershipName), err)
		}
		if set := set.ToArray(); !slices.Equal(set, datasets) {
			found.wrong(v.key(segment.MembershipName), domainName(k), "datasets "+listed(datasets), listed(set))
		}
	}
	return nil
}

func domainName(k segment.Key) string { return fmt.Sprintf("domain %016x/%08x", k.ID, k.Check) }

// listed prints the first of many numbers.
func listed(numbers []uint32) string {
	const most = 10
	if len(numbers) <= most {
		return fmt.Sprint(numbers)
	}
	return fmt.Sprintf("%v and %d more", numbers[:most], len(numbers)-most)
}

// tuple holds a tuple against its row group.
func (v *verifier) tuple(found *findings, shard int, t segment.Tuple, tiles []tiled) {
	if v.partial.pages {
		return
	}
	if int64(t.FileID) >= int64(len(v.groups)) || int64(t.RowGroup) >= int64(len(v.groups[t.FileID])) {
		found.wrong(v.key(segment.PostingsName(shard)), "tuples", "a row group that there is", fmt.Sprintf("row group %d of file %d", t.RowGroup, t.FileID))
		return
	}
	g := &v.groups[t.FileID][t.RowGroup]
	if t.FirstRow < 0 || t.Rows < 1 || t.Rows > g.rows-t.FirstRow {
		found.wrong(v.key(segment.PostingsName(shard)), fmt.Sprintf("tuples of row group %d of file %d", t.RowGroup, t.FileID), fmt.Sprintf("rows below %d", g.rows), rowRange(t))
		return
	}
	sum := &tiles[g.number]
	sum.rows += t.Rows
	sum.tiles += mix(t.FirstRow+t.Rows) - mix(t.FirstRow)
}

func rowRange(t segment.Tuple) string {
	return fmt.Sprintf("rows %d to %d", t.FirstRow, t.FirstRow+t.Rows-1)
}

func (v *verifier) counts() error {
	if v.partial.domains || v.partial.postings {
		return nil
	}
	describe := func(domains, entries, rows, parts int64) string {
		return fmt.Sprintf("%d domains, %d entries, %d rows, %d parts", domains, entries, rows, parts)
	}
	want := describe(v.report.Domains, v.report.Entries, v.report.Rows, v.report.Parts)
	if got := describe(v.info.Domains, v.info.Entries, v.info.Rows, v.info.Parts); got != want {
		v.wrong(v.key(segment.InfoName), "counts", want, got)
	}
	return nil
}

// recount reads all parts and holds what they have of every domain against the postings.
func (v *verifier) recount() error {
	if len(v.parts) != v.seg.Files().Len() || v.partial.records {
		return nil // told already
	}
	v.uncounted = map[uint32]bool{}
	defer func() { v.report.Uncounted = slices.Sorted(maps.Keys(v.uncounted)) }()
	s := newPartitions(v.tempDir, defaultMemory, v.info.Entries*entryBytes, 0)
	defer s.close()
	var blocks []*lake.PageIndexBlock
	last := uint32(0)
	for p, err := range v.seg.Pages(v.ctx) {
		if err != nil && v.partial.pages && errors.Is(err, codec.ErrCorrupt) {
			return nil // told already
		}
		if err != nil {
			return v.problem(v.key(segment.PartsName), err)
		}
		if int64(p.File) >= int64(len(v.parts)) {
			break // told already
		}
		if p.File != last {
			if err := v.part(last, blocks, s); err != nil {
				return err
			}
			blocks = nil
		}
		last = p.File
		blocks = append(blocks, p.PageIndexBlock)
	}
	if len(blocks) > 0 {
		if err := v.part(last, blocks, s); err != nil {
			return err
		}
	}
	return v.compare(s)
}

// part reads one part and counts its rows into the sorter.
func (v *verifier) part(id uint32, blocks []*lake.PageIndexBlock, s *partitions) error {
	p := &v.parts[id]
	dataset, batch := v.seg.Files().Info(id).DatasetID, v.seg.Files().Info(id).Batch
	tmp, err := os.CreateTemp(v.tempDir, "verify-*.parquet")
	if err != nil {
		return err
	}
	defer func() {
		tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	damaged := func(err error) error {
		v.uncounted[dataset] = true
		return v.problem(p.Key, err)
	}
	n, sum, err := v.copy(v.ctx, p.Key, tmp)
	if err != nil {
		return damaged(err)
	}
	v.report.PartBytes += n
	if n != p.Bytes || sum != p.XXH64 {
		v.uncounted[dataset] = true
		v.wrong(p.Key, "file", fmt.Sprintf("%d bytes with xxh64 %s", p.Bytes, p.XXH64), fmt.Sprintf("%d with %s", n, sum))
		return nil
	}

	again, err := lake.BuildPageIndex(tmp, n, p.Key)
	if err != nil {
		return damaged(err)
	}
	if !slices.EqualFunc(pageIndex(again), blocks, func(a, b *lake.PageIndexBlock) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }) {
		v.wrong(v.key(segment.PartsName), "pages of "+p.Key, "those in its footer", "others")
	}

	var val []byte
	places, left := rowPlaces{file: id}, int64(0)
	for _, g := range v.groups[id] {
		places.groups = append(places.groups, g.rows)
		left += g.rows
	}
	var rec record
	runs := domainRuns{key: p.Key, each: func(domain []byte, _ int, t *segment.Totals) error {
		if left -= t.Rows; left < 0 {
			return codec.Corrupt(p.Key, "rows", -1, "as many as its page index has", fmt.Sprintf("%d more", -left))
		}
		rec.totals, rec.tuples = *t, places.take(t.Rows, rec.tuples[:0])
		val = rec.append(val[:0])
		return s.add(urlKey(domain), val)
	}}
	reader := partReader{p.Key, func(_ context.Context, off, n int64) ([]byte, error) {
		b := make([]byte, n)
		_, err := tmp.ReadAt(b, off)
		return b, err
	}}
	for r, err := range reader.scan(v.ctx, blocks, checkRows, allColumns()) {
		if err == nil {
			err = checkRowsOf(r, p.Key, dataset, batch)
		}
		if err == nil {
			err = runs.add(r)
		}
		if err != nil {
			return damaged(err)
		}
		v.report.PartRows += int64(r.Rows)
	}
	if err := runs.end(); err != nil {
		return damaged(err)
	}
	return nil
}

// checkRowsOf checks the columns that say where a row belongs.
func checkRowsOf(r rows, part string, dataset uint32, batch string) error {
	for i := range r.Rows {
		id := xxh3.HashString(r.Domain[i])
		if r.DatasetID[i] != dataset || r.Batch[i] != batch || r.DomainID[i] != id {
			return codec.Corrupt(part, fmt.Sprintf("row %d of row group %d", r.first+int64(i), r.group), -1,
				fmt.Sprintf("dataset %d, batch %s, domain_id %016x", dataset, batch, id), fmt.Sprintf("%d, %s, %016x", r.DatasetID[i], r.Batch[i], r.DomainID[i]))
		}
	}
	return nil
}

// compare holds the counted rows against the postings; both are in one order. It passes over datasets of which rows are missing.
func (v *verifier) compare(s *partitions) error {
	stop := errors.New("what follows would differ too")
	next, end := iter.Pull2(v.allPostings())
	defer end()
	var p segment.Posting
	var err error
	var some bool
	advance := func() {
		for p, err, some = next(); some && err == nil && v.uncounted[p.Dataset]; p, err, some = next() {
		}
	}
	advance()
	shardName := func(id uint64) string { return v.key(segment.PostingsName(int(id >> (64 - v.info.ShardBits)))) }
	var counted, r record
	var key segment.Key
	// settle holds what was counted of one domain in one dataset against the next entry.
	settle := func() error {
		if counted.totals.Rows == 0 {
			return nil
		}
		if !some {
			v.wrong(v.key("postings"), domainName(key), fmt.Sprintf("an entry in dataset %d", counted.dataset), "none")
			return stop
		}
		if err != nil {
			return err
		}
		if p.Key != key || p.Dataset != counted.dataset {
			v.wrong(shardName(key.ID), "entries", fmt.Sprintf("%s in dataset %d", domainName(key), counted.dataset), fmt.Sprintf("%s in dataset %d", domainName(p.Key), p.Dataset))
			return stop
		}
		place := fmt.Sprintf("%s in dataset %d", domainName(key), counted.dataset)
		if counted.totals != p.Totals {
			v.wrong(shardName(key.ID), place, describeTotals(counted.totals), describeTotals(p.Totals))
		}
		if !slices.Equal(counted.tuples, p.Tuples) {
			v.wrong(shardName(key.ID), place, describeTuples(counted.tuples), describeTuples(p.Tuples))
		}
		counted.totals, counted.tuples = segment.Totals{}, counted.tuples[:0]
		advance()
		return nil
	}
	for i := range s.len() {
		walk := s.each(v.ctx, i, func(values *sortedValues) error {
			for n := range values.len() {
				k, val := values.at(n)
				dataset := v.seg.Files().Info(recordFile(val)).DatasetID
				if v.uncounted[dataset] {
					continue
				}
				if err := r.read(val); err != nil {
					return err
				}
				if k != key || dataset != counted.dataset {
					if err := settle(); err != nil {
						return err
					}
					key, counted.dataset = k, dataset
				}
				counted.totals.Add(r.totals)
				counted.tuples = append(counted.tuples, r.tuples...)
			}
			return v.ctx.Err()
		})
		if errors.Is(walk, stop) {
			return nil
		}
		if walk != nil {
			return v.again(walk)
		}
	}
	switch serr := settle(); {
	case errors.Is(serr, stop):
		return nil
	case serr != nil:
		return v.again(serr)
	case some && err != nil:
		return v.again(err)
	case some:
		v.wrong(shardName(p.ID), "entries", "no more: the parts have no further rows", fmt.Sprintf("%s in dataset %d", domainName(p.Key), p.Dataset))
	}
	return nil
}

// again notes a problem that comes up while postings are read a second time, unless the first time told of it.
func (v *verifier) again(err error) error {
	if v.partial.postings && errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return v.problem(v.key("postings"), err)
}

// allPostings yields the postings of all shards.
func (v *verifier) allPostings() iter.Seq2[segment.Posting, error] {
	return func(yield func(segment.Posting, error) bool) {
		for shard := range 1 << v.info.ShardBits {
			for p, err := range v.seg.Postings(v.ctx, shard) {
				if !yield(p, err) || err != nil {
					return
				}
			}
		}
	}
}

// describeTotals prints totals for an error.
func describeTotals(t segment.Totals) string {
	s := fmt.Sprintf("%d rows", t.Rows)
	if t.HasSize {
		s += fmt.Sprintf(" of %d bytes", t.Size)
	}
	if t.HasTS {
		s += fmt.Sprintf(" from %s to %s", printTS(t.FirstTS), printTS(t.LastTS))
	}
	return s
}

func printTS(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// describeTuples prints the first of a list of tuples for an error.
func describeTuples(tuples []segment.Tuple) string {
	if len(tuples) == 0 {
		return "no tuples"
	}
	t := tuples[0]
	s := fmt.Sprintf("%s of row group %d of file %d", rowRange(t), t.RowGroup, t.FileID)
	if len(tuples) > 1 {
		s += fmt.Sprintf(" and %d tuples more", len(tuples)-1)
	}
	return s
}
