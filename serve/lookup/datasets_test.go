package lookup

import (
	"testing"

	"github.com/urlake/urlake/lake/catalog"
)

// TestDigitsAreIDs holds that digits alone are an id, although earlier programs made datasets with
// such names.
func TestDigitsAreIDs(t *testing.T) {
	s := &Snapshot{openVersion: &openVersion{
		every: []catalog.Dataset{{ID: 1, Name: "news"}, {ID: 11, Name: "1"}, {ID: 12, Name: "42"}},
		named: map[string]int{"news": 0, "1": 1, "42": 2},
	}}
	for text, id := range map[string]uint32{
		"1": 1, "01": 1, "11": 11, "12": 12, "news": 1, "42": 0, "": 0, "+1": 0, "1.": 0, "0": 0, "4294967297": 0, "99999999999999999999": 0,
	} {
		d, ok := s.FindDataset(text)
		if ok != (id > 0) || ok && d.ID != id {
			t.Errorf("%q: %+v, %v; want %d", text, d, ok, id)
		}
	}
}
