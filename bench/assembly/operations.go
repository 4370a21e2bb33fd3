package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/bench/steps"
	"github.com/urlake/urlake/serve/lookup"
)

// operations are what a user waits for; each is measured apart, in this order.
var operations = []string{"ingest", "publish", "page", "lookup"}

const (
	lists = 8
	// lookups is how many domains are looked up. The first pageDomains of them that are known have
	// their first page read.
	lookups     = 40_000
	pageDomains = 1_000
	pageRows    = 100
)

func options(lines int64) corpus.Options {
	return corpus.Options{Seed: 1, Rows: lines, Datasets: lists}
}

// measure runs every operation once, on generated lists in dir, and returns the seconds of user CPU
// that each took in this process.
func measure(ctx context.Context, dir string, lines int64, lakeDir string) (map[string]float64, error) {
	took := map[string]float64{}
	at, err := userCPU()
	if err != nil {
		return nil, err
	}
	lap := func(name string) error {
		now, err := userCPU()
		took[name] = now - at
		at = now
		return err
	}
	b, err := steps.New(ctx, filepath.Join(lakeDir, "lake"))
	if err != nil {
		return nil, err
	}
	if _, _, err := b.Lists(ctx, dir); err != nil {
		return nil, err
	}
	if err := lap("ingest"); err != nil {
		return nil, err
	}
	if _, err := b.Publish(ctx); err != nil {
		return nil, err
	}
	if err := lap("publish"); err != nil {
		return nil, err
	}

	c, err := corpus.New(options(lines))
	if err != nil {
		return nil, err
	}
	state := uint64(42)
	targets := make([]lookup.Target, lookups)
	for i := range targets {
		if targets[i], err = lookup.ParseTarget(c.Sample(&state)); err != nil {
			return nil, err
		}
	}
	// Pages are read again each time, not taken from the cache of rows.
	server := lookup.NewServer(b.Store, lookup.Options{PageBytes: 1, Log: slog.New(slog.DiscardHandler)})
	defer server.Close()
	if err := server.Refresh(ctx); err != nil {
		return nil, err
	}
	snap, err := server.Acquire(ctx, "")
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	if err := lap("open"); err != nil {
		return nil, err
	}
	var queries []lookup.URLsQuery
	for i, t := range targets {
		page, err := snap.Domain(ctx, t, "")
		if err != nil {
			return nil, err
		}
		if n := len(page.Datasets); n > 0 && len(queries) < pageDomains {
			queries = append(queries, lookup.URLsQuery{Target: t, Dataset: page.Datasets[i%n].ID, Limit: pageRows})
		}
	}
	if err := lap("lookup"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		page, err := snap.URLs(ctx, q)
		if err != nil {
			return nil, err
		}
		if page.Rows.Len() == 0 {
			return nil, fmt.Errorf("dataset %d has no URLs of a domain that it holds", q.Dataset)
		}
	}
	if len(queries) == 0 {
		return nil, fmt.Errorf("none of %d domains is known", lookups)
	}
	return took, lap("page")
}

// userCPU is the seconds of user CPU of this process so far.
func userCPU() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()) / 1e9, err
}

// measureRole is the child process: its arguments are the folder of the lists, their lines, and a
// folder for the lake.
func measureRole(ctx context.Context, args []string) (map[string]float64, error) {
	if len(args) != 3 {
		return nil, fmt.Errorf("measure takes 3 arguments, not %d", len(args))
	}
	lines, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return nil, err
	}
	return measure(ctx, args[0], lines, args[2])
}
