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
		}
	}
}

// parse is the row of a key on its own.
func parse(key []byte) (lake.Row, error) {
	var k lake.Key
	if err := k.Next(key); err != nil {
		return lake.Row{}, err
	}
	return k.Row(), nil
}

func TestKeyRoundTrip(t *testing.T) {
	m := newRowMaker(2)
	for range 5000 {
		want := m.row()
		key := want.AppendKey([]byte("before"))[len("before"):]
		got, err := parse(key)
		if err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("differs: %s", diff)
		}
	}
}

// What a step does not parse again must be what it was.
func TestStepsOverSortedKeys(t *testing.T) {
	m := newRowMaker(4)
	rows := make([]lake.Row, 20_000)
	for i := range rows {
		rows[i] = m.row()
	}
	slices.SortFunc(rows, compareRows)
	var k lake.Key
	for i, want := range rows {
		if err := k.Next(want.AppendKey(nil)); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if diff := gocmp.Diff(want, k.Row()); diff != "" {
			t.Fatalf("row %d differs: %s", i, diff)
		}
		if same := i > 0 && record(want) == record(rows[i-1]); same != k.SameRecord() {
			t.Fatalf("%+v after %+v: one record %v, the keys say %v", want, rows[i-1], same, k.SameRecord())
		}
	}
	for i, r := range rows {
		if j := m.rng.IntN(len(rows)); compareRows(r, rows[j]) > 0 {
			var k lake.Key
			if err := k.Next(r.AppendKey(nil)); err != nil {
				t.Fatal(err)
			}
			if k.Next(rows[j].AppendKey(nil)) == nil {
				t.Fatalf("row %d after row %d", j, i)
			}
			if diff := gocmp.Diff(r, k.Row()); diff != "" {
				t.Fatalf("a refused step changed the row: %s", diff)
			}
		}
	}
}

func TestTruncatedKeyIsCorruptOrHasAShorterRawURL(t *testing.T) {
	row := lake.Row{Domain: "example.org", Host: "www.example.org", PathQuery: "/a", Scheme: "https", Port: 8080,
		TS: 5, HasTS: true, Size: 6, HasSize: true, Extras: "{}", RawURL: "raw"}
	key := row.AppendKey(nil)
	record := len(key) - len(row.RawURL)
	for n := range key {
		got, err := parse(key[:n])
		if n >= record {
			if err != nil || got.RawURL != "raw"[:n-record] {
				t.Errorf("cut to %d bytes: %q, %v", n, got.RawURL, err)
			}
			continue
		}
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

// FuzzKey steps over two keys and parses the second as if it stood alone.
func FuzzKey(f *testing.F) {
	m := newRowMaker(3)
	for range 20 {
		a, b := m.row(), m.row()
		f.Add(a.AppendKey(nil), b.AppendKey(nil))
	}
	f.Add([]byte("a\x00b\x00/\x00http\x00\x02"), []byte("a\x00b\x00/\x00http\x00\x02"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var k lake.Key
		if err := k.Next(a); err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		first := k.Row()
		if again := first.AppendKey(nil); !bytes.Equal(again, a) {
			t.Fatalf("key %q parsed and written is %q", a, again)
		}
		record := record(first)
		same := bytes.HasPrefix(b, record.AppendKey(nil))
		err := k.Next(b)
		alone, aloneErr := parse(b)
		switch {
		case bytes.Compare(a, b) > 0:
			if err == nil {
				t.Fatalf("%q after %q", b, a)
			}
		case (err == nil) != (aloneErr == nil):
			t.Fatalf("%q after %q: %v, alone %v", b, a, err, aloneErr)
		case err == nil:
			if diff := gocmp.Diff(alone, k.Row()); diff != "" || k.SameRecord() != same {
				t.Fatalf("%q after %q: one record %v, want %v; %s", b, a, k.SameRecord(), same, diff)
			}
		}
	})
}
