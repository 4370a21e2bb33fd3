package rebuild_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/rebuild"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
)

// records returns n records of some domains.
func records(seed, n int) (all []testlake.Record) {
	for i := range n {
		all = append(all, testlake.Record{URL: fmt.Sprintf("http://site%d.test/%d/%d", (i*seed)%17, seed, i)})
	}
	return all
}

// newLake makes a lake of several segments.
func newLake(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	testlake.Ingest(t, store, "a", "1", records(1, 400))
	testlake.Ingest(t, store, "b", "1", records(2, 50))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "a", "2", records(3, 30))
	testlake.Ingest(t, store, "c", "1", records(5, 3))
	testlake.Publish(t, store)
	return store
}

// run makes the index again, step by step.
func run(t *testing.T, store blob.Store, id string) (rebuild.Summary, rebuild.Rebuilt) {
	t.Helper()
	s, out, err := steps(t.Context(), store, id, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s, out
}

func steps(ctx context.Context, store blob.Store, id, dir string) (rebuild.Summary, rebuild.Rebuilt, error) {
	var out rebuild.Rebuilt
	s, err := rebuild.Plan(ctx, store, id)
	if err != nil {
		return s, out, err
	}
	for n := range s.Tasks {
		if err := rebuild.Extract(ctx, store, id, n, dir); err != nil {
			return s, out, err
		}
	}
	for n := range s.Segments {
		r, err := rebuild.Segment(ctx, store, id, n, dir)
		if err != nil {
			return s, out, err
		}
		out.Add(r)
	}
	return s, out, nil
}

// objects returns all objects of a lake but those in staging.
func objects(t *testing.T, store blob.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, "staging/") {
			continue
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

func current(t *testing.T, store blob.Store) *manifest.Version {
	t.Helper()
	m, _, err := manifest.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version("")
	if err != nil {
		t.Fatal(err)
	}
	v, err := manifest.ReadVersion(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func segments(t *testing.T, store blob.Store) int { return len(current(t, store).Segments) }

func put(t *testing.T, store blob.Store, key string, data []byte) {
	t.Helper()
	if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func TestAnIntactLakeComesOutEqual(t *testing.T) {
	store := newLake(t)
	before := objects(t, store)
	s, out := run(t, store, "run-1")
	n := segments(t, store)
	if s.Version == "" || s.Segments != n || s.Batches != 4 || out.Equal != n || out.Again != s.Rows || out.Again != 483 {
		t.Errorf("%d segments: %+v, %+v", n, s, out)
	}
	if len(out.Files)+len(out.RestoredPostings)+len(out.Replaced)+len(out.Otherwise)+len(out.Unmended) != 0 || out.NewVersion != "" {
		t.Errorf("%+v", out)
	}
	if d := cmp.Diff(before, objects(t, store)); d != "" {
		t.Errorf("the lake has changed: %s", d)
	}
}

// Without the postings of any batch, and without the index, both come out as they were.
func TestTheIndexComesFromTheParquetAlone(t *testing.T) {
	store := newLake(t)
	before := objects(t, store)
	lost := 0
	for key := range before {
		if strings.HasPrefix(key, "index/segments/") || strings.HasPrefix(key, "batches/dataset_id=") && strings.HasSuffix(key, ".zst") {
			lost++
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, out := run(t, store, "run-1")
	if n := segments(t, store); out.Equal != n || len(out.Files)+len(out.RestoredPostings) != lost || len(out.Unmended) != 0 {
		t.Errorf("%d lost: %+v", lost, out)
	}
	if d := cmp.Diff(before, objects(t, store)); d != "" {
		t.Errorf("the lake has changed: %s", d)
	}
}

// Each object is damaged in turn. What can be made from the Parquet is, and the lake is as it was;
// what cannot is named, and nothing else is written.
func TestDamageToAnyObject(t *testing.T) {
	store := newLake(t)
	before := objects(t, store)
	mended, named := 0, 0
	for i, key := range slices.Sorted(func(yield func(string) bool) {
		for key := range before {
			if !yield(key) {
				return
			}
		}
	}) {
		if strings.HasPrefix(key, "registry/") || strings.HasPrefix(key, "index/manifest") || strings.HasPrefix(key, "index/versions/") ||
			strings.HasPrefix(key, "index/pieces/") || strings.HasPrefix(key, "rules/") || i%testenv.Every(5) != 0 {
			continue // not what the rebuild is about; a damaged version is an error
		}
		bad := bytes.Clone(before[key])
		bad[len(bad)/2] ^= 1
		put(t, store, key, bad)
		_, out := run(t, store, fmt.Sprintf("run-%d", i))
		switch {
		case len(out.Files)+len(out.RestoredPostings) == 1 && len(out.Unmended) == 0:
			mended++
			if d := cmp.Diff(before, objects(t, store)); d != "" {
				t.Errorf("%s: the lake has changed: %s", key, d)
			}
		case strings.HasPrefix(key, "rejects/"), strings.Contains(key, "reports/"):
			put(t, store, key, before[key])
		case len(out.Unmended) > 0 && strings.Contains(out.Unmended[0], key):
			named++
			put(t, store, key, before[key])
			if d := cmp.Diff(before, objects(t, store)); d != "" {
				t.Errorf("%s: something was written: %s", key, d)
			}
		default:
			put(t, store, key, before[key])
			t.Errorf("%s: %+v", key, out)
		}
	}
	if mended < 4 || named < 2 {
		t.Errorf("%d mended, %d named", mended, named)
	}
	// The check of the whole lake agrees that nothing is damaged.
	if r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{Deep: true, TempDir: t.TempDir()}); err != nil || len(r.Problems) > 0 {
		t.Errorf("%v, %v", err, r.Problems)
	}
}

// A rebuild that dies at any operation of the store is continued by repeating its steps, and what
// it leaves is the lake as it was.
func TestCrashAnywhere(t *testing.T) {
	rebuild.StageFrom(t, 1)
	store := newLake(t)
	before := objects(t, store)
	damaged := 0
	damage := func() {
		damaged = 0
		for key, data := range before {
			if strings.HasPrefix(key, "index/segments/") && strings.Contains(key, "postings") || strings.HasSuffix(key, ".zst") && strings.HasPrefix(key, "batches/dataset") {
				put(t, store, key, data[1:])
				damaged++
			}
		}
	}
	points := 0
	for n := 0; ; n += testenv.Every(7) {
		damage()
		faulty := blobtest.NewFaulty(store)
		faulty.CrashAfter(n)
		id := fmt.Sprintf("run-%d", n)
		_, _, err := steps(t.Context(), faulty, id, t.TempDir())
		if err == nil {
			break
		}
		if !errors.Is(err, blobtest.ErrCrashed) {
			t.Fatalf("after %d writes: %v", n, err)
		}
		points++
		if _, out := run(t, store, id); len(out.Files)+len(out.RestoredPostings) != damaged {
			t.Fatalf("after %d writes: %d objects were damaged: %+v", n, damaged, out)
		}
		if d := cmp.Diff(before, objects(t, store)); d != "" {
			t.Fatalf("after %d writes: the lake has changed: %s", n, d)
		}
	}
	if points < 3 {
		t.Errorf("%d points", points)
	}
	if s, err := rebuild.Plan(t.Context(), store, "another"); err != nil || s.Tasks != s.Segments {
		t.Errorf("a task for each segment: %+v, %v", s, err)
	}
	t.Logf("%d points", points)
}

// A version that was published meanwhile, and no longer has a segment, is no reason to fail.
func TestASegmentThatIsGone(t *testing.T) {
	store := newLake(t)
	s, err := rebuild.Plan(t.Context(), store, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "a", "1", records(7, 10)) // the segment with the batch is built again
	testlake.Ingest(t, store, "a", "2", records(7, 10))
	testlake.Ingest(t, store, "b", "1", records(7, 11))
	testlake.Ingest(t, store, "c", "1", records(7, 12))
	testlake.Publish(t, store)
	var out rebuild.Rebuilt
	for n := range s.Segments {
		r, err := rebuild.Segment(t.Context(), store, "run-1", n, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		out.Add(r)
	}
	if out.Superseded != s.Segments || out.Equal != 0 {
		t.Errorf("%+v of %+v", out, s)
	}
}

// After a compaction the batches of a segment are in unions.
func TestUnions(t *testing.T) {
	for _, stageFrom := range []int64{1, 1 << 30} {
		rebuild.StageFrom(t, stageFrom)
		store := newLake(t)
		if _, err := publish.CompactAll(t.Context(), store, "compact", publish.Compaction{Full: true}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		before := objects(t, store)
		lost := 0
		for key := range before {
			if strings.HasPrefix(key, "index/segments/") || strings.HasPrefix(key, "batches/dataset_id=") && strings.HasSuffix(key, ".zst") {
				lost++
				if err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, out := run(t, store, "run-1")
		if out.Equal != 1 || s.Segments != 1 || s.Batches != 4 || s.Rows != 483 || out.Again != 483 || len(out.Unmended) > 0 {
			t.Errorf("%+v, %+v", s, out)
		}
		// What only the earlier version needs is not made again.
		after := objects(t, store)
		for key := range after {
			if !bytes.Equal(before[key], after[key]) {
				t.Errorf("%s has changed", key)
			}
		}
		if missing := len(before) - len(after); missing <= 0 || missing >= lost {
			t.Errorf("%d objects lost, %d are still missing", lost, missing)
		}
	}
}

// Rows that a compaction has dropped do not come back, also if the batches' own parts are there.
func TestDroppedRowsAreNotRebuilt(t *testing.T) {
	rebuild.StageFrom(t, 1)
	store := newLake(t)
	rule := takedown.Rule{
		ID: "20261120-0123456789", Target: takedown.Target{Kind: takedown.Domain, Host: "site3.test"}, Reason: "test",
		Created: time.Unix(1_800_000_000, 0).UTC(),
	}
	if _, err := suppress.Add(t.Context(), store, rule, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := publish.CompactAll(t.Context(), store, "compact", publish.Compaction{}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	before := objects(t, store)
	for key := range before {
		if strings.HasPrefix(key, "index/segments/") || strings.HasPrefix(key, "batches/dataset_id=") && strings.HasSuffix(key, ".zst") {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, out := run(t, store, "run-1")
	if s.Rows != out.Again || s.Rows >= 483 || s.Rows < 400 || out.Equal != s.Segments || len(out.Unmended) > 0 {
		t.Errorf("%+v, %+v", s, out)
	}
	for key, data := range objects(t, store) {
		if !bytes.Equal(before[key], data) {
			t.Errorf("%s has changed", key)
		}
	}
}

// Damaged Parquet of a union is named with the command that makes it again from its batches.
func TestDamagedUnion(t *testing.T) {
	store := newLake(t)
	before := objects(t, store)
	if _, err := publish.CompactAll(t.Context(), store, "compact", publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	united := ""
	for key, data := range objects(t, store) {
		if _, old := before[key]; !old && strings.HasSuffix(key, ".parquet") {
			united = key
			bad := bytes.Clone(data)
			bad[len(bad)/2] ^= 1
			put(t, store, key, bad)
			break
		}
	}
	_, out := run(t, store, "run-1")
	if united == "" || out.Equal != 0 || len(out.Unmended) != 1 || !strings.Contains(out.Unmended[0], united) ||
		!strings.Contains(out.Unmended[0], "publish --lake") {
		t.Fatalf("%q: %+v", united, out)
	}
	if r, err := publish.Rebuild(t.Context(), store, publish.RebuildAll, t.TempDir()); err != nil || len(r.Unmended) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, out := run(t, store, "run-2"); out.Equal != segments(t, store) {
		t.Errorf("mended: %+v", out)
	}
}

// A segment that another build made, and that this one makes with other bytes, is replaced in a new
// version with the same answers.
func TestAnotherBuildsSegment(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "a", "1", records(1, 400))
	testlake.Publish(t, store)
	v := current(t, store)
	refs, err := lakecheck.StoredIn(t.Context(), v, v.Segments[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	// Another build with other bytes: its file says so, and segment.json has the file's hash.
	other, err := indexbuild.BuildSegment(t.Context(), store, refs, indexbuild.Options{TempDir: t.TempDir(), Builder: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := segment.ReadInfo(t.Context(), store, other)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range info.Files {
		if strings.HasPrefix(f.Name, "built-by/") {
			data := []byte("another build\n")
			put(t, store, segment.Prefix(other.ID)+f.Name, data)
			info.Files[i].Bytes, info.Files[i].XXH64 = int64(len(data)), fmt.Sprintf("%016x", xxhash.Sum64(data))
		}
	}
	data, err := codec.Seal(info)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, segment.Prefix(other.ID)+segment.InfoName, data)
	other.XXH64, other.Bytes = fmt.Sprintf("%016x", xxhash.Sum64(data)), info.Bytes()+int64(len(data))
	if version, err := publish.ReplaceSegment(t.Context(), store, v.ID, v.Segments[0].ID, other); err != nil || version == "" {
		t.Fatalf("%q, %v", version, err)
	}

	_, out := run(t, store, "run-1")
	now := current(t, store)
	if out.Equal != 0 || len(out.Replaced) != 1 || out.NewVersion != now.ID || now.Segments[0].ID != v.Segments[0].ID ||
		now.Counts.Rows != v.Counts.Rows || !strings.Contains(out.Replaced[0], other.ID) {
		t.Errorf("%+v, current %+v", out, now.Segments)
	}
	if _, again := run(t, store, "run-2"); again.Equal != 1 || again.NewVersion != "" {
		t.Errorf("again: %+v", again)
	}
}

func TestNothingPublished(t *testing.T) {
	store := blob.NewMemory()
	if s, out := run(t, store, "run-1"); s.Version != "" || out.Equal != 0 {
		t.Errorf("%+v %+v", s, out)
	}
}
