package layers

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// assemblyDoc is the document with a row for every assembly routine: what it saves, what replaces
// it where it cannot run, and the fuzz target that holds the two against each other.
const assemblyDoc = "docs/assembly.md"

var (
	routineText = regexp.MustCompile(`(?m)^TEXT ·(\w+)\(SB\)`)
	// A row: | `routine` | `folder/file.s` | … | `FuzzTarget` |
	assemblyRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `([^`]+)` \\|.*\\| `(Fuzz\\w+)` \\|$")
	fuzzTarget  = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
)

// TestEveryAssemblyRoutineIsDocumented holds assemblyDoc against the .s files and the fuzz targets:
// a routine without a row, a row without a routine and a target that is not there all fail.
func TestEveryAssemblyRoutineIsDocumented(t *testing.T) {
	targets := map[string][]string{} // folders by target
	for _, name := range sources(t, "_test.go") {
		for _, m := range fuzzTarget.FindAllStringSubmatch(string(read(t, name)), -1) {
			targets[m[1]] = append(targets[m[1]], path.Dir(name))
		}
	}
	rows := map[string]string{} // fuzz targets by file and routine
	for _, m := range assemblyRow.FindAllStringSubmatch(string(read(t, assemblyDoc)), -1) {
		rows[m[2]+" "+m[1]] = m[3]
	}
	var found []string
	for _, name := range sources(t, ".s") {
		for _, m := range routineText.FindAllStringSubmatch(string(read(t, name)), -1) {
			key := name + " " + m[1]
			target, ok := rows[key]
			delete(rows, key)
			switch {
			case !ok:
				found = append(found, fmt.Sprintf("%s: %s has no row in %s", name, m[1], assemblyDoc))
			case len(targets[target]) == 0:
				found = append(found, fmt.Sprintf("%s: %s: no test has the fuzz target %s", name, m[1], target))
			}
		}
	}
	for key := range rows {
		file, routine, _ := strings.Cut(key, " ")
		found = append(found, fmt.Sprintf("%s: %s is in %s and not in the file", file, routine, assemblyDoc))
	}
	complain(t, enforceAssemblyTable, found)
}
