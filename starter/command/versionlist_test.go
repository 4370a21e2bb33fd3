package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/catalog"
)

// Lines of large lakes stay within columns, and what a program calls itself cannot add
// lines.
func TestLinesOfVersionsFit(t *testing.T) {
	large := catalog.Counts{Datasets: 100_000, Batches: 1_000_000, Segments: 32, Rows: 10_000_000_000}
	s := catalog.Summary{Parent: "20261120T101112.123Z-0f3c9a71", Counts: large, Change: &large, Current: true}
	s.ID = "20261120T101113.123Z-0f3c9a71"
	s.Tags = []string{"a", "b", "c", "d", "e", "f", "g"}
	var list []catalog.Summary
	for _, builder := range []string{"urlake v1.2.3", "urlake v0.0.0-20261120101112-0f3c9a710f3c+dirty 0f3c9a710f3c", "a\nb\x1b[2J"} {
		s.BuiltBy = builder
		list = append(list, s)
	}
	var out bytes.Buffer
	if err := printText(&out, list); err != nil {
		t.Fatal(err)
	}
	const first = "  +100,000 datasets, +1,000,000 batches, +10,000,000,000 rows since 20261120T101112.123Z-0f3c9a71"
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, line := range lines {
		if len(line) > columns || strings.Contains(line, "\x1b") {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	if len(lines) != 1+3*4 || !slices.Contains(lines, "  tagged a, b, c, d, e and 2 others") || lines[3] != first || !slices.Contains(lines, "  built by urlake v1.2.3") {
		t.Errorf("%s", &out)
	}
}
