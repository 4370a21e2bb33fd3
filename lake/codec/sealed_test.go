package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
)

type document struct {
	Format int              `json:"format,omitempty"`
	Name   string           `json:"name"`
	Count  int64            `json:"count"`
	By     map[string]int64 `json:"by,omitempty"`
	List   []string         `json:"list,omitempty"`
}

func TestSealRoundTrip(t *testing.T) {
	for _, want := range []document{
		{},
		{Name: "a<b>&\u2028c\x00", Count: math.MaxInt64},
		{Name: `",` + "\n" + `  "xxh64": "`, List: []string{"x", ""}, By: map[string]int64{"b": 2, "a": 1}},
	} {
		data, err := codec.Seal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got document
		if err := codec.Unseal(data, "doc", 1, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("differs: %s", diff)
		}
		var plain map[string]any
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Errorf("a sealed document is not JSON: %v", err)
		}
		if s, ok := plain["xxh64"].(string); !ok || len(s) != 16 {
			t.Errorf("xxh64 is %v", plain["xxh64"])
		}
		again, err := codec.Seal(want)
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("a second Seal wrote different bytes (%v)", err)
		}
	}
}

func TestSealRejectsValuesWithoutMembers(t *testing.T) {
	for _, v := range []any{struct{}{}, map[string]int{}, []int{1}, 7, "s", nil, func() {}} {
		if data, err := codec.Seal(v); err == nil {
			t.Errorf("%T: sealed as %q", v, data)
		}
	}
}

func TestChangedSealedDocumentIsCorrupt(t *testing.T) {
	data, err := codec.Seal(document{Name: "n", Count: 3, By: map[string]int64{"a": 1}, List: []string{"p", "q"}})
	if err != nil {
		t.Fatal(err)
	}
	var got document
	for n := range data {
		if err := codec.Unseal(data[:n], "doc", 1, &got); !isCorrupt(err) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if err := codec.Unseal(bad, "doc", 1, &got); !isCorrupt(err) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
		}
	}
	if err := codec.Unseal(append(bytes.Clone(data), '\n'), "doc", 1, &got); !isCorrupt(err) {
		t.Fatalf("one byte more: %v", err)
	}
	// Error texts contain no quotes and no line breaks.
	for _, bad := range [][]byte{data[:len(data)-5], bytes.Replace(data, []byte("3"), []byte("4"), 1), []byte(strings.Repeat("{}\n", 20))} {
		if err := codec.Unseal(bad, "doc", 1, &got); !isCorrupt(err) || strings.ContainsAny(err.Error(), "\"\\\n") {
			t.Errorf("%v", err)
		}
	}
}

// A document of a newer program is no damage, whether its format says so or only its members.
func TestUnsealTellsNewerDocumentsFromDamage(t *testing.T) {
	for _, c := range []struct {
		doc  map[string]any
		want codec.FormatError
		says string
	}{
		{map[string]any{"format": 1, "name": "n", "newer": 1}, codec.FormatError{Found: 1, Known: 1, Member: "newer"}, "newer urlake"},
		{map[string]any{"name": "n", "newer": 1}, codec.FormatError{Known: 1, Member: "newer"}, "the member newer"},
		{map[string]any{"format": 2, "name": "n"}, codec.FormatError{Found: 2, Known: 1}, "doc: format 2, but this program knows formats up to 1"},
		{map[string]any{"a": "\"format\": 1", "format": 3, "name": 7}, codec.FormatError{Found: 3, Known: 1}, "newer urlake"},
	} {
		data, err := codec.Seal(c.doc)
		if err != nil {
			t.Fatal(err)
		}
		var got document
		c.want.Key = "doc"
		var newer *codec.FormatError
		if err := codec.Unseal(data, "doc", 1, &got); !errors.As(err, &newer) || *newer != c.want || isCorrupt(err) ||
			!codec.IsFormat(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: got %v", c.doc, err)
		}
		data[bytes.IndexByte(data, 'n')] ^= 1 // damage comes first
		if err := codec.Unseal(data, "doc", 1, &got); !isCorrupt(err) || codec.IsFormat(err) {
			t.Errorf("%v, damaged: got %v", c.doc, err)
		}
	}
	data, err := codec.Seal(map[string]any{"format": 1, "name": 7})
	if err != nil {
		t.Fatal(err)
	}
	var got document
	if err := codec.Unseal(data, "doc", 1, &got); !isCorrupt(err) {
		t.Errorf("a number as a name: %v", err)
	}
}

func FuzzUnseal(f *testing.F) {
	data, err := codec.Seal(document{Name: "n", List: []string{"p"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got document
		if err := codec.Unseal(data, "doc", 1, &got); err != nil && !isCorrupt(err) && !codec.IsFormat(err) {
			t.Fatalf("%v is not a corruption", err)
		}
	})
}
