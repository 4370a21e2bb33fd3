package prefixtree

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentedIndex compares the bytes of a small index, in both formats, with those that
// docs/formats/prefixtree.md refers to. URLAKE_UPDATE_GOLDEN=1 rewrites them.
func TestDocumentedIndex(t *testing.T) {
	const golden = "testdata/index.txt"
	var s strings.Builder
	s.WriteString("# The index of these objects, in both formats: key and size.\n")
	for _, o := range damageObjects {
		fmt.Fprintf(&s, "#   %-8s %d\n", o.key, o.size)
	}
	s.WriteString("# Positions: 0 the root, 1 a/, 2 a/b/, 3 a/b/c/, 4 b/, 5 b//.\n")
	for _, format := range Formats() {
		dir, _ := build(t, format, damageObjects)
		files := readFolder(t, dir)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(&s, "\n%s %s: %d bytes\n", format, name, len(files[name]))
			if strings.HasSuffix(name, ".json") {
				s.Write(files[name])
				continue
			}
			data := files[name]
			if l := layouts[format]; l.header > 0 && strings.Contains(name, ".u") {
				fmt.Fprintf(&s, "  %x header\n", data[:headerSize])
				data = data[headerSize:]
			}
			width := 8
			if strings.HasSuffix(name, ".u32") {
				width = 4
			} else if name == layouts[format].blob || name == layouts[format].hash {
				width = 16
			}
			for row := range slices.Chunk(data, width) {
				if width == 16 {
					fmt.Fprintf(&s, "  %-32x %q\n", row, row)
				} else {
					fmt.Fprintf(&s, "  %x\n", row)
				}
			}
		}
	}
	if os.Getenv("URLAKE_UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(golden, []byte(s.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), s.String()); d != "" {
		t.Errorf("%s (-want +got), see URLAKE_UPDATE_GOLDEN: %s", golden, d)
	}
}
