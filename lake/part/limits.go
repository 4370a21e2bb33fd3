package part

import "github.com/urlake/urlake/lake"

// The limits of a part. What is written depends on them and on the rows alone; changing one changes
// the bytes, and with them the names, of all parts written after.
const (
	// PageRows and PageBytes end a page: a reader decodes whole pages, so they bound what one
	// row costs. 256 KiB of path_query decompress in some 150 µs. Pages of a quarter take 4 % more bytes for paths, and four times as many have to be written.
	// 8,192 rows keep the other columns' pages, which shrink to little, from being all header.
	PageRows  = 8192
	PageBytes = 256 << 10
	// PageColumnBytes ends a page whatever its column: extras and raw_url have no such small limit of
	// their own.
	PageColumnBytes = 1 << 20
	// RowGroupBytes is the most a row group holds before compression. Compressed it is kept in
	// memory, since Parquet wants each column in one piece.
	RowGroupBytes = 128 << 20
	// PartBytes is the most a part holds before compression: one object that a worker writes
	// again after a crash, and one temporary file.
	PartBytes = 512 << 20
	// BoundBytes is how much of a string stands in the column index and the statistics: long enough to
	// tell the paths of one site apart.
	BoundBytes = 256
)

// PartLimits are the limits a writer keeps; a field left zero is the constant of that name. Only tests
// have a reason to set them.
type Limits struct {
	PageRows, PageBytes, PageColumnBytes int
	RowGroupBytes, PartBytes             int64
}

// WrittenPart is a part that is in the store, or is about to be put there (DomainSink).
type Written struct {
	Part lake.Part
	// Blocks are the part's page index, in the order of its rows.
	Blocks []PageIndexBlock
}
