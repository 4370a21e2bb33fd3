//go:build soak

package api

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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

// TestSoakOfEverything is what a server lives through, for five minutes or as long as
// URLAKE_SOAK_TIME says, e.g. 30m: requests of a Zipf mix for domains of which few have
// most of the URLs, a version every few seconds, takedowns, compactions and collections, one of a
// hundred reads of the server failing, and a third of the clients slow. Every answer is compared
// with what the lake holds. No request fails but by a fault that was injected or because it was
// shed, and nothing grows.
func TestSoakOfEverything(t *testing.T) {
	during := time.Duration(testenv.Scaled(t, 300, 20)) * time.Second
	if text := os.Getenv("URLAKE_SOAK_TIME"); text != "" {
		var err error
		if during, err = time.ParseDuration(text); err != nil || during <= 0 {
			t.Fatalf("URLAKE_SOAK_TIME is %q; use e.g. 30m", text)
		}
	}
	url := "file://" + filepath.ToSlash(t.TempDir())
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	flipUnderLoad(t, flipLoad{
		store: store, during: during, pause: 2 * time.Second, readers: 12, slow: 4, walks: 40, zipf: true, faults: 0.01,
	})
}
