package row

import "errors"

// Partitions is the number of partitions of rows: one for each value of the top byte of the
// domain_id.
const Partitions = 256

var (
	// ErrZeroByte rejects a row whose key would be ambiguous.
	ErrZeroByte = errors.New("zero byte in a row's domain, host, path_query, scheme or extras")

	// ErrRowTooLarge rejects a row whose key would be longer than MaxKey.
	ErrRowTooLarge = errors.New("row too large")

	// ErrOrder is returned for a row or key that is below the one before it.
	ErrOrder = errors.New("row is not after the one before")
)

// Sink takes rows in ascending order; part.Writer is one. Arguments are valid during the
// call.
type Sink interface {
	// Rows takes the next hosts and all their rows, in the order of the hosts. Hosts ascend by
	// domain, then by host. The first host may be the last one of the previous call; it then has
	// more rows. Rows of a host ascend by path, then by the fields of their suffixes.
	//
	// Of rows with equal records, which differ at most in their raw URLs, the Sink takes the first.
	// It returns the number of records that it took.
	Rows(hosts []SortedHost, rows []SortedRow) (records int, err error)
}

// SortedHost is a host and the number of its rows in a call of Sink.Rows.
type SortedHost struct {
	Domain, Host string
	DomainID     uint64 // urlnorm.DomainID(Domain)
	Rows         int
}

// SortedRow is a row of a SortedHost. Within one call, suffixes at the same address are equal, so a
// Sink may compare addresses first.
type SortedRow struct {
	Path   []byte
	Suffix *Suffix
}
