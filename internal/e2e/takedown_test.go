package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// A site is taken down, dropped and deleted by the commands of docs/operation.md, through workers:
// from large and small lists, after which no file of the lake has a byte of its name.
func TestTakedownFromRequestToProof(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir)+"/lake", [][]string{allPools})
	lists := func(n int) string {
		var text strings.Builder
		for i := range 40 {
			fmt.Fprintf(&text, "https://other%d.test/%d/%d\n", i%9, n, i)
			if n != 4 { // one list has none of the site
				fmt.Fprintf(&text, "https://qzxhost.kvwsite.test/qpathz/%d/%d\n", n, i)
			}
		}
		return text.String()
	}
	for i := range 5 {
		write(t, in, fmt.Sprintf("list%d.txt", i), lists(i))
	}
	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := u.starter(t, append(args, "--lake", u.lake)...)
		if code != want {
			t.Fatalf("starter %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out
	}
	run(0, "ingest", "--datasets-from", "files", "--wait", in)
	for i := range 3 {
		file := write(t, t.TempDir(), "day.txt", lists(10+i))
		run(0, "ingest", "--dataset", "days", "--batch", fmt.Sprint("d", i), "--wait", file)
	}
	u.awaitTidied(t) // so that nothing is in staging
	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	holders := func() (keys []string) {
		for _, text := range []string{"kvwsite", "qzxhost", "qpathz"} {
			for _, key := range testlake.Holders(t, store, text) {
				if !strings.HasPrefix(key, catalog.TakedownRoot) {
					keys = append(keys, key)
				}
			}
		}
		return keys
	}
	if found := strings.Join(holders(), " "); !strings.Contains(found, "postings-") || !strings.Contains(found, ".parquet") ||
		!strings.Contains(found, "domains.txt") {
		t.Fatalf("before: %s", found)
	}
	var added struct{ ID string }
	u.starterJSON(t, &added, "takedown", "add", "--domain", "kvwsite.test", "--reason", "request 17", "--json", "--lake", u.lake)
	if out := run(3, "takedown", "status", added.ID); !strings.Contains(out, `"starter compact" makes a version without it`) {
		t.Errorf("%s", out)
	}
	var rows struct{ Dropped, Unions int64 }
	u.starterJSON(t, &rows, "compact", "--json", "--lake", u.lake)
	if rows.Dropped != 7*40 || rows.Unions != 5 {
		t.Errorf("%+v", rows)
	}
	if out := run(3, "takedown", "status", added.ID); !strings.Contains(out, `"starter gc" drops the versions`) {
		t.Errorf("%s", out)
	}
	run(0, "gc", "--keep", "1", "--grace", "0s")
	if left := holders(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if out := run(0, "takedown", "status", added.ID); !strings.Contains(out, "No object that was looked at holds any of it.") {
		t.Errorf("%s", out)
	}
	run(0, "verify", "--deep", "--all-versions")
	if out := run(0, "datasets"); !strings.Contains(out, "120") {
		t.Errorf("%s", out)
	}
	if out := run(0, "compact"); !strings.Contains(out, "Nothing to compact") {
		t.Errorf("%s", out)
	}
	if out := run(0, "takedown", "lift", added.ID, "--reason", "over"); !strings.Contains(out, "do not come back") {
		t.Errorf("%s", out)
	}
	run(0, "gc", "--keep", "1", "--grace", "0s")
	for _, text := range []string{"kvwsite", "qzxhost", "qpathz"} {
		if left := testlake.Holders(t, store, text); len(left) > 0 {
			t.Errorf("%q after the lift: %q", text, left)
		}
	}
	// The rows come back by an ingest, after their batch was retired.
	run(0, "retire", "--dataset", "list0", "--wait")
	file := filepath.Join(in, "list0.txt")
	run(0, "ingest", "--dataset", "list0", "--batch", "again", "--wait", file)
	if out := run(0, "datasets"); !strings.Contains(out, "80") {
		t.Errorf("%s", out)
	}
}
