package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// maxProblems is how many problems a report describes; the rest are counted.
const maxProblems = 20

// Problem is something VerifySegment found wrong.
type Problem struct {
	Place string `json:"place"` // which check, on what
	Text  string `json:"problem"`
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
// It goes on after a problem as far as that makes sense. The report says what was looked at and
// what was found; the error is the first problem, a *codec.CorruptError as always, or that the
// check itself could not be done. Temporary files are in tempDir, "" is the system's folder.
func VerifySegment(ctx context.Context, store blob.Store, ref SegmentRef, deep bool, tempDir string) (Report, error) {
	v := &verifier{ctx: ctx, store: store, ref: ref, tempDir: tempDir, report: Report{Segment: ref.ID, Deep: deep}}
	err := v.run()
	if err == nil {
		err = v.first
	}
	if err != nil {
		err = fmt.Errorf("verify segment %q: %w", ref.ID, err)
	}
	return v.report, err
}

type verifier struct {
	ctx    context.Context
	store  blob.Store
	ref    SegmentRef
	report Report
	first  error

	tempDir string

	seg    *segment.Segment
	info   *segment.Info
	parts  []lake.Part // of the files, from the batch records
	groups [][]rowGroup
}

// rowGroup collects what is known of one row group.
type rowGroup struct {
	rows   int64 // by its page index
	tuples int64 // rows in tuples
	// tiles is the sum over all tuples of mix(end) - mix(start). Tuples that tile the row group
	// leave mix(rows) - mix(0), whatever their order; others do not, but for a chance of 2^-64.
	tiles uint64
}

func mix(v int64) uint64 {
	hi, lo := bits.Mul64(uint64(v)^0x9e3779b97f4a7c15, 0xd1b54a32d192ed03)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// problem notes what is wrong with the data, and returns any other error.
func (v *verifier) problem(place string, err error) error {
	switch {
	case err == nil:
		return nil
	case v.ctx.Err() != nil:
		return v.ctx.Err()
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, blob.ErrRange):
		err = codec.Corrupt(place, "object", -1, "what the index says", err)
	case !errors.Is(err, codec.ErrCorrupt):
		return err
	}
	if v.first == nil {
		v.first = err
	}
	if v.report.Found++; len(v.report.Problems) < maxProblems {
		v.report.Problems = append(v.report.Problems, Problem{place, err.Error()})
	}
	return nil
}

// wrong notes that something is not what it has to be.
func (v *verifier) wrong(file, section string, want, got any) {
	_ = v.problem(file, codec.Corrupt(file, section, -1, want, got))
}

func (v *verifier) key(name string) string { return segment.Prefix(v.ref.ID) + name }

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

// files reads every file and hashes it.
func (v *verifier) files() error {
	v.report.Files, v.report.Bytes = 1, v.ref.Bytes
	var total int64
	for i := range v.info.Files {
		f := &v.info.Files[i]
		v.report.Files++
		total += f.Bytes
		if err := v.hash(v.key(f.Name), f.Bytes, f.XXH64); err != nil {
			return err
		}
	}
	data, _, err := v.store.Get(v.ctx, v.key(segment.InfoName))
	if err != nil {
		return v.problem(v.key(segment.InfoName), err)
	}
	got := SegmentRef{ID: v.ref.ID, XXH64: v.ref.XXH64, Bytes: total + int64(len(data)), Domains: v.info.Domains, Rows: v.info.Rows}
	if got != v.ref {
		v.wrong(v.key(segment.InfoName), "counts", fmt.Sprintf("%+v", v.ref), fmt.Sprintf("%+v", got))
	}
	return nil
}

// hash reads an object and notes if it is not the one with that size and hash.
func (v *verifier) hash(key string, size int64, sum string) error {
	n, got, err := v.copy(key, io.Discard)
	if err != nil {
		return v.problem(key, err)
	}
	if n != size || got != sum {
		v.wrong(key, "file", fmt.Sprintf("%d bytes, xxh64 %s", size, sum), fmt.Sprintf("%d, %s", n, got))
	}
	return nil
}

// copy copies an object to w and hashes it.
func (v *verifier) copy(key string, w io.Writer) (n int64, sum string, err error) {
	r, err := v.store.Open(v.ctx, key, 0, -1)
	if err != nil {
		return 0, "", err
	}
	h := xxhash.New()
	n, err = io.Copy(io.MultiWriter(h, w), r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return n, fmt.Sprintf("%016x", h.Sum64()), err
}

// records holds files.tsv against the batch records.
func (v *verifier) records() error {
	files := v.seg.Files()
	name := v.key(segment.FilesName)
	for _, ref := range v.info.Batches {
		data, _, err := v.store.Get(v.ctx, ref.Key())
		var b *lake.Batch
		if err == nil {
			b, err = lake.DecodeBatch(data, ref.Key())
		}
		if err != nil {
			if err := v.problem(ref.Key(), err); err != nil {
				return err
			}
			continue
		}
		if b.CanonicalForm != v.info.CanonicalForm || b.PublicSuffix != v.info.PublicSuffix {
			v.wrong(ref.Key(), "canonical form", v.info.CanonicalForm+", "+v.info.PublicSuffix, b.CanonicalForm+", "+b.PublicSuffix)
		}
		for _, p := range b.Parts {
			id := len(v.parts)
			v.parts = append(v.parts, p)
			want := segment.FileInfo{DatasetID: b.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: b.Batch, Bytes: p.Bytes, Rows: p.Rows}
			if id >= files.Len() {
				v.wrong(name, "lines", fmt.Sprintf("%+v", want), "end")
			} else if got := files.Info(uint32(id)); got != want {
				v.wrong(name, fmt.Sprintf("line %d", id), fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
			}
		}
	}
	if len(v.parts) != files.Len() {
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
	all := make([]lake.Column, lake.NumColumns)
	for c := range all {
		all[c] = lake.Column(c)
	}
	for p, err := range v.seg.Pages(v.ctx) {
		if err != nil {
			return v.problem(name, err)
		}
		v.report.Pages++
		if int64(p.File) >= int64(files.Len()) {
			v.wrong(name, "fences", fmt.Sprintf("a file below %d", files.Len()), p.File)
			continue
		}
		g := &v.groups[p.File]
		if p.RowGroup == len(*g) {
			*g = append(*g, rowGroup{})
		}
		if p.RowGroup != len(*g)-1 || p.FirstRow != (*g)[p.RowGroup].rows {
			v.wrong(name, fmt.Sprintf("pages of file %d", p.File), "row groups and rows that follow each other", fmt.Sprintf("row %d of row group %d", p.FirstRow, p.RowGroup))
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
				v.wrong(name, fmt.Sprintf("pages of file %d", p.File), fmt.Sprintf("pages within %d bytes", size), fmt.Sprintf("%d at %d", r.Bytes, r.Offset))
			}
		}
	}
	for id, g := range v.groups {
		var rows int64
		for _, r := range g {
			rows += r.rows
		}
		if want := files.Info(uint32(id)).Rows; rows != want {
			v.wrong(name, fmt.Sprintf("pages of file %d", id), fmt.Sprintf("%d rows", want), rows)
		}
	}
	return nil
}

// domains goes over domains.txt: each is where the perfect hash says.
func (v *verifier) domains() error {
	name := v.key(segment.MPHFName)
	for d, err := range v.seg.Domains(v.ctx, 0) {
		if err != nil {
			return v.problem(v.key(segment.DomainsName), err)
		}
		got, ok, err := v.seg.Ordinal(segment.KeyOf(d))
		if err != nil {
			return v.problem(name, err)
		}
		if !ok || int64(got) != v.report.Domains {
			v.wrong(name, "lookup of "+d, fmt.Sprintf("ordinal %d", v.report.Domains), fmt.Sprintf("%d, %v", got, ok))
		}
		v.report.Domains++
	}
	return nil
}

// postings goes over all entries. Each domain has an ordinal of its own and its set of datasets,
// and tuples lie in the row groups of their files and tile them.
func (v *verifier) postings() error {
	seen := make([]uint64, v.info.Domains/64+1)
	var key segment.Key
	var datasets []uint32
	var domains int64
	endDomain := func() error {
		if len(datasets) == 0 {
			return nil
		}
		domains++
		err := v.membership(key, datasets, seen)
		datasets = datasets[:0]
		return err
	}
	for shard := range 1 << v.info.ShardBits {
		name := v.key(segment.PostingsName(shard))
		for p, err := range v.seg.Postings(v.ctx, shard) {
			if err != nil {
				if err := v.problem(name, err); err != nil {
					return err
				}
				break
			}
			if p.Key != key {
				if err := endDomain(); err != nil {
					return err
				}
				key = p.Key
			}
			datasets = append(datasets, p.Dataset)
			v.report.Entries++
			v.report.Rows += p.Rows
			v.report.Tuples += int64(len(p.Tuples))
			for _, t := range p.Tuples {
				v.tuple(name, t)
			}
		}
	}
	if err := endDomain(); err != nil {
		return err
	}
	if domains != v.report.Domains {
		v.wrong(v.key("postings"), "entries", fmt.Sprintf("%d domains", v.report.Domains), domains)
	}
	for id, groups := range v.groups {
		for n, g := range groups {
			if g.tuples != g.rows || g.tiles != mix(g.rows)-mix(0) {
				v.wrong(v.key("postings"), fmt.Sprintf("tuples of row group %d of file %d", n, id), fmt.Sprintf("all %d rows once", g.rows), fmt.Sprintf("%d rows", g.tuples))
			}
		}
	}
	return nil
}

// membership holds the set of datasets of a domain against those of its entries.
func (v *verifier) membership(k segment.Key, datasets []uint32, seen []uint64) error {
	ordinal, ok, err := v.seg.Ordinal(k)
	if err != nil {
		return v.problem(v.key(segment.MPHFName), err)
	}
	name := fmt.Sprintf("domain %016x/%08x", k.ID, k.Check)
	if !ok {
		v.wrong(v.key(segment.MPHFName), name, "an ordinal", "none")
		return nil
	}
	if bit := uint64(1) << (ordinal % 64); seen[ordinal/64]&bit != 0 {
		v.wrong(v.key(segment.MPHFName), name, "an ordinal of its own", ordinal)
	} else {
		seen[ordinal/64] |= bit
	}
	set, err := v.seg.Datasets(ordinal)
	if err != nil {
		return v.problem(v.key(segment.MembershipName), err)
	}
	if got := set.ToArray(); !slices.Equal(got, datasets) {
		v.wrong(v.key(segment.MembershipName), name, fmt.Sprint(datasets), fmt.Sprint(got))
	}
	return nil
}

// tuple holds a tuple against its row group.
func (v *verifier) tuple(name string, t segment.Tuple) {
	if int64(t.FileID) >= int64(len(v.groups)) || int64(t.RowGroup) >= int64(len(v.groups[t.FileID])) {
		v.wrong(name, "tuples", "a row group there is", fmt.Sprintf("%+v", t))
		return
	}
	g := &v.groups[t.FileID][t.RowGroup]
	if t.FirstRow < 0 || t.Rows < 1 || t.Rows > g.rows-t.FirstRow {
		v.wrong(name, "tuples", fmt.Sprintf("rows within %d", g.rows), fmt.Sprintf("%+v", t))
		return
	}
	g.tuples += t.Rows
	g.tiles += mix(t.FirstRow+t.Rows) - mix(t.FirstRow)
}

func (v *verifier) counts() error {
	want := [4]int64{v.info.Domains, v.info.Entries, v.info.Rows, v.info.Parts}
	if got := [4]int64{v.report.Domains, v.report.Entries, v.report.Rows, v.report.Parts}; got != want {
		v.wrong(v.key(segment.InfoName), "counts", fmt.Sprintf("domains, entries, rows, parts %d", got), want)
	}
	return nil
}

// recount reads all parts and holds what they have of every domain against the postings.
func (v *verifier) recount() error {
	if len(v.parts) != v.seg.Files().Len() {
		return nil // noted already
	}
	s := newSorter(v.tempDir, defaultMemory)
	defer s.close()
	var blocks []*lake.PageIndexBlock
	last := uint32(0)
	for p, err := range v.seg.Pages(v.ctx) {
		if err != nil {
			return v.problem(v.key(segment.PartsName), err)
		}
		if int64(p.File) >= int64(len(v.parts)) {
			break // noted already
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
func (v *verifier) part(id uint32, blocks []*lake.PageIndexBlock, s *sorter) error {
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
	n, sum, err := v.copy(p.Key, tmp)
	if err != nil {
		return v.problem(p.Key, err)
	}
	v.report.PartBytes += n
	if n != p.Bytes || sum != p.XXH64 {
		v.wrong(p.Key, "file", fmt.Sprintf("%d bytes, xxh64 %s", p.Bytes, p.XXH64), fmt.Sprintf("%d, %s", n, sum))
		return nil
	}

	again, err := lake.BuildPageIndex(tmp, n, p.Key)
	if err != nil {
		return v.problem(p.Key, err)
	}
	if !slices.EqualFunc(pageIndex(again), blocks, func(a, b *lake.PageIndexBlock) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }) {
		v.wrong(v.key(segment.PartsName), fmt.Sprintf("pages of file %d", id), "those of "+p.Key, "others")
	}

	key := [entryKey]byte{}
	runs := domainRuns{key: p.Key, file: id, each: func(r *record) error {
		putEntryKey(&key, urlKey(r.key))
		domain := r.key
		r.key, r.dataset = key[:], dataset
		err := s.add(r)
		r.key = domain
		return err
	}}
	reader := partReader{p.Key, func(_ context.Context, off, n int64) ([]byte, error) {
		b := make([]byte, n)
		_, err := tmp.ReadAt(b, off)
		return b, err
	}}
	all := make([]lake.Column, lake.NumColumns)
	for c := range all {
		all[c] = lake.Column(c)
	}
	for r, err := range reader.scan(v.ctx, blocks, checkRows, all) {
		if err == nil {
			err = checkRowsOf(r, p.Key, dataset, batch)
		}
		if err == nil {
			err = runs.add(r)
		}
		if err != nil {
			return v.problem(p.Key, err)
		}
		v.report.PartRows += int64(r.Rows)
	}
	return runs.end()
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

// compare holds the counted rows against the postings; both are in one order.
func (v *verifier) compare(s *sorter) error {
	in, err := s.sorted(v.ctx)
	if err != nil {
		return err
	}
	next, err := in.next()
	if err != nil {
		return err
	}
	var key [entryKey]byte
	var counted record
	for shard := range 1 << v.info.ShardBits {
		name := v.key(segment.PostingsName(shard))
		for p, err := range v.seg.Postings(v.ctx, shard) {
			if err != nil {
				return v.problem(name, err)
			}
			putEntryKey(&key, p.Key)
			counted.totals, counted.tuples = segment.Totals{}, counted.tuples[:0]
			for next != nil && next.dataset == p.Dataset && bytes.Equal(next.key, key[:]) {
				counted.totals.Add(next.totals)
				counted.tuples = append(counted.tuples, next.tuples...)
				if next, err = in.next(); err != nil {
					return err
				}
			}
			if counted.totals != p.Totals || !slices.Equal(counted.tuples, p.Tuples) {
				v.wrong(name, fmt.Sprintf("domain %016x/%08x in dataset %d", p.ID, p.Check, p.Dataset),
					fmt.Sprintf("%+v at %+v", counted.totals, counted.tuples), fmt.Sprintf("%+v at %+v", p.Totals, p.Tuples))
				return nil // what follows would differ too
			}
		}
	}
	if next != nil {
		v.wrong(v.key("postings"), "entries", fmt.Sprintf("rows of domain %x in dataset %d", next.key, next.dataset), "none")
	}
	return nil
}
