package blobtest

import (
	"io"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

// Benchmark measures small puts, large writes, range reads and streams of a store.
func Benchmark(b *testing.B, s blob.Store) {
	const key = "urls/dataset_id=1/domain_prefix=00/part.parquet"
	b.Run("put 1 KiB", func(b *testing.B) {
		data := make([]byte, 1<<10)
		for b.Loop() {
			if _, err := s.Put(b.Context(), key, data, blob.Condition{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write 64 MiB", func(b *testing.B) {
		data := make([]byte, 1<<20)
		b.SetBytes(64 << 20)
		for b.Loop() {
			w, err := s.Create(b.Context(), key)
			if err != nil {
				b.Fatal(err)
			}
			for range 64 {
				if _, err := w.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := w.Finish(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 16 KiB of 64 MiB", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.ReadRange(b.Context(), key, 5<<20, 16<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stream 64 MiB", func(b *testing.B) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			r, err := s.Open(b.Context(), key, 0, -1)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
	})
}
