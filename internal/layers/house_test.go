package layers

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urlake/urlake/internal/testenv"
)

// A rule that is enforced fails its test; one that is not only logs what it finds (go test -v shows
// it).
const (
	enforceWidth           = true
	enforcePackageComments = true
	enforceFileLength      = true
	enforceNoAWS           = true
	enforceAssemblyTable   = true
)

const (
	// maxWidth is the number of columns of a comment or of Markdown prose; a tab counts as four.
	maxWidth = 100
	tabWidth = 4
	// maxFileLines is how long a Go file may be that does not say why it is longer.
	maxFileLines = 900
	// longFile begins the comment, above the package clause, in which a longer file says why.
	longFile = "// Long file:"
)

// complain reports what a rule found: as errors where the rule is enforced.
func complain(t *testing.T, enforced bool, found []string) {
	t.Helper()
	if !enforced {
		t.Logf("not enforced yet: %d findings", len(found))
	}
	for _, f := range found {
		if enforced {
			t.Error(f)
		} else {
			t.Log(f)
		}
	}
}

// sources lists the files that are checked in, or would be, with one of the suffixes: paths from
// the root with slashes. Test data is left out, as others wrote it.
func sources(t *testing.T, suffixes ...string) (names []string) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = testenv.Root(t)
	out, err := cmd.Output()
	if err != nil {
		testenv.Missing(t, "git and a checkout")
	}
	for _, name := range strings.Split(strings.Trim(string(out), "\x00"), "\x00") {
		wanted := slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
		if !wanted || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		if _, err := os.Stat(filepath.Join(cmd.Dir, name)); err == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatalf("no files with %q", suffixes)
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// width is how many columns a line takes.
func width(line string) int {
	return utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
}

// tooWide reports whether a line is too wide and could be broken. A single long word, such as an
// address, could not, nor could a code block or a table in a comment, which gofmt indents by a tab.
func tooWide(line string) bool {
	if width(line) <= maxWidth || strings.HasPrefix(strings.TrimSpace(line), "//\t") {
		return false
	}
	words := strings.Fields(strings.TrimLeft(strings.TrimSpace(line), "/#*-> "))
	return len(words) > 1
}

func TestCommentsAreNotTooWide(t *testing.T) {
	var found []string
	for _, name := range sources(t, ".go", ".s") {
		data := read(t, name)
		if generated.Match(data) {
			continue
		}
		for _, line := range commentLines(t, name, data) {
			found = append(found, fmt.Sprintf("%s:%d: comment of %d columns, at most %d", name, line.number, width(line.text), maxWidth))
		}
	}
	complain(t, enforceWidth, found)
}

type wideLine struct {
	number int
	text   string
}

// commentLines are the lines of a file that hold nothing but comment and are too wide.
func commentLines(t *testing.T, name string, data []byte) (wide []wideLine) {
	t.Helper()
	lines := strings.Split(string(data), "\n")
	check := func(number int) {
		if line := lines[number-1]; tooWide(line) {
			wide = append(wide, wideLine{number, line})
		}
	}
	if strings.HasSuffix(name, ".s") {
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "//") {
				check(i + 1)
			}
		}
		return wide
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, data, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			first, last := files.Position(c.Pos()).Line, files.Position(c.End()).Line
			if directive.MatchString(c.Text) {
				continue
			}
			if !strings.HasPrefix(strings.TrimSpace(lines[first-1]), "/") {
				first++ // behind code, whose width is gofmt's and the author's
			}
			for n := first; n <= last; n++ {
				check(n)
			}
		}
	}
	return wide
}

// directive is a comment for a tool, which cannot be broken.
var directive = regexp.MustCompile(`^//(go:|nolint|lint:|line |export )`)

var (
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	htmlTag    = regexp.MustCompile(`^\s*<`)
)

func TestMarkdownIsNotTooWide(t *testing.T) {
	var found []string
	for _, name := range sources(t, ".md") {
		fenced := false
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				fenced = !fenced
			}
			code := fenced || strings.HasPrefix(line, "    ") && !strings.HasPrefix(text, "* ")
			if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "```") || htmlTag.MatchString(line) {
				continue
			}
			if plain := linkTarget.ReplaceAllString(line, "]"); tooWide(plain) {
				found = append(found, fmt.Sprintf("%s:%d: prose of %d columns, at most %d", name, i+1, width(plain), maxWidth))
			}
		}
	}
	complain(t, enforceWidth, found)
}

func TestEveryPackageHasOneComment(t *testing.T) {
	documented := map[string][]string{} // by folder, the files with a package comment
	for _, name := range sources(t, ".go") {
		data := read(t, name)
		f, err := parser.ParseFile(token.NewFileSet(), name, data, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(name)
		if _, seen := documented[dir]; !seen {
			documented[dir] = nil
		}
		if f.Doc != nil && hasText(f.Doc) {
			documented[dir] = append(documented[dir], path.Base(name))
		}
	}
	var found []string
	for dir, files := range documented {
		if len(files) != 1 {
			found = append(found, fmt.Sprintf("%s: %d files have a package comment, want one: %q", dir, len(files), files))
		}
	}
	slices.Sort(found)
	complain(t, enforcePackageComments, found)
}

// hasText reports whether a comment says something to people.
func hasText(c *ast.CommentGroup) bool { return strings.TrimSpace(c.Text()) != "" }

func TestFilesAreNotTooLong(t *testing.T) {
	var files []string
	for _, name := range sources(t, ".go") {
		data := read(t, name)
		n := bytes.Count(data, []byte("\n"))
		top, _, _ := bytes.Cut(data, []byte("\npackage "))
		if n > maxFileLines && !generated.Match(data) && !bytes.Contains(top, []byte(longFile)) {
			files = append(files, fmt.Sprintf("%s has %d lines; divide it, or say why not above the package clause: %q", name, n, longFile+" …"))
		}
	}
	complain(t, enforceFileLength, files)
}

const (
	// aws begins the import paths of the AWS SDK, and s3blob is the only package that may import
	// it.
	aws    = "github.com/aws/"
	s3blob = "lake/blob/s3blob"
)

// storePrograms open lakes at s3:// URLs, unless they are built with the tag nos3.
var storePrograms = []string{".", "serve", "worker", "starter", "frontier/frontierd"}

// TestOnlyProgramsLinkTheAWSSDK holds that a library that reads or builds a lake does not need the
// SDK: its size, its start-up time and its advisories are the programs' choice.
func TestOnlyProgramsLinkTheAWSSDK(t *testing.T) {
	var found []string
	isAWS := func(path string) bool { return strings.HasPrefix(path, aws) }
	for _, p := range list(t) {
		name := folder(p)
		switch {
		case slices.Contains(storePrograms, name) && !slices.ContainsFunc(p.Deps, isAWS):
			found = append(found, name+" does not depend on the AWS SDK: it cannot open s3:// URLs")
		case name == s3blob:
		case slices.ContainsFunc(p.Imports, isAWS):
			found = append(found, name+" imports the AWS SDK")
		case p.Name != "main" && slices.ContainsFunc(p.Deps, isAWS):
			found = append(found, fmt.Sprintf("%s depends on the AWS SDK; only programs may import %s", name, s3blob))
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-tags", "nos3")
	for _, name := range storePrograms {
		cmd.Args = append(cmd.Args, "./"+name)
	}
	cmd.Dir = testenv.Root(t)
	deps, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	if slices.ContainsFunc(strings.Fields(string(deps)), isAWS) {
		found = append(found, "a program depends on the AWS SDK although it is built with the tag nos3")
	}
	complain(t, enforceNoAWS, found)
}

var (
	soakChoice = regexp.MustCompile(`(?:SOAK='|\$\(SOAK\),)([\w|]+)[')]`)
	soakTest   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestSoakPatternsMatch holds the names that .ci/run and the Makefile give to make soak against the
// tests: go test does not mind a pattern that matches nothing.
func TestSoakPatternsMatch(t *testing.T) {
	var tests []string
	for _, name := range sources(t, "_test.go") {
		for _, m := range soakTest.FindAllStringSubmatch(string(read(t, name)), -1) {
			tests = append(tests, m[1])
		}
	}
	for _, file := range []string{".ci/run", "Makefile"} {
		lists := soakChoice.FindAllStringSubmatch(string(read(t, file)), -1)
		if len(lists) == 0 {
			t.Errorf("%s names no soak test", file)
		}
		for _, list := range lists {
			for _, pattern := range strings.Split(list[1], "|") {
				if !slices.ContainsFunc(tests, func(name string) bool { return strings.Contains(name, pattern) }) {
					t.Errorf("%s: SOAK pattern %q matches no test", file, pattern)
				}
			}
		}
	}
}
