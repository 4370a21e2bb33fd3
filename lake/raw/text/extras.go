package text

import (
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
)

// Extras makes the extras of records whose columns have values of text.
type Extras struct {
	columns []extraValue
	out     []byte
}

type extraValue struct {
	index int    // of its value
	key   []byte // `"name":`
}

// NewExtras returns the Extras of columns.
func NewExtras(columns []raw.Column) (e Extras) {
	for _, c := range SortColumns(columns) {
		e.columns = append(e.columns, extraValue{c.Number - 1, append(codec.AppendJSONString(nil, c.Name), ':')})
	}
	return e
}

// Of returns the extras of a record with these values, one for each column of the object, nil if
// all extras are empty. They are valid until the next call.
func (e *Extras) Of(values [][]byte) []byte {
	e.out = e.out[:0]
	for _, c := range e.columns {
		v := values[c.index]
		if len(v) == 0 {
			continue
		}
		separator := byte(',')
		if len(e.out) == 0 {
			separator = '{'
		}
		e.out = codec.AppendJSONString(append(append(e.out, separator), c.key...), v)
	}
	if len(e.out) == 0 {
		return nil
	}
	e.out = append(e.out, '}')
	return e.out
}
