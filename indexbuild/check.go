package indexbuild

import (
	"context"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
)

// CheckBatch reads a batch's record and the directories of its postings objects, or, if deep, all bytes that a segment would be
// built from. It returns the record. The error is a *DamageError where the batch is at fault.
func CheckBatch(ctx context.Context, store blob.Store, ref postings.BatchRef, deep bool) (*lake.Batch, error) {
	b := &build{ctx: ctx, store: store, batches: []postings.BatchRef{ref}}
	if err := b.readBatches(); err != nil {
		return nil, err
	}
	if !deep {
		return b.records[0], nil
	}
	for i := range b.objects {
		if err := b.checkObject(ctx, i); err != nil {
			return nil, postings.Damaged(ref, err)
		}
	}
	return b.records[0], nil
}

// checkDomains reads all domains of a part.
func checkDomains(ctx context.Context, src *postings.BatchSource) error {
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

// checkObject reads all of a postings object.
func (b *build) checkObject(ctx context.Context, i int) error {
	o := &b.objects[i]
	for part := range o.Reader.Parts {
		if err := checkDomains(ctx, postings.NewBatchSource(o, part)); err != nil {
			return err
		}
	}
	for n, file := range o.Files {
		blocks, err := o.Reader.Pages(ctx, n)
		if err != nil {
			return err
		}
		if err := b.checkPages(int(file), blocks, func(*part.PageIndexBlock, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
