package rebuild

import (
	"context"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/blob"
)

// overlay is a lake in which other stores hold the postings of batches, and the files of a segment.
// The lake's own postings cannot be seen through it, unless they are let through.
type overlay struct {
	blob.Routed
	// staged has the postings that earlier steps made, nil for none.
	staged blob.Store
	// local takes what is written, and has it.
	local blob.Store
	// segment is the prefix of the segment's files, which are in local; "" for none.
	segment string

	mu      sync.Mutex
	made    map[string]bool // keys of postings in local
	through map[string]bool // keys of postings that are the lake's
}

// isPostings reports whether an object is one of a batch's postings.
func isPostings(key string) bool {
	return strings.HasPrefix(key, "batches/dataset_id=") && strings.HasSuffix(key, ".zst")
}

func newOverlay(store, local, staged blob.Store) *overlay {
	o := &overlay{local: local, staged: staged, made: map[string]bool{}, through: map[string]bool{}}
	o.Routed = blob.Routed{Store: store, From: o.of, To: o.into}
	return o
}

// let lets the lake's own postings of a batch through.
func (o *overlay) let(keys ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		o.through[key] = true
	}
}

// of returns the store of a key that is read.
func (o *overlay) of(key string) blob.Store {
	switch {
	case o.segment != "" && strings.HasPrefix(key, o.segment):
		return o.local
	case !isPostings(key):
		return o.Store
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.through[key]:
		return o.Store
	case o.made[key] || o.staged == nil:
		return o.local
	}
	return o.staged
}

// into returns the store of a key that is written.
func (o *overlay) into(key string) blob.Store {
	if !isPostings(key) {
		return o.of(key)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made[key] = true
	return o.local
}

// below is a store whose objects are below a folder of another.
type below struct {
	blob.Store
	folder string
}

func (b below) Stat(ctx context.Context, key string) (blob.Info, error) {
	info, err := b.Store.Stat(ctx, b.folder+key)
	info.Key = key
	return info, err
}

func (b below) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	data, info, err := b.Store.Get(ctx, b.folder+key)
	info.Key = key
	return data, info, err
}

func (b below) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return b.Store.ReadRange(ctx, b.folder+key, off, n)
}

func (b below) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return b.Store.Open(ctx, b.folder+key, off, n)
}

func (b below) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	info, err := b.Store.Put(ctx, b.folder+key, data, cond)
	info.Key = key
	return info, err
}

func (b below) Create(ctx context.Context, key string) (blob.Writer, error) {
	return b.Store.Create(ctx, b.folder+key)
}

func (b below) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for info, err := range b.Store.List(ctx, b.folder+prefix) {
			info.Key = strings.TrimPrefix(info.Key, b.folder)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (b below) Delete(ctx context.Context, keys ...string) error {
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = b.folder + key
	}
	return b.Store.Delete(ctx, full...)
}
