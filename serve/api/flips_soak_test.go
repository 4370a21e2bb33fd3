//go:build soak

package api

import (
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	_ "github.com/urlake/urlake/lake/blob/s3blob" // s3:// URLs
)

func init() {
	flips = func(t *testing.T) int { return testenv.Scaled(t, 3000, 50) }
	open := func(t *testing.T, url string) blob.Store {
		t.Helper()
		store, err := blob.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	flipLakes["files"] = func(t *testing.T) blob.Store { return open(t, "file://"+filepath.ToSlash(t.TempDir())) }
	flipLakes["S3"] = func(t *testing.T) blob.Store { return open(t, testenv.S3(t)) }
}
