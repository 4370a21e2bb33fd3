package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// TestNamesOfDigitsAreIDs holds that no dataset gets a name of digits alone, with whatever others,
// and that one of an earlier program goes on.
func TestNamesOfDigitsAreIDs(t *testing.T) {
	store := blob.NewMemory()
	if _, err := RegisterDataset(t.Context(), store, lake.Dataset{Name: "a1"}); err != nil {
		t.Fatal(err)
	}
	_, err := RegisterDatasets(t.Context(), store, []lake.Dataset{{Name: "b"}, {Name: "42"}})
	var name *NameError
	if !errors.As(err, &name) || !strings.Contains(err.Error(), `"42": digits alone are the id of a dataset; use a name with a letter, such as d42`) {
		t.Errorf("%v", err)
	}
	if found, err := DatasetsNamed(t.Context(), store, "b", "42"); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	old := lake.Dataset{ID: 2, Name: "42"}
	if err := makeLive(t.Context(), store, func(h *head) (bool, error) {
		h.NextID = 3
		return true, h.set(t.Context(), store, []lake.Dataset{old})
	}); err != nil {
		t.Fatal(err)
	}
	if d, err := RegisterDataset(t.Context(), store, lake.Dataset{Name: "42"}); err != nil || d != old {
		t.Errorf("%+v, %v", d, err)
	}
}
