package rowtest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/urlake/urlake/lake/row"
)

// compareRows is the order of rows as the design words it, field by field, nulls first.
func CompareRows(a, b row.Row) int {
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

// record is a row without what does not tell records apart.
func Record(r row.Row) row.Row {
	r.RawURL = ""
	return r
}

// rowMaker makes rows that often agree in their first fields.
type Maker struct{ Rng *rand.Rand }

func NewMaker(seed uint64) Maker { return Maker{rand.New(rand.NewPCG(seed, 17))} }

func Pick[T any](m Maker, of ...T) T { return of[m.Rng.IntN(len(of))] }

func (m Maker) Row() row.Row {
	r := row.Row{
		Domain:    Pick(m, "example.org", "example.com", "example.co", "a.b", "zürich.ch", "x"),
		PathQuery: Pick(m, "/", "/a", "/a/b", "/a?b=1", "/\x01", "/\xff", "/"+strings.Repeat("long/", m.Rng.IntN(40))),
		Scheme:    Pick(m, "http", "https", "ftp"),
		Port:      Pick(m, int32(-1), 0, 80, 255, 256, 8080, 65535),
		HasTS:     Pick(m, true, false),
		HasSize:   Pick(m, true, false),
		Extras:    Pick(m, "", "{}", `{"a":1}`, `{"a":"ü"}`),
		RawURL:    Pick(m, "", "http://EXAMPLE.org", "\x00\x00", "\x01", "z\x00"),
	}
	r.Host = Pick(m, "", "www.", "www-", "a.") + r.Domain
	if r.HasTS {
		r.TS = Pick(m, int64(0), 1, -1, math.MinInt64, math.MaxInt64, 1_600_000_000_000)
	}
	if r.HasSize {
		r.Size = Pick(m, int64(0), 1, 255, 256, math.MaxInt64)
	}
	return r
}
