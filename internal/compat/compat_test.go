package compat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
)

// each runs a test on every fixture.
func each(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	for _, dir := range All(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) { test(t, dir) })
	}
}

// Fixtures are never written again: they are what a released program has written.
func TestFixturesAreAsTheyWereWritten(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		want, err := os.ReadFile(filepath.Join(dir, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Sums(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("files that differ from %s: write a new lake beside this one (make fixtures)\n%s", sumsFile, cmp.Diff(string(want), got))
		}
	})
}

// Today's code answers from every version of an earlier lake as the code did that made it.
func TestAnswersStay(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		want, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Requests) < 100 || len(want.Lists) < 100 || len(want.Commands) < 10 {
			t.Fatalf("%d requests, %d lists and %d commands are too few to hold anything",
				len(want.Requests), len(want.Lists), len(want.Commands))
		}
		for _, line := range Ask(t, Unpack(t, dir)).Differences(want, 20) {
			t.Error(line)
		}
	})
}

// verifyDeep checks all versions of a lake, with all of their rows.
func verifyDeep(t *testing.T, store blob.Store) {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("verify: %s", p)
	}
	if report.Rows == 0 {
		t.Error("verify found no rows")
	}
}

func TestLakesAreSound(t *testing.T) {
	each(t, func(t *testing.T, dir string) { verifyDeep(t, open(t, Unpack(t, dir))) })
}

func open(t *testing.T, lakeURL string) blob.Store {
	t.Helper()
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Today's code goes on with an earlier lake: everything that writes works on a copy of it, and
// after each step the answers are those before it but for what the step was to change.
func TestWritingOnEarlierLakes(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		answers, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		lakeURL := Unpack(t, dir)
		store := open(t, lakeURL)
		asker := Ask(t, lakeURL)
		ctx := context.WithoutCancel(t.Context())
		hosts := answers.Hosts
		check := func(step string, want Rows) {
			t.Helper()
			asker.Refresh()
			if diff := cmp.Diff(want, asker.Rows(hosts)); diff != "" {
				t.Fatalf("after %s (-want +got):\n%s", step, diff)
			}
		}
		// versions holds that the versions of the fixture answer as they did, if they are kept.
		versions := func(step string) {
			t.Helper()
			m, _, err := catalog.ReadManifest(ctx, store)
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for _, r := range answers.Requests {
				at, err := url.Parse(r.Path)
				if err != nil {
					t.Fatal(err)
				}
				kept := slices.ContainsFunc(m.Versions, func(v catalog.VersionRef) bool { return v.ID == at.Query().Get("version") })
				if !kept || strings.HasPrefix(r.Path, "/v1/datasets") {
					continue
				}
				got := asker.Get(r.Path)
				if diff := Missing(withoutEpoch(r.Body), got.Body); diff != "" || got.Status != r.Status {
					t.Errorf("after %s: %s: %d %s", step, r.Path, got.Status, diff)
				}
				compared++
			}
			if compared < 20 {
				t.Errorf("after %s: only %d answers of earlier versions to compare", step, compared)
			}
		}
		before := asker.Rows(hosts)
		if len(before) < 5 {
			t.Fatalf("the lake has rows of %d datasets", len(before))
		}

		// What earlier code has finished is published by today's.
		testlake.Publish(t, store)
		asker.Refresh()
		want := asker.Rows(hosts)
		if cmp.Equal(before, want) {
			t.Error("the lake had nothing that waited to be published")
		}
		for name, have := range before {
			if missing := slices.DeleteFunc(slices.Clone(have), func(row string) bool { return slices.Contains(want[name], row) }); len(missing) > 0 {
				t.Fatalf("the publish has lost rows of %s: %q", name, missing)
			}
		}
		versions("a publish")

		testlake.Ingest(t, store, "today", "b", []testlake.Record{{URL: "https://site-1.example/today"}, {URL: "https://once.example/today"}})
		testlake.Ingest(t, store, "forum", "only", []testlake.Record{{URL: "https://forum.example/today"}})
		testlake.Publish(t, store)
		want = maps.Clone(want)
		want["today"] = []string{"https://once.example/today ", "https://site-1.example/today "}
		want["forum"] = []string{"https://forum.example/today "}
		check("an ingest that adds and one that replaces", want)

		datasets, err := catalog.DatasetsNamed(ctx, store, "list-1", "list-3", "crawl")
		if err != nil || len(datasets) != 3 {
			t.Fatalf("%+v, %v", datasets, err)
		}
		retired := []catalog.BatchName{{DatasetID: datasets["list-1"].ID, Batch: "current"}}
		testlake.Retire(t, store, retired...)
		testlake.Publish(t, store)
		gone := maps.Clone(want)
		delete(gone, "list-1")
		check("a retirement", gone)
		// Back comes what today's code has retired, and what earlier code has, also out of a union.
		back := append(retired, catalog.BatchName{DatasetID: datasets["list-3"].ID, Batch: "current"},
			catalog.BatchName{DatasetID: datasets["crawl"].ID, Batch: "2024-03-02"})
		testlake.Restore(t, store, back...)
		testlake.Publish(t, store)
		asker.Refresh()
		all := asker.Rows(hosts)
		if !cmp.Equal(all["list-1"], want["list-1"]) || len(all["list-3"]) == 0 || len(all["crawl"]) <= len(want["crawl"]) {
			t.Fatalf("after a restoration: list-1 %q, list-3 %q, crawl %d rows", all["list-1"], all["list-3"], len(all["crawl"]))
		}
		want = all
		versions("a restoration")
		verifyDeep(t, store)

		if _, err := publish.CompactAll(ctx, store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		check("a compaction", want)
		versions("a compaction")

		run := func(args ...string) string {
			t.Helper()
			out, errs, code := Starter(append(args, "--lake", lakeURL)...)
			if code != 0 {
				t.Fatalf("starter %s: exit %d: %s", strings.Join(args, " "), code, errs)
			}
			return out
		}
		for _, id := range asker.takedowns() {
			if strings.Contains(run("takedown", "list", "--json"), id) {
				out := run("takedown", "lift", id, "--reason", "test")
				if out == "" {
					t.Error("lift printed nothing")
				}
			}
		}
		run("takedown", "add", "--host", "once.example", "--reason", "test")
		asker.Refresh()
		for name, have := range asker.Rows(hosts) {
			for _, row := range have {
				if strings.Contains(row, "//once.example/") {
					t.Errorf("%s still has %s", name, row)
				}
			}
		}
		hidden := asker.Rows(hosts)
		for range 2 { // lists that have to wait for their time of grace, then what they name
			if _, err := gc.Collect(ctx, store, gc.Options{Keep: 1}); err != nil {
				t.Fatal(err)
			}
		}
		check("a garbage collection", hidden)
		if _, err := publish.CompactAll(ctx, store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		run("tag", "current", "today")
		if _, err := gc.Collect(ctx, store, gc.Options{Keep: 1}); err != nil {
			t.Fatal(err)
		}
		check("a second compaction and collection", hidden)
		verifyDeep(t, store)
		if _, err := publish.Rebuild(ctx, store, testlake.Run(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		check("a rebuild", hidden)
	})
}

// visitsSpec is an ingest of the visits of a frontier that has two more than that of the fixtures,
// at another address.
func visitsSpec(t *testing.T, lakeURL string) feed.VisitsSpec {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "Ag", "":
			fmt.Fprintln(w, `{"url":"https://site-1.example/later","crawl":"DEFAULT","domain":"site-1.example","time":"2024-03-12T01:02:03.004Z","status":200,"depth":0}`)
			fmt.Fprintln(w, `{"url":"https://once.example/later","crawl":"DEFAULT","domain":"once.example","time":"2024-03-12T01:02:04Z","status":404,"depth":1}`)
			fallthrough
		case "BA":
			fmt.Fprintln(w, `{"next_cursor":"BA"}`)
		default:
			t.Errorf("visits from %s", r.URL)
		}
	}))
	t.Cleanup(server.Close)
	return feed.VisitsSpec{Lake: lakeURL, Frontier: server.URL, Dataset: "visits", Moved: true}
}

// The visits of a frontier that an earlier lake has stay, and the next batch has those that follow
// them. Earlier fixtures have none.
func TestVisitsGoOn(t *testing.T) {
	some := false
	each(t, func(t *testing.T, dir string) {
		lakeURL := Unpack(t, dir)
		store := open(t, lakeURL)
		if _, err := store.Stat(t.Context(), feed.CursorKey("visits")); errors.Is(err, blob.ErrNotExist) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		some = true
		spec := visitsSpec(t, lakeURL)
		c, err := feed.Collect(t.Context(), store, spec, func(feed.Collecting) {})
		if err != nil || c.Batch != "visits-00000002" || c.Visits != 2 || c.Total != 2 || c.Again {
			t.Fatalf("%+v, %v", c, err)
		}
		if _, err := testlake.Steps(t.Context(), store, c.Ingest, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if err := feed.Settle(t.Context(), store, spec, c.Batch); err != nil {
			t.Fatal(err)
		}
		if c, err := feed.Collect(t.Context(), store, spec, func(feed.Collecting) {}); err != nil || c.Batch != "" || c.Total != 4 {
			t.Errorf("after all: %+v, %v", c, err)
		}
		testlake.Publish(t, store)
		rows := Ask(t, lakeURL).Rows([]string{"site-1.example", "once.example"})["visits"]
		if len(rows) != 4 || !strings.Contains(strings.Join(rows, " "), "https://site-1.example/visited") {
			t.Errorf("rows %q", rows)
		}
	})
	if !some {
		t.Error("no fixture has visits of a frontier")
	}
}

// withoutEpoch returns the body of an answer without the epoch of takedowns, which is of the lake
// and not of the version.
func withoutEpoch(body []byte) []byte {
	var doc map[string]json.RawMessage
	if json.Unmarshal(body, &doc) != nil {
		return body
	}
	delete(doc, "takedown_epoch")
	out, err := json.Marshal(doc)
	if err != nil {
		return body
	}
	return out
}

// The comparison finds what is missing, and lets answers have more.
func TestMissing(t *testing.T) {
	for _, c := range []struct{ want, got, says string }{
		{`{"a":1,"b":[{"c":null}]}`, `{"z":1,"b":[{"d":2,"c":null}],"a":1}`, ""},
		{`{"a":1}`, `{"a":2}`, ".a is 2, want 1"},
		{`{"a":1}`, `{}`, ".a is missing"},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, ".a is"},
		{`{"a":[1]}`, `{"a":[1,2]}`, "want 1 values"},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, ".a[0] is 2"},
		{`{"a":null}`, `{"a":0}`, ".a is 0"},
		{`{"a":{}}`, `{"a":[]}`, "want an object"},
	} {
		if got := Missing([]byte(c.want), []byte(c.got)); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s of %s: %q, want %q", c.want, c.got, got, c.says)
		}
	}
}
