//go:build unix

package frontier_test

import (
	"testing"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestFilesRestWhileManyAreLookedUp holds that a lookup of many URLs makes the writing of files
// rest for a while, and one of few does not.
func TestFilesRestWhileManyAreLookedUp(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	awaited := func(urls int) bool {
		testenv.Until(t, "rest", func() bool { return !f.Awaited() })
		queries := make([]frontier.SeenQuery, urls)
		for i := range queries {
			queries[i].URL = "https://a.example/"
		}
		if _, err := f.SeenAll(queries); err != nil {
			t.Fatal(err)
		}
		return f.Awaited()
	}
	if awaited(frontier.BulkLeast - 1) {
		t.Error("after a lookup of few")
	}
	// Again, since a machine can stand still.
	testenv.Until(t, "rests after a lookup of many", func() bool { return awaited(frontier.BulkLeast) })
}
