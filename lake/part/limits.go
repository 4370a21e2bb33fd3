package part

import "github.com/urlake/urlake/lake"

// The limits of a part. The bytes of a part depend on these limits and its rows alone. A changed
// limit changes the bytes, and so the names, of all parts written afterwards.
const (
	// PageRows and PageBytes end a page. A reader decodes whole pages, so these limits bound the
	// cost of reading one row. PageBytes counts the paths before compression. Smaller pages
	// compress worse, and each column has a header in every page: with 8,192 rows the pages of the
	// other columns, which compress to little, are not mostly headers.
	PageRows  = 8192
	PageBytes = 256 << 10
	// PageColumnBytes ends a page whose raw URLs or extras reach this size. A single value can be
	// much larger than a path.
	PageColumnBytes = 1 << 20
	// RowGroupBytes is the most a row group holds before compression. The writer keeps the
	// compressed row group in memory, because Parquet stores each column in one piece.
	RowGroupBytes = 128 << 20
	// PartBytes is the most a part holds before compression. It bounds the work that a crash
	// destroys and the writer's temporary file.
	PartBytes = 512 << 20
	// boundBytes is the length to which strings are shortened in the column index and in
	// statistics. It is long enough to tell the paths of one site apart.
	boundBytes = 256
)

// Limits are the limits of a writer. A zero field stands for the constant of that name. Only tests
// set them.
type Limits struct {
	PageRows, PageBytes, PageColumnBytes int
	RowGroupBytes, PartBytes             int64
}

// Written is a complete part. It is in the store, or about to be put there (see DomainSink).
type Written struct {
	Part lake.Part
	// Blocks are the part's page index, in the order of its rows.
	Blocks []PageIndexBlock
}
