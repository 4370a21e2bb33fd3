package postgres

import (
	"encoding/binary"
	"io"
	"math"
	"slices"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

// The columns of COPY, in the order of tuple's fields.
const copyColumns = "domain64, key, first_ts, last_ts, size, rows, batch_id, dataset_id, url"

const (
	copyFields = 9
	// bufferBytes is about how much is encoded before it is written.
	bufferBytes = 64 << 10
	// postgresEpoch is 2000-01-01 in milliseconds since 1970, where PostgreSQL's times begin.
	postgresEpoch = 946684800_000
	// minTS and maxTS bound what a timestamptz holds: from 4714 BC to 294276 AD.
	minTS = -210866803200_000
	maxTS = 9224318016_000_000 - 1
)

// copyHeader begins a binary COPY, copyTrailer ends it.
var (
	copyHeader  = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	copyTrailer = []byte{0xff, 0xff}
)

// tuple is a URL of a batch: what its rows add up to.
type tuple struct {
	batch           int32
	rows, size      int64
	hasSize, hasTS  bool
	firstTS, lastTS int64
}

func (t *tuple) add(c *part.Columns, i int) {
	t.rows++
	if c.HasSize[i] {
		t.hasSize = true
		if t.size > math.MaxInt64-c.Size[i] { // as the lake's sums do
			t.size = math.MaxInt64
		} else {
			t.size += c.Size[i]
		}
	}
	if ts := c.TS[i]; c.HasTS[i] {
		if !t.hasTS {
			t.hasTS, t.firstTS, t.lastTS = true, ts, ts
		}
		t.firstTS, t.lastTS = min(t.firstTS, ts), max(t.lastTS, ts)
	}
}

// encoder turns sorted rows of one dataset into tuples of a binary COPY. Rows of one URL are
// neighbours; each batch among them becomes a tuple. It takes no memory for a row.
type encoder struct {
	w       io.Writer
	dataset uint32
	batches map[string]int32
	// number returns the number of the next host.
	number func() domain64.Code
	// weaken makes keys collide in tests.
	weaken func(uint64) uint64

	out        []byte
	err        error // of w
	rows, urls int64

	// The open URL, whose tuples are open.
	open   bool
	row    urlnorm.URL
	url    []byte // its text
	code   domain64.Code
	tuples []tuple
}

// add encodes rows. The last URL stays open: its rows may go on.
func (e *encoder) add(rows scan.Rows) error {
	c := rows.Columns
	for n := range rows.Len() {
		i := rows.At(n)
		id := e.batches[rows.BatchAt(i)]
		if u := &e.row; !e.open || c.PathQuery[i] != u.PathQuery || c.Host[i] != u.Host || c.Scheme[i] != u.Scheme || c.Port[i] != u.Port {
			e.begin(c, i)
		}
		e.rows++
		at := slices.IndexFunc(e.tuples, func(t tuple) bool { return t.batch == id })
		if at < 0 {
			at = len(e.tuples)
			e.tuples = append(e.tuples, tuple{batch: id})
		}
		e.tuples[at].add(c, i)
	}
	return e.err
}

// begin ends the open URL and begins that of row i.
func (e *encoder) begin(c *part.Columns, i int) {
	e.end()
	if c.Host[i] != e.row.Host || !e.open {
		e.code = e.number()
	}
	e.open, e.row = true, urlnorm.URL{Scheme: c.Scheme[i], Host: c.Host[i], Port: c.Port[i], PathQuery: c.PathQuery[i]}
	e.url = e.row.AppendTo(e.url[:0])
}

// end writes the tuples of the open URL.
func (e *encoder) end() {
	if len(e.tuples) == 0 {
		return
	}
	key := urlkey.Key(e.url)
	if e.weaken != nil {
		key = e.weaken(key)
	}
	for i := range e.tuples {
		t := &e.tuples[i]
		e.urls++
		out := e.out
		out = binary.BigEndian.AppendUint16(out, copyFields)
		out = append64(out, uint64(e.code))
		out = append64(out, key)
		if t.hasTS {
			out = append64(out, uint64(timestamp(t.firstTS)))
			out = append64(out, uint64(timestamp(t.lastTS)))
		} else {
			out = append(out, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		}
		if t.hasSize {
			out = append64(out, uint64(t.size))
		} else {
			out = append(out, 0xff, 0xff, 0xff, 0xff)
		}
		out = append64(out, uint64(t.rows))
		out = append32(out, uint32(t.batch))
		out = append32(out, e.dataset)
		out = binary.BigEndian.AppendUint32(out, uint32(len(e.url)))
		e.out = append(out, e.url...)
	}
	e.tuples = e.tuples[:0]
	if len(e.out) >= bufferBytes {
		e.flush()
	}
}

// flush writes what is encoded.
func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.out)
	}
	e.out = e.out[:0]
}

func append64(out []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(out, 0, 0, 0, 8), v)
}

func append32(out []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(append(out, 0, 0, 0, 4), v)
}

// timestamp is a time in microseconds as PostgreSQL counts them. What a timestamptz cannot hold
// becomes infinite.
func timestamp(ms int64) int64 {
	switch {
	case ms < minTS:
		return math.MinInt64
	case ms > maxTS:
		return math.MaxInt64
	}
	return (ms - postgresEpoch) * 1000
}
