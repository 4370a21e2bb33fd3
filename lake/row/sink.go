package row

import (
	"errors"
)

// Partitions is the number of partitions rows are spread over: one for each value of the top byte of the domain_id.
const Partitions = 256

// errZeroByte: a row's key would be ambiguous.
var ErrZeroByte = errors.New("zero byte in a row's domain, host, path_query, scheme or extras")

// ErrRowTooLarge is the error of a row whose key would be longer than MaxKey.
var ErrRowTooLarge = errors.New("row too large")

// RowSink takes rows in their order: PartWriter is one. What it is given is valid during the call.
type Sink interface {
	// Rows takes the next hosts and their rows, those of one host behind those of the one before. Hosts ascend by domain, then host; the first may also be
	// the last of the call before, whose rows go on. Rows of a host ascend by path, then by the fields of their tails in their order. Of rows
	// that are the same record, which differ in their raw URLs at most, the first is taken; the number of records is returned.
	Rows(hosts []SortedHost, rows []SortedRow) (records int, err error)
}

// SortedHost is a host of rows in their order.
type SortedHost struct {
	Domain, Host string
	DomainID     uint64 // urlnorm.DomainID(Domain)
	Rows         int
}

// SortedRow is a row of a host. A tail at the same address as that of another row of the call is the same.
type SortedRow struct {
	Path []byte
	Tail *Suffix
}
