package publish_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// record reads a batch's record.
func record(t testing.TB, store blob.Store, dataset uint32, batch, digest string) *lake.Batch {
	t.Helper()
	key := lake.BatchKey(dataset, batch, digest)
	data, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// harm changes an object: its byte in the middle, its end, or all of it. It returns what puts it right.
func harm(t testing.TB, store blob.Store, key, how string) func() {
	t.Helper()
	good, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) {
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	switch how {
	case "missing":
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	case "cut":
		put(good[:len(good)*2/3])
	default:
		bad := bytes.Clone(good)
		bad[len(bad)/5] ^= 0x04
		put(bad)
	}
	return func() { put(good) }
}

// skipped lists what a publish has left out.
func skipped(c publish.Committed) []string {
	var names []string
	for _, s := range c.Skipped {
		if s.Reason == "" || strings.Contains(s.Reason, "\n") {
			names = append(names, "no reason for")
		}
		names = append(names, s.Dataset+"/"+s.Batch)
	}
	return names
}

// A damaged batch is left out by name, and all others are published; once mended it is published too.
func TestDamagedBatchIsLeftOut(t *testing.T) {
	for _, how := range []string{"missing", "cut", "flipped"} {
		for _, what := range []string{"record", "postings"} {
			t.Run(what+" "+how, func(t *testing.T) {
				store := blob.NewMemory()
				testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
				sick := testlake.Ingest(t, store, "beta", "b1", records("b", 3000))
				testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
				key := lake.BatchKey(2, "b1", sick.Digest)
				if what == "postings" {
					key = record(t, store, 2, "b1", sick.Digest).Postings[0].Key
				}
				mend := harm(t, store, key, how)
				for range 2 {
					done := testlake.Publish(t, store)
					if d := cmp.Diff([]string{"beta/b1"}, skipped(done)); d != "" {
						t.Fatal(d)
					}
					expectLive(t, store, map[string]int64{"1/b1": 10, "3/b1": 30})
				}
				testlake.Ingest(t, store, "delta", "b1", records("d", 40))
				testlake.Publish(t, store)
				expectLive(t, store, map[string]int64{"1/b1": 10, "3/b1": 30, "4/b1": 40})
				mend()
				if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
					t.Fatalf("mended: %+v", done)
				}
				expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 3000, "3/b1": 30, "4/b1": 40})
				for info, err := range store.List(t.Context(), "staging/") {
					t.Errorf("left in staging: %v, %v", info, err)
				}
			})
		}
	}
}

// The version keeps the earlier ingest of a batch whose replacement is damaged, and a segment whose own batch can no longer be
// read is left alone, with all batches that it shares a segment with.
func TestDamagedReplacementsLeaveWhatWasThere(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	old := testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	before := current(t, store)

	sick := testlake.Ingest(t, store, "beta", "b1", records("new", 25))
	mend := harm(t, store, record(t, store, 2, "b1", sick.Digest).Postings[0].Key, "flipped")
	testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	done := testlake.Publish(t, store)
	if d := cmp.Diff([]string{"beta/b1"}, skipped(done)); d != "" {
		t.Fatal(d)
	}
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30})
	if v.Segments[0] != before.Segments[0] {
		t.Fatal("the segment of the replaced batch was built again")
	}

	// Now a batch that is published loses its postings: its neighbour alpha cannot be replaced any more, others can be added.
	mendOld := harm(t, store, record(t, store, 2, "b1", old.Digest).Postings[0].Key, "missing")
	testlake.Ingest(t, store, "alpha", "b1", records("a2", 11))
	testlake.Ingest(t, store, "delta", "b1", records("d", 40))
	done = testlake.Publish(t, store)
	if d := cmp.Diff([]string{"alpha/b1", "beta/b1"}, skipped(done)); d != "" {
		t.Fatal(d)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30, "4/b1": 40})

	// It is no longer asked for once its own replacement is sound.
	mend()
	if done = testlake.Publish(t, store); len(done.Skipped) > 0 {
		t.Fatalf("%+v", done)
	}
	expectLive(t, store, map[string]int64{"1/b1": 11, "2/b1": 25, "3/b1": 30, "4/b1": 40})
	mendOld()
}

// Small segments of which a batch was lost are not folded, and stand in nobody's way.
func TestLostPostingsStopNoPublish(t *testing.T) {
	store := blob.NewMemory()
	want := map[string]int64{}
	for i := range 2 * publish.TargetSegments {
		name := string(rune('a' + i))
		res := testlake.Ingest(t, store, "alpha", name, records(name, 5+i))
		want["1/"+name] = int64(5 + i)
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%d: %+v", i, done.Skipped)
		}
		v := expectLive(t, store, want)
		if len(v.Segments) > publish.TargetSegments+1 {
			t.Fatalf("%d segments", len(v.Segments))
		}
		if i == 1 {
			harm(t, store, record(t, store, 1, name, res.Digest).Postings[0].Key, "missing")
		}
	}
}

// A store that fails is no damage.
func TestFailingStoreSkipsNothing(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	for n := range 4 {
		faulty := blobtest.NewFaulty(store)
		faulty.CrashAfter(n)
		done, err := publish.All(t.Context(), faulty, testlake.Run(), t.TempDir())
		if !errors.Is(err, blobtest.ErrCrashed) || len(done.Skipped) > 0 {
			t.Errorf("crash after %d changes: %+v, %v", n, done, err)
		}
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10})
}

// What can be made again from what is left is made again, for segments and for postings; the rest is named.
func TestRebuildMendsTheCurrentVersion(t *testing.T) {
	store := blob.NewMemory()
	a := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	v := current(t, store)
	c := testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	rebuild := func(which string) publish.Rebuilt {
		t.Helper()
		out, err := publish.Rebuild(t.Context(), store, which, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if d := cmp.Diff(publish.Rebuilt{Checked: 2}, rebuild(publish.RebuildAll)); d != "" {
		t.Error(d)
	}
	damage := func() {
		harm(t, store, segment.Prefix(v.Segments[0].ID)+segment.MPHFName, "flipped")
		harm(t, store, segment.Prefix(v.Segments[0].ID)+segment.InfoName, "missing")
		harm(t, store, segment.Prefix(v.Segments[1].ID)+segment.PartsName, "cut")
	}
	damage()
	harm(t, store, record(t, store, 1, "b1", a.Digest).Postings[0].Key, "missing")
	harm(t, store, record(t, store, 3, "b1", c.Digest).Postings[0].Key, "cut")
	got := rebuild(publish.RebuildAll)
	if d := cmp.Diff(publish.Rebuilt{Checked: 2, Segments: []string{v.Segments[0].ID, v.Segments[1].ID}, Files: 3, Postings: 2}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(v, current(t, store)); d != "" {
		t.Error(d)
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30})

	damage()
	if d := cmp.Diff(publish.Rebuilt{Checked: 1, Segments: []string{v.Segments[1].ID}, Files: 1}, rebuild(v.Segments[1].ID)); d != "" {
		t.Error(d)
	}
	// Without a part nothing can be made, and the rest is.
	harm(t, store, record(t, store, 1, "b1", a.Digest).Postings[0].Key, "flipped")
	harm(t, store, record(t, store, 1, "b1", a.Digest).Parts[0].Key, "missing")
	got = rebuild(publish.RebuildAll)
	if got.Checked != 3 || len(got.Segments) != 0 || !slices.ContainsFunc(got.Unmended, func(s string) bool { return strings.Contains(s, v.Segments[0].ID) }) {
		t.Errorf("%+v", got)
	}
	if got := rebuild("0123"); len(got.Unmended) != 1 {
		t.Errorf("no such segment: %+v", got)
	}
}

// A registry that is lost stops ingests and publishes until it is restored from the version, and then all goes on as before.
func TestLostRegistriesAreRestoredFromTheVersion(t *testing.T) {
	for _, how := range []string{"missing", "flipped"} {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "gamma", "b1", records("c", 30)) // not published
		harm(t, store, lake.RegistryKey, how)
		harm(t, store, lake.BatchRegistryKey(2), how)
		if _, err := publish.Plan(t.Context(), store, testlake.Run(), 0); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%s: %v", how, err)
		}
		got, err := publish.Rebuild(t.Context(), store, publish.RebuildAll, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{lake.RegistryKey, lake.BatchRegistryKey(2)}, got.Registries); d != "" || len(got.Unmended) != 1 || !strings.Contains(got.Unmended[0], "dataset 3") {
			t.Errorf("%s: %+v", how, got)
		}
		if got, err := publish.Rebuild(t.Context(), store, publish.RebuildAll, t.TempDir()); err != nil || len(got.Registries) > 0 || len(got.Unmended) > 0 {
			t.Errorf("%s, again: %+v, %v", how, got, err)
		}
		testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
		testlake.Ingest(t, store, "beta", "b1", records("new", 21))
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 21, "4/b1": 30})
	}
}

// A dataset that was given the id of another does not replace its batches.
func TestOtherDatasetOfTheSameIDIsRefused(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	other := blob.NewMemory()
	testlake.Ingest(t, other, "beta", "b2", records("b", 20))
	copyAll(t, other, store)
	before := begin(t, other)
	var c *codec.CorruptError
	if _, err := publish.Plan(t.Context(), store, testlake.Run(), 0); !errors.As(err, &c) || c.File != lake.RegistryKey {
		t.Errorf("plan: %v", err)
	}
	copyAll(t, other, store)
	if _, err := publish.Commit(t.Context(), store, before.key, before.built); !errors.As(err, &c) || c.File != lake.RegistryKey {
		t.Errorf("commit: %v", err)
	}
}
