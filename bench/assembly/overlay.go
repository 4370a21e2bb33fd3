package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// source is a package of the project with assembly.
type source struct {
	folder string // from the project's root
	dir    string
	files  []string          // Go files that are built
	asm    map[string]string // .s file by routine
}

var routineText = regexp.MustCompile(`(?m)^TEXT ·(\w+)\(SB\)`)

// sources lists the packages with assembly below the project's root.
func sources(root string) (all []source, err error) {
	cmd := exec.Command("go", "list", "-json=Dir,GoFiles,SFiles", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir             string
			GoFiles, SFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(p.SFiles) == 0 {
			continue
		}
		folder, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		s := source{folder: filepath.ToSlash(folder), dir: p.Dir, files: p.GoFiles, asm: map[string]string{}}
		for _, name := range p.SFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			for _, m := range routineText.FindAllSubmatch(text, -1) {
				s.asm[string(m[1])] = s.folder + "/" + name
			}
		}
		all = append(all, s)
	}
}

// placed is a row of the table with the package of its routines.
type placed struct {
	row
	source
}

// place finds the package of each row. A routine without a row and a row without its routines are
// errors.
func place(rows []row, all []source) (out []placed, err error) {
	missing := map[string]bool{}
	for _, s := range all {
		for r := range s.asm {
			missing[s.folder+" "+r] = true
		}
	}
	var errs []error
	for _, r := range rows {
		var homes []source
		for _, s := range all {
			if !slices.ContainsFunc(r.routines, func(name string) bool { return s.asm[name] == "" }) {
				homes = append(homes, s)
			}
		}
		if len(homes) != 1 {
			errs = append(errs, fmt.Errorf("%d packages have the routines %q, want 1: correct the table", len(homes), r.routines))
			continue
		}
		for _, name := range r.routines {
			key := homes[0].folder + " " + name
			if !missing[key] {
				errs = append(errs, fmt.Errorf("%s: %s has two rows in the table", homes[0].folder, name))
			}
			delete(missing, key)
		}
		out = append(out, placed{r, homes[0]})
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		folder, name, _ := strings.Cut(key, " ")
		errs = append(errs, fmt.Errorf("%s: %s has no row in the table", folder, name))
	}
	return out, errors.Join(errs...)
}

// overlay makes the edits in copies of the package's files, below dir, and returns the file that
// tells go build to use them.
func (s source) overlay(dir string, edits []edit) (string, error) {
	texts := map[string][]byte{}
	for _, name := range s.files {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return "", err
		}
		texts[name] = text
	}
	changed := map[string]bool{}
	for _, e := range edits {
		found := 0
		for name, text := range texts {
			out, n, err := e.apply(name, text)
			if err != nil {
				return "", err
			}
			if n > 0 {
				texts[name], changed[name] = out, true
			}
			found += n
		}
		if found == 0 {
			return "", fmt.Errorf("%s: no gate %q in %q: correct the table", s.folder, e.gate, e.in)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name := range changed {
		replacement := filepath.Join(dir, name)
		if err := os.WriteFile(replacement, texts[name], 0o666); err != nil {
			return "", err
		}
		replace[filepath.Join(s.dir, name)] = replacement
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o666)
}

// apply switches the gate off in one file and returns the new text and how often the gate was
// found.
func (e edit) apply(name string, text []byte) (out []byte, found int, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, 0)
	if err != nil {
		return nil, 0, err
	}
	type insertion struct {
		at   int
		text string
	}
	var insertions []insertion
	insert := func(at token.Pos, text string) {
		insertions = append(insertions, insertion{files.Position(at).Offset, text})
	}
	wrap := func(x ast.Expr) {
		insert(x.Pos(), "(")
		insert(x.End(), " && false)")
		found++
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if ok && e.in == "" && len(v.Names) == 1 && len(v.Values) == 1 && v.Names[0].Name == e.gate {
					wrap(v.Values[0])
				}
			}
		case *ast.FuncDecl:
			if d.Name.Name != e.in || d.Body == nil {
				continue
			}
			if e.gate == "" {
				insert(d.Body.Lbrace+1, " if true { return }; ")
				found++
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if kv, ok := n.(*ast.KeyValueExpr); ok {
					if x, ok := kv.Value.(*ast.Ident); ok && x.Name == e.gate {
						wrap(x)
					}
					return true
				}
				x, ok := n.(ast.Expr)
				if !ok || types.ExprString(x) != e.gate {
					return true
				}
				if len(insertions) == 0 || insertions[len(insertions)-1].at != files.Position(x.End()).Offset {
					wrap(x)
				}
				return false
			})
		}
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.at - b.at })
	at := 0
	for _, i := range insertions {
		out = append(append(out, text[at:i.at]...), i.text...)
		at = i.at
	}
	return append(out, text[at:]...), found, nil
}
