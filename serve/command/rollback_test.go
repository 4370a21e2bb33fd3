package command

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// TestManifestThatIsRolledBackIsRefused puts an earlier manifest over a server's lake, and takes
// the manifest away. The server goes on with the version that it has, says why, and follows again
// when the manifest is a newer one.
func TestManifestThatIsRolledBackIsRefused(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	var manifests [][]byte
	var versions []string
	publish := func(n int) {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", n),
			[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", n)}})
		versions = append(versions, testlake.Publish(t, store).Version)
		data, _, err := store.Get(t.Context(), catalog.ManifestKey)
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, data)
	}
	put := func(data []byte) {
		if _, err := store.Put(t.Context(), catalog.ManifestKey, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		publish(n)
	}
	base, out, stop := program(t, "--lake", dir)
	defer stop()
	ready := func(version, reason string) func() bool {
		return func() bool {
			var answer map[string]any
			status := get(t, base+"/readyz", &answer)
			said := answer["error"] == nil
			if reason != "" {
				said = strings.Contains(fmt.Sprint(answer["error"]), reason)
			}
			return status == 200 && answer["version"] == version && said
		}
	}
	total := func(want int) {
		t.Helper()
		var answer map[string]any
		status := get(t, base+"/v1/domain/example.com/datasets/1/urls", &answer)
		if status != 200 || answer["total_est"] != float64(want) {
			t.Errorf("%d %v, want %d URLs", status, answer, want)
		}
	}
	testenv.Until(t, "the third version", ready(versions[2], ""))
	put(manifests[1])
	testenv.Until(t, "a rolled back manifest", ready(versions[2], "went backwards"))
	total(3)
	if err := store.Delete(t.Context(), catalog.ManifestKey); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "a manifest that is gone", ready(versions[2], "went backwards"))
	total(3)
	put(manifests[2])
	testenv.Until(t, "the manifest again", ready(versions[2], ""))

	// A publish brings a rolled back manifest forward.
	put(manifests[1])
	testenv.Until(t, "a rolled back manifest again", ready(versions[2], "went backwards"))
	publish(3)
	testenv.Until(t, "the manifest that takes its place", ready(versions[3], ""))
	total(4)
	publish(4)
	testenv.Until(t, "a newer manifest", ready(versions[4], ""))
	total(5)
	if !strings.Contains(out.String(), "following the manifest fails") || !strings.Contains(out.String(), "works again") {
		t.Errorf("the log does not say so: %s", out)
	}
}
