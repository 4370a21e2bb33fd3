package main

import (
	"os"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestLevelsDecideEveryGate holds that every gate is a conjunction of flags that the levels know,
// shut at the lowest level and open at the highest: otherwise the runs of the levels would test
// less than they say.
func TestLevelsDecideEveryGate(t *testing.T) {
	t.Chdir(testenv.Root(t))
	packages, err := assembled()
	if err != nil {
		t.Fatal(err)
	}
	gates := 0
	for _, p := range packages {
		for _, g := range p.gates {
			gates++
			for i, want := range map[int]bool{0: false, len(levels) - 1: true} {
				if got, err := p.value(g.value, levels[i].has()); err != nil || got != want {
					t.Errorf("%s: %s is %t at level %s, want %t: %v", p.path, g.name, got, levels[i].name, want, err)
				}
			}
		}
	}
	if gates == 0 {
		t.Error("no package chooses by the processor's flags")
	}
}

// TestLevelsSwitchFlags starts a process at each level that this machine has and compares its
// flags.
func TestLevelsSwitchFlags(t *testing.T) {
	machine := features()
	for _, l := range levels {
		if missing := l.missing(machine); missing != nil {
			t.Logf("level %s: this processor lacks %v", l.name, missing)
			continue
		}
		if err := l.check(); err != nil {
			t.Error(err)
		}
	}
}

// TestMain lets the test binary be the process whose flags are read.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "-flags" {
		main()
		return
	}
	os.Exit(m.Run())
}
