package main

import (
	"os/exec"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestTableFitsTheTree holds that every routine has one row and that every gate is where the row
// says; it builds each overlay's text, but no program.
func TestTableFitsTheTree(t *testing.T) {
	all, err := sources(testenv.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := place(table, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for _, edits := range [][]edit{r.off, r.unless} {
			if len(edits) == 0 {
				continue
			}
			if _, err := r.overlay(t.TempDir(), edits); err != nil {
				t.Errorf("%q: %v", r.routines, err)
			}
		}
	}
}

// TestEditsShutTheGate holds edits of each kind against what they are to make of a file.
func TestEditsShutTheGate(t *testing.T) {
	const text = `package p

var has = cpu.A && cpu.B

func (o *T) f() bool {
	if !has || o.lanes {
		return true
	}
	return T{lanes: has}.lanes
}

func ask() { g() }
`
	for _, c := range []struct {
		edit edit
		want string
	}{
		{edit{"", "has"}, `package p

var has = (cpu.A && cpu.B && false)

func (o *T) f() bool {
	if !has || o.lanes {
		return true
	}
	return T{lanes: has}.lanes
}

func ask() { g() }
`},
		{edit{"f", "has"}, `package p

var has = cpu.A && cpu.B

func (o *T) f() bool {
	if !(has && false) || o.lanes {
		return true
	}
	return T{lanes: (has && false)}.lanes
}

func ask() { g() }
`},
		{edit{"f", "o.lanes"}, `package p

var has = cpu.A && cpu.B

func (o *T) f() bool {
	if !has || (o.lanes && false) {
		return true
	}
	return T{lanes: has}.lanes
}

func ask() { g() }
`},
		{edit{in: "ask"}, `package p

var has = cpu.A && cpu.B

func (o *T) f() bool {
	if !has || o.lanes {
		return true
	}
	return T{lanes: has}.lanes
}

func ask() { if true { return };  g() }
`},
	} {
		got, found, err := c.edit.apply("p.go", []byte(text))
		if err != nil || found == 0 || string(got) != c.want {
			t.Errorf("%+v: %d found, %v:\n%s", c.edit, found, err, got)
		}
	}
}

// TestOneRoutineIsMeasured builds and runs the program with and without one routine, on few lines.
func TestOneRoutineIsMeasured(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		testenv.Missing(t, "go")
	}
	t.Chdir("..")
	if err := compareAll(t.Context(), settings{routines: "lineEndsVectors", rounds: 1, lines: 20_000, dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
}
