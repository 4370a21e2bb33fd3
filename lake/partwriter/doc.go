// Package partwriter writes the parts of one partition of one batch: Parquet files that hold sorted
// rows, in the format of package part. lake/ingest is its caller.
//
// A row travels like this. Writer.Rows receives hosts and their rows in order (it is a row.Sink)
// and adds the values of each row to the open page (writer.go). Rows with a usual suffix go through
// vectors where the processor has them (pathrows_amd64.go). Values that repeat are kept as runs, so
// a host costs something once and not with every row (textpage.go, numberpage.go). When a page is
// full, endPage encodes it for every column and adds it to the column's chunk of the open row group
// (page.go). When the row group is full, endGroup moves the chunks to the open part. When the part
// is full, or there are no more rows, closePart adds indexes and footer, and storePart puts the
// file into the store (file.go, spool.go).
//
// The same rows under the same limits give the same bytes, on every processor and however many rows
// come at a time. A part is named by a digest of its bytes, so it can be stored only when it is
// complete, and storing it again is harmless.
package partwriter
