package prefixtree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
)

const (
	// defaultMemory holds some three million folders.
	defaultMemory = 256 << 20
	// minMemory is the least memory of a Collector.
	minMemory = 64 << 10
	// ctxNodes is the number of nodes between two looks at the context.
	ctxNodes = 1 << 16
)

// Options are a Builder's options. The zero value is valid.
type Options struct {
	// Format is the encoding; "" is Seed.
	Format Format
	// Dir is the folder of temporary files, which take about as much space as the index; "" is the
	// system's folder for temporary files.
	Dir string
	// Memory is how many bytes all Collectors hold together before they use a temporary file, and
	// later the parts of the perfect hash that are built at once; 0 is 256 MiB. Everything else
	// takes some 100 MB more. Of more than a billion folders a part alone can take more.
	Memory int64
	// Collectors is how many Collectors there are at most, among which Memory is divided; 0 is 1.
	Collectors int
	// Parallelism is the number of goroutines that work on the files of an index; 0 is GOMAXPROCS.
	Parallelism int
	// Created is the time in the manifest of S3Inv. It must follow from the input if the same input
	// is to give the same bytes; the zero time stands for 1970.
	Created time.Time
	// Progress, if not nil, is called now and then while an index is written, from one goroutine at
	// a time.
	Progress func(Progress)
}

// Stage is what Finish does.
type Stage string

// The stages, in this order.
const (
	StageTree  Stage = "tree"  // counted in folders with objects, of which all rows are an upper bound
	StageHash  Stage = "hash"  // in nodes
	StageCheck Stage = "check" // in files
)

// Progress says how far Finish has come.
type Progress struct {
	Stage       Stage
	Done, Total uint64
}

// Stats describes an index.
type Stats struct {
	Format   Format
	Nodes    uint64
	MaxDepth uint32
	// Total is the sum of all objects, and Tiers its share of each tier; nil if none has one.
	Total Sum
	Tiers []TierSum
	// Bytes is the size of all files.
	Bytes int64
	// Collisions is the number of prefixes whose FNV-1a is that of another. They are not in the
	// perfect hash; lookups find them by a binary search.
	Collisions uint64
}

// TierSum is the sum of the objects of one tier.
type TierSum struct {
	Tier Tier
	Sum
}

// Builder builds an index. Take Collectors from it, add all objects, call Finish, and Close in any
// case.
type Builder struct {
	opt        Options
	layout     *layout
	memory     int64 // of a Collector
	collectors []*Collector

	runs *keysort.Runs

	mu sync.Mutex // of what follows
	// rows and present are the number and the tiers of the rows in runs.
	rows    uint64
	present uint32
}

// NewBuilder returns an empty Builder.
func NewBuilder(opt Options) (*Builder, error) {
	if opt.Format == "" {
		opt.Format = Seed
	}
	b := &Builder{opt: opt, layout: layouts[opt.Format]}
	if b.layout == nil {
		return nil, fmt.Errorf("no format %q; there are %q", opt.Format, Formats())
	}
	if b.opt.Memory <= 0 {
		b.opt.Memory = defaultMemory
	}
	if b.opt.Parallelism <= 0 {
		b.opt.Parallelism = runtime.GOMAXPROCS(0)
	}
	b.opt.Collectors = max(1, b.opt.Collectors)
	b.runs = keysort.NewRuns(b.opt.Dir)
	b.memory = max(minMemory, b.opt.Memory/int64(b.opt.Collectors))
	return b, nil
}

// Collector returns a new Collector. Options.Collectors says how many there may be.
func (b *Builder) Collector() (*Collector, error) {
	if len(b.collectors) == b.opt.Collectors {
		return nil, fmt.Errorf("more than %d collectors", b.opt.Collectors)
	}
	c := newCollector(b, b.memory)
	b.collectors = append(b.collectors, c)
	return c, nil
}

// Close frees all resources, temporary files too. A second call does nothing.
func (b *Builder) Close() {
	b.runs.Close()
	b.collectors = nil
}

// release frees what the rows take, which are not needed any more.
func (b *Builder) release() {
	for _, c := range b.collectors {
		*c = Collector{}
	}
	b.runs.Close()
}

// Finish writes the index of all objects to the folder out, which must not exist. The folder
// appears there whole and durable, or not at all. No Collector may be used any more.
func (b *Builder) Finish(ctx context.Context, out string) (Stats, error) {
	stats, err := b.finish(ctx, filepath.Clean(out))
	if err != nil {
		return Stats{}, fmt.Errorf("write index %s: %w", out, err)
	}
	return stats, nil
}

// CheckOut returns an error if Finish cannot write an index to the folder out, because there is
// something or its parent is absent.
func CheckOut(out string) error {
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s exists; an index is written to a new folder", out)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(filepath.Clean(out))
	switch st, err := os.Stat(parent); {
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is no folder", parent)
	}
	return nil
}

func (b *Builder) finish(ctx context.Context, out string) (stats Stats, err error) {
	if err := CheckOut(out); err != nil {
		return Stats{}, err
	}
	parent := filepath.Dir(out)
	dir, err := os.MkdirTemp(parent, "."+filepath.Base(out)+"-*.tmp")
	if err != nil {
		return Stats{}, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	w := &writer{ctx: ctx, b: b, dir: dir, layout: b.layout}
	if stats, err = w.write(); err != nil {
		return Stats{}, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return Stats{}, err
	}
	if err := syncAll(ctx, dir); err != nil {
		return Stats{}, err
	}
	// A rename would replace an empty folder that somebody has made meanwhile, and nothing else.
	if err := os.Rename(dir, out); err != nil {
		return Stats{}, err
	}
	return stats, syncFolder(parent)
}

// sources returns the rows that are not in runs, sorted, and how many rows there are at most.
func (b *Builder) sources(ctx context.Context) ([]keysort.Source, uint64, error) {
	all := make([]keysort.Source, len(b.collectors))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.opt.Parallelism)
	for i, c := range b.collectors {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			all[i] = c.sorted()
			c.table = nil
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	rows := b.rows
	for _, c := range b.collectors {
		rows += uint64(len(c.rows))
	}
	return all, rows, nil
}

func (b *Builder) progress(stage Stage, done, total uint64) {
	if b.opt.Progress != nil {
		b.opt.Progress(Progress{stage, done, total})
	}
}
