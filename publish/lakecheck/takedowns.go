package lakecheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/pieces"
)

// takedowns checks the takedowns of a lake: the document, its pieces, that it covers all segments
// of the versions, and the deletion tables. Deep also reads all rows of these segments, and works
// out by the texts of the rules alone what the tables have to say.
func (c *checker) takedowns(m *catalog.Manifest, versions []*catalog.Version) error {
	if m == nil || m.Takedowns == nil {
		return nil
	}
	doc, err := catalog.ReadTakedowns(c.ctx, c.store, m.Takedowns)
	if err != nil {
		return c.add(err)
	}
	sound := true
	for _, ref := range []pieces.Ref{doc.RulePieces, doc.RecordPieces} {
		for _, err := range pieces.Open(c.store, catalog.TakedownPiecesRoot, ref).Pieces(c.ctx) {
			sound = sound && err == nil
			if err := c.add(err); err != nil {
				return err
			}
		}
	}
	if !sound {
		return nil
	}
	rules, err := doc.Rules(c.ctx, c.store)
	if err != nil {
		return c.add(err)
	}
	for rec, err := range doc.Records(c.ctx, c.store) {
		if err != nil {
			return c.add(err)
		}
		if r, ok := rules.Find(rec.ID); ok && r.Digest() != rec.Digest {
			err := codec.Corrupt(m.Takedowns.Object, "record "+rec.ID, -1, "digest "+r.Digest(), rec.Digest)
			if err := c.add(err); err != nil {
				return err
			}
		}
	}
	naive := newNaive(rules.All())
	seen := map[string]bool{}
	for _, v := range versions {
		for _, s := range v.Segments {
			view := s.View()
			if seen[view] || rules.Len() == 0 {
				continue
			}
			seen[view] = true
			covered, ok := doc.Find(view)
			if !ok {
				err := codec.Corrupt(m.Takedowns.Object, "segments", -1, "segment "+s.ID+" of version "+v.ID, "none")
				if err := c.add(err); err != nil {
					return err
				}
				continue
			}
			if err := c.add(c.table(v, &s, covered, naive)); err != nil {
				return err
			}
		}
	}
	return nil
}

// table checks the deletion table of what a version has of a segment under takedowns, or the
// version's own if covered is zero and rules are nil.
func (c *checker) table(v *catalog.Version, s *catalog.Segment, covered catalog.TakedownSegment, rules *naive) error {
	ref := covered.Table
	if ref == nil && s.Dead != nil {
		ref = &s.Dead.Table
	}
	if s.Rows == 0 || ref == nil && (rules == nil || !c.opt.Deep) {
		return nil
	}
	batches := map[catalog.BatchName]bool{} // that are dead
	rows := map[uint32]int64{}              // of these, by dataset
	for b, err := range v.DeadIn(c.ctx, s.ID) {
		if err != nil {
			return c.reported(rules != nil, err)
		}
		batches[b.BatchName] = true
		rows[b.DatasetID] += b.Rows
	}
	object := lake.DeletionRoot + s.View() // for errors about a segment that should have a table
	var table *deletion.Table
	if ref != nil {
		object = ref.Key
		var err error
		table, err = deletion.Open(c.ctx, c.store, *ref, segment.NewFrameCache(tableCache))
		if errors.Is(err, blob.ErrNotExist) {
			err = codec.Corrupt(object, "object", -1, "one that exists, since it is named for version "+v.ID, "none")
		}
		if err != nil {
			return c.reported(rules != nil && covered.Table == nil, err)
		}
		if err := sums(object, table.Sums(), rows, covered.Hidden); err != nil {
			return err
		}
	}
	seg, err := segment.Open(c.ctx, c.store, SegmentRef(*s), segment.Options{
		Cache: segment.NewFrameCache(tableCache), PostingsOnly: true, WholeFiles: true,
	})
	if err != nil {
		return c.reported(true, err)
	}
	defer seg.Close()
	have := map[owner]deletion.Entry{}
	if table != nil {
		for e, err := range table.All(c.ctx) {
			if err != nil {
				return err
			}
			entry, ok, err := seg.Entry(c.ctx, e.Key, e.Dataset)
			if err != nil {
				return c.reported(true, err)
			}
			if !ok || entry.Rows != e.Rows+e.Dead {
				return codec.Corrupt(object, fmt.Sprintf("domain %016x in dataset %d", e.ID, e.Dataset), -1,
					fmt.Sprintf("%d rows as in the segment", entry.Rows), e.Rows+e.Dead)
			}
			if c.opt.Deep {
				have[owner{e.Key, e.Dataset}] = e
			}
		}
	}
	if !c.opt.Deep {
		return nil
	}
	want, err := recount(c.ctx, c.store, seg, func(dataset uint32, r *part.Columns, i int) fate {
		switch {
		case batches[catalog.BatchName{DatasetID: dataset, Batch: r.Batch[i]}], rules.hides(dataset, r, i):
			return goes
		case rules.near(r.Domain[i]), table.May(segment.KeyOf(r.Domain[i])):
			return stays
		}
		return other
	})
	if err != nil {
		return c.reported(true, err)
	}
	return compare(object, want, have)
}

// reported returns err, unless another check reports it, which known says of damage.
func (c *checker) reported(known bool, err error) error {
	if known && errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return err
}

// sums checks what a table takes away from each dataset: the rows of dead batches, and hidden ones.
func sums(object string, sums []deletion.Sums, dead map[uint32]int64, hidden int64) error {
	left := maps.Clone(dead)
	got := int64(0)
	for _, sum := range sums {
		got += sum.Rows - left[sum.Dataset]
		if sum.Rows >= left[sum.Dataset] {
			delete(left, sum.Dataset)
		}
	}
	for dataset, rows := range left {
		if rows > 0 {
			return codec.Corrupt(object, "sums", -1, fmt.Sprintf("%d dead rows of dataset %d or more", rows, dataset), "fewer")
		}
	}
	if got != hidden {
		return codec.Corrupt(object, "sums", -1, fmt.Sprintf("%d hidden rows", hidden), got)
	}
	return nil
}

// tableCache is how many bytes of a deletion table, or a segment, are kept.
const tableCache = 16 << 20

// compare compares what was counted with the entries of a deletion table.
func compare(object string, want map[owner]*counted, have map[owner]deletion.Entry) error {
	for o, w := range want {
		e := have[o]
		tuples, err := e.Tuples()
		if err != nil {
			return err
		}
		if e.Totals != w.left || e.Dead != w.dead || e.DeadSize != w.deadSize || !slices.Equal(tuples, w.tuples) {
			return codec.Corrupt(object, fmt.Sprintf("domain %016x in dataset %d", o.ID, o.dataset), -1,
				fmt.Sprintf("%d rows gone and %d left, counted in the parts", w.dead, w.left.Rows),
				fmt.Sprintf("%d and %d, or others", e.Dead, e.Rows))
		}
	}
	if len(want) != len(have) {
		return codec.Corrupt(object, "entries", -1, fmt.Sprintf("%d, counted in the parts", len(want)), len(have))
	}
	return nil
}

// owner is a domain in a dataset.
type owner struct {
	segment.Key
	dataset uint32
}

// counted is what is left of a domain in a dataset.
type counted struct {
	left           segment.Totals
	dead, deadSize int64
	tuples         []segment.Tuple
}

// recountPages is how many pages are decoded at once.
const recountPages = 8

// fate is what becomes of a row.
type fate uint8

// Fates of rows. Other rows are not counted.
const (
	other fate = iota
	stays
	goes
)

// recount reads all rows of a segment and returns what is left of each domain of which something
// goes.
func recount(
	ctx context.Context, store blob.Store, seg *segment.Segment, of func(dataset uint32, c *part.Columns, i int) fate,
) (map[owner]*counted, error) {
	all := map[owner]*counted{}
	columns := []part.Column{
		part.ColBatch, part.ColDomain, part.ColHost, part.ColScheme, part.ColPort, part.ColPathQuery, part.ColTS, part.ColSize,
	}
	for p, err := range seg.Pages(ctx) {
		if err != nil {
			return nil, err
		}
		file := seg.Files().Info(p.File)
		for from := 0; from < p.Pages(); from += recountPages {
			start, end := p.PageStart(from), p.PageStart(min(from+recountPages, p.Pages()))
			c, err := part.ReadColumns(ctx, store, file.Path, p.PageIndexBlock, p.FirstRow+start, end-start, columns...)
			if err != nil {
				return nil, err
			}
			for i := range c.Rows {
				f := of(file.DatasetID, c, i)
				if f == other {
					continue
				}
				o := owner{segment.KeyOf(c.Domain[i]), file.DatasetID}
				sum := all[o]
				if sum == nil {
					sum = &counted{}
					all[o] = sum
				}
				sum.add(c, i, f == goes,
					segment.Tuple{FileID: p.File, RowGroup: uint32(p.RowGroup), FirstRow: p.FirstRow + start + int64(i), Rows: 1})
			}
		}
	}
	maps.DeleteFunc(all, func(_ owner, sum *counted) bool { return sum.dead == 0 })
	return all, nil
}

func (s *counted) add(c *part.Columns, i int, hidden bool, at segment.Tuple) {
	if hidden {
		s.dead++
		if s.deadSize += c.Size[i]; s.deadSize < 0 {
			s.deadSize = math.MaxInt64
		}
		return
	}
	s.left.Add(segment.Totals{
		Rows: 1, Size: c.Size[i], HasSize: c.HasSize[i], FirstTS: c.TS[i], LastTS: c.TS[i], HasTS: c.HasTS[i],
	})
	if n := len(s.tuples); n > 0 {
		if last := &s.tuples[n-1]; segment.CompareTuples(*last, at) == 0 && last.FirstRow+last.Rows == at.FirstRow {
			last.Rows++
			return
		}
	}
	s.tuples = append(s.tuples, at)
}

// naive decides by the texts of the rules, without package catalog's own way to match rows.
type naive struct {
	at map[string][]catalog.Takedown // by the host or domain that they name
	// above are the names above those of at: rows of such domains may be hidden too.
	above map[string]bool
}

func newNaive(rules []catalog.Takedown) *naive {
	n := &naive{at: map[string][]catalog.Takedown{}, above: map[string]bool{}}
	for _, r := range rules {
		n.at[r.Host] = append(n.at[r.Host], r)
		for name := range names(r.Host) {
			n.above[name] = true
		}
	}
	return n
}

// names yields a host and all names above it.
func names(host string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for yield(host) {
			_, above, ok := strings.Cut(host, ".")
			if !ok || strings.HasPrefix(host, "[") {
				return
			}
			host = above
		}
	}
}

// near reports whether rules may hide rows of a domain. Nil rules hide none.
func (n *naive) near(domain string) bool {
	if n == nil {
		return false
	}
	if n.above[domain] {
		return true
	}
	for name := range names(domain) {
		if len(n.at[name]) > 0 {
			return true
		}
	}
	return false
}

func (n *naive) hides(dataset uint32, c *part.Columns, i int) bool {
	if n == nil {
		return false
	}
	for name := range names(c.Host[i]) {
		for _, r := range n.at[name] {
			if name != c.Host[i] && r.Kind != catalog.DomainTarget || r.DatasetID != 0 && r.DatasetID != dataset {
				continue
			}
			if (r.From != nil || r.To != nil) && !c.HasTS[i] || r.From != nil && c.TS[i] < *r.From || r.To != nil && c.TS[i] >= *r.To {
				continue
			}
			if r.Kind == catalog.DomainTarget || r.Kind == catalog.HostTarget {
				return true
			}
			url := c.Host[i]
			if r.Scheme != "" {
				url = c.Scheme[i] + "://" + url
			}
			if c.Port[i] >= 0 {
				url += ":" + strconv.Itoa(int(c.Port[i]))
			}
			url += c.PathQuery[i]
			if text := r.String(); url == text || r.Kind == catalog.PrefixTarget && strings.HasPrefix(url, text) {
				return true
			}
		}
	}
	return false
}
