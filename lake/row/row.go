package row

import (
	"unsafe"
)

// Row is one URL record as the lake keeps it. An empty Extras or RawURL is none.
type Row struct {
	// Domain, Host, PathQuery and Scheme are those of urlnorm.URL.
	Domain, Host, PathQuery, Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is milliseconds since the Unix epoch, where HasTS.
	TS    int64
	HasTS bool
	// Size is bytes or tokens, as the dataset counts, where HasSize.
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON.
	Extras string
	// RawURL is the URL as it stood in the input, where the caller asked for it and it differs
	// from the canonical one.
	RawURL string
}

// AppendKey appends the row's key to dst. The strings but RawURL must not hold a zero byte;
// canonical URLs and JSON do not.
func (r *Row) AppendKey(dst []byte) []byte {
	dst = append(append(dst, r.Domain...), 0)
	dst = append(append(dst, r.Host...), 0)
	dst = append(append(dst, r.PathQuery...), 0)
	t := Suffix{Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize, Extras: r.Extras, RawURL: r.RawURL}
	return t.AppendKey(dst)
}

// view is b as a string that is valid as long as b is left alone.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
