package indexbuild

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// CheckBatch reads a batch's record and the directories of its postings objects, and returns the
// record. If deep, it reads all bytes that a segment is built from. If the batch cannot be indexed,
// the error is a *postings.DamageError.
func CheckBatch(ctx context.Context, store blob.Store, ref segment.BatchRef, deep bool) (*lake.Batch, error) {
	return codec.Confirm(func() (*lake.Batch, error) { return checkBatch(ctx, store, ref, deep) })
}

func checkBatch(ctx context.Context, store blob.Store, ref segment.BatchRef, deep bool) (*lake.Batch, error) {
	b := &build{ctx: ctx, store: store, batches: []segment.BatchRef{ref}}
	if err := b.readBatches(); err != nil {
		return nil, err
	}
	if !deep {
		return b.records[0], nil
	}
	for i := range b.objects {
		if err := b.checkObject(ctx, &b.objects[i]); err != nil {
			return nil, postings.Damaged(ref, err)
		}
	}
	return b.records[0], nil
}

// checkObject reads all of a postings object.
func (b *build) checkObject(ctx context.Context, o *object) error {
	for n, file := range o.files {
		if err := drain(ctx, o.Source(n, file)); err != nil {
			return err
		}
	}
	for n, file := range o.files {
		blocks, err := o.PageIndex(ctx, n)
		if err != nil {
			return err
		}
		if err := b.eachBlock(int(file), blocks, func(*part.PageIndexBlock, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// drain reads all domains of a source.
func drain(ctx context.Context, src *postings.Source) error {
	defer src.Close()
	var block []byte
	for {
		next, err := src.Load(ctx, block)
		if next == nil || err != nil {
			return err
		}
		block = next
	}
}

// readBatches reads the batch records, numbers their parts as files, and opens their postings.
func (b *build) readBatches() error {
	b.records = make([]*lake.Batch, len(b.batches))
	records := b.records
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(concurrentReads)
	for i, ref := range b.batches {
		g.Go(func() error {
			data, _, err := b.store.Get(ctx, ref.Key())
			if err == nil {
				records[i], err = lake.DecodeBatch(data, ref.Key())
			}
			return postings.Damaged(ref, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}

	first := records[0]
	b.info = segment.Info{CanonicalForm: first.CanonicalForm, PublicSuffix: first.PublicSuffix}
	ids := map[string]uint32{}
	objects := 0
	for i, r := range records {
		// Batches may name different public suffix lists, if nothing of them differs between these
		// lists (package move).
		if r.CanonicalForm != first.CanonicalForm {
			return fmt.Errorf("%s was made with %s, %s with %s",
				b.batches[i].Key(), r.CanonicalForm, b.batches[0].Key(), first.CanonicalForm)
		}
		for _, p := range r.Parts {
			if _, twice := ids[p.Key]; twice {
				ref := b.batches[i]
				return postings.Damaged(ref, codec.Corrupt(ref.Key(), "parts", -1, "each part once", p.Key))
			}
			ids[p.Key] = uint32(len(b.files))
			b.files = append(b.files, segment.FileInfo{
				DatasetID: r.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: r.Batch,
				Bytes: p.Bytes, Rows: p.Rows,
			})
		}
		objects += len(r.Postings)
	}
	b.info.Parts = int64(len(b.files))

	b.objects = make([]object, objects)
	g, ctx = errgroup.WithContext(b.ctx)
	g.SetLimit(concurrentReads)
	n := 0
	for i, r := range records {
		for _, o := range r.Postings {
			to := &b.objects[n].Reader
			n++
			g.Go(func() (err error) {
				*to, err = postings.Open(ctx, b.store, b.batches[i], o)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.matchParts(ids)
}

// matchParts finds the file of each part of the postings objects; ids has the files' numbers by
// key. Every file must be in exactly one object, with the same size and rows.
func (b *build) matchParts(ids map[string]uint32) error {
	b.parts = make([]partSource, len(b.files))
	seen := make([]bool, len(b.files))
	for i := range b.objects {
		o := &b.objects[i]
		damaged := func(want, got any) error {
			return postings.Damaged(o.Batch(), codec.Corrupt(o.Key(), "directory", -1, want, got))
		}
		for n, p := range o.Parts() {
			id, ok := ids[p.Key]
			if !ok || seen[id] {
				return damaged("parts of its batch, each once", p.Key)
			}
			f, ref := &b.files[id], o.Batch()
			if f.DatasetID != ref.DatasetID || f.Batch != ref.Batch || f.Bytes != p.Bytes || f.Rows != p.Rows {
				describe := func(bytes, rows int64, batch string, dataset uint32) string {
					return fmt.Sprintf("%d bytes and %d rows in batch %s of dataset %d", bytes, rows, batch, dataset)
				}
				return damaged(p.Key+" of "+describe(f.Bytes, f.Rows, f.Batch, f.DatasetID),
					describe(p.Bytes, p.Rows, ref.Batch, ref.DatasetID))
			}
			seen[id] = true
			b.parts[id] = partSource{i, n}
			o.files = append(o.files, id)
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		f := &b.files[i]
		n := slices.IndexFunc(b.batches, func(r segment.BatchRef) bool {
			return r.DatasetID == f.DatasetID && r.Batch == f.Batch
		})
		return postings.Damaged(b.batches[n], codec.Corrupt(lake.BatchPrefix(f.DatasetID, f.Batch), "postings", -1,
			"all parts of the batch", "none of "+f.Path))
	}
	return nil
}

// eachBlock decodes the blocks of a file's page index and calls each with every block and its
// bytes. The blocks must cover the file's row groups, in order and without gaps.
func (b *build) eachBlock(file int, blocks [][]byte, each func(*part.PageIndexBlock, []byte) error) error {
	src := b.parts[file]
	o := &b.objects[src.object]
	groups := o.Parts()[src.part].Groups
	section := "page index of " + b.files[file].Path
	group, row := 0, int64(0)
	for _, data := range blocks {
		block, err := part.DecodePageIndexBlock(data, o.Key())
		if err != nil {
			return err
		}
		if group < len(groups)-1 && row == groups[group] {
			group, row = group+1, 0
		}
		if block.RowGroup != group || block.FirstRow != row {
			return codec.Corrupt(o.Key(), section, -1, fmt.Sprintf("row %d of row group %d", row, group),
				fmt.Sprintf("row %d of row group %d", block.FirstRow, block.RowGroup))
		}
		row += block.Rows()
		if err := each(block, data); err != nil {
			return err
		}
	}
	if len(groups) > 0 && (group != len(groups)-1 || row != groups[group]) {
		return codec.Corrupt(o.Key(), section, -1, fmt.Sprintf("row groups of %d rows", groups),
			fmt.Sprintf("%d rows of row group %d", row, group))
	}
	return nil
}
