package verify

import (
	"context"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// files reads and hashes every file of the segment.
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
			v.changed = append(v.changed, codec.Corrupt(v.key(f.Name), "file", -1,
				fmt.Sprintf("%d bytes with xxh64 %s", f.Bytes, f.XXH64), fmt.Sprintf("%d with %s", h.n, h.sum)))
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
	want := describe(v.ref.Bytes, v.ref.Domains, v.ref.Rows)
	if got := describe(v.report.Bytes, v.info.Domains, v.info.Rows); want != got {
		v.wrong(v.key(segment.InfoName), "counts", want+" as in the version", got)
	}
	return nil
}

// copy copies an object to w. It returns the object's size and hash.
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

// records reads the batch records and compares files.tsv with their parts.
func (v *verifier) records() error {
	files := v.seg.Files()
	name := v.key(segment.FilesName)
	mismatch := false
	v.unions = map[unionOf]*unionRows{}
	v.report.Parts = int64(files.Len())
	type read struct {
		batch *lake.Batch
		err   error
	}
	var batches []segment.BatchRef
	for b, err := range v.info.Batches(v.ctx, v.store) {
		if err != nil {
			v.partial.records = true
			if v.reportedByFiles(err) {
				return nil
			}
			return v.problem(v.key(segment.BatchesName), err)
		}
		batches = append(batches, b)
	}
	err := inOrder(v.ctx, len(batches), func(ctx context.Context, _, i int) (r read, _ error) {
		key := batches[i].Key()
		data, _, err := v.store.Get(ctx, key)
		if err == nil {
			r.batch, err = lake.DecodeBatch(data, key)
		}
		r.err = err
		return r, nil
	}, func(i int, r read) error {
		ref := batches[i]
		if r.err != nil {
			v.partial.records = true
			return v.problem(ref.Key(), r.err)
		}
		b := r.batch
		// The public suffix list is that of the first batch. Others may name another list, if
		// nothing of them differs between the two.
		if b.CanonicalForm != v.info.CanonicalForm || i == 0 && b.PublicSuffix != v.info.PublicSuffix {
			v.wrong(ref.Key(), "rules", v.info.CanonicalForm+" with "+v.info.PublicSuffix,
				b.CanonicalForm+" with "+b.PublicSuffix)
		}
		if len(b.Members) > 0 {
			u := &unionRows{ref.Key(), map[string]int64{}}
			for _, m := range b.Members {
				u.left[m.Batch] = m.Rows
			}
			v.unions[unionOf{b.DatasetID, b.Batch}] = u
		}
		for _, p := range b.Parts {
			id := len(v.parts)
			v.parts = append(v.parts, p)
			// After a mismatch or an unread record, further lines would differ only by their
			// number. Missing lines are reported below.
			if v.partial.records || mismatch || id >= files.Len() {
				continue
			}
			want := segment.FileInfo{
				DatasetID: b.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: b.Batch,
				Bytes: p.Bytes, Rows: p.Rows,
			}
			if got := files.Info(uint32(id)); got != want {
				mismatch = true
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
	return nil
}

// describeFile describes a line of files.tsv in an error.
func describeFile(f segment.FileInfo) string {
	return fmt.Sprintf("%s of %d bytes and %d rows in batch %s of dataset %d",
		f.Path, f.Bytes, f.Rows, f.Batch, f.DatasetID)
}

// pages checks parts.idx: the pages of each part cover all its rows, and are inside the part. It
// collects the row groups.
func (v *verifier) pages() error {
	files := v.seg.Files()
	name := v.key(segment.PartsName)
	v.groups = make([][]rowGroup, files.Len())
	number := 0
	columns := allColumns()
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
			v.wrong(name, "pages of "+path, "consecutive row groups and rows",
				fmt.Sprintf("row %d of row group %d", p.FirstRow, p.RowGroup))
			continue
		}
		(*g)[p.RowGroup].rows += p.Rows()
		plan, err := part.NewPlan(p.PageIndexBlock, p.FirstRow, p.Rows(), columns...)
		if err != nil {
			return err
		}
		size := files.Info(p.File).Bytes
		for _, r := range plan.Ranges {
			if r.Offset < 0 || r.Bytes < 0 || r.Bytes > size-r.Offset {
				v.wrong(name, "pages of "+path, fmt.Sprintf("pages within %d bytes", size),
					fmt.Sprintf("%d bytes at %d", r.Bytes, r.Offset))
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

// allColumns returns all columns of a part.
func allColumns() []part.Column {
	all := make([]part.Column, part.NumColumns)
	for c := range all {
		all[c] = part.Column(c)
	}
	return all
}
