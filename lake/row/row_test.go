package row

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
)

func TestKeysSortLikeRows(t *testing.T) {
	m := newRowMaker(1)
	rows := make([]Row, 400)
	keys := make([][]byte, len(rows))
	for i := range rows {
		rows[i] = m.Row()
		keys[i] = rows[i].AppendKey(nil)
	}
	for i, a := range rows {
		for j, b := range rows {
			if want, got := compareRows(a, b), bytes.Compare(keys[i], keys[j]); want != got {
				t.Fatalf("%+v and %+v compare as %d, their keys as %d", a, b, want, got)
			}
		}
	}
}

// parse returns the row of a key without a previous one.
func parse(key []byte) (Row, error) {
	var k Key
	if err := k.Next(key); err != nil {
		return Row{}, err
	}
	return k.Row(), nil
}

func TestKeyRoundTrip(t *testing.T) {
	m := newRowMaker(2)
	for range 5000 {
		want := m.Row()
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

// A step keeps the fields that it does not parse again.
func TestStepsOverSortedKeys(t *testing.T) {
	m := newRowMaker(4)
	rows := make([]Row, 20_000)
	for i := range rows {
		rows[i] = m.Row()
	}
	slices.SortFunc(rows, compareRows)
	var k Key
	for i, want := range rows {
		if err := k.Next(want.AppendKey(nil)); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if diff := gocmp.Diff(want, k.Row()); diff != "" {
			t.Fatalf("row %d differs: %s", i, diff)
		}
		if same := i > 0 && recordOf(want) == recordOf(rows[i-1]); same != k.sameRecord() {
			t.Fatalf("%+v after %+v: SameRecord is %v, want %v", want, rows[i-1], k.sameRecord(), same)
		}
	}
	for i, r := range rows {
		if j := m.Rng.IntN(len(rows)); compareRows(r, rows[j]) > 0 {
			var k Key
			if err := k.Next(r.AppendKey(nil)); err != nil {
				t.Fatal(err)
			}
			if k.Next(rows[j].AppendKey(nil)) == nil {
				t.Fatalf("a step from row %d down to row %d succeeded", i, j)
			}
			if diff := gocmp.Diff(r, k.Row()); diff != "" {
				t.Fatalf("a step that failed changed the row: %s", diff)
			}
		}
	}
}

func TestTruncatedKeyIsCorruptOrHasAShorterRawURL(t *testing.T) {
	r := Row{Domain: "example.org", Host: "www.example.org", PathQuery: "/a", Scheme: "https", Port: 8080,
		TS: 5, HasTS: true, Size: 6, HasSize: true, Extras: "{}", RawURL: "raw"}
	key := r.AppendKey(nil)
	record := len(key) - len(r.RawURL)
	for n := range key {
		got, err := parse(key[:n])
		if n >= record {
			if err != nil || got.RawURL != "raw"[:n-record] {
				t.Errorf("truncated to %d bytes: %q, %v", n, got.RawURL, err)
			}
			continue
		}
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("truncated to %d bytes: %v", n, err)
		}
	}
}

// FuzzKey steps over two keys and compares the second with parsing it alone.
func FuzzKey(f *testing.F) {
	m := newRowMaker(3)
	for range 20 {
		a, b := m.Row(), m.Row()
		f.Add(a.AppendKey(nil), b.AppendKey(nil))
	}
	f.Add([]byte("a\x00b\x00/\x00http\x00\x02"), []byte("a\x00b\x00/\x00http\x00\x02"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var k Key
		if err := k.Next(a); err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		first := k.Row()
		if again := first.AppendKey(nil); !bytes.Equal(again, a) {
			t.Fatalf("the row of key %q has key %q", a, again)
		}
		record := recordOf(first)
		same := bytes.HasPrefix(b, record.AppendKey(nil))
		err := k.Next(b)
		alone, aloneErr := parse(b)
		switch {
		case bytes.Compare(a, b) > 0:
			if err == nil {
				t.Fatalf("a step from %q down to %q succeeded", a, b)
			}
		case (err == nil) != (aloneErr == nil):
			t.Fatalf("%q after %q: %v, alone %v", b, a, err, aloneErr)
		case err == nil:
			if diff := gocmp.Diff(alone, k.Row()); diff != "" || k.sameRecord() != same {
				t.Fatalf("%q after %q: SameRecord is %v, want %v; %s", b, a, k.sameRecord(), same, diff)
			}
		}
	})
}

// Row returns the row. Its strings are views into k, valid until the next step.
func (k *Key) Row() Row {
	s := k.suffixes[k.rows&1]
	return Row{
		Domain: View(k.text(keyDomain)), Host: View(k.text(keyHost)), PathQuery: View(k.text(keyPath)),
		Scheme: s.Scheme, Port: s.Port, TS: s.TS, HasTS: s.HasTS, Size: s.Size, HasSize: s.HasSize,
		Extras: s.Extras, RawURL: View(k.key[k.ends[keySuffix]:]),
	}
}
