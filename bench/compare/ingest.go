package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/processors"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

const (
	// slots is how many steps of a pool are done at once: what a worker does on two cores.
	slots = 2
	// memoryLimit is what the worker program sets by default.
	memoryLimit = 1024 << 20
)

// stage is what one kind of step took.
type stage struct {
	Name  string  `json:"name"`
	Calls int     `json:"calls"`
	Busy  float64 `json:"busy"` // seconds of a slot
	// Read and Written are bytes of the lake's store, in so many requests; what is mapped into memory is not read.
	Read     int64 `json:"read"`
	Written  int64 `json:"written"`
	Requests int64 `json:"requests"`
}

// built is what a run of the lake's steps reports.
type built struct {
	Seconds float64 `json:"seconds"`
	Rows    int64   `json:"rows"`
	Merged  int64   `json:"merged"`
	Domains int64   `json:"domains"`
	Entries int64   `json:"entries"`
	Stages  []stage `json:"stages"`
	// Publish is the part of Seconds after the last batch was finished.
	Publish float64 `json:"publish"`
	Peak    int64   `json:"peak"`
	CPU     float64 `json:"cpu"` // seconds of all threads
}

// builder does the steps that the workflows order, in this process.
type builder struct {
	store blob.Store
	temp  string
	slots map[string]chan struct{} // by pool
	// memory is what steps may take together, as in a worker.
	memory *semaphore.Weighted
	// extract makes postings from finished parts, as for parts whose postings are lost, and not while these are written.
	extract bool

	mu     sync.Mutex
	stages map[string]*stage
}

// newBuilder opens a lake in dir, and gives this process a worker's memory limit and processors.
func newBuilder(ctx context.Context, dir string) (*builder, error) {
	debug.SetMemoryLimit(memoryLimit)
	processors.Use(slots)
	store, err := blob.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	temp := filepath.Join(filepath.Dir(dir), "spill")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return nil, err
	}
	b := &builder{store: store, temp: temp, slots: map[string]chan struct{}{}, memory: semaphore.NewWeighted(memoryLimit), stages: map[string]*stage{}}
	for _, pool := range poolOf {
		b.slots[pool] = make(chan struct{}, slots)
	}
	return b, nil
}

// order is that of the stages in a table.
var order = []string{"plan", "small batch", "normalize", "plan merge", "merge", "extract", "finish", "clean up", "plan publish", "build segment", "verify segment", "commit"}

// poolOf has the worker pool of each stage.
var poolOf = map[string]string{
	"plan": "control", "plan merge": "control", "finish": "control", "clean up": "control", "plan publish": "control",
	"small batch": "normalize", "normalize": "normalize", "merge": "write", "extract": "index", "build segment": "index", "verify segment": "publish", "commit": "publish",
}

// memoryOf is what a worker sets aside for a step; of other stages it is little (activities.Memory).
var memoryOf = map[string]int64{
	"small batch": 512 << 20, "normalize": 512 << 20, "merge": 320 << 20, "extract": 128 << 20, "build segment": 512 << 20, "verify segment": 512 << 20,
}

// done are the stages so far, which are forgotten.
func (b *builder) done() (out []stage) {
	for _, name := range order {
		if s := b.stages[name]; s != nil {
			out = append(out, *s)
		}
	}
	clear(b.stages)
	return out
}

// do waits for a slot of the step's pool, and for memory, and does the step with a store that counts.
func (b *builder) do(ctx context.Context, name string, f func(store blob.Store) error) error {
	pool := b.slots[poolOf[name]]
	select {
	case pool <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-pool }()
	if need := memoryOf[name]; need > 0 {
		if err := b.memory.Acquire(ctx, need); err != nil {
			return err
		}
		defer b.memory.Release(need)
	}
	started := time.Now()
	store := blob.NewCounting(b.store)
	err := f(store)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stages[name]
	if s == nil {
		s = &stage{Name: name}
		b.stages[name] = s
	}
	s.Calls++
	s.Busy += time.Since(started).Seconds()
	reads, writes := store.Reads(), store.Writes()
	s.Read += reads.Bytes
	s.Written += writes.Bytes
	s.Requests += reads.Requests + writes.Requests
	return err
}

// build takes every list in lists to a published version of a lake in dir, a dataset each.
func build(ctx context.Context, lists, dir string) (*built, error) {
	files, err := filepath.Glob(filepath.Join(lists, "ds*.txt"))
	if err != nil {
		return nil, err
	}
	// The largest first: what is begun last ends last.
	sizes := map[string]int64{}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return nil, err
		}
		sizes[f] = info.Size()
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) })
	b, err := newBuilder(ctx, dir)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	out := new(built)
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	// A few batches at once keep the slots busy while one of them has a single step left.
	g.SetLimit(2 * slots)
	for _, f := range files {
		g.Go(func() error {
			done, err := b.batch(gctx, strings.TrimSuffix(filepath.Base(f), ".txt"), "bench", f)
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(f), err)
			}
			mu.Lock()
			defer mu.Unlock()
			out.Rows += done.Rows
			out.Merged += done.Merged
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	finished := time.Now()
	report, err := b.publish(ctx)
	if err != nil {
		return nil, err
	}
	out.Domains, out.Entries = report.Domains, report.Entries
	out.Seconds, out.Publish = time.Since(started).Seconds(), time.Since(finished).Seconds()
	out.Stages = b.done()
	return out, nil
}

// batch does what IngestWorkflow orders.
func (b *builder) batch(ctx context.Context, dataset, batch string, inputs ...string) (done ingest.FinishResult, err error) {
	run := "run-" + dataset + "-" + batch
	var plan ingest.PlanSummary
	if err := b.do(ctx, "plan", func(store blob.Store) (err error) {
		plan, err = ingest.MakePlan(ctx, store, run, ingest.Spec{Lake: b.store.URL(), Dataset: dataset, Batch: batch, Inputs: inputs})
		return err
	}); err != nil {
		return done, err
	}
	cleanUp := func() error {
		return b.do(ctx, "clean up", func(store blob.Store) error { return ingest.Cleanup(ctx, store, run) })
	}
	var inMemory, collect ingest.NewPostings
	if !b.extract {
		inMemory, collect = postings.CollectInMemory, postings.Collect(b.temp)
	}
	if plan.Small() && !b.extract {
		var small ingest.SmallResult
		if err := b.do(ctx, "small batch", func(store blob.Store) (err error) {
			small, err = ingest.IngestSmall(ctx, store, run, b.temp, inMemory, collect, nil)
			return err
		}); err != nil {
			return done, err
		}
		return small.Finish, cleanUp()
	}
	g, gctx := errgroup.WithContext(ctx)
	for split := range plan.Splits {
		g.Go(func() error {
			return b.do(gctx, "normalize", func(store blob.Store) error {
				_, err := ingest.Normalize(gctx, store, run, split, inMemory, nil)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	var merge ingest.MergeSummary
	if err := b.do(ctx, "plan merge", func(store blob.Store) (err error) {
		merge, err = ingest.PlanMerge(ctx, store, run)
		return err
	}); err != nil {
		return done, err
	}
	lists := make([]lake.FrameObject, merge.Tasks)
	domains := make([]int64, merge.Tasks)
	g, gctx = errgroup.WithContext(ctx)
	for task := range merge.Tasks {
		g.Go(func() error {
			var m ingest.MergeResult
			if err := b.do(gctx, "merge", func(store blob.Store) (err error) {
				m, err = ingest.Merge(gctx, store, run, task, b.temp, collect, nil)
				return err
			}); err != nil {
				return err
			}
			lists[task], domains[task] = m.Postings, m.Domains
			if !b.extract {
				return nil
			}
			return b.do(gctx, "extract", func(store blob.Store) (err error) {
				lists[task], domains[task], err = postings.Extract(gctx, store, run, task, b.temp)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	total := int64(0)
	for _, n := range domains {
		total += n
	}
	if err := b.do(ctx, "finish", func(store blob.Store) (err error) {
		done, err = ingest.Finish(ctx, store, run, lists, total)
		return err
	}); err != nil {
		return done, err
	}
	return done, cleanUp()
}

// extraction is what was read to make a list's postings from its finished parts.
type extraction struct {
	Read  int64 // bytes of the lake
	Parts int64 // all bytes of the parts
}

// extractAgain ingests a list twice, into lakes in dir, with postings collected while parts are written and with postings extracted from these, which have to
// be the same objects, and returns what the second read.
func extractAgain(ctx context.Context, list, dir string) (*extraction, error) {
	var objects [2][]string
	out := new(extraction)
	for i, extract := range []bool{false, true} {
		at := filepath.Join(dir, fmt.Sprint("extract", i))
		b, err := newBuilder(ctx, at)
		if err != nil {
			return nil, err
		}
		b.extract = extract
		if _, err := b.batch(ctx, "extracted", "bench", list); err != nil {
			return nil, err
		}
		for _, s := range b.done() {
			if s.Name == "extract" {
				out.Read = s.Read
			}
		}
		for info, err := range b.store.List(ctx, "") {
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(path.Base(info.Key), "postings-") {
				objects[i] = append(objects[i], info.Key)
			}
			if extract && strings.HasSuffix(info.Key, ".parquet") {
				out.Parts += info.Size
			}
		}
	}
	if len(objects[0]) == 0 || !slices.Equal(objects[0], objects[1]) {
		return nil, fmt.Errorf("postings collected %q and extracted %q are not the same", objects[0], objects[1])
	}
	return out, nil
}

// publish does what PublishWorkflow orders, and returns what the verification of the new segment counted.
func (b *builder) publish(ctx context.Context) (report verify.Report, err error) {
	var plan publish.Summary
	var seg publish.Built
	var done publish.Committed
	for _, step := range []struct {
		name string
		do   func(store blob.Store) error
	}{
		{"plan publish", func(store blob.Store) (err error) { plan, err = publish.Plan(ctx, store, "publish", 0); return err }},
		{"build segment", func(store blob.Store) (err error) {
			seg, err = publish.Build(ctx, store, plan.PlanKey, b.temp)
			return err
		}},
		{"verify segment", func(store blob.Store) (err error) {
			report, err = verify.Segment(ctx, store, seg.Segment, false, b.temp)
			return err
		}},
		{"commit", func(store blob.Store) (err error) {
			done, err = publish.Commit(ctx, store, plan.PlanKey, seg)
			return err
		}},
	} {
		if err := b.do(ctx, step.name, step.do); err != nil {
			return report, err
		}
	}
	if done.Version == "" || done.Existed {
		err = fmt.Errorf("the publish made no version: %+v", done)
	}
	return report, err
}

// copyStatement is what a user of DuckDB would run for sorted, compressed, partitioned Parquet of the same lists.
const copyStatement = `SET threads=2; SET preserve_insertion_order=false; COPY (SELECT CAST(regexp_extract(filename,'ds(\d+)',1) AS INT) dataset_id,
regexp_extract(url,'https?://([^/]+)',1) host, url FROM read_csv('*.txt', header=false, columns={'url':'VARCHAR'}, delim='\x01', quote='', escape='', filename=true)
ORDER BY dataset_id, host, url) TO 'out' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (dataset_id), ROW_GROUP_SIZE 122880)`

// copied is what a run of DuckDB reports.
type copied struct {
	Seconds float64 `json:"seconds"`
	Version string  `json:"version"`
	Peak    int64   `json:"peak"`
	CPU     float64 `json:"cpu"`
}

// duckCopy runs the statement on the lists of a folder. The result is its folder "out".
func duckCopy(ctx context.Context, lists string) (*copied, error) {
	if err := os.Chdir(lists); err != nil {
		return nil, err
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	out := new(copied)
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&out.Version); err != nil {
		return nil, err
	}
	started := time.Now()
	if _, err := db.ExecContext(ctx, copyStatement); err != nil {
		return nil, fmt.Errorf("DuckDB: %w", err)
	}
	out.Seconds = time.Since(started).Seconds()
	return out, nil
}

// duckCopyColumns has DuckDB write the columns of the URLs in a lake's parts, in a folder, to another.
func duckCopyColumns(ctx context.Context, parts, out string) error {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, fmt.Sprintf(`SET threads=2; SET preserve_insertion_order=false;
COPY (SELECT scheme, port, domain, host, path_query, dataset_id FROM read_parquet('%s/**/*.parquet', hive_partitioning=false) ORDER BY dataset_id, domain, host, path_query)
TO '%s' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (dataset_id), ROW_GROUP_SIZE 122880)`, parts, out))
	return err
}

// columnBytes adds up the compressed bytes of each column over the Parquet files below a folder. What is in no column,
// footers and page indexes, is under "".
func columnBytes(dir string) (columns map[string]int64, rows, total int64, err error) {
	columns = map[string]int64{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".parquet" {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		p, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rest := info.Size()
		for _, g := range p.Metadata().RowGroups {
			for _, c := range g.Columns {
				columns[strings.Join(c.MetaData.PathInSchema, ".")] += c.MetaData.TotalCompressedSize
				rest -= c.MetaData.TotalCompressedSize
			}
		}
		columns[""] += rest
		rows += p.NumRows()
		total += info.Size()
		return nil
	})
	if err == nil && rows == 0 {
		err = errors.New(dir + " holds no rows")
	}
	return columns, rows, total, err
}

// indexBytes adds up the files below a folder by name, those of all segments and shards together.
func indexBytes(dir string) (files map[string]int64, total int64, err error) {
	files = map[string]int64{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[filepath.Base(name)] += info.Size()
		total += info.Size()
		return nil
	})
	return files, total, err
}

// descending are the keys of sizes, the largest first.
func descending(sizes map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), strings.Compare(a, b))
	})
}

// writeLists generates the lists of a run.
func writeLists(rows int64, datasets int, dir string) (int64, error) {
	c, err := corpus.New(options(rows, datasets))
	if err != nil {
		return 0, err
	}
	return c.WriteDir(dir, slots)
}

// options are the corpus of a number of rows, fewer lists than wanted of few rows.
func options(rows int64, datasets int) corpus.Options {
	return corpus.Options{Seed: 1, Rows: rows, Datasets: int(min(int64(datasets), rows))}
}

// usualLists is the number of lists where nothing else is asked for.
const usualLists = 32
