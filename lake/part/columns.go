package part

// Columns holds rows by column. Only the columns that were asked for are filled; those
// have Rows entries each. Strings are copies that do not keep pages in memory.
type Columns struct {
	Rows      int
	DatasetID []uint32
	Batch     []string
	Scheme    []string
	Port      []int32 // -1: the scheme's default
	DomainID  []uint64
	Domain    []string
	Host      []string
	TS        []int64 // milliseconds since 1970 in UTC, 0 without one
	HasTS     []bool
	Size      []int64 // 0 without one
	HasSize   []bool
	PathQuery []string
	URLID     []uint64
	RawURL    []string // "" is none
	Extras    []string // "" is none
}
