package lake

import (
	"context"
	"errors"
	"fmt"

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

// KeyedHeader begins a sealed document that holds the key under which it is stored, so that a
// document found under the key of another is noticed.
type KeyedHeader struct {
	Format int    `json:"format"`
	Object string `json:"object"`
}

func (h *KeyedHeader) keyed() *KeyedHeader { return h }

// Keyed is a document that begins with a KeyedHeader.
type Keyed interface{ keyed() *KeyedHeader }

// LoadSealed reads and decodes a sealed JSON document, as codec.Unseal does, and returns its ETag,
// "" if there is none. Damage comes with the ETag, so that whoever can do without the document
// replaces it.
func LoadSealed(ctx context.Context, store blob.Store, key string, newest int, v any) (etag string, err error) {
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = codec.Unseal(data, key, newest, v)
	}
	return info.ETag, err
}

// LoadKeyed is LoadSealed of a document with its key. One of another format is a codec.FormatError,
// one of another key is damage.
func LoadKeyed(ctx context.Context, store blob.Store, key string, format int, doc Keyed) (etag string, err error) {
	etag, err = LoadSealed(ctx, store, key, format, doc)
	switch h := doc.keyed(); {
	case err != nil || etag == "":
	case h.Format != format:
		err = &codec.FormatError{Key: key, Found: h.Format, Known: format}
	case h.Object != key:
		err = codec.Corrupt(key, "object", -1, key, h.Object)
	}
	return etag, err
}

// RequireKeyed is LoadKeyed of a document that an earlier step of a run has written.
func RequireKeyed(ctx context.Context, store blob.Store, key string, format int, doc Keyed) error {
	etag, err := LoadKeyed(ctx, store, key, format, doc)
	if err == nil && etag == "" {
		err = fmt.Errorf("%s: %w; an earlier step has not finished, or the run was cleaned up", key, blob.ErrNotExist)
	}
	return err
}

// SaveKeyed sets the header of a document, writes it sealed and returns its ETag.
func SaveKeyed(
	ctx context.Context, store blob.Store, key string, format int, doc Keyed, cond blob.Condition,
) (etag string, err error) {
	*doc.keyed() = KeyedHeader{format, key}
	data, err := codec.Seal(doc)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	info, err := store.Put(ctx, key, data, cond)
	return info.ETag, err
}

// IsDamage reports whether an error says that an object of a lake is damaged, cut or missing.
func IsDamage(err error) bool {
	return errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange)
}
