package indexbuild

import (
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
)

// window is a range of merged domains, each once, in their order.
type window struct {
	text       []byte   // one domain a line
	ends       []uint32 // of the lines
	records    []byte   // of all domains, encoded; of one domain by dataset
	recordEnds []uint32 // of each domain's records

	keys    []segment.Key // of the domains; none if the merge has no keyOf
	sets    []uint32      // the datasets of each domain, ascending
	setEnds []uint32      // of each domain's datasets
}

func (w *window) len() int { return len(w.ends) }

func (w *window) domain(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = w.ends[i-1]
	}
	return w.text[start : w.ends[i]-1]
}

// recordsOf returns the encoded records of domain i.
func (w *window) recordsOf(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = w.recordEnds[i-1]
	}
	return w.records[start:w.recordEnds[i]]
}

// windowBuilder adds domains to a window.
type windowBuilder struct {
	*window
	datasets []uint32 // of the files

	firstSet   int // of the open domain, in sets
	lastRecord int // start of the last record, in records
	a, b       postings.Record
}

// begin begins a window.
func (m *windowBuilder) begin() {
	w := windowPool.Get().(*window)
	w.text, w.ends, w.records, w.recordEnds = w.text[:0], w.ends[:0], w.records[:0], w.recordEnds[:0]
	w.keys, w.sets, w.setEnds = w.keys[:0], w.sets[:0], w.setEnds[:0]
	m.window, m.firstSet = w, 0
}

// addDomain opens the next domain.
func (m *windowBuilder) addDomain(d postings.BlockDomain) {
	w := m.window
	in, n := d.Text()
	at := len(w.text)
	w.text = slices.Grow(w.text, segment.MaxDomain+1+postings.BlockSlack)
	text := w.text[at : at+segment.MaxDomain+1+postings.BlockSlack]
	// Most domains have at most BlockSlack bytes, which two copies of a fixed size move.
	from := (*[postings.BlockSlack]byte)(in)
	*(*[16]byte)(text) = *(*[16]byte)(from[:])
	*(*[16]byte)(text[16:]) = *(*[16]byte)(from[16:])
	if n > postings.BlockSlack {
		copy(text, in[:n])
	}
	text[n] = '\n'
	w.text = w.text[:at+n+1]
	w.ends = append(w.ends, uint32(len(w.text)))
}

// addRecords adds encoded records to the open domain.
func (m *windowBuilder) addRecords(records []byte) error {
	if len(records) == postings.PlainBytes {
		return m.addRecord(records)
	}
	for len(records) > 0 {
		n := postings.RecordLen(records)
		if err := m.addRecord(records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// addRecord adds an encoded record to the open domain. If the domain's last record is of the same
// dataset, it merges the two: several parts of a partition, or several batches of a dataset, may
// have the domain.
func (m *windowBuilder) addRecord(record []byte) error {
	w := m.window
	if len(w.records) > math.MaxUint32-len(record) {
		return fmt.Errorf("domains up to %q have 4 GiB of records: at most 4 GiB less one byte are supported",
			w.domain(len(w.ends)-1))
	}
	dataset := m.datasets[postings.RecordFile(record)]
	if len(w.sets) == m.firstSet || w.sets[len(w.sets)-1] != dataset {
		m.lastRecord = len(w.records)
		w.sets = append(w.sets, dataset)
		if len(record) == postings.PlainBytes {
			w.records = slices.Grow(w.records, postings.PlainBytes)[:m.lastRecord+postings.PlainBytes]
			*(*[postings.PlainBytes]byte)(w.records[m.lastRecord:]) = *(*[postings.PlainBytes]byte)(record)
			return nil
		}
		w.records = append(w.records, record...)
		return nil
	}
	if err := m.a.Decode(w.records[m.lastRecord:]); err != nil {
		return err
	}
	if err := m.b.Decode(record); err != nil {
		return err
	}
	m.a.Totals.Add(m.b.Totals)
	m.a.Tuples = append(m.a.Tuples, m.b.Tuples...)
	if !slices.IsSortedFunc(m.a.Tuples, segment.CompareTuples) {
		slices.SortFunc(m.a.Tuples, segment.CompareTuples)
	}
	w.records = m.a.Append(w.records[:m.lastRecord])
	return nil
}

// endDomain ends the open domain.
func (m *windowBuilder) endDomain() {
	w := m.window
	w.recordEnds = append(w.recordEnds, uint32(len(w.records)))
	w.setEnds = append(w.setEnds, uint32(len(w.sets)))
	m.firstSet = len(w.sets)
}
