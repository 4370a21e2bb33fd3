package lake_test

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

func TestDeleteStagingDeletesOneRun(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1000, 1001, 2500} {
		store := blob.NewMemory()
		put := func(key string) {
			if _, err := store.Put(t.Context(), key, []byte("x"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			put(fmt.Sprintf("%sobject-%d", lake.StagingPrefix("run"), i))
		}
		other := lake.StagingPrefix("run2") + "object"
		put(other)
		if err := lake.DeleteStaging(t.Context(), store, "run"); err != nil {
			t.Fatal(err)
		}
		var left []string
		for info, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, info.Key)
		}
		if len(left) != 1 || left[0] != other {
			t.Errorf("%d objects: %v left, want %s alone", n, left, other)
		}
	}
}
