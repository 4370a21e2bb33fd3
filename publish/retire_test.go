package publish_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
)

// batchID is a batch named as live names it.
func batchID(name string) (id catalog.BatchName) {
	fmt.Sscanf(strings.Replace(name, "/", " ", 1), "%d %s", &id.DatasetID, &id.Batch)
	return id
}

func batchIDs(names []string) (ids []catalog.BatchName) {
	for _, name := range names {
		ids = append(ids, batchID(name))
	}
	return ids
}

func retire(t testing.TB, store blob.Store, names ...string) {
	t.Helper()
	testlake.Retire(t, store, batchIDs(names)...)
}

func restore(t testing.TB, store blob.Store, names ...string) {
	t.Helper()
	testlake.Restore(t, store, batchIDs(names)...)
}

// checkLake reads the whole lake as "starter verify --all" does.
func checkLake(t testing.TB, store blob.Store) *lakecheck.Report {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("%v, %q", err, report.Problems)
	}
	return report
}

// Versions hold the batches that a map holds, whatever is ingested, replaced, retired, restored and
// published in whatever order, also if the ledger is lost in between; earlier versions stay as they
// are.
func TestRetiredBatchesAreAsTheirModel(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 17))
		store := blob.NewMemory()
		type state struct {
			rows    int64
			retired bool
		}
		model := map[string]state{}
		waits := map[string]bool{} // batches with an ingest that no version has
		publishAll := func() {
			testlake.Publish(t, store)
			for name := range waits {
				if !model[name].retired {
					delete(waits, name)
				}
			}
		}
		versions := map[string]map[string]int64{}
		id := func() string { return fmt.Sprintf("%d/b%d", 1+r.IntN(2), r.IntN(3)) }
		for _, name := range []string{"one", "two"} { // their ids are 1 and 2
			if _, err := catalog.RegisterDataset(t.Context(), store, lake.Dataset{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		for step := range 60 {
			name := id()
			was, known := model[name]
			switch r.IntN(7) {
			case 6:
				full := publish.Compaction{Full: r.IntN(2) == 0}
				if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), full, t.TempDir()); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			case 0, 1, 5:
				if waits[name] && !was.retired {
					publishAll() // a lost order does not tell which of two unpublished ingests is the last
				}
				waits[name] = true
				n := 1 + r.IntN(20)
				b := batchID(name)
				dataset := []string{"one", "two"}[b.DatasetID-1]
				if r.IntN(4) == 0 {
					testlake.Replace(t, store, dataset, b.Batch, records(fmt.Sprint(name, n), n))
					for other, s := range model {
						if batchID(other).DatasetID == b.DatasetID {
							model[other] = state{s.rows, true}
						}
					}
				} else {
					testlake.Ingest(t, store, dataset, b.Batch, records(fmt.Sprint(name, n), n))
				}
				model[name] = state{rows: int64(n)}
			case 2:
				if known && !was.retired {
					retire(t, store, name)
					model[name] = state{was.rows, true}
				}
			case 3:
				if known && was.retired {
					restore(t, store, name)
					model[name] = state{was.rows, false}
				}
			case 4:
				publishAll()
				want := map[string]int64{}
				for name, s := range model {
					if !s.retired {
						want[name] = s.rows
					}
				}
				if v := expectLive(t, store, want); v != nil {
					versions[v.ID] = want
				}
				for _, b := range whatWaits(t, store).Batches {
					if !b.Published {
						t.Fatalf("seed %d, step %d: %+v waits", seed, step, b)
					}
				}
			}
		}
		if len(versions) < 3 {
			t.Fatalf("seed %d: %d versions", seed, len(versions))
		}
		m, _, err := catalog.ReadManifest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range versions {
			ref, err := m.Version(id)
			if err != nil {
				t.Fatal(err)
			}
			v, err := catalog.ReadVersion(t.Context(), store, ref)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, live(v)); diff != "" {
				t.Errorf("seed %d, version %s (-want +got):\n%s", seed, id, diff)
			}
		}
		checkLake(t, store)
	}
}

// A version may have nothing. Its lake is sound, and goes on from there.
func TestRetireAll(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b2", records("c", 30))
	testlake.Publish(t, store)
	before := current(t, store)
	retire(t, store, "1/b1", "1/b2", "2/b1")
	s, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
	if err != nil || s.Removed != 3 || s.Batches != 0 || s.Covered != 0 || s.Segments != 2 || s.Nothing {
		t.Fatalf("%+v, %v", s, err)
	}
	testlake.Publish(t, store)
	empty := expectLive(t, store, map[string]int64{})
	if len(empty.Segments) != 0 || empty.Counts != (catalog.Counts{}) {
		t.Fatalf("%+v", empty.Counts)
	}
	for d, err := range empty.Datasets(t.Context(), 0) {
		t.Fatalf("%+v, %v", d, err)
	}
	checkLake(t, store)
	if again := testlake.Publish(t, store); !again.Existed || again.Version != empty.ID {
		t.Fatalf("%+v", again)
	}
	if r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir()); err != nil ||
		len(r.Lost)+len(r.Restored) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	// A lost manifest leads to the empty version too.
	if err := store.Delete(t.Context(), catalog.ManifestKey); err != nil {
		t.Fatal(err)
	}
	if again := testlake.Publish(t, store); again.Version != empty.ID {
		t.Fatalf("%+v", again)
	}
	restore(t, store, "1/b1", "1/b2", "2/b1")
	testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 30, "2/b1": 20})
	if nameOf(t, v, 2) != "beta" || v.Counts.Rows != before.Counts.Rows || v.Counts.Datasets != 2 {
		t.Fatalf("%+v", v.Counts)
	}
	checkLake(t, store)
}

// What shares a segment with a retired batch stays. The other segments are not built again.
func TestRetireLeavesTheOthers(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	testlake.Publish(t, store)
	before := current(t, store)
	retire(t, store, "2/b1")
	testlake.Ingest(t, store, "gamma", "b2", records("d", 5))
	testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "3/b1": 30, "3/b2": 5})
	if len(v.Segments) != 2 || v.Segments[0] != before.Segments[1] {
		t.Fatalf("%+v", v.Segments)
	}
	if found, err := v.FindDatasets(t.Context(), []uint32{1, 2, 3}); err != nil || len(found) != 2 || found[2].Name != "" {
		t.Fatalf("%+v, %v", found, err)
	}
	// Restored before anything is published, it is as if nothing was.
	retire(t, store, "1/b1")
	restore(t, store, "1/b1")
	if again := testlake.Publish(t, store); again.Version != v.ID {
		t.Fatalf("%+v", again)
	}
}

// An ingest that began before does not bring a retired batch back; one that begins later does, also
// with the same content. A waiting ingest is told.
func TestIngestsBesideARetirement(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	live, _ := findLive(t, current(t, store), 1, "b1")
	slow := time.Now().UnixNano()
	retire(t, store, "1/b1")
	finish(t, store, 1, "b1", live.Digest, slow, false)
	testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{})
	in := publish.Ingest{BatchRef: segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: live.Digest}, Start: slow}
	if f, err := publish.Find(t.Context(), store, in, ""); err != nil || f.Published || !strings.Contains(f.Damage, "retired") || f.Current != v.ID {
		t.Fatalf("%+v, %v", f, err)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10})
}

// A batch that is damaged can be retired, which sets its segment free; one that shares a segment
// with a damaged batch waits, and is named.
func TestRetireBesideDamage(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	testlake.Publish(t, store)
	v := current(t, store)
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, lake.BatchPrefix(1, "b1")) || strings.Contains(info.Key, "part-b1-") && strings.Contains(info.Key, "dataset_id=1/") {
			if err := store.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	retire(t, store, "2/b1")
	done := testlake.Publish(t, store)
	if done.Version != v.ID || len(done.Skipped) != 1 || done.Skipped[0].Dataset != "beta" || !strings.Contains(done.Skipped[0].Reason, "damaged") {
		t.Fatalf("%+v", done)
	}
	retire(t, store, "1/b1")
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"3/b1": 30})
}

// A batch that is restored while the version without it is being committed is in the next one.
func TestRestoreDuringACommit(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	retire(t, store, "1/b1")
	slow := begin(t, store)
	restore(t, store, "1/b1")
	if done := slow.commit(t, store); done.Stale {
		t.Fatalf("%+v", done)
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
}

// A publish of a retirement can end at each change of the store: readers see the old version or the
// new one, and the next publish completes it. So does a repeated retirement, or restoration.
func TestRetirementEndsAnywhere(t *testing.T) {
	start := func(t *testing.T) *blobtest.Faulty {
		store := blobtest.NewFaulty(blob.NewMemory())
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		return store
	}
	before, after := map[string]int64{"1/b1": 10, "2/b1": 20}, map[string]int64{"2/b1": 20}
	points := 0
	for n := 0; ; n += testenv.Every(4) {
		store := start(t)
		store.CrashAfter(n)
		do := func() error {
			if err := testlake.TryRetire(t.Context(), store, batchID("1/b1")); err != nil {
				return err
			}
			if _, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir()); err != nil {
				return err
			}
			if err := testlake.TryRestore(t.Context(), store, batchID("1/b1")); err != nil {
				return err
			}
			_, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
			return err
		}
		err := do()
		crashed := store.Crashed()
		if crashed != (err != nil) {
			t.Fatalf("after %d changes: %v", n, err)
		}
		store.Heal()
		if got := live(current(t, store)); !cmp.Equal(got, before) && !cmp.Equal(got, after) {
			t.Fatalf("after %d changes: %v", n, got)
		}
		if !crashed {
			break
		}
		points++
		// Whatever was done, all of it is done by doing it again.
		retire(t, store, "1/b1")
		testlake.Publish(t, store)
		expectLive(t, store, after)
		restore(t, store, "1/b1")
		testlake.Publish(t, store)
		expectLive(t, store, before)
		checkLake(t, store)
	}
	if points < 20/testenv.Every(4) {
		t.Fatalf("%d crash points", points)
	}
	t.Logf("%d crash points", points)
}

// A batch that is retired while the lake gets another public suffix list leaves with the move, and
// follows the new list when it is restored.
func TestRetireBesideAChangeOfTheList(t *testing.T) {
	moved, fresh := blob.NewMemory(), blob.NewMemory()
	_, to, batches := movableLake(t, moved)
	testlake.Publish(t, moved)
	var hosts []string
	for _, b := range batches {
		for i := range b.rows {
			hosts = append(hosts, b.rows[i].Host)
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	list := testlake.SetList(t, fresh, to)
	for i := range batches {
		batches[i].add(t, fresh, list)
		if i == 1 || i == 2 {
			testlake.Publish(t, fresh)
		}
	}
	testlake.Publish(t, fresh)
	testlake.SetList(t, moved, to)
	// Of the first segment a batch stays, of the second none.
	for _, store := range []blob.Store{moved, fresh} {
		retire(t, store, "1/b1", "1/b0")
		testlake.Publish(t, store)
	}
	v := current(t, moved)
	if len(v.Segments) != 2 || v.Counts.Batches != 2 || v.PublicSuffix != list.Identity() {
		t.Fatalf("%+v", v)
	}
	if diff := cmp.Diff(answers(t, fresh, hosts, ""), answers(t, moved, hosts, "")); diff != "" {
		t.Fatalf("a lake of the new list answers (-), the moved lake (+):\n%s", diff)
	}
	for _, store := range []blob.Store{moved, fresh} {
		restore(t, store, "1/b1", "1/b0")
		testlake.Publish(t, store)
		checkLake(t, store)
	}
	if diff := cmp.Diff(answers(t, fresh, hosts, ""), answers(t, moved, hosts, "")); diff != "" {
		t.Fatalf("restored: a lake of the new list answers (-), the moved lake (+):\n%s", diff)
	}
}

// replaceable returns a lake with a dataset of two published batches and one that waits, and
// another dataset in the segment of the first.
func replaceable(t testing.TB, store blob.Store) {
	t.Helper()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b2", records("c", 30))
	testlake.Publish(t, store)
}

// A batch that replaces its dataset is in the version in which the others are not, wherever its
// ingest or its publish ends: no version has both or neither.
func TestReplacedDatasetFlipsOnce(t *testing.T) {
	before, after := map[string]int64{"1/b1": 10, "1/b2": 30, "2/b1": 20}, map[string]int64{"1/b4": 7, "2/b1": 20}
	points := 0
	for n := 0; ; n += testenv.Every(4) {
		store := blobtest.NewFaulty(blob.NewMemory())
		replaceable(t, store)
		// Neither is an ingest that waits: it is replaced, too.
		testlake.Ingest(t, store, "alpha", "b3", records("waits", 3))
		spec := ingest.Spec{
			Lake: store.URL(), Dataset: "alpha", Batch: "b4", Replace: true, Format: "lines", Inputs: []string{sevenURLs(t)},
		}
		store.CrashAfter(n)
		_, err := testlake.Steps(t.Context(), store, spec, t.TempDir())
		if err == nil {
			_, err = publish.All(t.Context(), store, testlake.Run(), t.TempDir())
		}
		crashed := store.Crashed()
		if crashed != (err != nil) {
			t.Fatalf("after %d changes: %v", n, err)
		}
		store.Heal()
		if got := live(current(t, store)); !cmp.Equal(got, before) && !cmp.Equal(got, after) {
			t.Fatalf("after %d changes: %v", n, got)
		}
		if !crashed {
			break
		}
		points++
		// A publish meanwhile has the old state, with what waited, or the new one.
		testlake.Publish(t, store)
		old := maps.Clone(before)
		old["1/b3"] = 3
		if got := live(current(t, store)); !cmp.Equal(got, old) && !cmp.Equal(got, after) {
			t.Fatalf("after %d changes and a publish: %v", n, got)
		}
		testlake.IngestSpec(t, store, spec)
		testlake.Publish(t, store)
		expectLive(t, store, after)
		for _, id := range versions(t, store) {
			m, _, err := catalog.ReadManifest(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := m.Version(id)
			if err != nil {
				t.Fatal(err)
			}
			v, err := catalog.ReadVersion(t.Context(), store, ref)
			if err != nil {
				t.Fatal(err)
			}
			has := live(v)
			if (has["1/b4"] > 0) == (has["1/b1"] > 0) {
				t.Fatalf("after %d changes: version %s has %v", n, id, has)
			}
		}
		checkLake(t, store)
	}
	if points < 20/testenv.Every(4) {
		t.Fatalf("%d crash points", points)
	}
	t.Logf("%d crash points", points)
}

func sevenURLs(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seven.txt")
	var text strings.Builder
	for i := range 7 {
		fmt.Fprintf(&text, "https://seven.test/%d\n", i)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// If the replacing batch is damaged, or a replaced one cannot be taken out, the version stays as it
// is, and both are named.
func TestReplacementWaitsAsAWhole(t *testing.T) {
	lose := func(t *testing.T, store blob.Store, dataset int, batch string) {
		t.Helper()
		for info, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			part := strings.Contains(info.Key, "part-"+batch+"-") && strings.Contains(info.Key, fmt.Sprintf("dataset_id=%d/", dataset))
			if part || strings.HasPrefix(info.Key, lake.BatchPrefix(uint32(dataset), batch)) && strings.Contains(info.Key, "postings-") {
				if err := store.Delete(t.Context(), info.Key); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	skipped := func(done publish.Committed) (names []string) {
		for _, s := range done.Skipped {
			names = append(names, fmt.Sprintf("%d/%s", s.DatasetID, s.Batch))
		}
		slices.Sort(names)
		return names
	}
	before := map[string]int64{"1/b1": 10, "1/b2": 30, "2/b1": 20}
	t.Run("damaged", func(t *testing.T) {
		store := blob.NewMemory()
		replaceable(t, store)
		testlake.Replace(t, store, "alpha", "b4", records("d", 7))
		lose(t, store, 1, "b4")
		done := testlake.Publish(t, store)
		if diff := cmp.Diff([]string{"1/b1", "1/b2", "1/b4"}, skipped(done)); diff != "" {
			t.Errorf("skipped: %s", diff)
		}
		expectLive(t, store, before)
		testlake.Ingest(t, store, "alpha", "b4", records("d", 7)) // which mends it
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b4": 7, "2/b1": 20})
	})
	t.Run("blocked", func(t *testing.T) {
		store := blob.NewMemory()
		replaceable(t, store)
		lose(t, store, 2, "b1")
		testlake.Replace(t, store, "alpha", "b4", records("d", 7))
		done := testlake.Publish(t, store)
		if names := skipped(done); !slices.Contains(names, "1/b1") || !slices.Contains(names, "1/b4") {
			t.Errorf("skipped %v", names)
		}
		expectLive(t, store, before)
		retire(t, store, "2/b1") // which sets the segment free
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b4": 7})
	})
}

// An ingest that began after the replacing one stays, whichever finishes first. One that began
// before is retired.
func TestReplacementInTheOrderOfIngests(t *testing.T) {
	store := blob.NewMemory()
	replaceable(t, store)
	start := time.Now().UnixNano()
	later := testlake.Ingest(t, store, "alpha", "b2", records("c", 30)) // the same content
	done := testlake.Ingest(t, store, "alpha", "b4", records("d", 7))
	one, _ := findLive(t, current(t, store), 1, "b1")
	for _, key := range documents(t, store) {
		if strings.HasPrefix(key, "pending/1/") && key > fmt.Sprintf("pending/1/%019d", testlake.Finished(t, store, 1, "b2").Start+1) {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish(t, store, 1, "b4", done.Digest, start+1, true)
	finish(t, store, 1, "b1", one.Digest, start, false)
	got := map[string]string{}
	for _, b := range whatWaits(t, store).Batches {
		if !b.Published {
			got[b.Batch] = fmt.Sprint(b.Retired, " ", b.By)
		}
	}
	if diff := cmp.Diff(map[string]string{"b1": "true b4", "b4": "false "}, got); diff != "" {
		t.Errorf("waits: %s", diff)
	}
	testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{"1/b2": 30, "1/b4": 7, "2/b1": 20})
	if two, _ := findLive(t, v, 1, "b2"); two.Digest != later.Digest {
		t.Errorf("%+v", two)
	}
}
