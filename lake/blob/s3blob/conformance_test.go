package s3blob_test

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

func TestS3Conforms(t *testing.T) {
	testenv.NewS3Server(t)
	blobtest.Run(t, func(t *testing.T) blob.Store { return openS3Store(t, testenv.S3(t)) })
}

func openS3Store(t testing.TB, rawURL string) blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func BenchmarkS3(b *testing.B) { blobtest.Benchmark(b, openS3Store(b, testenv.S3(b))) }
