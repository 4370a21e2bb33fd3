package testlake

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/blob"
)

// Holders returns the objects of a lake whose bytes have a text, also in zstd frames anywhere
// within them: of frame files and of pages of Parquet.
func Holders(tb testing.TB, store blob.Store, text string) (keys []string) {
	tb.Helper()
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<28))
	if err != nil {
		tb.Fatal(err)
	}
	defer dec.Close()
	has := func(data []byte) bool {
		if bytes.Contains(data, []byte(text)) {
			return true
		}
		for at := 0; ; at++ {
			next := bytes.Index(data[at:], []byte{0x28, 0xb5, 0x2f, 0xfd})
			if next < 0 {
				return false
			}
			at += next
			if err := dec.Reset(bytes.NewReader(data[at:])); err != nil {
				tb.Fatal(err)
			}
			inner, _ := io.ReadAll(dec) // until what is no zstd frame
			if bytes.Contains(inner, []byte(text)) {
				return true
			}
		}
	}
	for info, err := range store.List(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		data, _, err := store.Get(tb.Context(), info.Key)
		if err != nil {
			tb.Fatal(err)
		}
		if has(data) || strings.Contains(info.Key, text) {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// OlderVersions returns a store with the older versions of all objects of a bucket, under their
// keys with their ids.
func OlderVersions(tb testing.TB, store blob.Store) blob.Store {
	tb.Helper()
	versioned, ok := blob.AsVersioned(store)
	if !ok {
		tb.Fatal("the store keeps no versions")
	}
	out := blob.NewMemory()
	for v, err := range versioned.OldVersions(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		data, _, err := versioned.AtVersion(v).Get(tb.Context(), v.Key)
		if err == nil {
			_, err = out.Put(tb.Context(), v.Key+"/"+v.ID, data, blob.Condition{})
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return out
}
