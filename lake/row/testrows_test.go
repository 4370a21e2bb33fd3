package row

// Random rows for tests, and a comparison of rows without keys, as an oracle of sorting by keys.

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
)

// compareRows compares rows field by field, absent values first.
func compareRows(a, b Row) int {
	null := func(ok bool) int {
		if ok {
			return 1
		}
		return 0
	}
	return cmp.Or(
		strings.Compare(a.Domain, b.Domain),
		strings.Compare(a.Host, b.Host),
		strings.Compare(a.PathQuery, b.PathQuery),
		strings.Compare(a.Scheme, b.Scheme),
		cmp.Compare(a.Port, b.Port), // -1 is none
		cmp.Compare(null(a.HasTS), null(b.HasTS)), cmp.Compare(a.TS, b.TS),
		cmp.Compare(null(a.HasSize), null(b.HasSize)), cmp.Compare(a.Size, b.Size),
		strings.Compare(a.Extras, b.Extras),
		strings.Compare(a.RawURL, b.RawURL),
	)
}

// recordOf returns r without its raw URL: rows with equal records are one row.
func recordOf(r Row) Row {
	r.RawURL = ""
	return r
}

// rowMaker makes rows. Many of them have their first fields in common.
type rowMaker struct{ Rng *rand.Rand }

// newRowMaker returns a rowMaker whose rows depend on seed alone.
func newRowMaker(seed uint64) rowMaker { return rowMaker{rand.New(rand.NewPCG(seed, 17))} }

// pick returns one of the values.
func pick[T any](m rowMaker, of ...T) T { return of[m.Rng.IntN(len(of))] }

// Row returns the next row.
func (m rowMaker) Row() Row {
	r := Row{
		Domain:    pick(m, "example.org", "example.com", "example.co", "a.b", "zürich.ch", "x"),
		PathQuery: pick(m, "/", "/a", "/a/b", "/a?b=1", "/\x01", "/\xff", "/"+strings.Repeat("long/", m.Rng.IntN(40))),
		Scheme:    pick(m, "http", "https", "ftp"),
		Port:      pick(m, int32(-1), 0, 80, 255, 256, 8080, 65535),
		HasTS:     pick(m, true, false),
		HasSize:   pick(m, true, false),
		Extras:    pick(m, "", "{}", `{"a":1}`, `{"a":"ü"}`),
		RawURL:    pick(m, "", "http://EXAMPLE.org", "\x00\x00", "\x01", "z\x00"),
	}
	r.Host = pick(m, "", "www.", "www-", "a.") + r.Domain
	if r.HasTS {
		r.TS = pick(m, int64(0), 1, -1, math.MinInt64, math.MaxInt64, 1_600_000_000_000)
	}
	if r.HasSize {
		r.Size = pick(m, int64(0), 1, 255, 256, math.MaxInt64)
	}
	return r
}
