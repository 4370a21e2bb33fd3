package bulk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, data string
		format     Format
		want       []string // line:text, or line!text for one with a problem
	}{
		{"lines", "\ufeffa.example\r\n\n# no\n  https://b.example/x,y \nc.example", Lines,
			[]string{"1:a.example", "4:https://b.example/x,y", "5:c.example"}},
		{"a URL with a comma", "https://b.example/x,y\n", Lines, []string{"1:https://b.example/x,y"}},
		{"nothing", "", Lines, nil},
		{"no line end and a comment", "# only", Lines, nil},
		{"a host in brackets", "[2001:db8::1]\n", Lines, []string{"1:[2001:db8::1]"}},
		{"CSV", "a.example,1\n\"b.example\",\"2\n3\"\nc.example\n", CSV, []string{"1:a.example", "2:b.example", "4:c.example"}},
		{"CSV with a header", "rank,Domain\n1, a.example\n2\n3,\"b\"x\n4,c.example\n", CSV,
			[]string{"2:a.example", "3!", "4!3,\"b\"x", "5:c.example"}},
		{"a header alone", "url\nhttps://a.example/\n", CSV, []string{"2:https://a.example/"}},
		{"a quote that does not end", "domain,x\n\"a.example,1\nb.example,2\n", CSV, []string{"2!\"a.example,1"}},
		{"NDJSON", `{"domain":"a.example"}` + "\n\n" + `"b.example"` + "\n" + `{"url":"https://c.example/\u00e9","n":1}` + "\n7\n{\n" +
			`"d\u002eexample"` + "\n" + `{"host":7}`, NDJSON,
			[]string{"1:a.example", "3:b.example", "4:https://c.example/é", "5!7", "6!{", "7:d.example", `8!{"host":7}`}},
		{"strings", "\"a.example\"\n\"\"\n", NDJSON, []string{"1:a.example", "2:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Detect([]byte(c.data)); got != c.format {
				t.Errorf("detected as %s, want %s", got, c.format)
			}
			list, err := Parse([]byte(c.data), c.format, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, q := range list {
				mark := ":"
				if q.Problem != "" {
					mark = "!"
				}
				got = append(got, fmt.Sprint(q.Line, mark, string(q.Text)))
			}
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], " ", "")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		data   string
		format Format
		limits Limits
		limit  string
		line   int
	}{
		{"a\n#\nb\nc\n", Lines, Limits{Questions: 2}, "lines", 4},
		{"a\nb\nc\n", CSV, Limits{Questions: 2}, "lines", 3},
		{"\"a\"\n\"b\"\n\"c\"\n", NDJSON, Limits{Questions: 2}, "lines", 3},
		{"a\nbbbb\n", Lines, Limits{LineBytes: 3}, "line_bytes", 2},
		{"a\nbbbb", CSV, Limits{LineBytes: 3}, "line_bytes", 2},
	} {
		_, err := Parse([]byte(c.data), c.format, c.limits)
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Limit != c.limit || limit.Line != c.line {
			t.Errorf("%q: %v", c.data, err)
		}
		if _, err := Parse([]byte(c.data), c.format, Limits{Questions: 3, LineBytes: 4}); err != nil {
			t.Errorf("%q at its limits: %v", c.data, err)
		}
	}
}

// Whatever a list has, it is read, each line once at most, in order.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a.example\nb", "domain\n\"x", "{\"domain\":\"a\"}\n\"b\"", "\"a\",\"b\n\"", "\ufeff\r\n#", "\"\"\"\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range []Format{Detect(data), Lines, CSV, NDJSON} {
			list, err := Parse(data, format, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			last := 0
			for _, q := range list {
				if q.Line <= last || q.Line > strings.Count(string(data), "\n")+1 {
					t.Fatalf("%s: line %d after %d", format, q.Line, last)
				}
				last = q.Line
			}
		}
	})
}
