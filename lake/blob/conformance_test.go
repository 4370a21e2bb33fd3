package blob_test

import (
	"testing"

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

func BenchmarkLocal(b *testing.B) { blobtest.Benchmark(b, openStore(b, b.TempDir())) }
