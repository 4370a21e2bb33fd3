package treebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/ingest/inventory"
)

// InventoryOptions are options of Inventory. A field that is zero has its default.
type InventoryOptions struct {
	// Format is the index's format, by default prefixtree.Seed.
	Format prefixtree.Format
	// TempDir is where temporary files are written, by default the folder in which the index is.
	TempDir string
	// MemoryBytes bounds the memory of folders that are sorted, and later of the parts of the
	// perfect hash that are built at once. Everything else takes up to 400 MB more, besides the
	// mapped files of the index.
	MemoryBytes int64
	// CSV says how files of CSV are read that no manifest describes.
	CSV inventory.CSV
	// Progress, if not nil, is called now and then, from one goroutine at a time.
	Progress func(InventoryProgress)
}

// InventoryProgress says how far a build has come: files of the reports that were read, their
// objects, and folders that were written.
type InventoryProgress struct {
	Files, TotalFiles int
	Objects, Folders  uint64
}

// InventoryResult describes what was built.
type InventoryResult struct {
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

func inputError(name string, err error) error {
	var in *InputError
	if err == nil || errors.As(err, &in) || errors.Is(err, context.Canceled) {
		return err
	}
	return &InputError{name, err}
}

// Inventory builds the index of all objects that the inputs list and writes it to the folder out,
// which must not exist. An input is a manifest.json of S3 Inventory, a file of CSV, compressed with
// gzip or not, or a file of Parquet; a path, or a URL of file or s3. Objects that are listed twice
// count twice, so each input is given once. Older versions and delete markers are left out. All
// objects must be in one bucket.
func Inventory(ctx context.Context, out string, inputs []string, opt InventoryOptions) (InventoryResult, error) {
	opt.Format = cmp.Or(opt.Format, prefixtree.Seed)
	opt.TempDir = cmp.Or(opt.TempDir, filepath.Dir(filepath.Clean(out)))
	opt.MemoryBytes = cmp.Or(opt.MemoryBytes, DefaultMemoryBytes)
	w, err := prefixtree.Create(out, opt.Format)
	if err != nil {
		return InventoryResult{}, err
	}
	defer w.Abort()
	tasks, created, err := listTasks(ctx, inputs, opt.CSV)
	if err != nil {
		return InventoryResult{}, err
	}
	c := &inventoryBuilder{opt: opt, runs: keysort.NewRuns(opt.TempDir), out: w}
	c.progress.TotalFiles = len(tasks)
	defer c.runs.Close()
	sources, err := c.readAll(ctx, tasks)
	if err != nil {
		return InventoryResult{}, err
	}
	if err := c.write(ctx, sources); err != nil {
		return InventoryResult{}, fmt.Errorf("write index %s: %w", out, err)
	}
	if c.result.Stats, err = w.Finish(ctx, opt.MemoryBytes, created); err != nil {
		return InventoryResult{}, fmt.Errorf("write index %s: %w", out, err)
	}
	c.result.Files = len(tasks)
	return c.result, nil
}

// listTasks returns the files that inputs stand for, and when the last report was begun.
func listTasks(ctx context.Context, inputs []string, csv inventory.CSV) (all []task, created time.Time, err error) {
	in := &sources{}
	before := seen{map[string]string{}, map[time.Time][]seenFile{}}
	for _, name := range inputs {
		found, at, err := in.tasks(ctx, name, csv)
		if err != nil {
			return nil, created, inputError(name, err)
		}
		if at.After(created) {
			created = at
		}
		for _, t := range found {
			if other, err := before.add(t.object, name); err != nil {
				return nil, created, &InputError{t.name, err}
			} else if other != "" {
				return nil, created, &InputError{name, fmt.Errorf("%s is listed by %s already, and its objects would count twice", t.name, other)}
			}
		}
		all = append(all, found...)
	}
	return all, created, nil
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

// inventoryBuilder builds an index.
type inventoryBuilder struct {
	opt  InventoryOptions
	runs *keysort.Runs
	out  *prefixtree.Writer

	mu       sync.Mutex // of what follows, while files are read
	progress InventoryProgress
	result   InventoryResult
}

// progressObjects is the number of objects, or of folders, between two calls of Progress.
const progressObjects = 1 << 15

// note adds what was read of a file, and calls Progress. It returns an error if an object of
// another bucket was read.
func (b *inventoryBuilder) note(files int, objects, old uint64, bucket string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress.Files += files
	b.progress.Objects += objects
	b.result.Old += old
	if b.opt.Progress != nil {
		b.opt.Progress(b.progress)
	}
	switch first := b.result.Bucket; {
	case bucket == "" || bucket == first:
	case first == "":
		b.result.Bucket = bucket
	default:
		return fmt.Errorf("objects of the buckets %s and %s; build a tree for each bucket", min(first, bucket), max(first, bucket))
	}
	return nil
}

// readAll reads the files, two for each processor at once, since those of a bucket have to be
// waited for. It returns the folders that are not in runs.
func (b *inventoryBuilder) readAll(ctx context.Context, tasks []task) ([]keysort.Source, error) {
	rest := make([]keysort.Source, max(1, min(len(tasks), 2*runtime.GOMAXPROCS(0))))
	queue := make(chan task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)
	g, ctx := errgroup.WithContext(ctx)
	for i := range rest {
		g.Go(func() error {
			c := &collector{sorter: sorter{runs: b.runs, budget: int(b.opt.MemoryBytes) / len(rest)}}
			for t := range queue {
				if err := b.read(ctx, c, t); err != nil {
					return inputError(t.name, err)
				}
			}
			err := c.close()
			rest[i] = c.sorter.Sorted()
			return err
		})
	}
	return rest, g.Wait()
}

// read counts the objects of one file.
func (b *inventoryBuilder) read(ctx context.Context, c *collector, t task) error {
	var objects, old uint64
	bucket := ""
	err := t.read(func(o inventory.Object) error {
		if objects++; objects == progressObjects {
			if err := cmp.Or(ctx.Err(), b.note(0, objects, old, bucket)); err != nil {
				return err
			}
			objects, old = 0, 0
		}
		if o.Old {
			old++
			return nil
		}
		if o.Bucket != bucket {
			if bucket = o.Bucket; bucket != "" {
				if err := b.note(0, 0, 0, bucket); err != nil {
					return err
				}
			}
		}
		if len(o.Key) > prefixtree.MaxKey {
			return fmt.Errorf("key %.80q…: %d bytes, at most %d", o.Key, len(o.Key), prefixtree.MaxKey)
		}
		folder := o.Key[:strings.LastIndexByte(o.Key, '/')+1]
		if c.counts.Rows == 0 || string(c.path()) != folder {
			if err := c.open(segment.Key{}, "", folder, 0); err != nil {
				return err
			}
		}
		c.count(o.Size)
		return nil
	})
	return cmp.Or(err, ctx.Err(), b.note(1, objects, old, bucket))
}

var errOverflow = errors.New("the sum of the sizes exceeds 64 bits")

// write writes the nodes of all folders. There is at least the root.
func (b *inventoryBuilder) write(ctx context.Context, sources []keysort.Source) error {
	t := tree{closed: func(n *node) error {
		sum := pathtree.Counts{}
		if len(n.Entries) > 0 {
			sum = n.Entries[0].Counts
		}
		if n.position == 0 {
			b.result.Unsized = uint64(sum.Rows - sum.Sized)
		}
		if sum.Size.Hi > 0 {
			return errOverflow
		}
		return b.out.Close(prefixtree.Node{
			Position: n.position, End: n.end, Depth: uint32(n.depth), MaxDepth: uint32(n.maxDepth),
			Objects: uint64(sum.Rows), Bytes: sum.Size.Lo,
		})
	}}
	t.opened = func(path []byte) error {
		if b.progress.Folders = t.count; t.count%progressObjects == 0 && b.opt.Progress != nil {
			b.opt.Progress(b.progress)
		}
		return b.out.Open(path, len(t.stack)-1)
	}
	if err := t.merge(ctx, b.runs, sources, nil); err != nil || t.count > 0 {
		return err
	}
	if err := t.push(nil); err != nil {
		return err
	}
	return t.finish(nil)
}
