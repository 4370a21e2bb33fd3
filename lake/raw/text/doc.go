// Package text parses the records of lists, CSV, TSV, tables between blanks, CDX, CDXJ, crawl logs,
// JSON and JSON Lines.
//
// [Input] buffers the decompressed object and counts lines and offsets. [NewParser] returns the
// [Parser] of a plan, which reads one record after another from an Input. Every record is returned
// as a [raw.Record] or as a [raw.Reject]; memory is bounded by the greatest record. Package
// lake/raw/reader reads objects with these parsers; lake/raw/detect uses [Rows] and [Values] to
// look at the beginning of an object before there is a plan; lake/raw/parquetin reads the fields of
// its rows with [Fields]. Nothing here is safe for concurrent use.
package text

import (
	"fmt"

	"github.com/urlake/urlake/lake/raw"
)

// Parser reads the records of one object.
type Parser interface {
	// Next reads the next record into rec, which is zero before the call. If the record cannot be
	// read, it sets rej.Reason instead and leaves the Input behind the bad record. [Input.Record]
	// then returns the position of either. The slices of rec are valid until the next call. An
	// error is final; io.EOF is the end of the object.
	Next(rec *raw.Record, rej *raw.Reject) error
}

// NewParser returns the parser for an object that is read by plan. It adds to counts the lines and
// rows that are no records, and timestamps that were left out.
func NewParser(in *Input, plan raw.Plan, counts *raw.Counts) (Parser, error) {
	fields, err := NewFields(plan, counts)
	if err != nil {
		return nil, err
	}
	switch plan.Format {
	case raw.Lines:
		return &ListParser{in: in, counts: counts, surt: plan.SURT,
			each: plan.Reversed || plan.SURT || plan.Enclosed}, nil
	case raw.CSV, raw.TSV:
		return newCSVParser(in, plan, fields), nil
	case raw.CDX:
		return newCDXParser(in, plan, fields), nil
	case raw.Spaced:
		return newSpacedParser(in, plan, fields), nil
	case raw.CrawlLog:
		return newCrawlLogParser(in, plan, fields), nil
	case raw.CDXJ:
		return newCDXJParser(in, plan, fields), nil
	case raw.JSONLines:
		return newJSONLinesParser(in, plan, fields), nil
	case raw.JSON:
		if plan.Depth != 0 {
			return newJSONTreeParser(in, plan, fields), nil
		}
		return newJSONParser(in, plan, fields), nil
	}
	return nil, fmt.Errorf("plan has format %q", plan.Format)
}
