package ingest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// selection decides by their names which of the files below the inputs are read, and counts those
// that are not. It is not safe for concurrent use.
type selection struct {
	include, exclude []namePattern
	// hidden counts files skipped because of a name's first letter, unwanted those that include and
	// exclude leave out, special what is neither a file nor a folder.
	hidden, unwanted, special leftOut
}

// newSelection returns the selection by globs of package path, and ** for any number of folders, as
// the fields Include and Exclude of Spec describe them. The error is an *InputError that names a
// glob that is none.
func newSelection(include, exclude []string) (*selection, error) {
	s := new(selection)
	for _, l := range []struct {
		name string
		from []string
		to   *[]namePattern
	}{{"include", include, &s.include}, {"exclude", exclude, &s.exclude}} {
		for _, text := range l.from {
			p, err := newNamePattern(text)
			if err != nil {
				err = fmt.Errorf("%s %q: %w", l.name, text, err)
				return nil, &InputError{Reason: err.Error(), Err: err}
			}
			*l.to = append(*l.to, p)
		}
	}
	return s, nil
}

// hidden reports whether a name is one that data tools keep beside the data: markers, checksums,
// editors' files.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// below reports whether a file or folder below an input is read, and counts it if not. names is the
// path to it from the input; root is the input's URL with a slash at its end.
func (s *selection) below(root string, names []string, folder bool) bool {
	for i, name := range names {
		if hidden(name) && !slices.ContainsFunc(s.include, func(p namePattern) bool { return p.hasName(name) }) {
			s.hidden.add(root + strings.Join(names[:i+1], "/"))
			return false
		}
	}
	return s.wants(root, names, folder)
}

// wants is below for files that the inputs name themselves: names is then the file's name alone,
// and it is never hidden.
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

// notes tell the user which files are not read.
func (s *selection) notes() []string {
	var notes []string
	if s.hidden.n > 0 {
		notes = append(notes, fmt.Sprintf(
			"not read because of names that begin with . or _ (--include reads those it names): %s", &s.hidden))
	}
	if s.unwanted.n > 0 {
		notes = append(notes, fmt.Sprintf("not read because of --include and --exclude: %s", &s.unwanted))
	}
	if s.special.n > 0 {
		notes = append(notes, fmt.Sprintf("not read because they are neither files nor folders: %s", &s.special))
	}
	return notes
}

// addSpecial counts a pipe, socket or device below an input, which is not read.
func (s *selection) addSpecial(name string) { s.special.add(name) }

// leftOut counts files that are not read. A folder that is skipped as a whole counts once.
type leftOut struct {
	n           int
	first, last string
}

// add counts a name. Equal names are added one after another.
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

// namePattern is a glob of include or exclude.
type namePattern struct {
	// elements are globs of package path, one for each name of the path; ** matches any number of
	// names.
	elements []string
	// anywhere is set for a pattern of one element that may match at any level.
	anywhere bool
}

func newNamePattern(text string) (namePattern, error) {
	p := namePattern{elements: strings.Split(strings.Trim(text, "/"), "/")}
	p.anywhere = !strings.Contains(strings.TrimSuffix(text, "/"), "/")
	for _, e := range p.elements {
		switch e {
		case "":
			return p, errors.New("an empty name")
		case ".", "..":
			return p, errors.New("want no . and no ..: patterns are matched against the path below the input")
		}
		if _, err := path.Match(e, ""); err != nil {
			return p, errors.New("not a glob")
		}
	}
	return p, nil
}

func matchesAny(patterns []namePattern, names []string) bool {
	return slices.ContainsFunc(patterns, func(p namePattern) bool { return p.match(names) })
}

// match reports whether p matches a path, or a folder on it.
func (p namePattern) match(names []string) bool {
	if p.anywhere {
		return slices.ContainsFunc(names, func(n string) bool {
			return p.elements[0] == "**" || matchName(p.elements[0], n)
		})
	}
	i, j := 0, 0
	// star is the index of the last **, taken the number of names up to the end of its match. Only
	// the last ** has to be tried with more names.
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

// hasName reports whether an element of p matches this hidden name. As in a shell, the element has
// to begin with the same letter.
func (p namePattern) hasName(name string) bool {
	return slices.ContainsFunc(p.elements, func(e string) bool { return e[0] == name[0] && matchName(e, name) })
}

func matchName(glob, name string) bool {
	ok, _ := path.Match(glob, name)
	return ok
}
