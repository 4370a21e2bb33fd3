package lake_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// Every kind of object has a command that mends it.
func TestRemedies(t *testing.T) {
	digest := strings.Repeat("0123", 8)
	const rebuild = "mend it with: starter rebuild --lake s3://b/l"
	again := func(dataset uint32, batch string) string {
		const format = "ingest batch %s of dataset %d again: starter ingest --lake s3://b/l --dataset NAME --batch %s …"
		return fmt.Sprintf(format, batch, dataset, batch)
	}
	for key, want := range map[string]string{
		lake.RegistryKey:                         rebuild,
		"pending/3/1796032800123456789-run.json": rebuild,
		catalog.RegistryCopyKey:                  rebuild,
		"index/manifest.json":                    rebuild,
		"index/versions/x.json":                  rebuild,
		"index/segments/x/a/b":                   rebuild,
		lake.PostingsKey(3, "b", digest):         rebuild,
		"urls/dataset_id=3/domain_prefix=any/part-~0123456789abcdef-" + digest + "-0.parquet": "mend it with: starter rebuild --lake s3://b/l",
		lake.BatchKey(3, "b-1", digest):                 again(3, "b-1"),
		lake.PartKey(34, "ab", "2026-11.x", digest, 12): again(34, "2026-11.x"),
		lake.RejectsKey(3, "b-"+digest, digest):         again(3, "b-"+digest),
		"access/datasets.json":                          "mend it with: starter acl --lake s3://b/l --repair",
		"access/tokens.json":                            "make new tokens after: starter token revoke --lake s3://b/l --all",
		"index/trees.json":                              "write it again with: starter tree build --lake s3://b/l --always, or --never if publishes are to build no index of trees",
		"index/segments/" + digest + "/tree.json":       "mend it with: starter tree build --lake s3://b/l",
		lake.StagingPrefix("run") + "plan.json":         "it is lost with its run: start the ingest or publish again",
		"/home/me/input.csv":                            "",
	} {
		if got := lake.Remedy("s3://b/l", key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	// A damaged public suffix list is explained once.
	const identity = "a list that this program lacks"
	store := blob.NewMemory()
	if _, err := store.Put(t.Context(), lake.SuffixListKey(identity), []byte("damaged"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, loaded := lake.LoadSuffixList(t.Context(), store, identity)
	for _, err := range []error{loaded, lake.CheckSuffixList(t.Context(), store, identity), lake.CheckSuffixList(t.Context(), store, "missing")} {
		if text := lake.Explain("s3://b/l", err); strings.Count(text, "starter rules update") != 1 || !strings.Contains(text, rebuild) {
			t.Errorf("%q; want one remedy", text)
		}
	}
	damage := fmt.Errorf("open: %w", codec.Corrupt("index/manifest.json", "seal", 7, "x", "y"))
	text := lake.Explain("s3://b/l", damage)
	if text != damage.Error()+"; "+rebuild {
		t.Errorf("%q", text)
	}
	if other := lake.Explain("s3://b/l", errors.New("no damage")); other != "no damage" {
		t.Errorf("%q", other)
	}
}

// TestRemediesNameTheProgramThatRuns holds that urlake, which may be the only program that is
// installed, names itself.
func TestRemediesNameTheProgramThatRuns(t *testing.T) {
	name := os.Args[0]
	t.Cleanup(func() { os.Args[0] = name })
	os.Args[0] = "/usr/local/bin/urlake"
	for _, key := range []string{
		"index/manifest.json", "rules/x", lake.RejectsKey(3, "b", strings.Repeat("0123", 8)),
	} {
		if got := lake.Remedy("s3://b/l", key); strings.Contains(got, "starter") || !strings.Contains(got, "urlake ") {
			t.Errorf("%s: %q", key, got)
		}
	}
}
