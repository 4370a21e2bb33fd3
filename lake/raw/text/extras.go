package text

import (
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
)

// Extras makes the extras of records whose columns have values of text.
type Extras struct {
	columns []extraColumn
	out     []byte
}

// extraColumn is a column with its name ready as a member of a JSON object.
type extraColumn struct {
	index   int    // of its value
	key     []byte // `"name":`
	capture captureField
}

// NewExtras returns the Extras of columns.
func NewExtras(columns []raw.Column) (e Extras) {
	for _, c := range SortColumns(columns) {
		x := extraColumn{index: c.Number - 1, key: append(codec.AppendJSONString(nil, c.Name), ':')}
		if c.Capture {
			x.capture = captureFieldOf(c.Name)
		}
		e.columns = append(e.columns, x)
	}
	return e
}

// Of returns the extras of a record with these values, one for each column of the object, nil if
// all extras are empty. They are valid until the next call.
func (e *Extras) Of(values [][]byte) []byte {
	for i := range e.columns {
		e.add(&e.columns[i], values[e.columns[i].index])
	}
	return e.take()
}

// add adds the value of a column to the extras of the next record.
func (e *Extras) add(c *extraColumn, v []byte) {
	if c.capture != noCapture {
		v = c.capture.value(v)
	}
	if len(v) == 0 {
		return
	}
	separator := byte(',')
	if len(e.out) == 0 {
		separator = '{'
	}
	e.out = codec.AppendJSONString(append(append(e.out, separator), c.key...), v)
}

// take returns the extras that were added, nil if there are none. They are valid until the next
// add.
func (e *Extras) take() []byte {
	if len(e.out) == 0 {
		return nil
	}
	extras := append(e.out, '}')
	e.out = extras[:0]
	return extras
}
