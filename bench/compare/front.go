package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// front ingests as a user does: with starter, Temporal's development server and one worker process.
type front struct {
	dir      string // of the programs
	program  string // Temporal's
	address  string // of Temporal
	temporal int    // its process
	stop     func()
}

// entered is what an ingest through the front door took.
type entered struct {
	// Seconds is the time from the start of the command to its end, when a version with all lists
	// is published.
	Seconds float64
	// Worker, Temporal and Starter are the processor seconds of these processes meanwhile.
	Worker, Temporal, Starter float64
}

func (e entered) cpu() float64 { return e.Worker + e.Temporal + e.Starter }

// openFront builds the programs into dir and starts Temporal. It returns nil if there is no
// Temporal.
func openFront(ctx context.Context, root, dir string) (*front, error) {
	temporal := temporalProgram(root)
	if temporal == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := buildPrograms(ctx, root, dir); err != nil {
		return nil, err
	}
	f := &front{dir: dir, program: temporal}
	var err error
	f.address, f.temporal, f.stop, err = startTemporal(ctx, temporal, dir)
	return f, err
}

// ingest runs "starter ingest" with args besides the lake, which is new, and waits for the version.
// The worker is ready before the command starts.
func (f *front) ingest(ctx context.Context, lakeDir string, args ...string) (e entered, err error) {
	probe, err := freeAddress()
	if err != nil {
		return e, err
	}
	temp := filepath.Join(f.dir, "temp")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return e, err
	}
	env := []string{"TEMPORAL_ADDRESS=" + f.address}
	worker, stop, err := background(ctx, env, filepath.Join(f.dir, "worker"), "--lake", lakeDir, "--temp-dir", temp, "--metrics", probe)
	if err != nil {
		return e, err
	}
	defer stop()
	if err := ready(ctx, "http://"+probe+"/readyz"); err != nil {
		return e, fmt.Errorf("worker: %w", err)
	}
	before, err := processorSeconds(worker, f.temporal)
	if err != nil {
		return e, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(f.dir, "starter"), append([]string{"ingest", "--lake", lakeDir, "--wait", "--json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	started := time.Now()
	if err := cmd.Run(); err != nil {
		return e, fmt.Errorf("starter: %w\n%s", err, stderr.String())
	}
	e.Seconds = time.Since(started).Seconds()
	after, err := processorSeconds(worker, f.temporal)
	if err != nil {
		return e, err
	}
	e.Worker, e.Temporal = after[0]-before[0], after[1]-before[1]
	if err := f.idle(ctx); err != nil {
		return e, err
	}
	e.Starter = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if _, err := os.Stat(filepath.Join(lakeDir, "index", "manifest.json")); err != nil {
		return e, fmt.Errorf("nothing was published: %w", err)
	}
	return e, nil
}

// idle waits until no workflow runs: after an ingest the publisher still tidies. A worker that
// stops meanwhile may lose a workflow task that is on the way to it, and Temporal gives the task to
// the next worker 10 s later. The next ingest would wait for that.
func (f *front) idle(ctx context.Context) error {
	for {
		cmd := exec.CommandContext(ctx, f.program, "workflow", "list", "--address", f.address, "-o", "json", "--query", `ExecutionStatus = "Running"`)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("list workflows: %w", err)
		}
		var running []history
		if err := json.Unmarshal(out, &running); err != nil {
			return fmt.Errorf("list workflows: %w", err)
		}
		if len(running) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ready waits until a probe answers 200, at most startTime.
func ready(ctx context.Context, probe string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		status := ""
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, probe, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			status = resp.Status
		}
		select {
		case <-ctx.Done():
			return errors.New("not ready: " + status)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ticks is the unit of processor times in /proc, a hundredth of a second on all platforms of Linux.
const ticks = 100

// processorSeconds returns the processor time that each process has used.
func processorSeconds(pids ...int) ([]float64, error) {
	var out []float64
	for _, pid := range pids {
		name := fmt.Sprintf("/proc/%d/stat", pid)
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		// The program's name, in parentheses, may hold blanks.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) < 13 {
			return nil, errors.New(name + " is too short")
		}
		used := 0.0
		for _, field := range fields[11:13] { // user and system
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			used += n / ticks
		}
		out = append(out, used)
	}
	return out, nil
}

// oneList ingests one list by itself, through the front door and with DuckDB, in turns.
func oneList(ctx context.Context, root string, rows int64, rounds int, dir string) error {
	defer os.RemoveAll(dir)
	door, err := openFront(ctx, root, filepath.Join(dir, "front"))
	if err != nil {
		return err
	}
	if door == nil {
		fmt.Println("\nOne list: left out, needs bin/temporal (make tools)")
		return nil
	}
	defer door.stop()
	lists, lakeDir := filepath.Join(dir, "lists"), filepath.Join(dir, "lake")
	var size int64
	if err := child(ctx, &size, "lists", strconv.FormatInt(rows, 10), "1", lists); err != nil {
		return err
	}
	fmt.Printf("\nOne list of %d lines, %.1f MB, from the start of starter ingest --wait to its end, version published\n", rows, float64(size)/1e6)
	all, err := filepath.Glob(filepath.Join(lists, "*.txt"))
	if err != nil {
		return err
	}
	var through []entered
	var theirs []copied
	for round := range rounds {
		if err := errors.Join(os.RemoveAll(lakeDir), os.RemoveAll(filepath.Join(lists, "out"))); err != nil {
			return err
		}
		var e entered
		var d copied
		turns := []func() error{
			func() (err error) {
				e, err = door.ingest(ctx, lakeDir, append([]string{"--dataset", "one"}, all...)...)
				return err
			},
			func() error { return child(ctx, &d, "duckdb", lists) },
		}
		for i := range turns {
			syscall.Sync()
			if err := turns[(round+i)%len(turns)](); err != nil {
				return err
			}
		}
		fmt.Printf("  round %d: urlake %.2f s (CPU: worker %.1f s, Temporal %.1f, starter %.1f), DuckDB %.2f s (%.1f s CPU)\n",
			round+1, e.Seconds, e.Worker, e.Temporal, e.Starter, d.Seconds, d.CPU)
		through, theirs = append(through, e), append(theirs, d)
	}
	us := medianOf(through, func(e entered) float64 { return e.Seconds })
	them := medianOf(theirs, func(c copied) float64 { return c.Seconds })
	rates := ratios(theirs, through, func(c copied, e entered) float64 { return c.Seconds / e.Seconds })
	table("", "urlake", "DuckDB", "urlake / DuckDB, median of rounds")
	table("lines a second", fmt.Sprintf("%.0f", float64(rows)/us), fmt.Sprintf("%.0f", float64(rows)/them), rates+", to be 2")
	return nil
}
