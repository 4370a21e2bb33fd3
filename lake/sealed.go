package lake

import (
	"context"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// ReadSealed reads and decodes a sealed JSON document, as codec.Unseal does.
func ReadSealed(ctx context.Context, store blob.Store, key string, newest int, v any) error {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return err
	}
	return codec.Unseal(data, key, newest, v)
}

// WriteSealed writes a sealed JSON document, whether it is there already or not.
func WriteSealed(ctx context.Context, store blob.Store, key string, v any) error {
	data, err := codec.Seal(v)
	if err == nil {
		_, err = store.Put(ctx, key, data, blob.Condition{})
	}
	return err
}
