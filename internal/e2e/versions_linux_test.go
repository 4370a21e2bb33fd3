package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// A site is taken down, dropped and deleted in a bucket with versioning, by the commands of
// docs/operation.md and through workers. The bucket still has it in older versions, of which status
// tells; after a purge no version of any object has a byte of its name.
func TestTakedownInABucketThatKeepsVersions(t *testing.T) {
	t.Parallel()
	s3 := testenv.NewS3Server(t)
	url := s3.NewBucketURL(t)
	in := t.TempDir()
	u := start(t, url, [][]string{allPools})
	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := u.starter(t, append(args, "--lake", u.lake)...)
		if code != want {
			t.Fatalf("starter %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out + errs
	}
	// Each program checks first that the bucket honours conditions. The gateway does not for keys
	// with a delete marker, so the worker and the takedown come before versioning. What is ingested
	// before becomes older versions with the id "null".
	run(0, "ingest", "--dataset", "first", "--wait",
		write(t, in, "first.txt", "https://elsewhere.test/\nhttps://qzxhost.kvwsite.test/qpathz\n"))
	var added struct{ ID string }
	u.starterJSON(t, &added, "takedown", "add", "--domain", "kvwsite.test", "--reason", "request 17", "--json", "--lake", u.lake)
	s3.SetVersioning(t, url, true)
	lists := t.TempDir()
	for n := range 4 {
		var text strings.Builder
		for i := range 40 {
			fmt.Fprintf(&text, "https://other%d.test/%d/%d\nhttps://qzxhost.kvwsite.test/qpathz/%d/%d\n", i%9, n, i, n, i)
		}
		write(t, lists, fmt.Sprintf("list%d.txt", n), text.String())
	}
	run(0, "ingest", "--datasets-from", "files", "--wait", lists)
	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	holders := func(s blob.Store) (keys []string) {
		for _, name := range []string{"kvwsite", "qzxhost", "qpathz"} {
			for _, key := range testlake.Holders(t, s, name) {
				if !strings.HasPrefix(key, catalog.TakedownRoot) {
					keys = append(keys, key)
				}
			}
		}
		return keys
	}
	run(0, "compact")
	run(0, "gc", "--keep", "1", "--grace", "0s")
	if left := holders(store); len(left) > 0 {
		t.Errorf("left of current versions: %q", left)
	}
	before := strings.Join(holders(testlake.OlderVersions(t, store)), " ")
	for _, kind := range []string{".parquet", "domains.txt", "postings-", "/null"} {
		if !strings.Contains(before, kind) {
			t.Errorf("no older version of %s has it: %s", kind, before)
		}
	}
	if out := run(3, "takedown", "status", added.ID); !strings.Contains(out, "until starter takedown purge "+added.ID) {
		t.Errorf("%s", out)
	}
	if out := run(0, "takedown", "purge", added.ID, "--dry-run"); !strings.Contains(out, "It would delete") {
		t.Errorf("%s", out)
	}
	run(3, "takedown", "status", added.ID)
	if out := run(0, "takedown", "purge", added.ID); !strings.Contains(out, "Deleted") {
		t.Errorf("%s", out)
	}
	if out := run(0, "takedown", "status", added.ID); !strings.Contains(out, "none of") {
		t.Errorf("%s", out)
	}
	if left := holders(testlake.OlderVersions(t, store)); len(left) > 0 {
		t.Errorf("left of older versions: %q", left)
	}
	if out := run(0, "takedown", "purge", added.ID); !strings.Contains(out, "Deleted 0 older versions") {
		t.Errorf("%s", out)
	}
	run(0, "verify", "--deep", "--all-versions")
}
