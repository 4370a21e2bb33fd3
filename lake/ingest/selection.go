package ingest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// selection says which of the files below inputs are read, and counts what is not. It is for one goroutine.
type selection struct {
	include, exclude []pattern
	// hidden counts what is skipped because of a name's first letter, unwanted what include and exclude leave out.
	hidden, unwanted leftOut
}

func newSelection(include, exclude []string) (*selection, error) {
	s := new(selection)
	for _, l := range []struct {
		name string
		from []string
		to   *[]pattern
	}{{"include", include, &s.include}, {"exclude", exclude, &s.exclude}} {
		for _, text := range l.from {
			p, err := newPattern(text)
			if err != nil {
				return nil, &InputError{Reason: fmt.Sprintf("%s %q: %v", l.name, text, err), Err: err}
			}
			*l.to = append(*l.to, p)
		}
	}
	return s, nil
}

// hidden tells names that data tools keep beside data: markers, checksums, editors' files.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// below says whether a file or folder is read that lies below an input, by the names that lead to it, and counts it
// where not. Root is the input's URL with a slash behind it.
func (s *selection) below(root string, names []string, folder bool) bool {
	for i, name := range names {
		if hidden(name) && !slices.ContainsFunc(s.include, func(p pattern) bool { return p.hasName(name) }) {
			s.hidden.add(root + strings.Join(names[:i+1], "/"))
			return false
		}
	}
	return s.wants(root, names, folder)
}

// wants is below for the files that the inputs name themselves, which are never hidden: of these there is the last name alone.
func (s *selection) wants(root string, names []string, folder bool) bool {
	for i := range names {
		if matchesAny(s.exclude, names[:i+1]) {
			s.unwanted.add(root + strings.Join(names[:i+1], "/"))
			return false
		}
	}
	if !folder && len(s.include) > 0 && !matchesAny(s.include, names) {
		s.unwanted.add(root + strings.Join(names, "/"))
		return false
	}
	return true
}

// notes tell a person what is not read.
func (s *selection) notes() []string {
	var notes []string
	if s.hidden.n > 0 {
		notes = append(notes, fmt.Sprintf("not read because of names that begin with . or _ (--include takes those it names): %s", &s.hidden))
	}
	if s.unwanted.n > 0 {
		notes = append(notes, fmt.Sprintf("not read because of --include and --exclude: %s", &s.unwanted))
	}
	return notes
}

// leftOut counts files that are not read. A folder of which nothing is read is one.
type leftOut struct {
	n           int
	first, last string
}

// add counts a name. The files below one name come one after another.
func (l *leftOut) add(name string) {
	if l.n > 0 && name == l.last {
		return
	}
	l.n++
	l.last = name
	if l.n == 1 || name < l.first {
		l.first = name
	}
}

func (l *leftOut) String() string {
	if l.n == 1 {
		return l.first
	}
	return fmt.Sprintf("%s and %d more", l.first, l.n-1)
}

// pattern is a glob of [Spec].Include and Exclude.
type pattern struct {
	// elements are globs of package path, one a name; ** stands for any number of names.
	elements []string
	// anywhere: the one element may match at any level.
	anywhere bool
}

func newPattern(text string) (pattern, error) {
	p := pattern{elements: strings.Split(strings.Trim(text, "/"), "/")}
	p.anywhere = !strings.Contains(strings.TrimSuffix(text, "/"), "/")
	for _, e := range p.elements {
		switch e {
		case "":
			return p, errors.New("an empty name")
		case ".", "..":
			return p, errors.New("patterns are matched against the path below the input, which has no . and no ..")
		}
		if _, err := path.Match(e, ""); err != nil {
			return p, errors.New("not a glob")
		}
	}
	return p, nil
}

func matchesAny(patterns []pattern, names []string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.match(names) })
}

// match says whether p matches a path, or a folder on it.
func (p pattern) match(names []string) bool {
	if p.anywhere {
		return slices.ContainsFunc(names, func(n string) bool { return p.elements[0] == "**" || matchName(p.elements[0], n) })
	}
	i, j := 0, 0
	// Where the last ** stands and what it has taken: as the pattern may end above the path, no other has to be tried again.
	star, taken := -1, 0
	for i < len(p.elements) {
		switch {
		case p.elements[i] == "**":
			star, taken = i, j
			i++
		case j < len(names) && matchName(p.elements[i], names[j]):
			i++
			j++
		case star >= 0 && taken < len(names):
			taken++
			i, j = star+1, taken
		default:
			return false
		}
	}
	return true
}

// hasName says whether p has this hidden name: as in a shell, only what begins with the same letter.
func (p pattern) hasName(name string) bool {
	return slices.ContainsFunc(p.elements, func(e string) bool { return e[0] == name[0] && matchName(e, name) })
}

func matchName(glob, name string) bool {
	ok, _ := path.Match(glob, name)
	return ok
}
