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
	open := func(t *testing.T, url string) blob.Store {
		t.Helper()
		store, err := blob.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	flipLakes["memory"] = func(t *testing.T) (blob.Store, int) {
		return blob.NewMemory(), testenv.Scaled(t, 5000, 50)
	}
	flipLakes["files"] = func(t *testing.T) (blob.Store, int) {
		return open(t, "file://"+filepath.ToSlash(t.TempDir())), testenv.Scaled(t, 2000, 50)
	}
	flipLakes["S3"] = func(t *testing.T) (blob.Store, int) {
		return open(t, testenv.S3(t)), testenv.Scaled(t, 300, 50)
	}
	// What the store tries again is no error of a reader or a writer.
	flipLakes["S3 over a bad network"] = func(t *testing.T) (blob.Store, int) {
		url := testenv.S3(t)
		faults := testenv.NewS3Faults(t, testenv.NewS3Server(t), 1)
		t.Setenv("AWS_ENDPOINT_URL_S3", faults.Endpoint)
		faults.Inject(0.005, nil, testenv.ServerError, testenv.SlowDown, testenv.ResetBefore, testenv.LostReply, testenv.ResetBody)
		t.Cleanup(func() { t.Logf("%d requests, %v", faults.Requests(), faults.Happened()) })
		return open(t, url), testenv.Scaled(t, 100, 20)
	}
}
