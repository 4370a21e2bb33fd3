package deletion

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

const (
	// domainsAtOnce is about how many domains with dead rows are kept in memory, each in about 450
	// bytes. Of more the batches are read several times, each time for a range of domains.
	domainsAtOnce = 512 << 10
	// scanRows is how many rows of the part of a union are read at once.
	scanRows = 64 << 10
)

// Batch is a batch whose rows die.
type Batch struct {
	// Stored is what has its rows: the batch itself, or a union.
	Stored segment.BatchRef
	// Member is the name of the batch in a union, "" if all rows of Stored die.
	Member string
	// Rows is the number of its rows.
	Rows int64
}

// OfBatches writes the table that takes batches out of a segment of a version, beside those that
// are dead already, and returns what the next version is to say of the segment, all but the list of
// batches. A damaged file is a *codec.CorruptError, one of a batch a *postings.DamageError.
//
// That costs what the batches cost. Their own postings say where their rows are; the rows of a
// batch of a union are found in one pass over the parts of the union, which reads four columns. The
// totals of a domain are the segment's less the totals of the dead rows. Only if a dead row has the
// domain's first or last time, or if no size may be left, are the remaining rows read, and of them
// the columns of times or sizes alone.
func OfBatches(ctx context.Context, store blob.Store, s *catalog.Segment, batches []Batch) (catalog.Dead, error) {
	dead, err := ofBatches(ctx, store, s, batches, domainsAtOnce)
	if err != nil {
		return catalog.Dead{}, fmt.Errorf("take batches out of segment %s: %w", s.ID, err)
	}
	return dead, nil
}

func ofBatches(
	ctx context.Context, store blob.Store, s *catalog.Segment, batches []Batch, domains int64,
) (catalog.Dead, error) {
	b, err := newBuilder(ctx, store, s, segment.Options{PostingsOnly: true, WholeFiles: true})
	if err != nil {
		return catalog.Dead{}, err
	}
	defer b.seg.Close()
	u := batchBuilder{builder: b, files: map[string]uint32{}}
	for id := range b.seg.Files().Len() {
		u.files[b.seg.Files().Info(uint32(id)).Path] = uint32(id)
	}
	dying := int64(0)
	for i := range batches {
		dying += batches[i].Rows
	}
	want := s.Rows - s.Live() + dying
	stop := b.change(b.own, func(e *Entry) bool { return u.dying[owner{e.Key, e.Dataset}] })
	defer stop()
	// A row is of one entry, so no more entries lose rows than rows die.
	passes := 1 + uint64(min(dying, b.seg.Info().Entries)/domains)
	sources := sourcesOf(batches)
	width := math.MaxUint64 / passes
	for pass := range passes {
		first, last := pass*width, (pass+1)*width-1
		if pass == passes-1 {
			last = math.MaxUint64
		}
		left, err := u.left(sources, first, last)
		if err != nil {
			return catalog.Dead{}, err
		}
		for i := range left {
			if err := b.add(&left[i]); err != nil {
				return catalog.Dead{}, err
			}
		}
	}
	if err := b.advance(nil); err != nil {
		return catalog.Dead{}, err
	}
	if got := b.out.Dead(); got != want {
		return catalog.Dead{}, codec.Corrupt(segment.Prefix(s.ID), "dead rows", -1, fmt.Sprintf("%d of the batches", want), got)
	}
	table, err := b.finish(s.ID)
	return catalog.Dead{Table: table, Rows: want}, err
}

// source is what has rows of batches that die: a batch, or a union and its members that die.
type source struct {
	segment.BatchRef
	members map[string]bool // nil for a batch
}

// sourcesOf returns the sources of batches, each once.
func sourcesOf(batches []Batch) (all []source) {
	at := map[segment.BatchRef]int{}
	for i := range batches {
		b := &batches[i]
		n, ok := at[b.Stored]
		if !ok {
			n = len(all)
			at[b.Stored] = n
			all = append(all, source{BatchRef: b.Stored})
		}
		if b.Member != "" {
			if all[n].members == nil {
				all[n].members = map[string]bool{}
			}
			all[n].members[b.Member] = true
		}
	}
	return all
}

// owner is a domain in a dataset.
type owner struct {
	segment.Key
	dataset uint32
}

func compareOwners(a, b owner) int {
	return cmp.Or(segment.CompareKeys(a.Key, b.Key), cmp.Compare(a.dataset, b.dataset))
}

// died are dead rows of a domain in a dataset.
type died struct {
	totals segment.Totals
	tuples []segment.Tuple
}

// batchBuilder finds the rows of batches.
type batchBuilder struct {
	*builder
	files map[string]uint32 // of the segment, by object
	dying map[owner]bool    // the entries that lose rows
}

// left returns what is left of each entry with rows of the sources, of the domains from first to
// last.
func (u *batchBuilder) left(sources []source, first, last uint64) ([]remains, error) {
	all := map[owner]*died{}
	for i := range sources {
		s := &sources[i]
		if err := u.find(s, func(k segment.Key, t *segment.Totals, tuples []segment.Tuple) {
			if k.ID < first || k.ID > last {
				return
			}
			o := owner{k, s.DatasetID}
			d := all[o]
			if d == nil {
				d = &died{}
				all[o] = d
			}
			d.totals.Add(*t)
			d.tuples = append(d.tuples, tuples...)
		}); err != nil {
			return nil, err
		}
	}
	owners := make([]owner, 0, len(all))
	u.dying = make(map[owner]bool, len(all))
	for o := range all {
		owners = append(owners, o)
		u.dying[o] = true
	}
	slices.SortFunc(owners, compareOwners)
	out := make([]remains, len(owners))
	for i, o := range owners {
		var err error
		if out[i], err = u.subtract(o, all[o]); err != nil {
			return nil, err
		}
		delete(all, o)
	}
	return out, u.readTotals(out)
}

// find calls each with the dying rows of a source: the rows of a domain in one part, or some of
// them. The tuples belong to find.
func (u *batchBuilder) find(s *source, each func(segment.Key, *segment.Totals, []segment.Tuple)) error {
	data, _, err := u.store.Get(u.ctx, s.Key())
	var record *lake.Batch
	if err == nil {
		record, err = lake.DecodeBatch(data, s.Key())
	}
	if err != nil {
		return postings.Damaged(s.BatchRef, err)
	}
	for _, o := range record.Postings {
		r, err := postings.Open(u.ctx, u.store, s.BatchRef, o)
		if err != nil {
			return err
		}
		for n, p := range r.Parts() {
			file, ok := u.files[p.Key]
			if !ok {
				return codec.Corrupt(segment.Prefix(u.seg.Info().Segment)+segment.FilesName, "files", -1, p.Key, "none")
			}
			if s.members == nil {
				err = u.whole(r, n, file, each)
			} else {
				err = postings.Damaged(s.BatchRef, u.ofMembers(r, n, file, s.members, each))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// whole finds all rows of a part, by its postings.
func (u *batchBuilder) whole(
	r *postings.Reader, n int, file uint32, each func(segment.Key, *segment.Totals, []segment.Tuple),
) error {
	for d, err := range r.PartDomains(u.ctx, n) {
		if err != nil {
			return err
		}
		for i := range d.Tuples {
			d.Tuples[i].FileID = file
		}
		each(postings.DomainKey(d.Name), &d.Totals, d.Tuples)
	}
	return nil
}

// ofMembers finds the rows of batches in a part of a union.
func (u *batchBuilder) ofMembers(
	r *postings.Reader, n int, file uint32, batches map[string]bool, each func(segment.Key, *segment.Totals, []segment.Tuple),
) error {
	blocks, err := r.Pages(u.ctx, n)
	if err != nil {
		return err
	}
	key := r.Parts()[n].Key
	scan := postings.PartScanner{Key: key, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
		return u.store.ReadRange(ctx, key, off, n)
	}}
	columns := []part.Column{part.ColBatch, part.ColDomain, part.ColTS, part.ColSize}
	for rows, err := range scan.Scan(u.ctx, blocks, scanRows, columns) {
		if err != nil {
			return err
		}
		for i := 0; i < rows.Rows; {
			domain := rows.Domain[i]
			var t segment.Totals
			var tuples []segment.Tuple
			for ; i < rows.Rows && rows.Domain[i] == domain; i++ {
				if !batches[rows.Batch[i]] {
					continue
				}
				addRow(&t, rows.Columns, i)
				at := segment.Tuple{FileID: file, RowGroup: rows.Group, FirstRow: rows.FirstRow + int64(i), Rows: 1}
				if k := len(tuples) - 1; k >= 0 && tuples[k].FirstRow+tuples[k].Rows == at.FirstRow {
					tuples[k].Rows++
				} else {
					tuples = append(tuples, at)
				}
			}
			if t.Rows > 0 {
				each(segment.KeyOf(domain), &t, tuples)
			}
		}
	}
	return nil
}

// addRow adds a row to totals.
func addRow(t *segment.Totals, c *part.Columns, i int) {
	one := segment.Totals{Rows: 1, HasSize: c.HasSize[i], HasTS: c.HasTS[i]}
	if one.HasSize {
		one.Size = c.Size[i]
	}
	if one.HasTS {
		one.FirstTS, one.LastTS = c.TS[i], c.TS[i]
	}
	t.Add(one)
}

// subtract takes dead rows out of an entry, as far as that follows without reading rows.
func (u *batchBuilder) subtract(o owner, d *died) (remains, error) {
	corrupt := func(want, got any) (remains, error) {
		return remains{}, u.corrupt(fmt.Sprintf("domain %016x in dataset %d", o.ID, o.dataset), want, got)
	}
	entry, ok, err := u.seg.Entry(u.ctx, o.Key, o.dataset)
	if err != nil {
		return remains{}, err
	}
	if !ok {
		return corrupt(fmt.Sprintf("%d rows or more", d.totals.Rows), "none")
	}
	had, err := u.live(entry)
	if err != nil {
		return remains{}, err
	}
	tuples, err := u.tuples(&had)
	if err != nil {
		return remains{}, err
	}
	slices.SortFunc(d.tuples, compareTuples)
	left, taken := Difference(tuples, d.tuples)
	if taken != d.totals.Rows || taken > had.Rows {
		return corrupt(fmt.Sprintf("%d rows, of which %d die", had.Rows, d.totals.Rows), taken)
	}
	out := remains{tuples: left, Entry: Entry{Key: o.Key, Dataset: o.dataset,
		Dead: had.own.Dead + taken, DeadSize: AddSize(had.own.DeadSize, d.totals.Size)}}
	out.Rows = had.Rows - taken
	switch {
	case out.Rows == 0:
		return out, nil
	case !had.HasSize:
	case had.Size == math.MaxInt64 || had.Size == d.totals.Size:
		out.sizes = true
	default:
		out.HasSize, out.Size = true, had.Size-d.totals.Size
	}
	switch {
	case !had.HasTS:
	case d.totals.HasTS && (d.totals.FirstTS == had.FirstTS || d.totals.LastTS == had.LastTS):
		out.times = true
	default:
		out.HasTS, out.FirstTS, out.LastTS = true, had.FirstTS, had.LastTS
	}
	if out.Size < 0 {
		return corrupt(fmt.Sprintf("a size of at least %d", d.totals.Size), had.Size)
	}
	return out, nil
}
