package codec_test

import (
	"encoding/json"
	"testing"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"

	"github.com/urlake/urlake/lake/codec"
)

func checkJSONString(t *testing.T, s string) {
	t.Helper()
	std, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	want, err := jsoncanonicalizer.Transform([]byte(`[` + string(std) + `]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range [][]byte{codec.AppendJSONString([]byte("["), s), codec.AppendJSONString([]byte("["), []byte(s))} {
		if string(got)+"]" != string(want) {
			t.Errorf("%q: got %s, want %s", s, got[1:], want)
		}
	}
}

func TestJSONStringsAreCanonical(t *testing.T) {
	for c := range 0x180 {
		checkJSONString(t, "a"+string(rune(c))+"b")
		checkJSONString(t, "a"+string([]byte{byte(c)}))
	}
	for _, s := range []string{"", "https://example.com/a?b=c&d='<e>'", "日本\U0001f600\xf0\x9f\x98", "\xed\xa0\x80\u2028"} {
		checkJSONString(t, s)
	}
}

func FuzzAppendJSONString(f *testing.F) {
	f.Add("a\x00\"\\\xff\u2028\U0001f600")
	f.Fuzz(func(t *testing.T, s string) { checkJSONString(t, s) })
}
