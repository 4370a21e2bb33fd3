package jsondoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	jsoncanonicalizer "github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
	"github.com/google/go-cmp/cmp"
)

// randomJSON writes a value with everything JSON allows: white space, escapes, numbers in any form,
// names beyond ASCII.
func randomJSON(r *rand.Rand, w *strings.Builder, depth int) {
	space := func() { w.WriteString([]string{"", "", " ", "\t", "\r"}[r.IntN(5)]) }
	space()
	switch k := r.IntN(10); {
	case k < 3 && depth > 0:
		w.WriteByte('{')
		seen := map[string]bool{}
		first := true
		for range r.IntN(6) {
			name, plain := randomString(r)
			if seen[plain] {
				continue
			}
			seen[plain] = true
			if !first {
				w.WriteByte(',')
			}
			first = false
			space()
			w.WriteString(name)
			space()
			w.WriteByte(':')
			randomJSON(r, w, depth-1)
		}
		w.WriteByte('}')
	case k < 5 && depth > 0:
		w.WriteByte('[')
		for i := range r.IntN(5) {
			if i > 0 {
				w.WriteByte(',')
			}
			randomJSON(r, w, depth-1)
		}
		w.WriteByte(']')
	case k < 7:
		s, _ := randomString(r)
		w.WriteString(s)
	case k < 9:
		w.WriteString(randomNumber(r))
	default:
		w.WriteString([]string{"true", "false", "null"}[r.IntN(3)])
	}
	space()
}

func randomNumber(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return fmt.Sprint(r.IntN(2000) - 1000)
	case 1:
		return fmt.Sprint(r.Int64N(1<<53) - 1<<52)
	case 2:
		return fmt.Sprintf("%g", r.NormFloat64())
	case 3:
		return fmt.Sprintf("%.*E", r.IntN(18), r.NormFloat64()*1e5)
	case 4:
		return fmt.Sprintf("%de%d", 1+r.IntN(9999), r.IntN(600)-300)
	default:
		return []string{"0", "-0", "-0.0", "0e5", "1e21", "1e20", "999999999999999999999.0", "1e-6", "1e-7",
			"5e-324", "1.7976931348623157e308", "0.000001", "123456789012345"}[r.IntN(13)]
	}
}

// randomString returns a string as JSON and what it stands for.
func randomString(r *rand.Rand) (text, plain string) {
	var w, p strings.Builder
	w.WriteByte('"')
	for range r.IntN(12) {
		c := []rune{'a', 'b', 'Z', '0', ' ', '/', '"', '\\', '\b', '\f', '\n', '\r', '\t', 1,
			0x1f, 0x7f, 0x80, 'é', 0x2028, 0xd7ff, 0xe000, 0xfb33, 0xfffd, 0xffff, 0x10000, '😀', 0x10ffff}[r.IntN(27)]
		p.WriteRune(c)
		switch {
		case r.IntN(4) == 0 || c < ' ' || c == '"' || c == '\\':
			if c == '/' || c == '"' || c == '\\' {
				w.WriteString(`\` + string(c))
			} else if c > 0xffff {
				fmt.Fprintf(&w, `\u%04X\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			} else {
				fmt.Fprintf(&w, `\u%04x`, c)
			}
		default:
			w.WriteRune(c)
		}
	}
	w.WriteByte('"')
	return w.String(), p.String()
}

// canonical returns the canonical form of a JSON text, "" if text is invalid.
func canonical(text []byte) string {
	d := Document{Deep: true}
	if !d.Parse(text) {
		return ""
	}
	return string(d.AppendCanonical(nil, 0, nil))
}

func TestCanonicalFormAgreesWithTheReferenceImplementation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var w strings.Builder
		w.WriteString(`{"top":`)
		randomJSON(r, &w, 4)
		w.WriteByte('}')
		text := w.String()
		want, err := jsoncanonicalizer.Transform([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := canonical([]byte(text)); got != string(want) {
			t.Fatalf("canonical form of %s is\n%s, want\n%s", text, got, want)
		}
	}
}

func TestIntegersBeyondDoublesBecomeStrings(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"9007199254740993", `"9007199254740993"`},
		{"-9007199254740993", `"-9007199254740993"`},
		{"9007199254740992", "9007199254740992"},
		{"18446744073709551615", `"18446744073709551615"`},
		{"18446744073709551616", `"18446744073709551616"`},
		{"18446744073709552000", "18446744073709552000"},
		{"1000000000000000000000", "1e+21"},
		{"1e400", `"1e400"`},
		{"1e-400", "0"},
		{"123456789012345.678", "123456789012345.67"},
	} {
		if got := canonical([]byte(tc.in)); got != tc.want {
			t.Errorf("%s becomes %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestInvalidUnicodeIsReplaced(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`"\ud800"`, "\"\ufffd\""},
		{`"\ud800x"`, "\"\ufffdx\""},
		{`"\udc00\ud800"`, "\"\ufffd\ufffd\""},
		{`"\ud800\u0041"`, "\"\ufffdA\""},
		{"\"a\xffb\xc3\"", "\"a\ufffdb\ufffd\""},
	} {
		if got := canonical([]byte(tc.in)); got != tc.want {
			t.Errorf("%s becomes %s, want %s", tc.in, got, tc.want)
		}
		var s string
		if err := json.Unmarshal([]byte(tc.in), &s); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(s)
		if got := canonical(want); got != tc.want {
			t.Errorf("%s: encoding/json reads %s", tc.in, want)
		}
	}
}

// checkJSON compares the parser with encoding/json.
func checkJSON(t *testing.T, text []byte) {
	t.Helper()
	deep, flat := Document{Deep: true}, Document{}
	ok := deep.Parse(text)
	if flat.Parse(text) != ok {
		t.Fatalf("%q: flat and deep parser disagree", text)
	}
	if valid := json.Valid(text); ok != valid {
		if ok && (bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Infinity")) || bytes.Contains(text, []byte("undefined"))) {
			return
		}
		if valid && bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) > maxDepth {
			return
		}
		t.Fatalf("%q: parsed %v, valid %v", text, ok, valid)
	}
	if !ok {
		return
	}
	c := canonical(text)
	if again := canonical([]byte(c)); again != c {
		t.Fatalf("%q: canonical form %q has canonical form %q", text, c, again)
	}
	var want, got any
	if err := json.Unmarshal(text, &want); err != nil {
		return // a number beyond any double
	}
	if err := json.Unmarshal([]byte(c), &got); err != nil {
		t.Fatalf("%q: canonical form %q: %v", text, c, err)
	}
	if !sameJSON(want, got) {
		t.Fatalf("%q: canonical form %q differs in content", text, c)
	}
}

// sameJSON compares decoded values. Integers that no double has exactly have become strings.
func sameJSON(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for name := range w {
			ok = ok && sameJSON(w[name], g[name])
		}
		return ok && len(w) == len(g)
	case []any:
		g, ok := got.([]any)
		for i := range w {
			ok = ok && len(w) == len(g) && sameJSON(w[i], g[i])
		}
		return ok && len(w) == len(g)
	case float64:
		_, str := got.(string)
		return str || got == want
	}
	return got == want
}

func TestParserAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range []string{
		"", " ", "{", "}", "[", "[,]", "[1,]", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`,
		`{a:1}`, `{'a':1}`, "[1 2]", "01", "-", "-a", "+1", ".5", "1.", "1.e5", "1e", "1e+", "1E5", "-0",
		"tru", "true", "truex", "nul", "null ", "NaN", `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"",
		"\"\x00\"", "\"\x7f\"", "\"\xff\"", `"a" "b"`, "[]]", "[[]", "\ufeff[]", " [ ] ", "\f1",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), `{"a":{"b":[{"c":null}]}}`,
	} {
		checkJSON(t, []byte(text))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		var w strings.Builder
		randomJSON(r, &w, 4)
		text := []byte(w.String())
		checkJSON(t, text)
		if len(text) > 0 {
			text[r.IntN(len(text))] = `{}[]",:\/u0eE.+-tfn `[r.IntN(20)]
			checkJSON(t, text)
			checkJSON(t, text[:r.IntN(len(text))])
		}
	}
}

func TestNumbersThatJSONLacksAreNull(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":NaN,"b":[Infinity,-Infinity],"c":"NaN"}`: `{"a":null,"b":[null,null],"c":"NaN"}`,
		"NaN":                     "null",
		`[undefined,"undefined"]`: `[null,"undefined"]`,
		"-Infini":                 "", "nan": "", "+Infinity": "", "-NaN": "", "inf": "", "{NaN:1}": "",
	} {
		if got := canonical([]byte(in)); got != want {
			t.Errorf("%s becomes %q, want %q", in, got, want)
		}
	}
}

func TestAPrefixEndsBehindItsValue(t *testing.T) {
	var d Document
	for _, tc := range []struct {
		in string
		n  int
		ok bool
	}{{`{"a":1}{"b":2}`, 7, true}, {`"a" x`, 3, true}, {`[1,2]]`, 5, true}, {`{"a":1,{`, 7, false}, {`}`, 0, false}} {
		if n, ok := d.ParsePrefix([]byte(tc.in)); n != tc.n || ok != tc.ok {
			t.Errorf("%s: %d, %v, want %d, %v", tc.in, n, ok, tc.n, tc.ok)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	var d Document
	if text := strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2); d.Parse([]byte(text)) {
		t.Errorf("%d brackets parsed", maxDepth+2)
	}
	// Without the bound this would overflow the stack.
	if d.Parse(bytes.Repeat([]byte(`{"a":`), 1<<20)) {
		t.Error("a million open braces parsed")
	}
}

func TestPathsRoundTrip(t *testing.T) {
	for _, segs := range [][]string{{"a"}, {"a", "b"}, {"a.b", "c"}, {`a\`, `b\.c`}, {"", ""}, {"é"}} {
		if got := SplitPath(JoinPath(segs)); !cmp.Equal(got, segs) {
			t.Errorf("%q comes back as %q", segs, got)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1.5e3,"\u00e9\ud83d\ude00",null,true],"b":{"c":-0}}`))
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data) })
}
