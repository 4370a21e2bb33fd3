package codec_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
)

type document struct {
	Name  string           `json:"name"`
	Count int64            `json:"count"`
	By    map[string]int64 `json:"by,omitempty"`
	List  []string         `json:"list,omitempty"`
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
		if err := codec.Unseal(data, "doc", &got); err != nil {
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
		if err := codec.Unseal(data[:n], "doc", &got); !isCorrupt(err) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if err := codec.Unseal(bad, "doc", &got); !isCorrupt(err) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
		}
	}
	if err := codec.Unseal(append(bytes.Clone(data), '\n'), "doc", &got); !isCorrupt(err) {
		t.Fatalf("one byte more: %v", err)
	}
	// Error texts contain no quotes and no line breaks.
	for _, bad := range [][]byte{data[:len(data)-5], bytes.Replace(data, []byte("3"), []byte("4"), 1), []byte(strings.Repeat("{}\n", 20))} {
		if err := codec.Unseal(bad, "doc", &got); !isCorrupt(err) || strings.ContainsAny(err.Error(), "\"\\\n") {
			t.Errorf("%v", err)
		}
	}
}

func TestUnsealRejectsUnknownMembers(t *testing.T) {
	data, err := codec.Seal(map[string]any{"name": "n", "newer": 1})
	if err != nil {
		t.Fatal(err)
	}
	var got document
	if err := codec.Unseal(data, "doc", &got); !isCorrupt(err) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("got %v", err)
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
		if err := codec.Unseal(data, "doc", &got); err != nil && !isCorrupt(err) {
			t.Fatalf("%v is not a corruption", err)
		}
	})
}
