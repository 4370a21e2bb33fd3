package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// memory serves a mixed load for BENCH_MINUTES, by default 60, of BENCH_RATE requests a second, by
// default 500, and prints once a minute what the server has in memory: what is resident besides
// mapped files, those, Go's heap, and each cache. Seven of ten requests look up domains, two are
// pages of 100 URLs and one is a page of 10,000, at any offset. The error names the highest value
// if that is over 400 MiB.
func memory(ctx context.Context) (err error) {
	const target = 400 << 20
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "urlake-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := child(ctx, "build", dir); err != nil {
		return fmt.Errorf("build the lake: %w", err)
	}
	program, err := buildServe(ctx, dir)
	if err != nil {
		return err
	}
	work, err := newWorkload()
	if err != nil {
		return err
	}
	p, err := start(ctx, "urlake", program, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	got, err := p.ask(work)
	if err != nil {
		return err
	}
	list := fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?", work.largest, got.dataset)
	path := func(rng *rand.Rand) string {
		switch n := rng.IntN(10); {
		case n < 7:
			return work.lookups[rng.IntN(len(work.lookups))]
		case n < 9:
			return list + "limit=100&offset=" + strconv.FormatInt(rng.Int64N(max(1, got.rows-100)), 10)
		default:
			return list + "limit=10000&offset=" + strconv.FormatInt(rng.Int64N(max(1, got.rows-10_000)), 10)
		}
	}
	until := time.Now().Add(time.Duration(setting("BENCH_MINUTES", 60)) * time.Minute)
	rate := setting("BENCH_RATE", 500)
	var answers atomic.Int64
	ctx, cancel := context.WithDeadlineCause(ctx, until, errOver)
	defer cancel()
	errs := make([]error, connections())
	var clients sync.WaitGroup
	for c := range errs {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(c)))
			tick := time.NewTicker(time.Duration(len(errs)) * time.Second / time.Duration(rate))
			defer tick.Stop()
			for errs[c] == nil {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if _, errs[c] = p.get(path(rng)); errs[c] != nil {
					cancel()
				}
				answers.Add(1)
			}
		})
	}
	fmt.Printf("%8s %10s %9s %9s %9s %9s %9s %9s\n", "minute", "answers", "own, MiB", "files", "heap", "frames", "pages", "answers")
	highest := int64(0)
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	began := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		var v [6]int64
		if v, err = p.footprint(); err != nil {
			cancel()
			break
		}
		highest = max(highest, v[0])
		fmt.Printf("%8.1f %10d", time.Since(began).Minutes(), answers.Load())
		for _, bytes := range v {
			fmt.Printf(" %9d", bytes>>20)
		}
		fmt.Println()
	}
	clients.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errOver) {
		err = errors.Join(err, cause)
	}
	if highest > target {
		err = errors.Join(err, fmt.Errorf("%d MiB besides mapped files, more than %d", highest>>20, target>>20))
	}
	return errors.Join(err, errors.Join(errs...))
}

var errOver = errors.New("the time is over")

// footprint is what the server has in memory, in bytes: what is resident besides files, files, Go's
// heap, and the caches of frames, rows and answers.
func (p *process) footprint() (v [6]int64, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		return v, err
	}
	metrics, err := p.get("/metrics")
	if err != nil {
		return v, err
	}
	for i, m := range []struct {
		text    []byte
		pattern string
		unit    float64
	}{
		{status, `RssAnon:\s+(\d+) kB`, 1 << 10}, {status, `RssFile:\s+(\d+) kB`, 1 << 10},
		{metrics, `(?m)^go_memstats_heap_alloc_bytes (\S+)`, 1},
		{metrics, `(?m)^urlake_cache_bytes{cache="frames"} (\S+)`, 1}, {metrics, `(?m)^urlake_cache_bytes{cache="pages"} (\S+)`, 1},
		{metrics, `(?m)^urlake_cache_bytes{cache="answers"} (\S+)`, 1},
	} {
		found := regexp.MustCompile(m.pattern).FindSubmatch(m.text)
		if found == nil {
			return v, fmt.Errorf("the server does not say %s", m.pattern)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return v, err
		}
		v[i] = int64(n * m.unit)
	}
	return v, nil
}
