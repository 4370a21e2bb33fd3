package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed wrk.lua
var wrkScript []byte

// wrkThreads is how many threads send lookups. One cannot keep two processors busy.
const wrkThreads = 2

// wrkProgram is the load generator's name.
const wrkProgram = "wrk"

// lookupClient is what sends lookups: wrk, or this program.
func lookupClient() string {
	if _, err := exec.LookPath(wrkProgram); err != nil {
		return "Go"
	}
	return wrkProgram
}

// wrk requests the lookups with the load generator wrk, which takes less of the processors that it
// shares with the server than a client in Go does.
func (p *process) wrk(ctx context.Context, dir string, work *workload) (float64, latencies, error) {
	script, list := filepath.Join(dir, "wrk.lua"), filepath.Join(dir, "paths.txt")
	if err := os.WriteFile(script, wrkScript, 0o600); err != nil {
		return 0, latencies{}, err
	}
	if err := os.WriteFile(list, []byte(strings.Join(work.lookups, "\n")+"\n"), 0o600); err != nil {
		return 0, latencies{}, err
	}
	cmd := exec.CommandContext(ctx, wrkProgram, "--timeout", "60s", "-t", strconv.Itoa(wrkThreads), "-c", strconv.Itoa(connections()),
		"-d", strconv.Itoa(int(seconds().Seconds()))+"s", "-s", script, "http://"+p.client.Addr, "--", list, strconv.Itoa(wrkThreads), strconv.Itoa(int(setting("BENCH_PAUSE", 0))))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, latencies{}, fmt.Errorf("%s: %w", wrkProgram, err)
	}
	var got struct {
		Requests, Microseconds, Errors float64
		P50, P95, P99                  float64
	}
	_, last, ok := bytes.Cut(out, []byte("\nresult "))
	if !ok {
		return 0, latencies{}, fmt.Errorf("%s printed no result: %s", wrkProgram, out)
	}
	if err := json.Unmarshal(last, &got); err != nil {
		return 0, latencies{}, fmt.Errorf("%s: %w", wrkProgram, err)
	}
	if got.Errors > 0 || got.Requests == 0 {
		return 0, latencies{}, fmt.Errorf("%s: %.0f of %.0f requests failed", wrkProgram, got.Errors, got.Requests)
	}
	return got.Requests / got.Microseconds * 1e6, latencies{got.P50, got.P95, got.P99}, nil
}
