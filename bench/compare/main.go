// Compare measures urlake beside DuckDB and against its own targets, on generated lists, all in one
// run on one machine. It prints tables, which docs/performance.md explains. Its settings are
// environment variables; a number of lines or keys that is 0 leaves the measurement out:
//
//	BENCH_ROWS         lines that urlake and DuckDB ingest; 20 million
//	BENCH_LIST_ROWS    lines of one list that both ingest by itself; 2.5 million
//	BENCH_TINY_LISTS   lists of ten lines that are ingested by one command; 10,000
//	BENCH_ROUNDS       how often each of the two ingests, in turns; 2
//	BENCH_KEYS         keys of the largest perfect hash; 10 million
//	BENCH_GROWTH       lines of the largest lake whose growth, publishes and segments are measured: lakes of
//	                   1 million, 10 million and so on up to it; 10 million
//	BENCH_WORKER_ROWS  lines that one worker process ingests, and then two; 2 million
//	BENCH_SERVE_MEMORY --memory-limit of serve, in MiB
//	BENCH_SERVE_ROWS   lines of the lake that is served; 5 million
//	BENCH_SERVE_LISTS  datasets of the lake that is served; 32
//	BENCH_DIR          folder for lists, runs and lakes, up to some 200 bytes a line; the system's temporary
//	                   folder
//	BENCH_PROFILE      file for a CPU profile of urlake's last ingest; none
//
// Each contestant runs in a process of its own, so that its peak memory is its own. The program
// needs Linux's /proc.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urlake/urlake/bench/steps"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// roles are what a child process can do. It prints its result as JSON.
var roles = map[string]func(ctx context.Context, args []string) (any, error){
	"ingest": func(ctx context.Context, args []string) (any, error) {
		if profile := args[2]; profile != "" {
			f, err := os.Create(profile)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return nil, err
			}
			defer pprof.StopCPUProfile()
		}
		out, err := build(ctx, args[0], args[1])
		if err == nil {
			out.Peak, out.CPU, err = used()
		}
		return out, err
	},
	"duckdb": func(ctx context.Context, args []string) (any, error) {
		out, err := duckCopy(ctx, args[0])
		if err == nil {
			out.Peak, out.CPU, err = used()
		}
		return out, err
	},
	"duckdb columns": func(ctx context.Context, args []string) (any, error) {
		return new(copied), duckCopyColumns(ctx, args[0], args[1])
	},
	"hash": func(ctx context.Context, args []string) (any, error) {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return nil, err
		}
		return measureHash(ctx, n, args[1])
	},
	"lists": func(ctx context.Context, args []string) (any, error) {
		rows, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return nil, err
		}
		datasets, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, err
		}
		return writeLists(rows, datasets, args[2])
	},
	"add":      func(ctx context.Context, args []string) (any, error) { return add(ctx, args[0], args[1:]) },
	"segments": func(ctx context.Context, args []string) (any, error) { return mergeSegments(ctx, args[0]) },
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 {
		role, ok := roles[os.Args[1]]
		if !ok {
			return errors.New("unknown argument; settings are environment variables such as BENCH_ROWS=1000000")
		}
		out, err := role(ctx, os.Args[2:])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	setting := map[string]int64{
		"BENCH_ROWS": 2e7, "BENCH_LIST_ROWS": 2.5e6, "BENCH_TINY_LISTS": 1e4, "BENCH_ROUNDS": 2, "BENCH_KEYS": 1e7, "BENCH_GROWTH": 1e7, "BENCH_WORKER_ROWS": 2e6,
		"BENCH_SERVE_ROWS": 5e6, "BENCH_SERVE_LISTS": usualLists,
	}
	for name := range setting {
		if v := os.Getenv(name); v != "" {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("%s=%q: want a whole number, 0 or more", name, v)
			}
			setting[name] = n
		}
	}
	root, err := projectRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "urlake-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	started := time.Now()
	fmt.Printf("machine: %s\n", machine())
	rounds := int(max(setting["BENCH_ROUNDS"], 1))
	if rows := setting["BENCH_ROWS"]; rows > 0 {
		if err := compare(ctx, root, rows, rounds, filepath.Join(dir, "ingest")); err != nil {
			return err
		}
	}
	if rows := setting["BENCH_LIST_ROWS"]; rows > 0 {
		if err := oneList(ctx, root, rows, rounds, filepath.Join(dir, "list")); err != nil {
			return err
		}
	}
	if n := setting["BENCH_TINY_LISTS"]; n > 0 {
		if err := tinyLists(ctx, root, n, filepath.Join(dir, "tiny")); err != nil {
			return err
		}
	}
	if most := setting["BENCH_KEYS"]; most > 0 {
		if err := hashes(ctx, most, dir); err != nil {
			return err
		}
	}
	if most := setting["BENCH_GROWTH"]; most > 0 {
		if err := growth(ctx, most, filepath.Join(dir, "growth")); err != nil {
			return err
		}
	}
	if rows := setting["BENCH_WORKER_ROWS"]; rows > 0 {
		if err := workers(ctx, root, rows, filepath.Join(dir, "workers")); err != nil {
			return err
		}
	}
	if rows := setting["BENCH_SERVE_ROWS"]; rows > 0 {
		if err := serving(ctx, root, rows, int(max(setting["BENCH_SERVE_LISTS"], 1)), filepath.Join(dir, "serve")); err != nil {
			return err
		}
	}
	fmt.Printf("\ntotal %s; load average at the end %s\n", time.Since(started).Round(time.Second), loadAverage())
	return nil
}

// child runs a role in a process of its own and decodes the role's result into out.
func child(ctx context.Context, out any, role string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{role}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	return json.Unmarshal(stdout.Bytes(), out)
}

// compare ingests the same lists in turns: through urlake's front door, with its steps alone, and
// with DuckDB.
func compare(ctx context.Context, root string, rows int64, rounds int, dir string) error {
	lists, lakeDir, out := filepath.Join(dir, "lists"), filepath.Join(dir, "lake"), filepath.Join(dir, "lists", "out")
	frontDir := filepath.Join(dir, "front-lake")
	defer os.RemoveAll(dir)
	var bytes int64
	if err := child(ctx, &bytes, "lists", strconv.FormatInt(rows, 10), strconv.Itoa(usualLists), lists); err != nil {
		return err
	}
	fmt.Printf("\nIngest: %d lines, %.1f MB in %d lists, %d rounds, two threads each\n", rows, float64(bytes)/1e6, options(rows, usualLists).Datasets, rounds)
	door, err := openFront(ctx, root, filepath.Join(dir, "front"))
	if err != nil {
		return err
	}
	if door == nil {
		fmt.Println("  without the front door: needs bin/temporal (make tools)")
	} else {
		defer door.stop()
	}
	all, err := filepath.Glob(filepath.Join(lists, "*.txt"))
	if err != nil {
		return err
	}
	var ours []built
	var theirs []copied
	var through []entered
	var frontRows int64
	ingestThrough := func(int) error {
		if door == nil {
			return nil
		}
		e, err := door.ingest(ctx, frontDir, append([]string{"--datasets-from", "files"}, all...)...)
		if err != nil {
			return err
		}
		if _, frontRows, _, err = columnBytes(filepath.Join(frontDir, "urls")); err != nil {
			return err
		}
		through = append(through, e)
		fmt.Printf("  front door %.1f s (CPU: worker %.1f s, Temporal %.1f, starter %.1f)\n", e.Seconds, e.Worker, e.Temporal, e.Starter)
		return os.RemoveAll(frontDir)
	}
	ingestAlone := func(round int) error {
		profile := ""
		if round == rounds-1 {
			profile = os.Getenv("BENCH_PROFILE")
		}
		var a built
		if err := child(ctx, &a, "ingest", lists, lakeDir, profile); err != nil {
			return err
		}
		ours = append(ours, a)
		fmt.Printf("  steps alone %.1f s (%.1f s CPU)\n", a.Seconds, a.CPU)
		return nil
	}
	copyAll := func(int) error {
		var b copied
		if err := child(ctx, &b, "duckdb", lists); err != nil {
			return err
		}
		theirs = append(theirs, b)
		fmt.Printf("  DuckDB %s %.1f s (%.1f s CPU)\n", b.Version, b.Seconds, b.CPU)
		return nil
	}
	turns := []func(round int) error{ingestThrough, ingestAlone, copyAll}
	for round := range rounds {
		fmt.Printf("  round %d, load average %s\n", round+1, loadAverage())
		if err := errors.Join(os.RemoveAll(lakeDir), os.RemoveAll(out)); err != nil {
			return err
		}
		// Nobody pays for removing the last round's files or for flushing another's, and in a later
		// round another goes first: memory that a large process has just freed is slow at first.
		for i := range turns {
			syscall.Sync()
			if err := turns[(round+i)%len(turns)](round); err != nil {
				return err
			}
		}
	}
	last := ours[len(ours)-1]
	us := medianOf(ours, func(b built) float64 { return b.Seconds })
	them := medianOf(theirs, func(c copied) float64 { return c.Seconds })
	cpuUs := medianOf(ours, func(b built) float64 { return b.CPU })
	cpuThem := medianOf(theirs, func(c copied) float64 { return c.CPU })
	memUs := medianOf(ours, func(b built) float64 { return float64(b.Peak) })
	memThem := medianOf(theirs, func(c copied) float64 { return float64(c.Peak) })

	columns, parquetRows, parquetBytes, err := columnBytes(filepath.Join(lakeDir, "urls"))
	if err != nil {
		return err
	}
	duckColumns, duckRows, duckBytes, err := columnBytes(out)
	if err != nil {
		return err
	}
	if duckRows != rows || parquetRows != last.Rows || last.Rows+last.Merged != rows {
		return fmt.Errorf("of %d lines DuckDB wrote %d rows, urlake %d and merged %d", rows, duckRows, parquetRows, last.Merged)
	}
	index, indexTotal, err := indexBytes(filepath.Join(lakeDir, "index", "segments"))
	if err != nil {
		return err
	}
	n := float64(rows)
	if door != nil {
		if frontRows != last.Rows {
			return fmt.Errorf("%d rows through the front door, %d by the steps alone", frontRows, last.Rows)
		}
		seconds := medianOf(through, func(e entered) float64 { return e.Seconds })
		cpu := medianOf(through, entered.cpu)
		rates := ratios(theirs, through, func(c copied, e entered) float64 { return c.Seconds / e.Seconds })
		fmt.Println("  From the start of starter ingest --datasets-from files --wait to its end, version published:")
		table("", "urlake", "DuckDB", "urlake / DuckDB, median of rounds")
		table("lines a second", fmt.Sprintf("%.0f", n/seconds), fmt.Sprintf("%.0f", n/them), rates+", to be 3")
		table("CPU, µs a line", fmt.Sprintf("%.2f", cpu/n*1e6), fmt.Sprintf("%.2f", cpuThem/n*1e6), ratio(cpu/cpuThem))
	}
	fmt.Println("  The steps alone, in one process, without Temporal:")
	rates := ratios(theirs, ours, func(c copied, b built) float64 { return c.Seconds / b.Seconds })
	table("", "urlake", "DuckDB", "urlake / DuckDB, median of rounds")
	table("lines a second", fmt.Sprintf("%.0f", n/us), fmt.Sprintf("%.0f", n/them), rates)
	table("CPU, µs a line", fmt.Sprintf("%.2f", cpuUs/n*1e6), fmt.Sprintf("%.2f", cpuThem/n*1e6), ratio(cpuUs/cpuThem))
	table("peak memory, MB", fmt.Sprintf("%.0f", memUs/1e6), fmt.Sprintf("%.0f", memThem/1e6), ratio(memUs/memThem))
	table("rows", strconv.FormatInt(last.Rows, 10), strconv.FormatInt(duckRows, 10), "equal lines of a list are one row in urlake")
	perRow, duckPerRow := func(b int64) float64 { return float64(b) / float64(last.Rows) }, float64(duckBytes)/float64(duckRows)
	url := columns["scheme"] + columns["port"] + columns["host"] + columns["path_query"]
	duckURL := float64(duckColumns["host"]+duckColumns["url"]) / float64(duckRows)
	// DuckDB writes urlake's own columns, so that formats are compared and not schemas.
	var done copied
	if err := errors.Join(os.RemoveAll(out), child(ctx, &done, "duckdb columns", filepath.Join(lakeDir, "urls"), out)); err != nil {
		return err
	}
	sameColumns, sameRows, _, err := columnBytes(out)
	if err != nil {
		return err
	}
	if sameRows != last.Rows {
		return fmt.Errorf("of %d rows DuckDB wrote %d", last.Rows, sameRows)
	}
	var same, duckSame float64
	for name, b := range sameColumns {
		if name != "" {
			same += perRow(columns[name])
			duckSame += perRow(b)
		}
	}
	table("Parquet, bytes a row", fmt.Sprintf("%.2f", perRow(parquetBytes)), fmt.Sprintf("%.2f", duckPerRow), ratio(perRow(parquetBytes)/duckPerRow))
	table("host, url: host, path, scheme, port", fmt.Sprintf("%.2f", perRow(url)), fmt.Sprintf("%.2f", duckURL), ratio(perRow(url)/duckURL)+", to be 0.9")
	table("the same columns, with domain", fmt.Sprintf("%.2f", same), fmt.Sprintf("%.2f", duckSame), ratio(same/duckSame))

	fmt.Printf("\nWhere urlake's time goes (last round; %d slots a pool, as a worker on two cores has)\n", steps.Slots)
	busy := 0.0
	for _, s := range last.Stages {
		busy += s.Busy
	}
	table("step", "calls", "slot seconds", "ns a line; MB read from the lake and written, requests")
	for _, s := range last.Stages {
		table("  "+s.Name, strconv.Itoa(s.Calls), fmt.Sprintf("%.2f (%2.0f %%)", s.Busy, 100*s.Busy/busy),
			fmt.Sprintf("%5.0f %10.1f %10.1f %8d", s.Busy/n*1e9, float64(s.Read)/1e6, float64(s.Written)/1e6, s.Requests))
	}
	table("  all", "", fmt.Sprintf("%.2f", busy), fmt.Sprintf("publish took %.2f s of %.2f s", last.Publish, last.Seconds))

	fmt.Println("\nWhere urlake's bytes are")
	table("Parquet column", "bytes", "a row", "")
	for _, name := range descending(columns) {
		label := name
		if name == "" {
			label = "footers, page indexes"
		}
		table("  "+label, strconv.FormatInt(columns[name], 10), fmt.Sprintf("%.3f", perRow(columns[name])), "")
	}
	table("  all", strconv.FormatInt(parquetBytes, 10), fmt.Sprintf("%.3f", perRow(parquetBytes)), "")
	without := perRow(parquetBytes - columns["url_id"])
	fmt.Printf("  url_id is %.1f %% of it. Readers do not need this column: without it %.2f bytes a row, %s of DuckDB's\n", 100*float64(columns["url_id"])/float64(parquetBytes), without, ratio(without/duckPerRow))
	domains, entries := float64(last.Domains), float64(last.Entries)
	table("index file", "bytes", "a domain", "")
	for _, name := range descending(index) {
		table("  "+name, strconv.FormatInt(index[name], 10), fmt.Sprintf("%.3f", float64(index[name])/domains), "")
	}
	budget := 36*domains + 10*entries
	table("  all", strconv.FormatInt(indexTotal, 10), fmt.Sprintf("%.3f", float64(indexTotal)/domains), fmt.Sprintf("%s of 36 bytes a domain and 10 a pair", ratio(float64(indexTotal)/budget)))
	fmt.Printf("  %d domains, %d pairs of domain and dataset; the index is %.3f of the Parquet\n", last.Domains, last.Entries, float64(indexTotal)/float64(parquetBytes))
	return nil
}

// hashes measures the perfect hash of 1e5, 1e6 and so on up to most keys, and relab's method beside
// it.
func hashes(ctx context.Context, most int64, dir string) error {
	fmt.Println("\nPerfect hash: random keys, looked up in random order on one core, built on two. ns a key")
	const row = "  %12s %10s %8s %8s %8s %11s %9s %9s\n"
	fmt.Printf(row, "keys", "M keys/s", "bits/key", "hash", "lookup", "lookup, 1 k", "Go map", "open µs")
	f := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	var all []hashed
	for n := int64(1e5); n <= most; n *= 10 {
		var h hashed
		if err := child(ctx, &h, "hash", strconv.FormatInt(n, 10), dir); err != nil {
			return err
		}
		fmt.Printf(row, strconv.Itoa(h.Keys), f(h.BuildRate/1e6), fmt.Sprintf("%.3f", h.Bits), f(h.Slot), f(h.Lookup), f(h.LookupBatch), f(h.Map), f(h.Open))
		all = append(all, h)
	}
	fmt.Println("  relab/bbhash's published method (bench/relab) : the project's on the same keys")
	const beside = "  %12s %24s %22s %26s %26s\n"
	fmt.Printf(beside, "keys", "M keys/s", "bits/key", "hash, ns", "load, µs")
	for _, h := range all {
		pair := func(theirs, ours float64) string { return f(theirs) + " : " + f(ours) + " = " + ratio(theirs/ours) }
		fmt.Printf(beside, strconv.Itoa(h.Keys), pair(h.RelabRate/1e6, h.BuildRate/1e6), fmt.Sprintf("%.3f : %.3f = %s", h.RelabBits, h.Bits, ratio(h.RelabBits/h.Bits)), pair(h.RelabFind, h.Slot), pair(h.RelabLoad, h.Open))
	}
	fmt.Println("  built on two cores: relab's levels alone from keys in memory, the project's whole file, records included")
	return nil
}

// projectRoot returns the folder of the project that is measured.
func projectRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/urlake/urlake").Output()
	if err != nil {
		return "", fmt.Errorf("find the project (run this in its folder bench): %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// serving builds a lake and measures the read server on it.
func serving(ctx context.Context, root string, rows int64, datasets int, dir string) error {
	lists, lakeDir := filepath.Join(dir, "lists"), filepath.Join(dir, "lake")
	defer os.RemoveAll(dir)
	var bytes int64
	if err := child(ctx, &bytes, "lists", strconv.FormatInt(rows, 10), strconv.Itoa(datasets), lists); err != nil {
		return err
	}
	var b built
	if err := child(ctx, &b, "ingest", lists, lakeDir, ""); err != nil {
		return err
	}
	fmt.Printf("\nServing: %d rows in %d datasets, %d domains, %d pairs of domain and dataset\n", b.Rows, options(rows, datasets).Datasets, b.Domains, b.Entries)
	var read, written, requests int64
	for _, s := range b.Stages {
		read, written, requests = read+s.Read, written+s.Written, requests+s.Requests
	}
	fmt.Printf("  building: %.1f s, %.0f lines/s, %.2f µs of CPU a line, peak memory %.0f MB; %.1f bytes a line read from the lake, %.1f written, %d requests\n", b.Seconds, float64(rows)/b.Seconds,
		b.CPU/float64(rows)*1e6, float64(b.Peak)/1e6, float64(read)/float64(rows), float64(written)/float64(rows), requests)
	if err := os.RemoveAll(lists); err != nil {
		return err
	}
	s, err := measureServe(ctx, root, options(rows, datasets), lakeDir, dir)
	if err != nil {
		return err
	}
	fmt.Printf("  ready after %.2f s; resident %.0f MB (%.0f MB without mapped files), after all requests %.0f MB (%.0f MB)\n",
		s.Ready, float64(s.Loaded)/1e6, float64(s.LoadedAnon)/1e6, float64(s.Used)/1e6, float64(s.UsedAnon)/1e6)
	fmt.Printf("  %d domains by Zipf's law, %d of them known; one client; microseconds\n", visits, s.Known)
	for i, name := range []string{"first time", "again"} {
		fmt.Printf("    lookup, %-10s  server %v\n", name, s.Lookup[i])
		fmt.Printf("    %-19s client %v\n", "", s.LookupClient[i])
	}
	for i, name := range []string{"first time", "again"} {
		fmt.Printf("    page, %-10s    server %v\n", name, s.Page[i])
		fmt.Printf("    %-19s client %v\n", "", s.PageClient[i])
	}
	fmt.Printf("    %-19s server %v   (%d pages)\n", fmt.Sprintf("full page of %d", pageSize), s.FullPage, s.FullPages)
	fmt.Printf("  %d clients on the same cores: %.0f lookups/s, %.0f pages/s\n", clients, s.LookupsASecond, s.PagesASec)
	return nil
}

// medianOf is the median of a figure over runs.
func medianOf[T any](runs []T, of func(T) float64) float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = of(r)
	}
	return median(out)
}

// table prints a row of a table: its name and three cells.
func table(name, a, b, c string) { fmt.Printf("  %-26s %16s %18s   %s\n", name, a, b, c) }

// ratios returns the median of the rounds' ratios, the smallest and the largest. The machine's
// speed changes within minutes, so the runs of one round are compared with each other.
func ratios[A, B any](as []A, bs []B, of func(A, B) float64) string {
	out := make([]float64, len(as))
	for i := range as {
		out[i] = of(as[i], bs[i])
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(out), slices.Min(out), slices.Max(out))
}

func ratio(v float64) string { return fmt.Sprintf("%.2f", v) }

// used returns the largest resident memory of this process so far, in bytes, and its CPU seconds.
// The kernel's ru_maxrss is no substitute: it counts what the parent used before this program was
// loaded.
func used() (peak int64, cpu float64, err error) {
	if peak, err = procStatus(os.Getpid(), "VmHWM"); err != nil {
		return 0, 0, err
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	return peak, float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, nil
}

// procStatus returns a size, in bytes, that the kernel reports of a process.
func procStatus(pid int, field string) (int64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", name, field)
}

// machine describes the machine: processor, cores, memory, platform, load.
func machine() string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	memory := "?"
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(data)); len(f) > 1 {
			if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				memory = fmt.Sprintf("%.1f GB", float64(kb)*1024/1e9)
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s of memory, %s/%s, %s, load average %s", model, runtime.NumCPU(), memory, runtime.GOOS, runtime.GOARCH, runtime.Version(), loadAverage())
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
