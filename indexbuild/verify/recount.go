package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// scanRows is how many rows of all columns are read at once. The extras of a page may have a
// megabyte.
const scanRows = 1 << 14

// recount reads all parts, counts the rows of each domain and compares them with the postings.
func (v *verifier) recount() error {
	if len(v.parts) != v.seg.Files().Len() || v.partial.records {
		return nil // records has reported it
	}
	v.uncounted = map[uint32]bool{}
	defer func() { v.report.Uncounted = slices.Sorted(maps.Keys(v.uncounted)) }()
	s := keysort.New(v.tempDir, 0, v.info.Entries, 0)
	defer s.Close()
	var blocks []*part.PageIndexBlock
	last := uint32(0)
	nextKeys, stop := iter.Pull2(v.seg.AllPageKeys(v.ctx))
	defer stop()
	v.keys = &keyReader{next: nextKeys}
	v.keys.advance()
	for p, err := range v.seg.Pages(v.ctx) {
		if err != nil && v.partial.pages && errors.Is(err, codec.ErrCorrupt) {
			return nil // pages has reported it
		}
		if err != nil {
			return v.problem(v.key(segment.PartsName), err)
		}
		if int64(p.File) >= int64(len(v.parts)) {
			break // pages has reported it
		}
		if p.File != last {
			if err := v.countPart(last, blocks, s); err != nil {
				return err
			}
			blocks = nil
		}
		last = p.File
		blocks = append(blocks, p.PageIndexBlock)
	}
	if len(blocks) > 0 {
		if err := v.countPart(last, blocks, s); err != nil {
			return err
		}
	}
	if v.keys.ok && v.keys.err == nil {
		v.wrong(v.key(segment.PageKeysName), "blocks", "keys of pages of the parts",
			fmt.Sprintf("row %d of row group %d of file %d", v.keys.FirstRow, v.keys.RowGroup, v.keys.File))
	}
	for of, u := range v.unions {
		for _, batch := range slices.Sorted(maps.Keys(u.left)) {
			if n := u.left[batch]; n != 0 && !v.uncounted[of.dataset] {
				v.wrong(u.key, "members", "as many rows of batch "+batch+" as its parts have", fmt.Sprintf("%d more", n))
				break
			}
		}
	}
	return v.compare(s)
}

// countPart checks the part of a file and adds its domains with their rows to the sorter. blocks
// are its page index.
func (v *verifier) countPart(id uint32, blocks []*part.PageIndexBlock, s *keysort.Sorter) error {
	got, failed := v.keys.of(id)
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
		v.wrong(p.Key, "file", fmt.Sprintf("%d bytes with xxh64 %s", p.Bytes, p.XXH64),
			fmt.Sprintf("%d with %s", n, sum))
		return nil
	}

	footer, err := part.BuildPageIndex(tmp, n, p.Key)
	if err != nil {
		return damaged(err)
	}
	if !slices.EqualFunc(footer, blocks, func(a part.PageIndexBlock, b *part.PageIndexBlock) bool {
		return bytes.Equal(a.Append(nil), b.Append(nil))
	}) {
		v.wrong(v.key(segment.PartsName), "pages of "+p.Key, "the pages of its footer", "others")
	}

	var keys []part.PageKeyBlock
	if keys, err = v.pageKeys(id, tmp, n, blocks, got, failed == nil); err != nil {
		return damaged(err)
	}
	checker, err := newKeyChecker(p.Key, keys, blocks)
	if err != nil {
		return damaged(err)
	}

	var groups []int64
	left := int64(0)
	for _, g := range v.groups[id] {
		groups = append(groups, g.rows)
		left += g.rows
	}
	rows := postings.NewRowCursor(id, groups)
	var rec postings.Record
	var encoded []byte
	counter := postings.NewDomainCounter(p.Key, func(domain []byte, _ int, t *segment.Totals) error {
		if left -= t.Rows; left < 0 {
			return codec.Corrupt(p.Key, "rows", -1, "as many as its page index has", fmt.Sprintf("%d more", -left))
		}
		rec.Totals, rec.Tuples = *t, rows.AppendTuples(rec.Tuples[:0], t.Rows)
		encoded = rec.Append(encoded[:0])
		return s.Add(postings.DomainKey(domain), encoded)
	})
	scanner := postings.PartScanner{Key: p.Key, Read: func(_ context.Context, off, n int64) ([]byte, error) {
		b := make([]byte, n)
		_, err := tmp.ReadAt(b, off)
		return b, err
	}}
	for r, err := range scanner.Scan(v.ctx, blocks, scanRows, allColumns()) {
		if err == nil {
			err = checkRows(r, p.Key, dataset, batch, v.unions[unionOf{dataset, batch}])
		}
		if err == nil {
			err = counter.Add(r)
		}
		if err == nil {
			err = checker.add(r)
		}
		if err != nil {
			return damaged(err)
		}
		v.report.PartRows += int64(r.Rows)
	}
	if err := counter.End(); err != nil {
		return damaged(err)
	}
	return nil
}

// checkRows checks the columns that say where a row belongs. Rows of a union, which is nil for a
// batch, are each of one of its batches.
func checkRows(r postings.Rows, part string, dataset uint32, batch string, union *unionRows) error {
	for i := range r.Rows {
		if union != nil {
			batch = "one of the union"
			if left, ok := union.left[r.Batch[i]]; ok {
				batch = r.Batch[i]
				union.left[batch] = left - 1
			}
		}
		id := xxh3.HashString(r.Domain[i])
		if r.DatasetID[i] != dataset || r.Batch[i] != batch || r.DomainID[i] != id {
			return codec.Corrupt(part, fmt.Sprintf("row %d of row group %d", r.FirstRow+int64(i), r.Group), -1,
				fmt.Sprintf("dataset %d, batch %s, domain_id %016x", dataset, batch, id),
				fmt.Sprintf("%d, %s, %016x", r.DatasetID[i], r.Batch[i], r.DomainID[i]))
		}
	}
	return nil
}

// compare compares the counted rows with the postings, which are in the same order. It leaves out
// datasets of which rows are missing. It stops at the first domain that only one of the two has,
// because all that follow would differ too.
func (v *verifier) compare(s *keysort.Sorter) error {
	next, stop := iter.Pull2(v.allPostings())
	defer stop()
	nextPosting := func() (p segment.Posting, ok bool, err error) {
		for p, err, ok = next(); ok && err == nil && v.uncounted[p.Dataset]; p, err, ok = next() {
		}
		return p, ok, err
	}
	shardOf := func(k segment.Key) string {
		return v.key(segment.PostingsName(int(k.ID >> (64 - v.info.ShardBits))))
	}
	for c, err := range v.counted(s) {
		if err != nil {
			return v.rereadProblem(err)
		}
		p, ok, err := nextPosting()
		if err != nil {
			return v.rereadProblem(err)
		}
		if !ok {
			v.wrong(v.key("postings"), describeKey(c.key), fmt.Sprintf("an entry in dataset %d", c.dataset), "none")
			return nil
		}
		section := fmt.Sprintf("%s in dataset %d", describeKey(c.key), c.dataset)
		if p.Key != c.key || p.Dataset != c.dataset {
			v.wrong(shardOf(c.key), "entries", section, fmt.Sprintf("%s in dataset %d", describeKey(p.Key), p.Dataset))
			return nil
		}
		if c.Totals != p.Totals {
			v.wrong(shardOf(c.key), section, describeTotals(c.Totals), describeTotals(p.Totals))
		}
		if !slices.Equal(c.Tuples, p.Tuples) {
			v.wrong(shardOf(c.key), section, describeTuples(c.Tuples), describeTuples(p.Tuples))
		}
	}
	p, ok, err := nextPosting()
	if err != nil {
		return v.rereadProblem(err)
	}
	if ok {
		v.wrong(shardOf(p.Key), "entries", "no more: the parts have no further rows",
			fmt.Sprintf("%s in dataset %d", describeKey(p.Key), p.Dataset))
	}
	return nil
}

// rereadProblem adds a problem of the second read of the postings, unless the first read has
// reported it.
func (v *verifier) rereadProblem(err error) error {
	if v.partial.postings && errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return v.problem(v.key("postings"), err)
}

// count is what was counted of a domain in a dataset.
type count struct {
	key     segment.Key
	dataset uint32
	postings.Record
}

// errStopped says that the caller of counted wants no more.
var errStopped = errors.New("stopped")

// counted yields what was counted, in the order of postings, of the datasets that were read
// completely. A count is valid until the next one. An error is yielded last.
func (v *verifier) counted(s *keysort.Sorter) iter.Seq2[*count, error] {
	return func(yield func(*count, error) bool) {
		var c count
		var r postings.Record
		flush := func() bool {
			if c.Totals.Rows == 0 {
				return true
			}
			ok := yield(&c, nil)
			c.Totals, c.Tuples = segment.Totals{}, c.Tuples[:0]
			return ok
		}
		for i := range s.Len() {
			err := s.Each(v.ctx, i, func(values *keysort.Values) error {
				for n := range values.Len() {
					k, encoded := values.At(n)
					dataset := v.seg.Files().Info(postings.RecordFile(encoded)).DatasetID
					if v.uncounted[dataset] {
						continue
					}
					if err := r.Decode(encoded); err != nil {
						return err
					}
					if k != c.key || dataset != c.dataset {
						if !flush() {
							return errStopped
						}
						c.key, c.dataset = k, dataset
					}
					c.Totals.Add(r.Totals)
					c.Tuples = append(c.Tuples, r.Tuples...)
				}
				return v.ctx.Err()
			})
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		flush()
	}
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

// describeTotals describes totals in an error.
func describeTotals(t segment.Totals) string {
	s := fmt.Sprintf("%d rows", t.Rows)
	if t.HasSize {
		s += fmt.Sprintf(" of %d bytes", t.Size)
	}
	if t.HasTS {
		s += fmt.Sprintf(" from %s to %s", describeTS(t.FirstTS), describeTS(t.LastTS))
	}
	return s
}

func describeTS(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// describeTuples describes the first of some tuples in an error.
func describeTuples(tuples []segment.Tuple) string {
	if len(tuples) == 0 {
		return "no tuples"
	}
	t := tuples[0]
	s := fmt.Sprintf("%s of row group %d of file %d", describeRows(t), t.RowGroup, t.FileID)
	if len(tuples) > 1 {
		s += fmt.Sprintf(" and %d tuples more", len(tuples)-1)
	}
	return s
}
