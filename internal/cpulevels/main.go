// Command cpulevels runs the tests of every package with assembly once for each instruction set
// level that its code can choose. One machine so proves plain Go, AVX2 and AVX-512, as far as it
// has them; a level that it lacks is named in the output and not run.
//
//	go run ./internal/cpulevels [-list] [test flags]
//
// A level is made by GODEBUG=cpu.…=off, which golang.org/x/sys/cpu reads when the test binary
// starts. The program checks in a process of its own that these switches work, and from the sources
// that each package chooses by the flags of golang.org/x/sys/cpu alone, so that a level decides
// every choice.
//
// A package is tested once for each set of choices. Those of the machine's own level, its highest,
// are left to `make test`.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

func main() {
	list := flag.Bool("list", false, "print the levels and what they choose; run no tests")
	flags := flag.Bool("flags", false, "print the processor's flags as JSON, for the program itself")
	flag.Parse()
	var err error
	if *flags {
		err = json.NewEncoder(os.Stdout).Encode(features())
	} else {
		err = run(*list, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cpulevels:", err)
		os.Exit(1)
	}
}

// features are the flags of golang.org/x/sys/cpu that are set in this process.
func features() map[string]bool {
	set := map[string]bool{}
	x86 := reflect.ValueOf(cpu.X86)
	for i := range x86.NumField() {
		if f := x86.Type().Field(i); f.Type.Kind() == reflect.Bool && x86.Field(i).Bool() {
			set[f.Name] = true
		}
	}
	return set
}

// run prints what each level chooses and tests all but the highest.
func run(list bool, testFlags []string) error {
	packages, err := assembled()
	if err != nil {
		return err
	}
	machine := features()
	highest := len(levels) - 1
	for levels[highest].missing(machine) != nil {
		highest--
	}
	var report []string
	ranAt := map[string]string{} // by package and choices, the level
	for _, p := range packages {
		ranAt[p.path+p.choices(levels[highest].has())] = levels[highest].name
	}
	for i, l := range levels {
		if missing := l.missing(machine); missing != nil {
			report = append(report, fmt.Sprintf("%-12s NOT RUN: this processor lacks %s", l.name, strings.Join(missing, ", ")))
			continue
		}
		if err := l.check(); err != nil {
			return err
		}
		fmt.Printf("== CPU level %s: GODEBUG=%s\n", l.name, l.godebug())
		var paths []string
		for _, p := range packages {
			if len(p.gates) == 0 {
				continue // its assembly runs at every level
			}
			choices := p.choices(l.has())
			level, ran := ranAt[p.path+choices]
			if !ran {
				paths = append(paths, p.path)
				ranAt[p.path+choices] = l.name
				level = l.name
			}
			fmt.Printf("   %s: %s (tested at level %s)\n", p.path, choices, level)
		}
		if i == highest {
			report = append(report, fmt.Sprintf("%-12s the machine's own level, which make test runs", l.name))
			continue
		}
		report = append(report, fmt.Sprintf("%-12s tested in %d packages: %s", l.name, len(paths), strings.Join(paths, " ")))
		if list || len(paths) == 0 {
			continue
		}
		cmd := exec.Command("go", slices.Concat([]string{"test", "-count=1", "-exec", "env GODEBUG=" + l.godebug()}, testFlags, paths)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("CPU level %s: %w", l.name, err)
		}
	}
	for _, line := range report {
		fmt.Println("CPU level", line)
	}
	return nil
}
