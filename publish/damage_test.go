package publish_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish"
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

// damage flips a bit of an object, truncates it or deletes it. It returns a function that restores
// it.
func damage(t testing.TB, store blob.Store, key, how string) func() {
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
	case "truncated":
		put(good[:len(good)*2/3])
	default:
		bad := bytes.Clone(good)
		bad[len(bad)/5] ^= 0x04
		put(bad)
	}
	return func() { put(good) }
}

// skipped lists the batches that a publish left out. One without a proper reason is marked.
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

// A damaged batch is skipped and named, and all others are published. It is published once
// restored.
func TestDamagedBatchIsLeftOut(t *testing.T) {
	for _, how := range []string{"missing", "truncated", "flipped"} {
		for _, what := range []string{"record", "postings"} {
			t.Run(what+" "+how, func(t *testing.T) {
				store := blob.NewMemory()
				testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
				damaged := testlake.Ingest(t, store, "beta", "b1", records("b", 3000))
				testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
				key := lake.BatchKey(2, "b1", damaged.Digest)
				if what == "postings" {
					key = record(t, store, 2, "b1", damaged.Digest).Postings[0].Key
				}
				restore := damage(t, store, key, how)
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
				restore()
				if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
					t.Fatalf("restored: %+v", done)
				}
				expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 3000, "3/b1": 30, "4/b1": 40})
				for info, err := range store.List(t.Context(), "staging/") {
					t.Errorf("left in staging: %v, %v", info, err)
				}
			})
		}
	}
}

// The version keeps the earlier ingest of a batch whose replacement is damaged. A segment with a
// damaged batch is not built again, so none of its other batches is replaced.
func TestDamagedReplacementLeavesThePublishedBatch(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	old := testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	before := current(t, store)

	damaged := testlake.Ingest(t, store, "beta", "b1", records("new", 25))
	restore := damage(t, store, record(t, store, 2, "b1", damaged.Digest).Postings[0].Key, "flipped")
	testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	done := testlake.Publish(t, store)
	if d := cmp.Diff([]string{"beta/b1"}, skipped(done)); d != "" {
		t.Fatal(d)
	}
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30})
	if v.Segments[0] != before.Segments[0] {
		t.Fatal("the segment of the batch with the damaged replacement was built again")
	}

	// The published batch of beta loses its postings. The batch of alpha is in the same segment and
	// can no longer be replaced; new batches can be added.
	restoreOld := damage(t, store, record(t, store, 2, "b1", old.Digest).Postings[0].Key, "missing")
	testlake.Ingest(t, store, "alpha", "b1", records("a2", 11))
	testlake.Ingest(t, store, "delta", "b1", records("d", 40))
	done = testlake.Publish(t, store)
	if d := cmp.Diff([]string{"alpha/b1", "beta/b1"}, skipped(done)); d != "" {
		t.Fatal(d)
	}
	for _, s := range done.Skipped {
		digest := ""
		if s.Dataset == "beta" {
			digest = damaged.Digest
		}
		for ref, want := range map[segment.BatchRef]bool{
			{DatasetID: s.DatasetID, Batch: "b1", Digest: damaged.Digest}: digest != "",
			{DatasetID: s.DatasetID, Batch: "b1"}:                         digest != "",
			{DatasetID: s.DatasetID, Batch: "b1", Digest: "another"}:      false,
			{DatasetID: s.DatasetID, Batch: "b2", Digest: damaged.Digest}: false,
		} {
			if s.Digest != digest || s.Damages(ref) != want {
				t.Errorf("%+v damages %+v: %v", s, ref, s.Damages(ref))
			}
		}
	}
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30, "4/b1": 40})

	// The lost postings are not needed once the replacement of that batch is intact.
	restore()
	if done = testlake.Publish(t, store); len(done.Skipped) > 0 {
		t.Fatalf("%+v", done)
	}
	expectLive(t, store, map[string]int64{"1/b1": 11, "2/b1": 25, "3/b1": 30, "4/b1": 40})
	restoreOld()
}

// Compaction leaves out a small segment with a lost batch, and publishes succeed.
func TestLostPostingsStopNoPublish(t *testing.T) {
	store := blob.NewMemory()
	want := map[string]int64{}
	for i := range 3 * publish.TargetSegments {
		name := string(rune('a' + i))
		res := testlake.Ingest(t, store, "alpha", name, records(name, 5+i))
		want["1/"+name] = int64(5 + i)
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%d: %+v", i, done.Skipped)
		}
		compact(t, store, false)
		v := expectLive(t, store, want)
		if len(v.Segments) > publish.TargetSegments+1 {
			t.Fatalf("%d segments", len(v.Segments))
		}
		if i == 1 {
			damage(t, store, record(t, store, 1, name, res.Digest).Postings[0].Key, "missing")
		}
	}
}

// Errors of the store are not taken for damage.
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

// A rebuild extracts lost postings and builds damaged segments again, under their names. Batches
// that have lost a part leave the version, and are named.
func TestRebuild(t *testing.T) {
	store := blob.NewMemory()
	a := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "delta", "b1", records("d", 40))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	v := current(t, store)
	c := testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	rebuild := func() publish.Rebuilt {
		t.Helper()
		out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := objectsBelow(t, store, "")
	if d := cmp.Diff(publish.Rebuilt{Version: v.ID, Checked: 2}, rebuild()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(whole, objectsBelow(t, store, "")); d != "" {
		t.Errorf("an intact lake has changed: %s", d)
	}
	damage(t, store, segment.Prefix(v.Segments[0].ID)+segment.MPHFName, "flipped")
	damage(t, store, segment.Prefix(v.Segments[0].ID)+segment.InfoName, "missing")
	damage(t, store, segment.Prefix(v.Segments[1].ID)+segment.PartsName, "truncated")
	damage(t, store, record(t, store, 1, "b1", a.Digest).Postings[0].Key, "missing")
	damage(t, store, record(t, store, 4, "b1", c.Digest).Postings[0].Key, "truncated")
	got := rebuild()
	want := publish.Rebuilt{
		Version: current(t, store).ID, Checked: 2, Segments: []string{v.Segments[0].ID, v.Segments[1].ID}, Postings: 2,
	}
	if d := cmp.Diff(want, got); d != "" || got.Version <= v.ID {
		t.Error(d)
	}
	after := objectsBelow(t, store, "")
	for key, data := range whole {
		if !bytes.Equal(after[key], data) && !strings.HasPrefix(key, "registry/") && key != catalog.ManifestKey {
			t.Errorf("%s has not got its bytes back", key)
		}
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 40, "3/b1": 20, "4/b1": 30})

	part := record(t, store, 1, "b1", a.Digest).Parts[0].Key
	restore := damage(t, store, part, "missing")
	got = rebuild()
	if got.LostBatches != 1 || got.LostRows != 10 || len(got.Lost) != 1 ||
		!strings.HasPrefix(got.Lost[0], "batch b1 of alpha, 10 rows: "+part) || !strings.Contains(got.Lost[0], "starter ingest") {
		t.Errorf("%+v", got)
	}
	expectLive(t, store, map[string]int64{"2/b1": 40, "3/b1": 20, "4/b1": 30})
	for range 2 { // the batch is named again, and others are published
		if d := cmp.Diff([]string{"alpha/b1"}, skipped(testlake.Publish(t, store))); d != "" {
			t.Error(d)
		}
	}
	if got := rebuild(); got.LostBatches != 0 || len(got.Lost) != 1 || len(got.Segments) > 0 {
		t.Errorf("%+v", got)
	}
	restore()
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 40, "3/b1": 20, "4/b1": 30})
}

// Lost registries stop publishes until Rebuild restores them from the version. Ingests and
// publishes then work again.
func TestLostRegistriesAreRestoredFromTheVersion(t *testing.T) {
	for _, how := range []string{"missing", "flipped"} {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "gamma", "b1", records("c", 30)) // not published
		// The copy of the registry is lost, too.
		if err := store.Delete(t.Context(), catalog.RegistryCopyKey); err != nil {
			t.Fatal(err)
		}
		damage(t, store, lake.RegistryKey, how)
		if _, err := publish.Plan(t.Context(), store, testlake.Run(), 0); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%s: %v", how, err)
		}
		got, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		d := cmp.Diff([]string{lake.RegistryKey}, got.Restored)
		if d != "" || len(got.Lost) != 2 || !strings.Contains(got.Lost[0], "starter rules update") ||
			!strings.Contains(got.Lost[1], "dataset 3") {
			t.Errorf("%s: %+v", how, got)
		}
		got, err = publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil || len(got.Restored) > 0 || len(got.Lost) > 0 {
			t.Errorf("%s, again: %+v, %v", how, got, err)
		}
		testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
		testlake.Ingest(t, store, "beta", "b1", records("new", 21))
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 21, "4/b1": 30})
	}
}

// A store that fails while a rebuild reads names and batches makes none of them count as lost,
// whichever call it is that fails.
func TestFailingStoreLosesNothingInARebuild(t *testing.T) {
	lost := func(nth int) (out publish.Rebuilt, fired bool, err error) {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "alpha", "b1", records("new", 11))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		if err := store.Delete(t.Context(), catalog.RegistryCopyKey, lake.RegistryKey); err != nil {
			t.Fatal(err)
		}
		faulty := blobtest.NewFaulty(store)
		faulty.Inject(blobtest.Fault{Nth: nth})
		out, err = publish.Rebuild(t.Context(), faulty, testlake.Run(), t.TempDir())
		return out, faulty.Fired() > 0, err
	}
	want, _, err := lost(1 << 30)
	if err != nil || len(want.Restored) != 1 {
		t.Fatalf("%+v, %v", want, err)
	}
	for nth := 1; ; nth += testenv.Every(3) {
		got, fired, err := lost(nth)
		switch {
		case !fired:
			if nth < 50 {
				t.Errorf("a rebuild makes %d calls", nth)
			}
			return
		case err != nil && !errors.Is(err, blobtest.ErrInjected):
			t.Errorf("call %d fails: %v", nth, err)
		case err == nil && (len(got.Lost) != len(want.Lost) || got.LostBatches != 0):
			t.Errorf("call %d fails: lost %q, want %q", nth, got.Lost, want.Lost)
		}
	}
}

// A dataset with the id of another one does not replace that one's batches.
func TestOtherDatasetOfTheSameIDIsRejected(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	other := blob.NewMemory()
	testlake.Ingest(t, other, "beta", "b2", records("b", 20))
	blobtest.Copy(t, other, store)
	before := begin(t, other)
	var c *codec.CorruptError
	if _, err := publish.Plan(t.Context(), store, testlake.Run(), 0); !errors.As(err, &c) || c.File != lake.RegistryKey {
		t.Errorf("plan: %v", err)
	}
	blobtest.Copy(t, other, store)
	if _, err := publish.Commit(t.Context(), store, before.key, before.built, t.TempDir()); !errors.As(err, &c) || c.File != lake.RegistryKey {
		t.Errorf("commit: %v", err)
	}
}
