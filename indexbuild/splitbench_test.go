package indexbuild

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
)

// workerLake names the lake of a process that TestMain makes a worker of a benchmark.
const workerLake = "URLAKE_BENCH_WORKER_LAKE"

func TestMain(m *testing.M) {
	if lake := os.Getenv(workerLake); lake != "" {
		if err := benchWorker(lake); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// benchTask is a task for a worker of a benchmark.
type benchTask struct {
	Step    string // build, split, merge, write, finish
	Batches []segment.BatchRef
	Split   Split
	Task    int
}

// benchDone is the outcome of a benchTask.
type benchDone struct{ Split Split }

// benchWorker runs the tasks that arrive on standard input.
func benchWorker(lake string) error {
	ctx := context.Background()
	store, err := blob.Open(ctx, lake)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	opt := Options{TempDir: os.Getenv("TMPDIR"), SkipPageKeys: true}
	for {
		var t benchTask
		if err := in.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var done benchDone
		switch t.Step {
		case "build":
			_, err = BuildSegment(ctx, store, t.Batches, opt)
		case "split":
			done.Split, err = SplitSegment(ctx, store, t.Batches, splitDir, opt)
		case "merge":
			err = MergeRange(ctx, store, t.Split, t.Task, opt)
		case "write":
			err = WriteRange(ctx, store, t.Split, t.Task, opt)
		case "finish":
			if _, err = FinishSegment(ctx, store, t.Split, opt); err == nil {
				err = t.Split.Remove(ctx, store)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.Step, err)
		}
		if err := out.Encode(done); err != nil {
			return err
		}
	}
}

// benchWorkers are worker processes of one processor each.
type benchWorkers struct {
	tb   testing.TB
	free chan *benchProcess
}

type benchProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startWorkers(tb testing.TB, lake string, n int) *benchWorkers {
	w := &benchWorkers{tb, make(chan *benchProcess, n)}
	for range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerLake+"="+lake, "GOMAXPROCS=1", "GOMEMLIMIT=1GiB")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			tb.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		w.free <- &benchProcess{cmd, in, json.NewDecoder(out)}
	}
	return w
}

// run runs tasks, each on the first process that is free, and returns the outcome of the last.
func (w *benchWorkers) run(tasks ...benchTask) (done benchDone) {
	var wg sync.WaitGroup
	for _, t := range tasks {
		p := <-w.free
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { w.free <- p }()
			err := json.NewEncoder(p.in).Encode(t)
			var d benchDone
			if err == nil {
				err = p.out.Decode(&d)
			}
			if err != nil {
				w.tb.Errorf("%s %d: %v", t.Step, t.Task, err)
			}
			if len(tasks) == 1 {
				done = d
			}
		}()
	}
	wg.Wait()
	return done
}

// stop ends the processes and returns the processor time that they have used.
func (w *benchWorkers) stop() (used time.Duration) {
	for range cap(w.free) {
		p := <-w.free
		p.in.Close()
		if err := p.cmd.Wait(); err != nil {
			w.tb.Error(err)
		}
		used += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	}
	return used
}

// benchRefs is the key of the list of batches in the lake of BenchmarkBuildByWorkers.
const benchRefs = "batches.json"

// BenchmarkBuildByWorkers builds a segment in turns: in one process with one processor, in one
// piece; and in two such processes, in ranges. It reports the medians of the seconds of both, their
// ratio, and the medians of the processor seconds. The segment has about BENCH_PAIRS pairs, at
// least enough for ranges. BENCH_LAKE names a folder that keeps the lake for another run.
func BenchmarkBuildByWorkers(b *testing.B) {
	ctx := b.Context()
	pairs := max(indextest.BenchPairs(b), 2*int(SplitPairs(0)))
	dir := os.Getenv("BENCH_LAKE")
	if dir == "" {
		dir = b.TempDir()
	}
	url := "file://" + dir
	store, err := blob.Open(ctx, url)
	if err != nil {
		b.Fatal(err)
	}
	var refs []segment.BatchRef
	data, _, err := store.Get(ctx, benchRefs)
	switch {
	case err == nil:
		err = json.Unmarshal(data, &refs)
	case errors.Is(err, blob.ErrNotExist):
		refs = indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false)
		if data, err = json.Marshal(refs); err == nil {
			_, err = store.Put(ctx, benchRefs, data, blob.Condition{})
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	var one, two, oneCPU, twoCPU []float64
	measure := func(n int, seconds, processor *[]float64, build func(w *benchWorkers)) {
		w := startWorkers(b, url, n)
		w.run(slices.Repeat([]benchTask{{Step: "start"}}, n)...)
		started := time.Now()
		build(w)
		*seconds = append(*seconds, time.Since(started).Seconds())
		*processor = append(*processor, w.stop().Seconds())
		b.Logf("%d processes: %.1f s, %.1f s of processor", n, (*seconds)[len(*seconds)-1], (*processor)[len(*processor)-1])
		deleteAll(b, store, "index/")
	}
	for b.Loop() {
		measure(1, &one, &oneCPU, func(w *benchWorkers) { w.run(benchTask{Step: "build", Batches: refs}) })
		measure(2, &two, &twoCPU, func(w *benchWorkers) {
			began := time.Now()
			lap := func() float64 { s := time.Since(began).Seconds(); began = time.Now(); return s }
			split := w.run(benchTask{Step: "split", Batches: refs}).Split
			laps := []float64{lap()}
			tasks := func(step string, n int) []benchTask {
				all := make([]benchTask, n)
				for i := range all {
					all[i] = benchTask{Step: step, Split: split, Task: i}
				}
				return all
			}
			w.run(tasks("merge", split.Merges)...)
			laps = append(laps, lap())
			w.run(tasks("write", split.Writes)...)
			laps = append(laps, lap())
			w.run(benchTask{Step: "finish", Split: split})
			b.Logf("split, %d merges, %d writes, finish: %.1f s", split.Merges, split.Writes, append(laps, lap()))
		})
	}
	median := func(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }
	b.ReportMetric(median(one), "one-s")
	b.ReportMetric(median(two), "two-s")
	b.ReportMetric(median(one)/median(two), "one/two")
	b.ReportMetric(median(oneCPU), "one-cpu-s")
	b.ReportMetric(median(twoCPU), "two-cpu-s")
}
