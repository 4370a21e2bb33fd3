package deletion

import (
	"context"
	"fmt"
	"iter"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// cacheBytes is what is kept of the frames of a segment, and of a table.
const cacheBytes = 64 << 20

// builder makes a table of what a version has of a segment.
type builder struct {
	ctx   context.Context
	store blob.Store
	seg   *segment.Segment
	own   *Table // the version's table, nil for none

	out Builder
	// before has the next entry of the table that is changed. Those for which again is true are
	// made anew, and not taken from there.
	before func() (Entry, error, bool)
	head   Entry // Dead is 0 for none
	again  func(e *Entry) bool
}

// newBuilder opens a segment of a version and the version's table. The caller closes the segment.
func newBuilder(ctx context.Context, store blob.Store, s *catalog.Segment, opt segment.Options) (*builder, error) {
	opt.Cache = segment.NewFrameCache(cacheBytes)
	seg, err := segment.Open(ctx, store, SegmentRef(s), opt)
	if err != nil {
		return nil, err
	}
	b := &builder{ctx: ctx, store: store, seg: seg}
	if b.own, err = OpenOwn(ctx, store, s, segment.NewFrameCache(cacheBytes)); err != nil {
		seg.Close()
		return nil, err
	}
	return b, nil
}

// SegmentRef returns the reference of a segment of a version.
func SegmentRef(s *catalog.Segment) segment.Ref {
	return segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
}

// change begins with the entries of a table, which may be nil, but those for which again is true.
// The caller calls stop in the end.
func (b *builder) change(table *Table, again func(e *Entry) bool) (stop func()) {
	if table == nil {
		return func() {}
	}
	b.before, stop = iter.Pull2(table.All(b.ctx))
	b.again = again
	return stop
}

// advance adds the entries of the table that is changed that come before e, or all if e is nil.
func (b *builder) advance(e *Entry) error {
	for b.before != nil {
		if b.head.Dead == 0 {
			head, err, ok := b.before()
			if err != nil {
				return err
			}
			if !ok {
				b.before = nil
				return nil
			}
			b.head = head
		}
		again := b.again(&b.head)
		if e != nil && Compare(&b.head, e) >= 0 && !again {
			return nil
		}
		if !again {
			if err := b.out.Keep(b.head); err != nil {
				return err
			}
		}
		b.head = Entry{}
	}
	return nil
}

// add adds what is left of an entry. Entries ascend.
func (b *builder) add(r *remains) error {
	if err := b.advance(&r.Entry); err != nil {
		return err
	}
	return b.out.Add(r.Entry, r.tuples)
}

// finish stores the table, which has at least one entry, as that of a segment or of what versions
// have of one.
func (b *builder) finish(of string) (lake.FrameObject, error) {
	data, file, err := b.out.Finish()
	if err != nil {
		return lake.FrameObject{}, err
	}
	key := lake.DeletionKey(of, lake.Digest(data))
	if _, err := b.store.Put(b.ctx, key, data, blob.Condition{}); err != nil {
		return lake.FrameObject{}, err
	}
	return lake.NewFrameObject(key, file), nil
}

// remains is what is left of an entry.
type remains struct {
	Entry
	tuples []segment.Tuple
	// times and sizes are set if these totals have to be read from the rows.
	times, sizes bool
}

// live is an entry of a segment as the version has it.
type live struct {
	segment.Entry
	own Entry // of the version's table; Dead is 0 for none
}

// live returns what the version has of an entry of the segment.
func (b *builder) live(e segment.Entry) (live, error) {
	own, ok, err := b.own.Entry(b.ctx, e.Key, e.Dataset)
	if err != nil || !ok {
		return live{Entry: e}, err
	}
	if own.Rows+own.Dead != e.Rows {
		return live{}, codec.Corrupt(b.own.ref.Key, own.section, -1,
			fmt.Sprintf("%d rows of domain %016x in dataset %d", e.Rows, e.ID, e.Dataset), own.Rows+own.Dead)
	}
	e.Totals = own.Totals
	return live{e, own}, nil
}

// tuples returns the rows of an entry that the version has.
func (b *builder) tuples(e *live) ([]segment.Tuple, error) {
	if e.own.Dead > 0 {
		return e.own.Tuples()
	}
	return b.seg.Tuples(b.ctx, e.Entry)
}

// corrupt says that the postings of the segment contradict what they index.
func (b *builder) corrupt(section string, want, got any) error {
	return codec.Corrupt(segment.Prefix(b.seg.Info().Segment)+segment.PostingsName(0), section, -1, want, got)
}
