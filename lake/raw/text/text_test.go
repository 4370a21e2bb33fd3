package text

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/raw"
)

// rows reads an object by a plan and returns its records and rejects: the line, then URL, time and
// extras, or ! and the reason.
func rows(t *testing.T, plan raw.Plan, object string) (rows []string) {
	t.Helper()
	if plan.MaxLine == 0 {
		plan.MaxLine = raw.DefaultMaxLine
	}
	in := NewInput(strings.NewReader(object), plan.MaxLine)
	p, err := NewParser(in, plan, &raw.Counts{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		var rec raw.Record
		var rej raw.Reject
		if err := p.Next(&rec, &rej); err == io.EOF {
			return rows
		} else if err != nil {
			return append(rows, err.Error())
		}
		at := in.Record()
		if line := strings.Count(object[:at.Offset], "\n") + 1; line != int(at.Line) {
			t.Errorf("a record is at line %d and byte %d, which is in line %d", at.Line, at.Offset, line)
		}
		row := fmt.Sprintf("%d ", at.Line)
		if rej.Reason != "" {
			row += "!" + rej.Reason
		} else {
			row += string(rec.URL)
		}
		if rec.HasTS {
			row += fmt.Sprintf(" ts=%d", rec.TS)
		}
		if rec.Extras != nil {
			row += " " + string(rec.Extras)
		}
		rows = append(rows, row)
	}
}

func TestListsOfURLsBesideOtherValues(t *testing.T) {
	want := []string{"1 http://a/", "1 http://b/", "2 http://c/"}
	for _, before := range []string{
		``, `"meta":{"a":1},`, `"meta":{"tags":["http://x/"]},`, `"x":[["http://x/"],2],"y":[],`, `"urls":"http://x/",`,
	} {
		object := fmt.Sprintf(`{%[1]s"urls":["http://a/","http://b/"]}`+"\n"+`{%[1]s"urls":["http://c/"],"z":["http://x/"]}`, before)
		for _, format := range []string{raw.JSONLines, raw.JSON} {
			plan := raw.Plan{Format: format, URL: raw.Column{Name: "urls"}}
			if diff := cmp.Diff(want, rows(t, plan, object)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", format, object, diff)
			}
		}
	}
}

// inTime runs do, which takes less than a second on a busy machine and minutes if its time is
// quadratic.
func inTime(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { do(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it takes more than linear time")
	}
}

// TestFieldsAreCutInLinearTime cuts the longest fields that there are.
func TestFieldsAreCutInLinearTime(t *testing.T) {
	for _, tc := range []struct {
		unit string
		urls int // per unit; 0: one in all
	}{
		{"http://a.example/ ", 1},
		{"http://a.example/,", 1},
		{"http://a.example/x # a comment\n", 1},
		{"http://a.example/?u=http://b.example/ ", 1},
		{"http://a.example/x) ", 1},
		{"http://a.example/x> ", 1},
		{"http://a.example/>(", 0},
		{"http://a.example/)(", 0},
		{"http://a.example/", 0},
		{"http://a.example/?q=x x x ", 0},
		{"http://a.example/x b c d e f ", 0},
		{"x y z ", 0},
		{"(", 0},
		{")", 0},
	} {
		field := strings.TrimSpace(strings.Repeat(tc.unit, raw.DefaultMaxLine/len(tc.unit)))
		for _, first := range []string{"", "http://a.example/x ", "http://a.example/x y=http://b.example/z "} {
			urls := 0
			inTime(t, func() {
				for rest := []byte(first + field); rest != nil; urls++ {
					_, rest, _ = CutURL(rest)
				}
			})
			if want := tc.urls * strings.Count(field, strings.TrimSpace(tc.unit)); urls < want {
				t.Errorf("%q has %d URLs, want %d", tc.unit, urls, want)
			}
		}
	}
}

func TestShortFieldsWithTwoSchemesAreNotPlain(t *testing.T) {
	for a := range 8 {
		for b := range 8 {
			field := "s3://" + strings.Repeat("a", a) + ",s3://" + strings.Repeat("b", b)
			if IsPlain([]byte(field)) {
				t.Errorf("%q is plain", field)
			}
			if url, rest, _ := CutURL([]byte(field)); string(url) != field[:5+a] || string(rest) != field[6+a:] {
				t.Errorf("%q is cut into %q and %q", field, url, rest)
			}
		}
	}
}
