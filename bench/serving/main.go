// Serving measures the read server beside three other ways to answer its two queries over HTTP, on
// one lake of generated lists, all in one run on one machine: DuckDB over the lake's Parquet files,
// DuckDB's own tables with an index, and SQLite's. The other three are behind one plain net/http
// handler; each contestant is a process of its own. Before anything is measured, the answers to
// some hundred lookups and pages are compared. Settings are environment variables:
//
//	BENCH_ROWS     lines of the lists; 5 million
//	BENCH_LISTS    number of lists, which are datasets; 32
//	BENCH_ROUNDS   how often each contestant is measured, in turns; 3
//	BENCH_SECONDS  how long each kind of request is sent in a round; 5
//	BENCH_CLIENTS  connections that send lookups at once; 16
//	BENCH_PAUSE    milliseconds that each of them pauses before a request, with wrk; 0
//	BENCH_DIR      folder for the lake and the databases; the system's temporary folder
//
// "go run -C bench ./serving memory" measures the memory of the read server alone instead, during a
// mixed load of BENCH_RATE requests a second, 500, for BENCH_MINUTES, 60.
//
// The client shares the processors with the server. Lookups are sent by wrk (Debian: wrk) if the
// machine has it, else by a client in Go, which leaves less of the processors to the server. It
// needs Linux's /proc.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/bench/steps"
)

// roles are what a child process can do. It prints a line of JSON: its result, or its address.
var roles = map[string]func(ctx context.Context, args []string) error{
	"build":  func(ctx context.Context, args []string) error { return build(ctx, args[0]) },
	"tables": func(ctx context.Context, args []string) error { return loadTables(ctx, args[0]) },
	"memory": func(ctx context.Context, _ []string) error { return memory(ctx) },
	"serve":  func(ctx context.Context, args []string) error { return serveSQL(ctx, args[0], args[1]) },
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "serving:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		role, ok := roles[args[0]]
		if !ok {
			return errors.New("unknown argument; settings are environment variables such as BENCH_ROWS=1000000")
		}
		return role(ctx, args[1:])
	}
	return compare(ctx)
}

// setting returns a number of the environment.
func setting(name string, def int64) int64 {
	if v, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil && v > 0 {
		return v
	}
	return def
}

// lists is the corpus of a run.
func lists() (*corpus.Corpus, error) {
	rows := setting("BENCH_ROWS", 5_000_000)
	return corpus.New(corpus.Options{Seed: 1, Rows: rows, Datasets: int(min(setting("BENCH_LISTS", 32), rows))})
}

// child runs a role in a process of its own, so that its memory is given back.
func child(ctx context.Context, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// built is what the build of a lake reports, in the file built.json beside it.
type built struct {
	Rows    int64 `json:"rows"`
	Domains int64 `json:"domains"`
	Pairs   int64 `json:"pairs"`
}

// build makes the lake of a folder.
func build(ctx context.Context, dir string) error {
	c, err := lists()
	if err != nil {
		return err
	}
	texts := filepath.Join(dir, "lists")
	if _, err := c.WriteDir(texts, steps.Slots); err != nil {
		return err
	}
	b, err := steps.New(ctx, filepath.Join(dir, "lake"))
	if err != nil {
		return err
	}
	var out built
	if out.Rows, _, err = b.Lists(ctx, texts); err != nil {
		return err
	}
	report, err := b.Publish(ctx)
	if err != nil {
		return err
	}
	out.Domains, out.Pairs = report.Domains, report.Entries
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "built.json"), data, 0o666), os.RemoveAll(texts))
}

// contestants are the ways to answer, in the order of the table.
var contestants = []struct{ name, title string }{
	{"urlake", "urlake"},
	{"sqlite", "SQLite, indexed tables"},
	{"duckdb", "DuckDB, indexed tables"},
	{"parquet", "DuckDB over the Parquet"},
}

func compare(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "urlake-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := child(ctx, "build", dir); err != nil {
		return fmt.Errorf("build the lake: %w", err)
	}
	var lake built
	data, err := os.ReadFile(filepath.Join(dir, "built.json"))
	if err == nil {
		err = json.Unmarshal(data, &lake)
	}
	if err != nil {
		return err
	}
	started := time.Now()
	if err := child(ctx, "tables", dir); err != nil {
		return fmt.Errorf("load the tables: %w", err)
	}
	fmt.Printf("Serving %d rows in %d datasets, %d domains, %d pairs of domain and dataset; tables of the others loaded in %.0f s\n",
		lake.Rows, setting("BENCH_LISTS", 32), lake.Domains, lake.Pairs, time.Since(started).Seconds())
	program, err := buildServe(ctx, dir)
	if err != nil {
		return err
	}
	work, err := newWorkload()
	if err != nil {
		return err
	}
	rounds := int(setting("BENCH_ROUNDS", 3))
	all := make(map[string][]*figures)
	for round := range rounds {
		var first *answers
		for i := range contestants {
			// Each round begins with another contestant.
			name := contestants[(i+round)%len(contestants)].name
			f, got, err := measure(ctx, name, program, dir, work, first)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			first = got
			all[name] = append(all[name], f)
		}
	}
	fmt.Printf("%d rounds of %s a kind of request, %d connections for lookups by %s, one for pages; medians of rounds; µs at the client; load average %s\n\n",
		rounds, seconds(), connections(), lookupClient(), loadAverage())
	fmt.Printf("%-26s %11s %7s %7s %8s %10s %9s %9s %9s\n", "", "lookups/s", "p50", "p95", "p99", "pages/s", "page p50", "p95", "RSS, MB")
	for _, c := range contestants {
		of := func(get func(*figures) float64) float64 { return medianOf(all[c.name], get) }
		fmt.Printf("%-26s %11.0f %7.0f %7.0f %8.0f %10.0f %9.0f %9.0f %9.0f\n", c.title,
			of(func(f *figures) float64 { return f.LookupRate }), of(func(f *figures) float64 { return f.Lookup.P50 }),
			of(func(f *figures) float64 { return f.Lookup.P95 }), of(func(f *figures) float64 { return f.Lookup.P99 }),
			of(func(f *figures) float64 { return f.PageRate }), of(func(f *figures) float64 { return f.Page.P50 }),
			of(func(f *figures) float64 { return f.Page.P95 }), of(func(f *figures) float64 { return float64(f.Resident) / 1e6 }))
	}
	return nil
}

// medianOf is the median of a figure over rounds.
func medianOf(runs []*figures, get func(*figures) float64) float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		v[i] = get(r)
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
