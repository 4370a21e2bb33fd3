package lake_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
)

// compareRows is the order of rows as the design words it, field by field, nulls first.
func compareRows(a, b lake.Row) int {
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
func record(r lake.Row) lake.Row {
	r.RawURL = ""
	return r
}

// rowMaker makes rows that often agree in their first fields.
type rowMaker struct{ rng *rand.Rand }

func newRowMaker(seed uint64) rowMaker { return rowMaker{rand.New(rand.NewPCG(seed, 17))} }

func pick[T any](m rowMaker, of ...T) T { return of[m.rng.IntN(len(of))] }

func (m rowMaker) row() lake.Row {
	r := lake.Row{
		Domain:    pick(m, "example.org", "example.com", "example.co", "a.b", "zürich.ch", "x"),
		PathQuery: pick(m, "/", "/a", "/a/b", "/a?b=1", "/\x01", "/\xff", "/"+strings.Repeat("long/", m.rng.IntN(40))),
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

func TestKeysSortLikeRows(t *testing.T) {
	m := newRowMaker(1)
	rows := make([]lake.Row, 400)
	keys := make([][]byte, len(rows))
	for i := range rows {
		rows[i] = m.row()
		keys[i] = rows[i].AppendKey(nil)
	}
	for i, a := range rows {
		for j, b := range rows {
			if want, got := compareRows(a, b), bytes.Compare(keys[i], keys[j]); want != got {
				t.Fatalf("%+v and %+v compare %d, their keys %d", a, b, want, got)
			}
			if want, got := record(a) == record(b), bytes.HasPrefix(keys[j], keys[i][:lake.RecordPrefix(keys[i])]); want != got {
				t.Fatalf("%+v and %+v are one record: %v, by their keys %v", a, b, want, got)
			}
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	m := newRowMaker(2)
	for range 5000 {
		want := m.row()
		key := want.AppendKey([]byte("before"))[len("before"):]
		// What was there before must not shine through.
		got := m.row()
		if err := lake.ParseKey(key, &got); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("differs: %s", diff)
		}
		plain := record(want)
		if n := lake.RecordPrefix(key); !bytes.Equal(key[:n], plain.AppendKey(nil)) {
			t.Fatalf("%+v: the record is %d bytes of %d", want, n, len(key))
		}
	}
}

func TestTruncatedKeyIsCorruptOrHasAShorterRawURL(t *testing.T) {
	row := lake.Row{Domain: "example.org", Host: "www.example.org", PathQuery: "/a", Scheme: "https", Port: 8080,
		TS: 5, HasTS: true, Size: 6, HasSize: true, Extras: "{}", RawURL: "raw"}
	key := row.AppendKey(nil)
	record := lake.RecordPrefix(key)
	for n := range key {
		var got lake.Row
		err := lake.ParseKey(key[:n], &got)
		if n >= record {
			if err != nil || got.RawURL != "raw"[:n-record] {
				t.Errorf("cut to %d bytes: %q, %v", n, got.RawURL, err)
			}
			continue
		}
		if !errors.Is(err, codec.ErrCorrupt) || lake.RecordPrefix(key[:n]) != -1 {
			t.Errorf("cut to %d bytes: %v, record of %d bytes", n, err, lake.RecordPrefix(key[:n]))
		}
	}
}

func FuzzParseKey(f *testing.F) {
	m := newRowMaker(3)
	for range 20 {
		row := m.row()
		f.Add(row.AppendKey(nil))
	}
	f.Add([]byte("a\x00b\x00/\x00http\x00\x02"))
	f.Fuzz(func(t *testing.T, key []byte) {
		var row lake.Row
		err := lake.ParseKey(key, &row)
		n := lake.RecordPrefix(key)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) || n != -1 {
				t.Fatalf("%v, record of %d bytes", err, n)
			}
			return
		}
		if again := row.AppendKey(nil); !slices.Equal(again, key) {
			t.Fatalf("key %q parsed and written is %q", key, again)
		}
		if n < 0 || string(key[n:]) != row.RawURL {
			t.Fatalf("record of %d bytes, raw URL %q", n, row.RawURL)
		}
	})
}
