package detect

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/raw"
)

// A member that no sampled record has is more often a wrong name than a late member.
func TestMembersThatNoRecordHasAreNoted(t *testing.T) {
	head := []byte(`{"url":"http://a.com/","t":1}` + "\n" + `{"url":"http://b.com/","n":{"x":2}}` + "\n")
	p, err := Detect("x.jsonl", head, raw.Options{TSColumn: "time", SizeField: "t", Extras: []string{"n.x", "zip"}})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(p.Notes, "\n")
	for name, noted := range map[string]bool{"time": true, "zip": true, `"t"`: false, "n.x": false} {
		if strings.Contains(notes, name) != noted {
			t.Errorf("%s is in the notes: %v, want %v; notes:\n%s", name, !noted, noted, notes)
		}
	}
}
