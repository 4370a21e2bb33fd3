// Assembly measures what each assembly routine of the project saves by itself, and prints a table
// in Markdown for docs/assembly.md.
//
//	go run ./assembly [-routines addVectors,lineEndsVectors] [-rounds 9] [-lines 2000000]
//	    [-together] [-dir /tmp]
//
// For each routine it builds itself once more with go build -overlay, which replaces the Go file
// that calls the routine by one in which the routine's gate is shut: production code knows nothing
// of it. Then it runs that program and the unchanged one in turns on the same generated lists. A
// figure relates the user CPU without the routine to that with it: 1.050 says that the operation
// takes 5 % more without. The first is the median over all pairs, then, in parentheses, come the
// range of the pairs and the relation of the least of all runs, which another program's load
// disturbs least. An operation that does not use the routine shows the noise. On a machine that
// others use too, -together runs both programs of a pair at once, so that both meet the same load.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/bench/steps"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "assembly:", err)
		os.Exit(1)
	}
}

// settings are the program's flags.
type settings struct {
	routines string
	rounds   int
	lines    int64
	together bool
	dir      string
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == "measure" {
		took, err := measureRole(ctx, os.Args[2:])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(took)
	}
	var set settings
	flag.StringVar(&set.routines, "routines", "", "comma-separated routines to measure; all by default")
	flag.IntVar(&set.rounds, "rounds", 9, "pairs of runs for each routine")
	flag.Int64Var(&set.lines, "lines", 2_000_000, "lines of all lists together")
	flag.BoolVar(&set.together, "together", false, "run both programs of a pair at once instead of in turns")
	flag.StringVar(&set.dir, "dir", "", "folder for lists, programs and lakes; the system's temporary folder by default")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; routines are given as -routines %s", flag.Arg(0), flag.Arg(0))
	}
	return compareAll(ctx, set)
}

// compareAll measures the chosen rows of the table and prints them.
func compareAll(ctx context.Context, set settings) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/urlake/urlake").Output()
	if err != nil {
		return fmt.Errorf("find the project (run this in its folder bench): %w", err)
	}
	all, err := sources(strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	rows, err := place(table, all)
	if err != nil {
		return err
	}
	rows, err = choose(rows, set.routines)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(set.dir, "urlake-assembly-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{settings: set, dir: dir, programs: map[string]string{}}
	c, err := corpus.New(options(set.lines))
	if err != nil {
		return err
	}
	if _, err := c.WriteDir(filepath.Join(dir, "lists"), steps.Slots); err != nil {
		return err
	}
	fmt.Printf("%d lines in %d lists, %d rounds. User CPU without the routine : with it; median (range; least).\n\n", set.lines, lists, set.rounds)
	fmt.Printf("| routine | file | without it | %s | fuzz target |\n", strings.Join(operations, " | "))
	fmt.Printf("| --- | --- | --- |%s --- |\n", strings.Repeat(" ---: |", len(operations)))
	for i, r := range rows {
		figures, err := b.compare(ctx, i, r)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(r.routines, ", "), err)
		}
		for k, name := range r.routines {
			cells, instead := figures, r.instead
			if k > 0 {
				cells, instead = slices.Repeat([]string{""}, len(operations)), "with "+r.routines[0]
			}
			fmt.Printf("| `%s` | `%s` | %s | %s | `%s` |\n", name, r.asm[name], instead, strings.Join(cells, " | "), r.fuzz)
		}
	}
	return nil
}

// choose returns the rows that have one of the routines named, or all.
func choose(rows []placed, routines string) (chosen []placed, err error) {
	if routines == "" {
		return rows, nil
	}
	for _, name := range strings.Split(routines, ",") {
		known := false
		for _, r := range rows {
			if slices.Contains(r.routines, name) {
				chosen, known = append(chosen, r), true
			}
		}
		if !known {
			return nil, fmt.Errorf("unknown routine %q; they are the TEXT symbols of the .s files", name)
		}
	}
	return chosen, nil
}

// bench builds and runs programs.
type bench struct {
	settings
	dir      string
	programs map[string]string // by package and edits
}

// program builds this program with edits and returns its file. One that is built is not built
// again.
func (b *bench) program(ctx context.Context, s source, edits []edit) (string, error) {
	key := fmt.Sprint(s.folder, edits)
	if len(edits) == 0 {
		key = ""
	}
	if file := b.programs[key]; file != "" {
		return file, nil
	}
	work := filepath.Join(b.dir, "program"+strconv.Itoa(len(b.programs)))
	if err := os.MkdirAll(work, 0o777); err != nil {
		return "", err
	}
	file := filepath.Join(work, "assembly")
	args := []string{"build", "-o", file}
	if len(edits) > 0 {
		overlay, err := s.overlay(filepath.Join(work, "overlay"), edits)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./assembly")...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build with %v shut: %w", edits, err)
	}
	b.programs[key] = file
	return file, nil
}

// compare runs the program with the row's routines and without them, in pairs, and returns a figure
// for each operation.
func (b *bench) compare(ctx context.Context, number int, r placed) ([]string, error) {
	with, err := b.program(ctx, r.source, r.unless)
	if err != nil {
		return nil, err
	}
	without, err := b.program(ctx, r.source, slices.Concat(r.unless, r.off))
	if err != nil {
		return nil, err
	}
	ratios, runs := map[string][]float64{}, map[string][2][]float64{}
	for round := range b.rounds {
		var took [2]map[string]float64
		g, gctx := errgroup.WithContext(ctx)
		if !b.together {
			g.SetLimit(1)
		}
		// The order alternates, as the first run warms caches and cores for the second.
		for i := range took {
			k := (i + round + number) % 2
			g.Go(func() (err error) {
				took[k], err = b.once(gctx, []string{with, without}[k], filepath.Join(b.dir, "run"+strconv.Itoa(k)))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		for _, op := range operations {
			ratios[op] = append(ratios[op], took[1][op]/took[0][op])
			runs[op] = [2][]float64{append(runs[op][0], took[0][op]), append(runs[op][1], took[1][op])}
		}
	}
	var cells []string
	for _, op := range operations {
		v := slices.Sorted(slices.Values(ratios[op]))
		median := (v[(len(v)-1)/2] + v[len(v)/2]) / 2
		least := slices.Min(runs[op][1]) / slices.Min(runs[op][0])
		cells = append(cells, fmt.Sprintf("%.3f (%.2f–%.2f; %.3f)", median, v[0], v[len(v)-1], least))
	}
	return cells, nil
}

// once runs a program on the lists, with a lake in the folder lake, and returns its user CPU
// seconds by operation.
func (b *bench) once(ctx context.Context, program, lake string) (took map[string]float64, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(lake)) }()
	if err := os.MkdirAll(lake, 0o777); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "measure", filepath.Join(b.dir, "lists"), strconv.FormatInt(b.lines, 10), lake)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	err = json.Unmarshal(stdout.Bytes(), &took)
	return took, err
}
