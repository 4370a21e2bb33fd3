package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workerRounds is how often one worker and two ingest the same input, in turns.
const workerRounds = 2

// workers ingests one input through Temporal, first with one worker process and then with two. Each
// process uses one processor.
func workers(ctx context.Context, root string, rows int64, dir string) error {
	defer os.RemoveAll(dir)
	fmt.Printf("\nWorkers: ingest of %d lines in %d files, one dataset, through Temporal; each worker has one processor\n",
		rows, options(rows, usualLists).Datasets)
	temporal := temporalProgram(root)
	if temporal == "" {
		fmt.Println("  left out: needs bin/temporal (make tools)")
		return nil
	}
	lists := filepath.Join(dir, "lists")
	var size int64
	if err := child(ctx, &size, "lists", strconv.FormatInt(rows, 10), strconv.Itoa(usualLists), lists); err != nil {
		return err
	}
	if err := buildPrograms(ctx, root, dir); err != nil {
		return err
	}
	address, _, stop, err := startTemporal(ctx, temporal, dir)
	if err != nil {
		return err
	}
	defer stop()
	var times [2][]float64
	for range workerRounds {
		for i := range times {
			lakeDir := filepath.Join(dir, "lake")
			took, err := workTogether(ctx, dir, lakeDir, lists, address, i+1, rows)
			if err != nil {
				return err
			}
			times[i] = append(times[i], took)
			if err := os.RemoveAll(lakeDir); err != nil {
				return err
			}
		}
	}
	one, two := median(times[0]), median(times[1])
	table("", "one", "two", "one / two")
	table("seconds", fmt.Sprintf("%.1f", one), fmt.Sprintf("%.1f", two), ratio(one/two))
	table("lines a second", fmt.Sprintf("%.0f", float64(rows)/one), fmt.Sprintf("%.0f", float64(rows)/two), "")
	return nil
}

// workTogether ingests a folder of lists with n workers and returns the seconds that the ingest
// took.
func workTogether(ctx context.Context, programs, lakeDir, lists, address string, n int, rows int64) (seconds float64, err error) {
	env := []string{"TEMPORAL_ADDRESS=" + address, "GOMAXPROCS=1"}
	for i := range n {
		temp := filepath.Join(programs, "temp"+strconv.Itoa(i))
		if err := os.MkdirAll(temp, 0o777); err != nil {
			return 0, err
		}
		_, stop, err := background(ctx, env, filepath.Join(programs, "worker"), "--lake", lakeDir, "--concurrency", "1", "--temp-dir", temp)
		if err != nil {
			return 0, err
		}
		defer stop() //nolint:revive // all workers run until the ingest has ended
	}
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "starter"), "ingest", "--lake", lakeDir, "--dataset", "all", "--batch", "b",
		"--no-publish", "--wait", "--json", lists)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("ingest with %d workers: %w\n%s", n, err, stderr.String())
	}
	seconds = time.Since(started).Seconds()
	var res struct{ Records, Rows, Merged int64 }
	if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
		return 0, err
	}
	if res.Records != rows || res.Rows+res.Merged != rows {
		return 0, fmt.Errorf("ingest with %d workers: %d lines ended as %+v", n, rows, res)
	}
	return seconds, nil
}

// temporalProgram returns the path of Temporal's development server, "" if there is none.
func temporalProgram(root string) string {
	temporal := filepath.Join(root, "bin", "temporal")
	if _, err := os.Stat(temporal); err == nil {
		return temporal
	}
	temporal, _ = exec.LookPath("temporal") // "" if not found
	return temporal
}

// buildPrograms builds the worker and the starter of the project into dir.
func buildPrograms(ctx context.Context, root, dir string) error {
	compile := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", dir+string(filepath.Separator), "./worker", "./starter")
	compile.Stderr = os.Stderr
	if err := compile.Run(); err != nil {
		return fmt.Errorf("build worker and starter: %w", err)
	}
	return nil
}

// startTemporal starts a development server whose state is in dir and waits until it answers.
func startTemporal(ctx context.Context, temporal, dir string) (address string, pid int, stop func(), err error) {
	if address, err = freeAddress(); err != nil {
		return "", 0, nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	pid, stop, err = background(ctx, nil, temporal, "server", "start-dev", "--ip", "127.0.0.1", "--port", port,
		"--headless", "--log-level", "error", "--db-filename", filepath.Join(dir, "temporal.db"),
		// As urlake up, the demo and the compose file start it; see docs/operation.md.
		"--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
		"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1")
	if err != nil {
		return "", 0, nil, err
	}
	if err := temporalServes(ctx, temporal, address); err != nil {
		stop()
		return "", 0, nil, err
	}
	return address, pid, stop, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// temporalServes waits until Temporal answers, at most startTime.
func temporalServes(ctx context.Context, temporal, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, temporal, "operator", "cluster", "health", "--address", address).CombinedOutput()
		if err == nil && strings.Contains(string(out), "SERVING") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Temporal at %s: %s", address, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// background starts a program that runs until stop is called. If the program ends by itself, its
// output is shown.
func background(ctx context.Context, env []string, program string, args ...string) (pid int, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cancel()
		return 0, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.Wait(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			fmt.Fprintf(os.Stderr, "%s ended: %v\n%s", filepath.Base(program), err, out.String())
		}
	}()
	return cmd.Process.Pid, func() { cancel(); <-ended }, nil
}
