package files

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/format"
)

// column is a column of the files. Exactly one of text and number is set.
type column struct {
	name string
	// needs are the columns of parts of which it is made.
	needs []part.Column
	node  func() parquet.Node
	// text appends the value, number returns it. Ok is false for none.
	text   func(dst []byte, r *rowView) (text []byte, ok bool)
	number func(r *rowView) (n int64, ok bool)
	// csv appends a number as CSV has it; nil for decimal digits.
	csv func(dst []byte, n int64) []byte
}

// rowView is one row of the export.
type rowView struct {
	rows    *part.Columns
	at      int
	url     []byte
	dataset string
	id      uint32
	batch   string
	code    int64 // domain64
}

var urlParts = []part.Column{part.ColScheme, part.ColHost, part.ColPort, part.ColPathQuery}

// optional strings that repeat from row to row are in a dictionary.
func textNode() parquet.Node {
	return parquet.Encoded(parquet.Optional(parquet.String()), &parquet.DeltaByteArray)
}

func wordNode() parquet.Node {
	return parquet.Encoded(parquet.Optional(parquet.String()), &parquet.RLEDictionary)
}

func intNode() parquet.Node { return parquet.Optional(parquet.Int(64)) }

// columns are all columns, in the order in which they are written.
var columns = []column{
	{name: "url", needs: urlParts, node: textNode, text: func(dst []byte, r *rowView) ([]byte, bool) { return append(dst, r.url...), true }},
	{name: "key", needs: urlParts, node: intNode, number: func(r *rowView) (int64, bool) { return int64(urlkey.Key(bytesText(r.url))), true }},
	{
		name: "domain64", needs: []part.Column{part.ColDomain, part.ColHost}, node: intNode,
		number: func(r *rowView) (int64, bool) { return r.code, true },
	},
	{name: "dataset", node: wordNode, text: func(dst []byte, r *rowView) ([]byte, bool) { return append(dst, r.dataset...), true }},
	{
		name: "ts", needs: []part.Column{part.ColTS}, node: func() parquet.Node { return parquet.Optional(parquet.Timestamp(parquet.Millisecond)) },
		number: func(r *rowView) (int64, bool) { return r.rows.TS[r.at], r.rows.HasTS[r.at] },
		csv:    format.AppendTime,
	},
	{
		name: "size", needs: []part.Column{part.ColSize}, node: intNode,
		number: func(r *rowView) (int64, bool) { return r.rows.Size[r.at], r.rows.HasSize[r.at] },
	},
	{
		name: "extras", needs: []part.Column{part.ColExtras}, node: func() parquet.Node { return parquet.Optional(parquet.JSON()) },
		text: optionalText(func(r *rowView) string { return r.rows.Extras[r.at] }),
	},
	// Those below are written only if they are asked for.
	{name: "domain", needs: []part.Column{part.ColDomain}, node: wordNode, text: optionalText(func(r *rowView) string { return r.rows.Domain[r.at] })},
	{name: "host", needs: []part.Column{part.ColHost}, node: wordNode, text: optionalText(func(r *rowView) string { return r.rows.Host[r.at] })},
	{
		name: "url_id", needs: urlParts, node: intNode, number: func(r *rowView) (int64, bool) { return int64(urlnorm.URLID(r.url)), true },
		csv: func(dst []byte, n int64) []byte { return append(dst, urlnorm.FormatID(uint64(n))...) },
	},
	{
		name: "dataset_id", node: intNode, number: func(r *rowView) (int64, bool) { return int64(r.id), true },
	},
	{name: "batch", node: wordNode, text: func(dst []byte, r *rowView) ([]byte, bool) { return append(dst, r.batch...), true }},
	{name: "raw_url", needs: []part.Column{part.ColRawURL}, node: textNode, text: optionalText(func(r *rowView) string { return r.rows.RawURL[r.at] })},
}

func optionalText(of func(r *rowView) string) func([]byte, *rowView) ([]byte, bool) {
	return func(dst []byte, r *rowView) ([]byte, bool) {
		s := of(r)
		return append(dst, s...), s != ""
	}
}

// defaultColumns is how many of columns are written if no others are asked for.
const defaultColumns = 7

// ColumnNames are the names of all columns.
func ColumnNames() (names []string) {
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

// chooseColumns returns the columns with these names, the default ones for none, in their order of
// columns. Domain64 is among them if there are codes, and only then.
func chooseColumns(names []string, codes bool) ([]column, error) {
	for _, n := range names {
		if !slices.ContainsFunc(columns, func(c column) bool { return c.name == n }) {
			return nil, &cli.UsageError{Err: fmt.Errorf("no column %q; there are %s", n, strings.Join(ColumnNames(), ", "))}
		}
	}
	if !codes && slices.Contains(names, "domain64") {
		return nil, &cli.UsageError{Err: fmt.Errorf("the column domain64 needs --domain64 and a layout")}
	}
	var chosen []column
	for i, c := range columns {
		wanted := slices.Contains(names, c.name) || len(names) == 0 && i < defaultColumns
		if c.name == "domain64" {
			wanted = codes
		}
		if wanted {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// partColumns are the columns of parts that columns need.
func partColumns(chosen []column) (all []part.Column) {
	for _, c := range chosen {
		all = append(all, c.needs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// appendURL appends the canonical URL of a row.
func appendURL(dst []byte, c *part.Columns, i int) []byte {
	dst = append(append(dst, c.Scheme[i]...), "://"...)
	dst = append(dst, c.Host[i]...)
	if c.Port[i] >= 0 {
		dst = strconv.AppendInt(append(dst, ':'), int64(c.Port[i]), 10)
	}
	return append(dst, c.PathQuery[i]...)
}
