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

// rowGroup collects what is known of one row group.
type rowGroup struct {
	rows   int64 // by its page index
	number int   // in the segment
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
	s := keysort.New(v.tempDir, keysort.DefaultMemory, v.info.Entries*keysort.EntryBytes, 0)
	defer s.Close()
	var blocks []*part.PageIndexBlock
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
func (v *verifier) part(id uint32, blocks []*part.PageIndexBlock, s *keysort.Sorter) error {
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

	again, err := part.BuildPageIndex(tmp, n, p.Key)
	if err != nil {
		return damaged(err)
	}
	if !slices.EqualFunc(postings.PageIndex(again), blocks, func(a, b *part.PageIndexBlock) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }) {
		v.wrong(v.key(segment.PartsName), "pages of "+p.Key, "those in its footer", "others")
	}

	var val []byte
	places, left := postings.RowPlaces{File: id}, int64(0)
	for _, g := range v.groups[id] {
		places.Groups = append(places.Groups, g.rows)
		left += g.rows
	}
	var rec postings.Record
	runs := postings.DomainRuns{Key: p.Key, Each: func(domain []byte, _ int, t *segment.Totals) error {
		if left -= t.Rows; left < 0 {
			return codec.Corrupt(p.Key, "rows", -1, "as many as its page index has", fmt.Sprintf("%d more", -left))
		}
		rec.Totals, rec.Tuples = *t, places.Take(t.Rows, rec.Tuples[:0])
		val = rec.Append(val[:0])
		return s.Add(postings.DomainKey(domain), val)
	}}
	reader := postings.PartReader{Key: p.Key, Read: func(_ context.Context, off, n int64) ([]byte, error) {
		b := make([]byte, n)
		_, err := tmp.ReadAt(b, off)
		return b, err
	}}
	for r, err := range reader.Scan(v.ctx, blocks, postings.CheckRows, allColumns()) {
		if err == nil {
			err = checkRowsOf(r, p.Key, dataset, batch)
		}
		if err == nil {
			err = runs.Add(r)
		}
		if err != nil {
			return damaged(err)
		}
		v.report.PartRows += int64(r.Rows)
	}
	if err := runs.End(); err != nil {
		return damaged(err)
	}
	return nil
}

// checkRowsOf checks the columns that say where a row belongs.
func checkRowsOf(r postings.Rows, part string, dataset uint32, batch string) error {
	for i := range r.Rows {
		id := xxh3.HashString(r.Domain[i])
		if r.DatasetID[i] != dataset || r.Batch[i] != batch || r.DomainID[i] != id {
			return codec.Corrupt(part, fmt.Sprintf("row %d of row group %d", r.First+int64(i), r.Group), -1,
				fmt.Sprintf("dataset %d, batch %s, domain_id %016x", dataset, batch, id), fmt.Sprintf("%d, %s, %016x", r.DatasetID[i], r.Batch[i], r.DomainID[i]))
		}
	}
	return nil
}

// compare holds the counted rows against the postings; both are in one order. It passes over datasets of which rows are missing.
func (v *verifier) compare(s *keysort.Sorter) error {
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
	var counted, r postings.Record
	var key segment.Key
	// settle holds what was counted of one domain in one dataset against the next entry.
	settle := func() error {
		if counted.Totals.Rows == 0 {
			return nil
		}
		if !some {
			v.wrong(v.key("postings"), domainName(key), fmt.Sprintf("an entry in dataset %d", counted.Dataset), "none")
			return stop
		}
		if err != nil {
			return err
		}
		if p.Key != key || p.Dataset != counted.Dataset {
			v.wrong(shardName(key.ID), "entries", fmt.Sprintf("%s in dataset %d", domainName(key), counted.Dataset), fmt.Sprintf("%s in dataset %d", domainName(p.Key), p.Dataset))
			return stop
		}
		place := fmt.Sprintf("%s in dataset %d", domainName(key), counted.Dataset)
		if counted.Totals != p.Totals {
			v.wrong(shardName(key.ID), place, describeTotals(counted.Totals), describeTotals(p.Totals))
		}
		if !slices.Equal(counted.Tuples, p.Tuples) {
			v.wrong(shardName(key.ID), place, describeTuples(counted.Tuples), describeTuples(p.Tuples))
		}
		counted.Totals, counted.Tuples = segment.Totals{}, counted.Tuples[:0]
		advance()
		return nil
	}
	for i := range s.Len() {
		walk := s.Each(v.ctx, i, func(values *keysort.Values) error {
			for n := range values.Len() {
				k, val := values.At(n)
				dataset := v.seg.Files().Info(postings.RecordFile(val)).DatasetID
				if v.uncounted[dataset] {
					continue
				}
				if err := r.Read(val); err != nil {
					return err
				}
				if k != key || dataset != counted.Dataset {
					if err := settle(); err != nil {
						return err
					}
					key, counted.Dataset = k, dataset
				}
				counted.Totals.Add(r.Totals)
				counted.Tuples = append(counted.Tuples, r.Tuples...)
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
