package layers

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHotPathsHaveTheirBenchmarks holds the table of hot paths in ARCHITECTURE.md against the
// tree: each benchmark that it names is in the package that it names. Benchmarks and packages are
// lists of equal length, divided by semicolons.
func TestHotPathsHaveTheirBenchmarks(t *testing.T) {
	_, table, found := strings.Cut(string(read(t, "ARCHITECTURE.md")), "\n## Hot paths\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section Hot paths")
	}
	name := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (groups [][]string) {
		for group := range strings.SplitSeq(cell, ";") {
			var all []string
			for _, m := range name.FindAllStringSubmatch(group, -1) {
				all = append(all, m[1])
			}
			groups = append(groups, all)
		}
		return groups
	}
	tests := sources(t, "_test.go")
	checked := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[3], "`./") {
			continue
		}
		benchmarks, packages := names(cells[2]), names(cells[3])
		if len(benchmarks) != len(packages) {
			t.Errorf("%d lists of benchmarks for %d packages: %s", len(benchmarks), len(packages), line)
			continue
		}
		for i, group := range benchmarks {
			folder := strings.TrimPrefix(packages[i][0], "./")
			for _, benchmark := range group {
				checked++
				if !slices.ContainsFunc(tests, func(file string) bool {
					return file[:max(0, strings.LastIndexByte(file, '/'))] == folder &&
						strings.Contains(string(read(t, file)), "func Benchmark"+benchmark+"(")
				}) {
					t.Errorf("ARCHITECTURE.md names the benchmark %s in %s, which has none of that name", benchmark, folder)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d benchmarks checked, want the table's", checked)
	}
}
