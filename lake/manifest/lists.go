package manifest

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/urlake/urlake/lake"
)

// lists are what a version of format 1 lists in its document.
type lists struct {
	datasets []Dataset // by id
	batches  []Batch   // by dataset and name
}

// listBatch is a batch in a document of format 1.
type listBatch struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"`
	Rows      int64  `json:"rows"`
	Parts     int64  `json:"parts"`
	Bytes     int64  `json:"bytes"`
	Segment   string `json:"segment"`
}

func (b *listBatch) name() BatchName { return BatchName{DatasetID: b.DatasetID, Batch: b.Batch} }

func (d *document) lists() *lists {
	l := &lists{datasets: d.Datasets, batches: make([]Batch, 0, len(d.Batches))}
	for i := range d.Batches {
		b := &d.Batches[i]
		l.batches = append(l.batches, Batch{
			BatchName: b.name(), Digest: b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes, Segment: b.Segment,
		})
	}
	return l
}

// from returns the index of the first batch that is not before name.
func (l *lists) from(name BatchName) (at int, found bool) {
	return slices.BinarySearchFunc(l.batches, name, func(b Batch, n BatchName) int { return CompareNames(b.BatchName, n) })
}

// all yields the batches that choose accepts.
func (l *lists) all(choose func(b *Batch) bool) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for i := range l.batches {
			if b := &l.batches[i]; choose(b) && !yield(*b, nil) {
				return
			}
		}
	}
}

// checkLists checks the lists of a document of format 1 and all sums over them.
func (d *document) checkLists(key string) error {
	v := &d.Version
	c := checker{file: key}
	rows := map[string]int64{}
	for i := range v.Segments {
		rows[v.Segments[i].ID] = v.Segments[i].Rows
	}
	for i := range d.Datasets {
		s := &d.Datasets[i]
		section := "datasets[" + strconv.Itoa(i) + "]"
		c.that(section+".id", s.ID > 0 && (i == 0 || d.Datasets[i-1].ID < s.ID), "ascending ids", s.ID)
		c.that(section+".name", lake.CheckDatasetName(s.Name) == nil, "a dataset name", s.Name)
	}
	sums := map[uint32]*Dataset{}
	total := Counts{Segments: len(v.Segments), Datasets: len(d.Datasets), Batches: len(d.Batches)}
	for i := range d.Batches {
		b := &d.Batches[i]
		section := "batches[" + strconv.Itoa(i) + "]"
		c.that(section, i == 0 || CompareNames(d.Batches[i-1].name(), b.name()) < 0,
			"ascending datasets and names", fmt.Sprintf("%d/%s", b.DatasetID, b.Batch))
		c.that(section+".batch", lake.CheckBatchName(b.Batch) == nil, "a batch name", b.Batch)
		c.hex(section+".digest", b.Digest, 32)
		for _, n := range []int64{b.Rows, b.Parts, b.Bytes} {
			c.that(section, 0 <= n && n < maxCount, "a count", n)
		}
		_, known := slices.BinarySearchFunc(d.Datasets, b.DatasetID,
			func(s Dataset, id uint32) int { return cmp.Compare(s.ID, id) })
		c.that(section+".dataset_id", known, "one of datasets", b.DatasetID)
		left, known := rows[b.Segment]
		c.that(section+".segment", known, "one of segments", b.Segment)
		rows[b.Segment] = left - b.Rows
		s := sums[b.DatasetID]
		if s == nil {
			s = &Dataset{}
			sums[b.DatasetID] = s
		}
		s.add(1, b.Parts, b.Rows, b.Bytes)
		total.Parts, total.Rows, total.PartBytes = total.Parts+b.Parts, total.Rows+b.Rows, total.PartBytes+b.Bytes
	}
	for i := range v.Segments {
		s := &v.Segments[i]
		c.that("segments["+strconv.Itoa(i)+"].rows", rows[s.ID] == 0, s.Rows-rows[s.ID], s.Rows)
		total.IndexBytes += s.Bytes
	}
	for i := range d.Datasets {
		s := d.Datasets[i]
		section := fmt.Sprintf("datasets: %d", s.ID)
		sum := sums[s.ID]
		if c.that(section, sum != nil, "a live batch", "none"); sum != nil {
			c.equal(section, sum.sums(), s.sums())
		}
	}
	c.equal("counts", total, v.Counts)
	return c.err
}
