// Package part is the format of a part, its writer and its reader. A part is a Parquet file of
// sorted rows of one batch of one dataset. docs/formats/part.md describes the file,
// docs/formats/page-index.md its page index.
//
// A part has at least one row group. A row group has one chunk for each of the thirteen columns,
// and a chunk is a sequence of pages. Pages of all columns end at the same rows, so one page index
// locates a row in every column. Behind the row groups come Parquet's column and offset indexes and
// the footer.
//
// Writing: Writer.Rows receives hosts and their rows in order and adds the values of each row to
// the open page (writer.go). Rows with a usual suffix go through vectors where the processor has
// them (pathrows_amd64.go). Values that repeat are kept as runs, so a host costs something once and
// not with every row (textpage.go, numberpage.go). When a page is full, endPage encodes it for
// every column and adds it to the column's chunk of the open row group (writepage.go). When the row
// group is full, endGroup moves the chunks to the open part. When the part is full, or there are no
// more rows, closePart adds indexes and footer, and storePart puts the file into the store
// (file.go, spool.go). The same rows under the same limits give the same bytes, on every processor
// and however many rows come at a time. A part is named by a digest of its bytes, so it can be
// stored only when it is complete, and storing it again is harmless.
//
// Reading needs the page index and no footer. A Plan names the byte ranges of the pages that hold
// the requested rows and columns. The caller fetches them, and the plan verifies and decodes them:
// into columns (Plan.Decode), or into runs of equal domains with their timestamps and sizes
// (Plan.DomainRuns). ReadColumns does all of it for one run of rows. Every page is checked against
// the checksum in the index before it is decoded, and decoding allocates no more than MaxPageBytes
// a page. BuildPageIndex makes the index again from a file.
//
// Bytes that come from a store are checked where they are decoded. Damage is a *codec.CorruptError
// that names the part and the offset, never a panic.
package part
