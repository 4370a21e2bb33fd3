package raw_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/urlake/urlake/lake/raw"
)

// TestReasonsAreDocumented holds that the page of the batch record and the page of sources explain
// every reason of a reject.
func TestReasonsAreDocumented(t *testing.T) {
	for _, page := range []string{"../../docs/formats/batch.md", "../../docs/sources.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range raw.Reasons {
			if !bytes.Contains(text, []byte("`"+reason+"`")) {
				t.Errorf("%s has no %q", page, reason)
			}
		}
	}
}
