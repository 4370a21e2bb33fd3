package publish_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
)

// full reports whether err says that a disk is full, and where.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) && strings.Contains(err.Error(), "/")
}

// files returns the contents of the files below a folder, without locks.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.Contains(name, "locks") {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func soundLake(t *testing.T, store blob.Store, when string) {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	for _, p := range report.Problems {
		t.Errorf("%s: %s", when, p)
	}
}

// TestDiskOfTheLakeIsFull lets the disk with a lake become full in the middle of an ingest, a
// publish, a compaction and a collection, some pages later each time. The step fails with the
// reason, what was published is as it was, and when there is room again the same step leaves the
// same bytes.
func TestDiskOfTheLakeIsFull(t *testing.T) {
	dir := testenv.SmallDisk(t, 8<<20)
	lakeDir := filepath.Join(dir, "lake")
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(lakeDir))
	if err != nil {
		t.Fatal(err)
	}
	records := func(batch string) (list []testlake.Record) {
		for i := range 400 {
			list = append(list, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%s/%d", i%50, batch, i)})
		}
		return list
	}
	undisturbed, temp := blob.NewMemory(), t.TempDir()
	steps := func(store blob.Store, spec ingest.Spec) error {
		spec.Lake = store.URL()
		if _, err := testlake.Steps(t.Context(), store, spec, temp); err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		if _, err := publish.All(t.Context(), store, testlake.Run(), temp); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, temp); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
		// All runs are over, also those that failed.
		over := func(context.Context, string, ingest.Owner, bool) (ingest.RunState, error) { return ingest.RunOver, nil }
		_, err := ingest.Sweep(t.Context(), store, time.Now(), ingest.SweepOptions{}, over, ingest.Cleanup)
		if err == nil {
			_, err = gc.Collect(t.Context(), store, gc.Options{Keep: 1})
		}
		if err != nil {
			return fmt.Errorf("collect: %w", err)
		}
		return nil
	}
	where := map[string]int{}
	for n, free := 0, 0; ; n++ {
		batch := fmt.Sprintf("b%d", n%3)
		spec := testlake.Spec(t, store, "alpha", batch, records(fmt.Sprint(n)))
		undo := testenv.FillDisk(t, dir, free)
		err := steps(store, spec)
		undo()
		if err == nil && n > 0 {
			t.Logf("%d bytes suffice", free)
			if err := steps(undisturbed, spec); err != nil {
				t.Fatal(err)
			}
			break
		}
		if n > 0 && !full(err) {
			t.Fatalf("%d bytes free: %v", free, err)
		}
		if err != nil {
			step, _, _ := strings.Cut(err.Error(), ":")
			where[step]++
			for name := range files(t, filepath.Join(lakeDir, ".tmp")) {
				t.Errorf("%d bytes free, %v: %s is left", free, err, name)
			}
		}
		if n > 0 {
			soundLake(t, store, fmt.Sprintf("%d bytes free", free))
		}
		for _, s := range []blob.Store{store, undisturbed} {
			if err := steps(s, spec); err != nil {
				t.Fatalf("with room again: %v", err)
			}
		}
		free += testenv.Every(4) * 8 << 10
	}
	t.Log(where)
	if len(where) < 2 {
		t.Errorf("the disk was full only in %v", where)
	}
	last := testlake.Spec(t, store, "alpha", "last", records("last"))
	for _, s := range []blob.Store{store, undisturbed} {
		if err := steps(s, last); err != nil {
			t.Fatal(err)
		}
	}
	sameContent(t, store, undisturbed)
	soundLake(t, store, "in the end")
}

// TestDiskOfTemporaryFilesIsFull gives the steps a folder for temporary files that is full. They
// fail with the reason, leave nothing there, and succeed when there is room.
func TestDiskOfTemporaryFilesIsFull(t *testing.T) {
	temp := testenv.SmallDisk(t, 8<<20)
	store, undisturbed := blob.NewMemory(), blob.NewMemory()
	var list []testlake.Record
	for i := range 30_000 {
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%x", i%9000, i*i*7919)})
	}
	spec := testlake.Spec(t, undisturbed, "alpha", "b", list)
	run := func(store blob.Store, temp string) (ingested, published error) {
		spec.Lake = store.URL()
		if _, err := testlake.Steps(t.Context(), store, spec, temp); err != nil {
			return err, nil
		}
		_, err := publish.All(t.Context(), store, testlake.Run(), temp)
		return nil, err
	}
	undo := testenv.FillDisk(t, temp, 0)
	failed := 0
	ingested, published := run(store, temp)
	for _, err := range []error{ingested, published} {
		if err == nil {
			continue
		}
		if failed++; !full(err) {
			t.Errorf("without room: %v", err)
		}
	}
	if failed == 0 {
		t.Error("nothing needs temporary files")
	}
	undo()
	if left := slices.Collect(maps.Keys(files(t, temp))); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, s := range []struct {
		store blob.Store
		temp  string
	}{{store, temp}, {undisturbed, t.TempDir()}} {
		if ingested, published := run(s.store, s.temp); ingested != nil || published != nil {
			t.Fatal(ingested, published)
		}
	}
	sameContent(t, store, undisturbed)
}

// sameContent compares the objects of two lakes that depend on the content alone.
func sameContent(t *testing.T, got, want blob.Store) {
	t.Helper()
	contents := func(store blob.Store) map[string]string {
		all := map[string]string{}
		for _, root := range []string{"urls/", "batches/", "rejects/", "index/segments/"} {
			for info, err := range store.List(t.Context(), root) {
				if err != nil {
					t.Fatal(err)
				}
				data, _, err := store.Get(t.Context(), info.Key)
				if err != nil {
					t.Fatal(err)
				}
				all[info.Key] = string(data)
			}
		}
		return all
	}
	has, should := contents(got), contents(want)
	if len(should) < 10 || !maps.Equal(has, should) {
		t.Errorf("objects %v\nwant %v", slices.Sorted(maps.Keys(has)), slices.Sorted(maps.Keys(should)))
	}
}
