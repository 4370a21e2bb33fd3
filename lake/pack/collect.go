package pack

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
)

// writes is how many objects Write writes at once.
const writes = 16

// Collector is a store that keeps the record, the postings and the list of rejects of one batch in
// memory, for Write, when they are written to it. Everything else is written to the store. If the
// objects have more than MaxBatch bytes together, the Collector writes them to the store too, and
// keeps none. The objects that it keeps cannot be read from it.
type Collector struct {
	blob.Store

	mu      sync.Mutex
	objects []object
	bytes   int
	large   bool // the batch is too large for a pack
}

// NewCollector returns a Collector of a batch in a store.
func NewCollector(store blob.Store) *Collector { return &Collector{Store: store} }

// Unwrap returns the store inside.
func (c *Collector) Unwrap() blob.Store { return c.Store }

// Bytes returns how many bytes the Collector keeps.
func (c *Collector) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Put implements blob.Store. An object that is kept is put without a condition, as all objects of a
// batch are, since they are named by their content.
func (c *Collector) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if _, ok := batchOf(key); !ok || cond != (blob.Condition{}) {
		return c.Store.Put(ctx, key, data, cond)
	}
	return c.keep(ctx, key, bytes.Clone(data))
}

// keep keeps an object, or writes it and all that were kept if they are too large.
func (c *Collector) keep(ctx context.Context, key string, data []byte) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects = slices.DeleteFunc(c.objects, func(o object) bool {
		if o.key == key {
			c.bytes -= len(o.data)
		}
		return o.key == key
	})
	c.objects = append(c.objects, object{key, data})
	c.bytes += len(data)
	if c.bytes > MaxBatch {
		c.large = true
	}
	if c.large {
		return blob.Info{Key: key, Size: int64(len(data))}, c.flush(ctx)
	}
	return blob.Info{Key: key, Size: int64(len(data)), ETag: digest(data)}, nil
}

// flush writes the objects that were kept to the store, in the order in which they came.
func (c *Collector) flush(ctx context.Context) error {
	for len(c.objects) > 0 {
		o := c.objects[0]
		if _, err := c.Store.Put(ctx, o.key, o.data, blob.Condition{}); err != nil {
			return err
		}
		c.objects, c.bytes = c.objects[1:], c.bytes-len(o.data)
	}
	return nil
}

// Create implements blob.Store. A writer keeps up to MaxBatch bytes before it writes to the store.
func (c *Collector) Create(ctx context.Context, key string) (blob.Writer, error) {
	if _, ok := batchOf(key); !ok {
		return c.Store.Create(ctx, key)
	}
	if err := blob.CheckKey(key); err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, c: c, key: key}, nil
}

// writer is a blob.Writer of an object that may be kept.
type writer struct {
	ctx  context.Context
	c    *Collector
	key  string
	buf  []byte
	to   blob.Writer // nil as long as the object may be kept
	done bool
}

func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.done:
		return 0, blob.OpError("write", w.c.URL(), w.key, blob.ErrWriterDone)
	case w.to != nil:
		return w.to.Write(p)
	case len(w.buf)+len(p) <= MaxBatch:
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	to, err := w.c.Store.Create(w.ctx, w.key)
	if err != nil {
		return 0, err
	}
	w.to = to
	if _, err := to.Write(w.buf); err != nil {
		return 0, err
	}
	w.buf = nil
	return to.Write(p)
}

func (w *writer) Finish() (blob.Info, error) {
	switch {
	case w.done:
		return blob.Info{}, blob.OpError("finish", w.c.URL(), w.key, blob.ErrWriterDone)
	case w.ctx.Err() != nil:
		w.Abort()
		return blob.Info{}, w.ctx.Err()
	}
	w.done = true
	if w.to == nil {
		return w.c.keep(w.ctx, w.key, w.buf)
	}
	info, err := w.to.Finish()
	if err != nil {
		return info, err
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.large = true
	return info, w.c.flush(w.ctx)
}

func (w *writer) Abort() {
	if w.to != nil {
		w.to.Abort()
	}
	w.done, w.buf = true, nil
}

// Write writes packs of the objects that batches have collected, and returns the name of the pack
// of each batch. The name is "" for a batch that has none, because its objects are too large.
// Collectors must not be written to any more. The packs depend on the set of the batches, not on
// their order. Write may be repeated.
func Write(ctx context.Context, store blob.Store, batches []*Collector) (names []string, err error) {
	type batch struct {
		index   int
		objects []object
		bytes   int
	}
	var sorted []batch
	for i, c := range batches {
		if len(c.objects) == 0 {
			continue
		}
		b := batch{i, slices.Clone(c.objects), c.bytes}
		slices.SortFunc(b.objects, compareObjects)
		sorted = append(sorted, b)
	}
	slices.SortFunc(sorted, func(a, b batch) int { return compareObjects(a.objects[0], b.objects[0]) })
	names = make([]string, len(batches))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writes)
	for len(sorted) > 0 {
		n, size := 0, 0
		for n < len(sorted) && (n == 0 || size+sorted[n].bytes <= targetBytes) {
			size += sorted[n].bytes
			n++
		}
		var objects []object
		for _, b := range sorted[:n] {
			objects = append(objects, b.objects...)
		}
		slices.SortFunc(objects, compareObjects)
		for i := 1; i < len(objects); i++ {
			if objects[i].key == objects[i-1].key {
				return nil, fmt.Errorf("write pack: two batches have %s", objects[i].key)
			}
		}
		data := encode(objects)
		name := digest(data)
		for _, b := range sorted[:n] {
			names[b.index] = name
		}
		sorted = sorted[n:]
		g.Go(func() error {
			_, err := store.Put(ctx, Key(name), data, blob.Condition{})
			return err
		})
	}
	return names, g.Wait()
}

func compareObjects(a, b object) int { return strings.Compare(a.key, b.key) }
