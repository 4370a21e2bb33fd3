package part

// Columns holds rows by column. Only the requested columns are filled; each of those has Rows
// entries. Strings are copies, so they do not keep pages in memory.
type Columns struct {
	Rows      int
	DatasetID []uint32
	Batch     []string
	Scheme    []string
	Port      []int32 // -1: the scheme's default
	DomainID  []uint64
	Domain    []string
	Host      []string
	TS        []int64 // milliseconds since 1970 in UTC, 0 without a timestamp
	HasTS     []bool
	Size      []int64 // 0 without a size
	HasSize   []bool
	PathQuery []string
	URLID     []uint64
	RawURL    []string // "": none
	Extras    []string // "": none
}
