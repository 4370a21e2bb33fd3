package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Shows compares the block of a page in docs/formats that starts with ```info with got.
func Shows(t *testing.T, page, info, got string) {
	t.Helper()
	path := filepath.Join(Root(t), "docs", "formats", page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "```"+info+"\n")
	shown, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block %q", page, info)
	}
	diff := cmp.Diff(shown, got)
	if diff == "" {
		return
	}
	if os.Getenv("URLAKE_UPDATE_GOLDEN") != "1" {
		t.Errorf("%s shows something else (URLAKE_UPDATE_GOLDEN=1 rewrites it, read the difference):\n%s", page, diff)
		return
	}
	if err := os.WriteFile(path, []byte(before+"```"+info+"\n"+got+"```\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
