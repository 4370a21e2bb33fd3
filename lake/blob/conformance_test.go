package blob_test

import (
	"io"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store { return blob.NewMemory() })
}

func TestLocalConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store { return openStore(t, "file://"+t.TempDir()) })
}

func TestS3Conforms(t *testing.T) {
	testenv.NewS3Server(t)
	blobtest.Run(t, func(t *testing.T) blob.Store { return openStore(t, testenv.S3(t)) })
}

func TestWrappersConform(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store {
		return blob.NewCounting(blobtest.NewFaulty(blob.NewMemory()))
	})
}

func openStore(t testing.TB, rawURL string) blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func BenchmarkStores(b *testing.B) {
	stores := map[string]func(b *testing.B) blob.Store{
		"local": func(b *testing.B) blob.Store { return openStore(b, b.TempDir()) },
		"s3":    func(b *testing.B) blob.Store { return openStore(b, testenv.S3(b)) },
	}
	const key = "urls/dataset_id=1/domain_prefix=00/part.parquet"
	for name, open := range stores {
		b.Run(name, func(b *testing.B) {
			s := open(b)
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
		})
	}
}
