// Package part is the format of a part: the Parquet file that holds sorted rows of one batch of one
// dataset. docs/formats/part.md describes the file, docs/formats/page-index.md its page index.
//
// A part has at least one row group. A row group has one chunk for each of the thirteen columns,
// and a chunk is a sequence of pages. Pages of all columns end at the same rows, so one page index
// locates a row in every column. Behind the row groups come Parquet's column and offset indexes and
// the footer.
//
// The package holds what writers and readers of parts share: the schema, the limits, page headers,
// the page index and how to rebuild it from a file. lake/partwriter writes parts and
// lake/partreader reads pages of them; indexbuild and serve keep and use page indexes.
//
// Bytes that come from a store are checked where they are decoded. Damage is a *codec.CorruptError
// that names the part, never a panic.
package part
