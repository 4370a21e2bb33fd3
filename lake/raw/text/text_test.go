package text

import (
	"fmt"
	"io"
	"strings"
	"testing"

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
