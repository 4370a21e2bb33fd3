//go:build soak

package treebuild

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/internal/testenv"
)

// TestMillionKeysInBothFormats builds the index of a million keys in both formats, with so little
// memory that there are many runs, and compares it with one whose nodes are sums by prefix.
func TestMillionKeysInBothFormats(t *testing.T) {
	n := testenv.Scaled(t, 1_000_000, 10_000)
	yes, no := true, false
	var rows []listed
	for i := range n {
		h := uint64(i) * 0x9e3779b97f4a7c15
		key := fmt.Sprintf("uploads/%02x/%02x/%012x/original.jpg", h>>56, h>>48&0xff, h&0xffffffffffff)
		if i%2 == 0 {
			key = fmt.Sprintf("logs/web-%04d/2026-%02d-%02d/access.log.gz", i/366, i%366/31+1, i%31+1)
		}
		size := int64(i)
		rows = append(rows, listed{Key: key, Size: &size, IsLatest: &yes, IsDeleteMarker: &no})
	}
	dir := folderOf(t, map[string][]byte{
		"1.csv": csvOf(t, rows[:n/2], true, url.QueryEscape), "2.csv": csvOf(t, rows[n/2:], true, url.QueryEscape),
	})
	inputs := []string{filepath.Join(dir, "1.csv"), filepath.Join(dir, "2.csv")}
	for _, format := range prefixtree.Formats() {
		out := filepath.Join(t.TempDir(), "index")
		if _, err := Inventory(t.Context(), out, inputs, InventoryOptions{Format: format, MemoryBytes: 8 << 20}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(content(t, out), content(t, plainIndex(t, format, rows))) {
			t.Errorf("%s: other files", format)
		}
		x, err := prefixtree.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Verify(t.Context(), func(uint64) {}); err != nil {
			t.Error(err)
		}
		x.Close()
	}
}
