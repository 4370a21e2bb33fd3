package bulk

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// MaxColumns is the largest number of datasets of a matrix.
const MaxColumns = 1000

// Query says what to look up and how to write it.
type Query struct {
	// Datasets are the only datasets that count; nil stands for all.
	Datasets []uint32
	// Presence leaves out the totals.
	Presence bool
	// Matrix writes a row for each question, with a column for each dataset: those of Datasets, in
	// that order, or without it all that have one of the domains, by id.
	Matrix bool
	// Form is CSV or NDJSON.
	Form Format
}

// TooWideError says that a matrix would have more than MaxColumns datasets.
type TooWideError struct{ Datasets int }

func (e *TooWideError) Error() string {
	return fmt.Sprintf("the matrix would have %d datasets, at most %d are possible; choose some of them", e.Datasets, MaxColumns)
}

// Sums count what was answered.
type Sums struct {
	// Answered and Invalid are questions with and without an answer. Found are those whose domain
	// is in a dataset.
	Answered, Invalid, Found int
}

// Answers looks up questions and writes the answers to w, in their order. It holds those of a few
// thousand questions in memory. If the error is a *TooWideError nothing was written.
func Answers(ctx context.Context, snap *lookup.Snapshot, questions []Question, q Query, w io.Writer) (Sums, error) {
	e, err := newEncoder(ctx, snap, questions, q)
	if err != nil {
		return Sums{}, err
	}
	var sums Sums
	flush := func(most int) error {
		if len(e.buf) <= most {
			return nil
		}
		_, err := w.Write(e.buf)
		e.buf = e.buf[:0]
		return err
	}
	e.header()
	err = Each(ctx, e.bulk, questions, func(q *Question, a *lookup.BulkAnswer) error {
		switch {
		case a.Reject != nil:
			sums.Invalid++
		default:
			if sums.Answered++; len(a.Datasets) > 0 {
				sums.Found++
			}
		}
		if e.matrix != nil {
			e.matrixRow(q, a)
		} else {
			e.answer(q, a)
		}
		return flush(pieceBytes)
	})
	if err == nil {
		err = flush(0)
	}
	return sums, err
}

// pieceBytes is how much of an answer is gathered before it is written.
const pieceBytes = 32 << 10

// RejectLine is the reason of a question with a Problem.
const RejectLine urlnorm.Reason = "line"

// Each calls answer for each question, in order. The answer is valid during the call. One without
// text to look up is rejected for its line.
func Each(ctx context.Context, b *lookup.Bulk, questions []Question, answer func(q *Question, a *lookup.BulkAnswer) error) error {
	texts := make([][]byte, 0, len(questions))
	for i := range questions {
		if questions[i].Problem == "" {
			texts = append(texts, questions[i].Text)
		}
	}
	at := 0
	problems := func() error { // of the questions up to the next one with text
		for ; at < len(questions) && questions[at].Problem != ""; at++ {
			q := &questions[at]
			reject := &urlnorm.RejectError{Reason: RejectLine, Detail: q.Problem}
			if err := answer(q, &lookup.BulkAnswer{Reject: reject}); err != nil {
				return err
			}
		}
		return nil
	}
	err := b.Lookup(ctx, texts, func(_ int, a *lookup.BulkAnswer) error {
		if err := problems(); err != nil {
			return err
		}
		at++
		return answer(&questions[at-1], a)
	})
	if err != nil {
		return err
	}
	return problems()
}

// encoder writes answers to buf.
type encoder struct {
	bulk     *lookup.Bulk
	form     Format
	presence bool
	matrix   []dataset // nil unless a matrix is written
	at       map[uint32]int
	buf      []byte
	csv      *csv.Writer // to buf
	row      []string
}

// dataset is a column of a matrix.
type dataset struct {
	id   uint32
	name string
}

// Write appends to buf, for csv.
func (e *encoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

func newEncoder(ctx context.Context, snap *lookup.Snapshot, questions []Question, q Query) (*encoder, error) {
	e := &encoder{form: q.Form, presence: q.Presence}
	e.csv = csv.NewWriter(e)
	only := slices.Clone(q.Datasets)
	slices.Sort(only)
	var err error
	if e.bulk, err = snap.Bulk(ctx, lookup.BulkQuery{Datasets: only, PresenceOnly: q.Presence}); err != nil {
		return nil, err
	}
	if !q.Matrix {
		return e, nil
	}
	ids := q.Datasets
	if ids == nil {
		if ids, err = held(ctx, snap, questions); err != nil {
			return nil, err
		}
	}
	if len(ids) > MaxColumns {
		return nil, &TooWideError{len(ids)}
	}
	e.matrix, e.at = make([]dataset, 0, len(ids)), map[uint32]int{}
	for _, id := range ids {
		d, ok := snap.Dataset(id)
		if !ok {
			return nil, fmt.Errorf("%w: %d", lookup.ErrUnknownDataset, id)
		}
		e.at[id] = len(e.matrix)
		e.matrix = append(e.matrix, dataset{id, d.Name})
	}
	return e, nil
}

// held returns the datasets that hold any of the domains, ascending.
func held(ctx context.Context, snap *lookup.Snapshot, questions []Question) ([]uint32, error) {
	b, err := snap.Bulk(ctx, lookup.BulkQuery{PresenceOnly: true})
	if err != nil {
		return nil, err
	}
	seen := map[uint32]bool{}
	var ids []uint32
	err = Each(ctx, b, questions, func(_ *Question, a *lookup.BulkAnswer) error {
		for i := range a.Datasets {
			if id := a.Datasets[i].ID; !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
		return nil
	})
	slices.Sort(ids)
	return ids, err
}

// The notes in CSV.
const (
	noteSuffix   = "public suffix"
	noteOverflow = "size overflow"
)

// header begins CSV.
func (e *encoder) header() {
	if e.form != CSV {
		return
	}
	columns := []string{"line", "asked", "domain"}
	switch {
	case e.matrix != nil:
		for _, d := range e.matrix {
			if columns = append(columns, d.name); !e.presence {
				columns = append(columns, d.name+" size")
			}
		}
	case e.presence:
		columns = append(columns, "dataset_id", "dataset")
	default:
		columns = append(columns, "dataset_id", "dataset", "url_count_est", "size", "first_ts", "last_ts")
	}
	e.record(append(columns, "note"))
}

func (e *encoder) record(fields []string) {
	_ = e.csv.Write(fields) // Write and Flush of e do not fail
	e.csv.Flush()
}

// key appends the name of a member. Names need no escaping.
func (e *encoder) key(name string) {
	if e.buf[len(e.buf)-1] != '{' {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(append(append(e.buf, '"'), name...), '"', ':')
}

func (e *encoder) text(name, value string) {
	e.key(name)
	e.buf = codec.AppendJSONString(e.buf, value)
}

func (e *encoder) number(name string, value int64) {
	e.key(name)
	e.buf = strconv.AppendInt(e.buf, value, 10)
}

// numberOrNull appends null for a value that is not there.
func (e *encoder) numberOrNull(name string, value int64, ok bool) {
	if !ok {
		e.key(name)
		e.buf = append(e.buf, "null"...)
		return
	}
	e.number(name, value)
}

func (e *encoder) timeOrNull(name string, ms int64, ok bool) {
	e.key(name)
	if !ok {
		e.buf = append(e.buf, "null"...)
		return
	}
	e.buf = append(e.buf, '"')
	e.buf = time.UnixMilli(ms).UTC().AppendFormat(e.buf, timeFormat)
	e.buf = append(e.buf, '"')
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// begin appends the members of an answer that all forms of JSON have, or those of a rejected
// question. It returns false after the latter.
func (e *encoder) begin(q *Question, a *lookup.BulkAnswer) bool {
	e.buf = append(e.buf, '{')
	if q.Line > 0 {
		e.number("line", int64(q.Line))
	}
	e.key("asked")
	e.buf = codec.AppendJSONString(e.buf, q.Text)
	if a.Reject != nil {
		e.text("reason", string(a.Reject.Reason))
		e.text("detail", a.Reject.Detail)
		e.buf = append(e.buf, '}', '\n')
		return false
	}
	e.text("domain", a.Domain)
	e.text("domain_id", urlnorm.FormatID(a.DomainID))
	if a.Host != a.Domain {
		e.text("host", a.Host)
	}
	if a.PublicSuffix {
		e.key("public_suffix")
		e.buf = append(e.buf, "true"...)
	}
	if len(a.OtherDomains) > 0 {
		e.key("other_domains")
		e.buf = append(e.buf, '[')
		for i, name := range a.OtherDomains {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = codec.AppendJSONString(e.buf, name)
		}
		e.buf = append(e.buf, ']')
	}
	return true
}

// answer writes the datasets of a domain.
func (e *encoder) answer(q *Question, a *lookup.BulkAnswer) {
	if e.form == CSV {
		e.rows(q, a)
		return
	}
	if !e.begin(q, a) {
		return
	}
	e.number("total_datasets", int64(len(a.Datasets)))
	e.key("datasets")
	e.buf = append(e.buf, '[')
	for i := range a.Datasets {
		d := &a.Datasets[i]
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, '{')
		e.number("dataset_id", int64(d.ID))
		e.text("name", d.Name)
		if !e.presence {
			e.number("url_count_est", d.Rows)
			e.numberOrNull("size", d.Size, d.HasSize && !d.SizeOverflows())
			if d.SizeOverflows() {
				e.key("size_overflow")
				e.buf = append(e.buf, "true"...)
			}
			e.timeOrNull("first_ts", d.FirstTS, d.HasTS)
			e.timeOrNull("last_ts", d.LastTS, d.HasTS)
		}
		e.buf = append(e.buf, '}')
	}
	e.buf = append(e.buf, ']', '}', '\n')
}

// start returns the first fields of a row of CSV.
func (e *encoder) start(q *Question, a *lookup.BulkAnswer) []string {
	line := ""
	if q.Line > 0 {
		line = strconv.Itoa(q.Line)
	}
	return append(e.row[:0], line, string(q.Text), a.Domain)
}

// notes returns what a row says of its question.
func notes(a *lookup.BulkAnswer) []string {
	switch {
	case a.Reject != nil:
		return []string{string(a.Reject.Reason) + ": " + a.Reject.Detail}
	case a.PublicSuffix:
		return []string{noteSuffix}
	}
	return nil
}

// rows writes a row of CSV for each dataset, or one without a dataset.
func (e *encoder) rows(q *Question, a *lookup.BulkAnswer) {
	note := notes(a)
	for i := range a.Datasets {
		d := &a.Datasets[i]
		e.row = append(e.start(q, a), strconv.FormatUint(uint64(d.ID), 10), d.Name)
		of := note
		if !e.presence {
			size, first, last := "", "", ""
			if d.SizeOverflows() {
				of = append(slices.Clip(of), noteOverflow)
			} else if d.HasSize {
				size = strconv.FormatInt(d.Size, 10)
			}
			if d.HasTS {
				first, last = time.UnixMilli(d.FirstTS).UTC().Format(timeFormat), time.UnixMilli(d.LastTS).UTC().Format(timeFormat)
			}
			e.row = append(e.row, strconv.FormatInt(d.Rows, 10), size, first, last)
		}
		e.row = append(e.row, strings.Join(of, "; "))
		e.record(e.row)
	}
	if len(a.Datasets) > 0 {
		return
	}
	e.row = append(e.start(q, a), "", "")
	if !e.presence {
		rows := "0"
		if a.Reject != nil {
			rows = ""
		}
		e.row = append(e.row, rows, "", "", "")
	}
	e.row = append(e.row, strings.Join(note, "; "))
	e.record(e.row)
}

// matrixRow writes the row of a question.
func (e *encoder) matrixRow(q *Question, a *lookup.BulkAnswer) {
	cells := make([]*lookup.DatasetTotals, len(e.matrix))
	for i := range a.Datasets {
		cells[e.at[a.Datasets[i].ID]] = &a.Datasets[i]
	}
	if e.form == CSV {
		e.matrixCSV(q, a, cells)
		return
	}
	if !e.begin(q, a) {
		return
	}
	object := func(name string, cell func(d *lookup.DatasetTotals)) {
		e.key(name)
		e.buf = append(e.buf, '{')
		for i, d := range cells {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = append(codec.AppendJSONString(e.buf, e.matrix[i].name), ':')
			cell(d)
		}
		e.buf = append(e.buf, '}')
	}
	if e.presence {
		object("present", func(d *lookup.DatasetTotals) { e.buf = strconv.AppendBool(e.buf, d != nil) })
	} else {
		object("url_count_est", func(d *lookup.DatasetTotals) {
			rows := int64(0)
			if d != nil {
				rows = d.Rows
			}
			e.buf = strconv.AppendInt(e.buf, rows, 10)
		})
		object("size", func(d *lookup.DatasetTotals) {
			switch {
			case d == nil || !d.HasSize:
				e.buf = append(e.buf, "null"...)
			case d.SizeOverflows():
				e.buf = append(e.buf, `"overflow"`...)
			default:
				e.buf = strconv.AppendInt(e.buf, d.Size, 10)
			}
		})
	}
	e.buf = append(e.buf, '}', '\n')
}

func (e *encoder) matrixCSV(q *Question, a *lookup.BulkAnswer, cells []*lookup.DatasetTotals) {
	e.row = e.start(q, a)
	note := notes(a)
	for i, d := range cells {
		count, size := "0", ""
		switch {
		case a.Reject != nil:
			count = ""
		case d == nil:
		case e.presence:
			count = "1"
		default:
			count = strconv.FormatInt(d.Rows, 10)
			if d.SizeOverflows() {
				note = append(note, noteOverflow+" in "+e.matrix[i].name)
			} else if d.HasSize {
				size = strconv.FormatInt(d.Size, 10)
			}
		}
		if e.row = append(e.row, count); !e.presence {
			e.row = append(e.row, size)
		}
	}
	e.row = append(e.row, strings.Join(note, "; "))
	e.record(e.row)
}
