package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// noProblems begins what verify prints about an intact version.
const noProblems = "No problems found"

// TestVerifyNamesDamagedObjects removes and changes each object of a lake in turn. Verify has to
// report it in one line that begins with its key.
func TestVerifyNamesDamagedObjects(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://a.test/1"}, {URL: "https://b.test/2"}})
	testlake.Ingest(t, store, "beta", "b1", []testlake.Record{{URL: "https://a.test/3"}})
	testlake.Publish(t, store)
	for _, deep := range []string{"--deep=false", "--deep"} {
		out, errs, code := starter(t, "verify", deep, "--lake", dir)
		if code != 0 || !strings.Contains(out, noProblems) {
			t.Fatalf("%s: exit %d, %s%s", deep, code, out, errs)
		}
	}
	testlake.DropOldPieces(t, store)
	objects := 0
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(info.Key))
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects++
		for _, damage := range []string{"missing", "flipped"} {
			if damage == "missing" &&
				(info.Key == catalog.RegistryCopyKey || strings.HasPrefix(info.Key, "rules/") || strings.HasPrefix(info.Key, catalog.PendingRoot)) {
				// Lakes have no copy at first, and no object of this program's list. Publishes
				// delete what waited for them.
				continue
			}
			bad := bytes.Clone(good)
			bad[len(bad)/2] ^= 8
			if damage == "missing" {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, bad, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, errs, code := starter(t, "verify", "--deep", "--lake", dir)
			if code != cli.ExitFailed || !strings.HasPrefix(out, info.Key+": ") || strings.Count(out, info.Key+": ") != 1 ||
				!strings.Contains(errs, "1 problem") {
				t.Errorf("%s %s: exit %d\n%s%s", info.Key, damage, code, out, errs)
			}
			if strings.Contains(out, noProblems) {
				t.Errorf("%s %s: %s", info.Key, damage, out)
			}
			if damage == "missing" && info.Key == catalog.ManifestKey {
				out, _, code := starter(t, "status", "--lake", dir)
				if code != 0 || !strings.Contains(out, info.Key) || strings.Contains(out, "none published") {
					t.Errorf("status without a manifest: exit %d, %s", code, out)
				}
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if objects < 12 {
		t.Errorf("the lake has only %d objects", objects)
	}
}
