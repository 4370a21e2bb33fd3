// Package row holds what the packages that sort rows and those that write them share: a row, its
// sort key, its suffix (the fields after the path), and the Sink that takes rows in order.
// Comparing two keys as bytes compares the rows field by field; docs/formats/run.md describes the
// bytes. Package rowsort makes and merges keys and passes rows on; partwriter and the counters of
// package ingest are Sinks.
package row

import "unsafe"

// Row is one URL record as the lake keeps it. An empty Extras or RawURL means that there is none.
type Row struct {
	// Domain, Host, PathQuery and Scheme are those of urlnorm.URL.
	Domain, Host, PathQuery, Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is in milliseconds since the Unix epoch, if HasTS.
	TS    int64
	HasTS bool
	// Size is in bytes or tokens, as the dataset counts, if HasSize.
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON.
	Extras string
	// RawURL is the URL as it is in the input, if the batch keeps raw URLs and this one differs
	// from the canonical URL.
	RawURL string
}

// AppendKey appends the row's key to dst. No string but RawURL may contain a zero byte; canonical
// URLs and JSON contain none.
func (r *Row) AppendKey(dst []byte) []byte {
	dst = append(append(dst, r.Domain...), 0)
	dst = append(append(dst, r.Host...), 0)
	dst = append(append(dst, r.PathQuery...), 0)
	s := Suffix{
		Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize,
		Extras: r.Extras, RawURL: r.RawURL,
	}
	return s.AppendKey(dst)
}

// View returns b as a string without copying it. The string is valid until b is written to.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
