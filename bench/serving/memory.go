package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// memory serves a mixed load for BENCH_MINUTES, by default 60, of BENCH_RATE requests a second, by
// default 500, and prints once a minute what the server has in memory: what is resident besides
// mapped files, those, Go's heap, and each cache. Seven of ten requests look up domains, two are
// pages of 100 URLs and one is a page of 10,000, of any domain at any offset. Requests that the
// server sheds because the machine is too slow for the rate are counted and not repeated. The error
// names the highest value if that is over 400 MiB.
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
	// Domains are in the sample as often as they are asked for.
	var lists []list
	for _, domain := range work.domains {
		for _, d := range got.counts[domain] {
			lists = append(lists, list{fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?", domain, d.ID), d.Count})
		}
	}
	request := func(rng *rand.Rand) string {
		switch n := rng.IntN(10); {
		case n < 7:
			return work.lookups[rng.IntN(len(work.lookups))]
		case n < 9:
			return lists[rng.IntN(len(lists))].page(rng, 100)
		default:
			return lists[rng.IntN(len(lists))].page(rng, 10_000)
		}
	}
	until := time.Now().Add(time.Duration(setting("BENCH_MINUTES", 60)) * time.Minute)
	rate := setting("BENCH_RATE", 500)
	var answers, shed atomic.Int64
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
				_, err := p.get(request(rng))
				var status *statusError
				switch {
				case err == nil:
					answers.Add(1)
				case errors.As(err, &status) && slices.Contains(shedding, status.code):
					shed.Add(1)
				default:
					errs[c] = err
					cancel()
				}
			}
		})
	}
	fmt.Printf("%8s %10s %8s %9s %9s %9s %9s %9s %9s\n", "minute", "answers", "shed", "own, MiB", "files", "heap", "frames", "pages", "kept")
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
		fmt.Printf("%8.1f %10d %8d", time.Since(began).Minutes(), answers.Load(), shed.Load())
		for _, bytes := range v {
			fmt.Printf(" %9d", bytes>>20)
		}
		fmt.Println()
	}
	clients.Wait()
	if err == nil && errors.Join(errs...) == nil && !errors.Is(context.Cause(ctx), errOver) {
		err = context.Cause(ctx) // it was interrupted
	}
	if highest > target {
		err = errors.Join(err, fmt.Errorf("%d MiB besides mapped files, more than %d", highest>>20, target>>20))
	}
	return errors.Join(err, errors.Join(errs...))
}

var (
	errOver = errors.New("the time is over")
	// shedding are the answers of a server that has too much to do.
	shedding = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
)

// list is a list of URLs of one domain in one dataset.
type list struct {
	path string
	rows int64
}

// page is the path of a page at any offset.
func (l *list) page(rng *rand.Rand, limit int64) string {
	return fmt.Sprintf("%slimit=%d&offset=%d", l.path, limit, rng.Int64N(max(1, l.rows-limit)))
}

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
