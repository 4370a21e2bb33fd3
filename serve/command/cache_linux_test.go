package command

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// TestCacheThatCannotBeWritten gives a server of a lake on S3 a cache folder that is full, or that
// is read-only. It says so, goes on with the version that it has, and serves the newest one when
// the folder can be written again.
func TestCacheThatCannotBeWritten(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		deny   func(dir string) (undo func())
	}{
		"full": {"has no room", func(dir string) func() { return testenv.FillDisk(t, dir, 0) }},
		"read-only": {"may not write", func(dir string) func() {
			testenv.MakeReadOnly(t, dir, true)
			return func() { testenv.MakeReadOnly(t, dir, false) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			url := testenv.S3(t)
			store, err := blob.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			publish := func(n int) {
				testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", n),
					[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", n)}})
				testlake.Publish(t, store)
			}
			publish(1)
			cache := testenv.SmallDisk(t, 1<<20)
			base, out, stop := program(t, "--lake", url, "--cache", cache)
			total := func(want int) func() bool {
				return func() bool {
					var answer map[string]any
					status := get(t, base+"/v1/domain/example.com/datasets/1/urls", &answer)
					return status == 200 && answer["total_est"] == float64(want)
				}
			}
			testenv.Until(t, "the first version", total(1))
			undo := test.deny(cache)
			publish(2)
			testenv.Until(t, "the reason", func() bool {
				var ready map[string]any
				status := get(t, base+"/readyz", &ready)
				return status == 200 && strings.Contains(fmt.Sprint(ready["error"]), test.reason)
			})
			if !total(1)() {
				t.Error("the version that was open is not served")
			}
			undo()
			testenv.Until(t, "the next version", total(2))

			// A server that starts with all copies in its folder writes nothing there.
			if code := stop(); code != cli.ExitDone {
				t.Errorf("exit code %d: %s", code, out)
			}
			undo = test.deny(cache)
			base, out, stop = program(t, "--lake", url, "--cache", cache)
			testenv.Until(t, "the version whose copies are there", total(2))
			if code := stop(); code != cli.ExitDone {
				t.Errorf("exit code %d: %s", code, out)
			}
			undo()
		})
	}
	t.Run("lake of files", func(t *testing.T) {
		dir := t.TempDir()
		store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir))
		if err != nil {
			t.Fatal(err)
		}
		testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "https://example.com/"}})
		testlake.Publish(t, store)
		cache := testenv.SmallDisk(t, 1<<20)
		testenv.MakeReadOnly(t, cache, true)
		base, out, stop := program(t, "--lake", dir, "--cache", filepath.Join(cache, "none"))
		testenv.Until(t, "an answer", func() bool {
			var answer map[string]any
			return get(t, base+"/v1/domain/example.com", &answer) == 200
		})
		if code := stop(); code != cli.ExitDone {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}
