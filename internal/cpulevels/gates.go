package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// assembly is a package with assembly and what decides whether it runs.
type assembly struct {
	path  string
	gates []gate
}

// gate is a package's variable that follows from the flags of the processor.
type gate struct {
	name  string
	value ast.Expr
}

// assembled lists the packages with assembly, as the go command sees them, and their gates.
func assembled() ([]assembly, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,SFiles", "./...")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []assembly
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir string
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
		a := assembly{path: p.ImportPath}
		files := token.NewFileSet()
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			a.gates = append(a.gates, gatesOf(f)...)
		}
		slices.SortFunc(a.gates, func(x, y gate) int { return strings.Compare(x.name, y.name) })
		all = append(all, a)
	}
}

// gatesOf are the variables of a file that have a flag of cpu.X86 in their value, or are a
// conjunction of names.
func gatesOf(f *ast.File) (gates []gate) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if len(v.Names) != 1 || len(v.Values) != 1 {
				continue
			}
			asks := false
			ast.Inspect(v.Values[0], func(n ast.Node) bool {
				_, ok := flagOf(n)
				asks = asks || ok
				return !asks
			})
			if asks {
				gates = append(gates, gate{v.Names[0].Name, v.Values[0]})
			}
		}
	}
	return gates
}

// flagOf is the name of the flag that an expression reads from cpu.X86.
func flagOf(n ast.Node) (string, bool) {
	flag, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x86, ok := flag.X.(*ast.SelectorExpr)
	if !ok || x86.Sel.Name != "X86" {
		return "", false
	}
	pkg, ok := x86.X.(*ast.Ident)
	return flag.Sel.Name, ok && pkg.Name == "cpu"
}

// value computes a gate from flags. An expression that is no conjunction of flags and gates is an
// error: then a level would not decide it.
func (a assembly) value(e ast.Expr, set map[string]bool) (bool, error) {
	if flag, ok := flagOf(e); ok {
		known := slices.ContainsFunc(levels, func(l level) bool { return slices.Contains(l.adds, flag) })
		if !known {
			return false, fmt.Errorf("%s asks for cpu.X86.%s, which is in no level: add it to the table", a.path, flag)
		}
		return set[flag], nil
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op != token.LAND {
			break
		}
		x, err := a.value(e.X, set)
		if err != nil {
			return false, err
		}
		y, err := a.value(e.Y, set)
		return x && y, err
	case *ast.ParenExpr:
		return a.value(e.X, set)
	case *ast.Ident:
		for _, g := range a.gates {
			if g.name == e.Name {
				return a.value(g.value, set)
			}
		}
	}
	return false, fmt.Errorf("%s: a gate is to be a conjunction of flags of cpu.X86 and of other gates", a.path)
}

// choices says which gates are open with these flags.
func (a assembly) choices(set map[string]bool) string {
	var out []string
	for _, g := range a.gates {
		open, err := a.value(g.value, set)
		switch {
		case err != nil:
			out = append(out, g.name+"="+err.Error())
		case open:
			out = append(out, g.name+"=on")
		default:
			out = append(out, g.name+"=off")
		}
	}
	return strings.Join(out, " ")
}
