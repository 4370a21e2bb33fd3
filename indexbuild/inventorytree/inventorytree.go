// Package inventorytree builds the path-tree index of the objects that reports of S3 Inventory
// list.
package inventorytree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/lake/ingest/inventory"
)

// Options are options of Build. The zero value is valid.
type Options struct {
	// Tree is passed to the builder. Build sets Collectors, Created and Progress, and Dir, if it is
	// empty, to the folder in which the index is.
	Tree prefixtree.Options
	// CSV says how files of CSV are read that no manifest describes.
	CSV inventory.CSV
	// Progress, if not nil, is called now and then, from one goroutine at a time.
	Progress func(Progress)
}

// Progress says how far a build has come: files of the report, and objects, while they are read;
// then Tree.
type Progress struct {
	Files, TotalFiles int
	Objects           uint64
	Tree              prefixtree.Progress
}

// Result describes what was built.
type Result struct {
	prefixtree.Stats
	// Bucket is the bucket that the report lists, "" if it does not say.
	Bucket string
	Files  int // that were read
	// Old is the number of older versions and delete markers, which are not in the tree. Unsized is
	// the number of objects without size, which count as 0 bytes.
	Old, Unsized uint64
}

// InputError says what is wrong with an input.
type InputError struct {
	Input string // as the user wrote it, or the URL or path of a data file
	Err   error
}

func (e *InputError) Error() string { return e.Input + ": " + e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

// task is a file that is read.
type task struct {
	object
	read func(yield func(inventory.Object) error) error
}

// seen has the files that are to be read, with the inputs that list them.
type seen struct {
	byName map[string]string
	local  map[time.Time][]seenFile // by the time of their last change
}

type seenFile struct {
	os.FileInfo
	input string
}

// add adds a file that an input lists. It returns the input that lists it already, perhaps by
// another path or a link, or "".
func (s *seen) add(o object, input string) (before string, err error) {
	if o.store != nil {
		before = s.byName[o.name]
		s.byName[o.name] = input
		return before, nil
	}
	st, err := os.Stat(o.path)
	if err != nil {
		return "", plain(err)
	}
	for _, f := range s.local[st.ModTime()] {
		if os.SameFile(f.FileInfo, st) {
			return f.input, nil
		}
	}
	s.local[st.ModTime()] = append(s.local[st.ModTime()], seenFile{st, input})
	return "", nil
}

// Build builds the index of all objects that the inputs list and writes it to the folder out, which
// must not exist. An input is a manifest.json of S3 Inventory, a file of CSV, compressed with gzip
// or not, or a file of Parquet; a path, or a URL of file or s3. Objects that are listed twice count
// twice, so each input is given once. Older versions and delete markers are left out. All objects
// must be in one bucket.
func Build(ctx context.Context, out string, inputs []string, opt Options) (Result, error) {
	if err := prefixtree.CheckOut(out); err != nil {
		return Result{}, err
	}
	in := &sources{}
	defer in.close()
	var tasks []task
	var created time.Time
	listed := seen{map[string]string{}, map[time.Time][]seenFile{}}
	for _, name := range inputs {
		found, at, err := in.tasks(ctx, name, opt.CSV)
		if err != nil {
			return Result{}, inputError(name, err)
		}
		if at.After(created) {
			created = at
		}
		for _, t := range found {
			before, err := listed.add(t.object, name)
			if err != nil {
				return Result{}, &InputError{t.name, err}
			}
			if before != "" {
				return Result{}, &InputError{name, fmt.Errorf("%s is listed by %s already, and its objects would count twice", t.name, before)}
			}
		}
		tasks = append(tasks, found...)
	}

	opt.Tree.Created = created
	if opt.Tree.Dir == "" {
		opt.Tree.Dir = filepath.Dir(filepath.Clean(out))
	}
	// Files of CSV are decompressed and parsed by one goroutine each.
	opt.Tree.Collectors = max(1, min(len(tasks), maxReaders(opt.Tree.Parallelism)))
	c := &count{opt: opt, total: len(tasks)}
	opt.Tree.Progress = func(p prefixtree.Progress) { c.show(func(s *Progress) { s.Tree = p }) }
	b, err := prefixtree.NewBuilder(opt.Tree)
	if err != nil {
		return Result{}, err
	}
	defer b.Close()
	if err := c.readAll(ctx, b, opt.Tree.Collectors, tasks); err != nil {
		return Result{}, err
	}
	stats, err := b.Finish(ctx, out)
	if err != nil {
		return Result{}, err
	}
	bucket, _ := c.bucket.Load().(string)
	return Result{Stats: stats, Bucket: bucket, Files: len(tasks), Old: c.old.Load(), Unsized: c.unsized.Load()}, nil
}

func inputError(name string, err error) error {
	var in *InputError
	if errors.As(err, &in) || errors.Is(err, context.Canceled) {
		return err
	}
	return &InputError{name, err}
}

// count is what the readers of all files count.
type count struct {
	opt          Options
	total        int
	objects      atomic.Uint64
	old, unsized atomic.Uint64
	bucket       atomic.Value // string, of the first object that has one

	mu       sync.Mutex
	progress Progress
}

// show calls Options.Progress.
func (c *count) show(set func(*Progress)) {
	if c.opt.Progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set(&c.progress)
	c.progress.TotalFiles, c.progress.Objects = c.total, c.objects.Load()
	c.opt.Progress(c.progress)
}

// progressObjects is the number of objects between two calls of Options.Progress and two looks at
// the context.
const progressObjects = 1 << 15

// readAll reads the files, as many at once as there are collectors.
func (c *count) readAll(ctx context.Context, b *prefixtree.Builder, collectors int, tasks []task) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan task)
	g.Go(func() error {
		defer close(queue)
		for _, t := range tasks {
			select {
			case queue <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range collectors {
		collector, err := b.Collector()
		if err != nil {
			return err
		}
		g.Go(func() error {
			for t := range queue {
				if err := c.read(ctx, collector, t); err != nil {
					return inputError(t.name, err)
				}
				c.show(func(p *Progress) { p.Files++ })
			}
			return nil
		})
	}
	return g.Wait()
}

// read adds the objects of one file.
func (c *count) read(ctx context.Context, collector *prefixtree.Collector, t task) error {
	n := uint64(0)
	var key []byte
	bucket := ""
	err := t.read(func(o inventory.Object) error {
		if n++; n%progressObjects == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.objects.Add(progressObjects)
			c.show(func(*Progress) {})
		}
		if o.Old {
			c.old.Add(1)
			return nil
		}
		if o.Bucket != bucket {
			if err := c.sameBucket(o.Bucket); err != nil {
				return err
			}
			bucket = o.Bucket
		}
		size := uint64(0)
		if o.Size < 0 {
			c.unsized.Add(1)
		} else {
			size = uint64(o.Size)
		}
		key = append(key[:0], o.Key...)
		return collector.Add(key, size, prefixtree.TierOf(o.StorageClass, o.AccessTier))
	})
	c.objects.Add(n % progressObjects)
	return err
}

// sameBucket returns an error if an object of another bucket was read.
func (c *count) sameBucket(bucket string) error {
	if bucket == "" || c.bucket.CompareAndSwap(nil, bucket) {
		return nil
	}
	if first, _ := c.bucket.Load().(string); first != bucket {
		names := []string{first, bucket}
		slices.Sort(names)
		return fmt.Errorf("objects of the buckets %s; build a tree for each bucket", strings.Join(names, " and "))
	}
	return nil
}
