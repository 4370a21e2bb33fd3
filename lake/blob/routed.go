package blob

import (
	"context"
	"io"
	"iter"
)

// Routed is a store that other stores hold some objects of. It has the URL of Store.
type Routed struct {
	Store
	// From returns the store that a key is read from, or that is listed below a prefix.
	From func(key string) Store
	// To returns the store that a key is written to and deleted from. Nil is From.
	To func(key string) Store
}

func (r *Routed) to(key string) Store {
	if r.To == nil {
		return r.From(key)
	}
	return r.To(key)
}

func (r *Routed) Stat(ctx context.Context, key string) (Info, error) {
	return r.From(key).Stat(ctx, key)
}

func (r *Routed) Get(ctx context.Context, key string) ([]byte, Info, error) {
	return r.From(key).Get(ctx, key)
}

func (r *Routed) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return r.From(key).ReadRange(ctx, key, off, n)
}

func (r *Routed) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return r.From(key).Open(ctx, key, off, n)
}

func (r *Routed) Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error) {
	return r.to(key).Put(ctx, key, data, cond)
}

func (r *Routed) Create(ctx context.Context, key string) (Writer, error) {
	return r.to(key).Create(ctx, key)
}

// List lists the one store that From returns for the prefix.
func (r *Routed) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return r.From(prefix).List(ctx, prefix)
}

func (r *Routed) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := r.to(key).Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
