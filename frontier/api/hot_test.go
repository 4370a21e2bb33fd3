package api

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/internal/testenv"
)

// lineAlphabet has what lines are made of, and what is wrong with them.
var lineAlphabet = []string{
	`{`, `}`, `"`, `,`, `:`, ` `, `\t`, `\\`, `\u0041`, `ä`, "\xff", `0`, `1`, `007`, `65535`, `65536`, `4294967296`, `-1`, `1.5`, `1e3`, `null`, `true`, `[]`, `{}`,
	`"url"`, `"crawl"`, `"key"`, `"priority"`, `"depth"`, `"metadata"`, `"refetch_after"`, `"lease"`, `"status"`, `"content"`, `"error"`, `"URL"`,
	`"https://a.example/"`, `"x"`, `""`, `"url":"a"`, `"url":"a",`, `"priority":1,`, `"depth": 2 ,`, `"lease":"b",`, `"status":200,`, `"crawl":"c"`,
}

func checkLine[L any](t *testing.T, line string, parse func(*L, string) error) {
	t.Helper()
	var want, got L
	wanted := json.Unmarshal([]byte(line), &want, json.RejectUnknownMembers(true))
	err := parse(&got, line)
	if (err == nil) != (wanted == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: %+v, %v; package json says %+v, %v", line, got, err, want, wanted)
	}
}

func checkLines(t *testing.T, line string) {
	t.Helper()
	checkLine(t, line, (*urlLine).parse)
	checkLine(t, line, (*resultLine).parse)
	checkLine(t, line, (*seenLine).parse)
}

// TestPlainLinesMeanWhatJSONMeans makes lines of pieces, and compares what they are read as with
// what package json reads.
func TestPlainLinesMeanWhatJSONMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	plain := 0
	for range 200_000 / testenv.Every(5) {
		var b strings.Builder
		b.WriteString("{")
		for range rng.IntN(8) {
			b.WriteString(lineAlphabet[rng.IntN(len(lineAlphabet))])
		}
		if rng.IntN(4) > 0 {
			b.WriteString("}")
		}
		checkLines(t, b.String())
		var u urlLine
		if _, ok := u.plain(b.String()); ok {
			plain++
		}
	}
	if plain < 1000 {
		t.Errorf("only %d lines were plain", plain)
	}
}

// TestIsPlain has every byte at every place of texts of different lengths.
func TestIsPlain(t *testing.T) {
	for size := range 20 {
		for at := range size {
			for c := range 256 {
				text := []byte("~ azAZ09!#[]^_`{|}~ "[:size])
				text[at] = byte(c)
				if got, want := isPlain(string(text)), c >= ' ' && c <= '~' && c != '\\'; got != want {
					t.Fatalf("%q: %t", text, got)
				}
			}
		}
	}
}

func FuzzPlainLines(f *testing.F) {
	f.Add(`{"url": "https://a.example/", "priority": 3,"depth":0}`)
	f.Add(`{"lease":"abc","status":200}`)
	f.Fuzz(func(t *testing.T, line string) { checkLines(t, line) })
}

// TestLinesOfAnswersAreJSON compares lines of answers with what package json writes.
func TestLinesOfAnswersAreJSON(t *testing.T) {
	for _, r := range []answerLine{
		lineResult{"added", ""}, lineResult{"known", ""}, lineResult{"rejected", "a\"b"}, lineResult{"elsewhere", "x"}, lineResult{"settled", ""},
		lineResult{"", ""}, lineResult{"retried", "why"}, seenResult{}, seenResult{Seen: true, Settled: true}, seenResult{Seen: true, Settled: true, Status: 404},
		seenResult{Reason: "no"},
	} {
		want, err := json.Marshal(r)
		if got := string(r.appendTo([]byte("before "))); err != nil || got != "before "+string(want)+"\n" {
			t.Errorf("%q, not %q: %v", got, want, err)
		}
	}
}

// TestClaimsAreJSON compares answers to claims with what package json writes.
func TestClaimsAreJSON(t *testing.T) {
	expires := time.Date(2026, 11, 26, 12, 0, 0, 123_000_000, time.UTC)
	for _, a := range []claimsAnswer{
		{Claims: []claim{}}, {Claims: []claim{{}}},
		{Claims: []claim{
			{Lease: "a_-9", URL: "https://a.example/?q=%22", Domain: "a.example", Crawl: "DEFAULT", Depth: 1, Priority: 65535, Tries: 3, Expires: expires},
			{URL: "ä\"\\<&>\n", Domain: "", Crawl: "\u2028", Metadata: []byte(`{"a":[1,null]}`), Expires: expires, RobotsUntil: expires.Add(time.Nanosecond)},
			{Expires: expires.In(time.FixedZone("", 3600))},
		}},
	} {
		want, err := json.Marshal(a)
		got, failed := a.appendTo(nil)
		if err != nil || failed != nil || string(got) != string(want)+"\n" {
			t.Errorf("%s, not %s: %v, %v", got, want, failed, err)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	line := `{"url":"https://site17.example/path/to/page-123456.html","priority":1}`
	for b.Loop() {
		var u urlLine
		if err := u.parse(line); err != nil {
			b.Fatal(err)
		}
	}
}
