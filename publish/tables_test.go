package publish_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
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
	"github.com/urlake/urlake/lake/pieces"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/lookup"
)

// tablesFrom sets from how many rows on batches are taken out of a segment by a deletion table. The
// result sets what was.
func tablesFrom(rows int64) func() {
	was := publish.LeastLeft
	publish.LeastLeft = rows
	return func() { publish.LeastLeft = was }
}

// datedBatches are randomBatches with times and sizes, of which few differ.
func datedBatches(rng *rand.Rand, n int) []madeBatch {
	batches := randomBatches(rng, n)
	for i := range batches {
		seen := map[string]bool{}
		for j := range batches[i].rows {
			r := &batches[i].rows[j]
			r.TS, r.Size = 0, 0
			if r.HasTS = rng.IntN(3) > 0; r.HasTS {
				r.TS = rng.Int64N(5) - 2
			}
			if r.HasSize = rng.IntN(3) > 0; r.HasSize {
				if r.Size = rng.Int64N(3); rng.IntN(40) == 0 {
					r.Size = math.MaxInt64 - rng.Int64N(2)
				}
			}
		}
		batches[i].rows = slices.DeleteFunc(batches[i].rows, func(r row.Row) bool {
			key := string(r.AppendKey(nil))
			defer func() { seen[key] = true }()
			return seen[key]
		})
	}
	return batches
}

// deadIn returns how many rows of the current version's segments are dead.
func deadIn(t testing.TB, store blob.Store) (rows int64) {
	for _, s := range current(t, store).Segments {
		rows += s.Rows - s.Live()
	}
	return rows
}

// diffs returns the differences between two versions.
func diffs(t testing.TB, store blob.Store, before, after string) (all []string) {
	t.Helper()
	server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var snaps [2]*lookup.Snapshot
	for i, id := range []string{before, after} {
		var err error
		if snaps[i], err = server.Acquire(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		defer snaps[i].Release()
	}
	q := lookup.DiffQuery{Limit: 7}
	for {
		page, err := snaps[1].Diff(t.Context(), snaps[0], q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Changes {
			all = append(all, fmt.Sprintf("%+v", c))
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return all
		}
	}
}

// A lake whose retired and replaced batches are taken out of segments by deletion tables answers
// like one whose segments are built again: each version, each difference between two versions, with
// takedowns, compactions, collections and other public suffix lists in between.
func TestDeletedBatchesAnswerAlike(t *testing.T) {
	defer tablesFrom(publish.LeastLeft)()
	deleted := 0
	seeds := 4 / testenv.Every(4)
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 41))
		plain, tabled := blob.NewMemory(), blob.NewMemory()
		var list *urlnorm.SuffixList
		both := func(do func(s blob.Store)) {
			tablesFrom(math.MaxInt64)
			do(plain)
			tablesFrom(0)
			do(tabled)
		}
		suffixes := randomSuffixes(rng)
		both(func(s blob.Store) { list = testlake.SetList(t, s, suffixes) })
		batches := datedBatches(rng, 16)
		hosts := hostsOf(batches)
		hosts = hosts[:min(len(hosts), 20)]
		// Several batches in one segment, so that there is something to be taken out of.
		for i := range 8 {
			both(func(s blob.Store) { batches[i].add(t, s, list) })
		}
		both(func(s blob.Store) { testlake.Publish(t, s) })
		compact(t, tabled, true)
		var versions [][2]string
		ids := map[string]uint32{}
		for i := range 8 {
			if d := batches[i].dataset; ids[d] == 0 {
				ids[d] = uint32(len(ids) + 1)
			}
		}
		for i := 8; i < len(batches); i++ {
			b := &batches[i]
			switch rng.IntN(5) {
			case 0: // another ingest of an earlier batch
				was := batches[rng.IntN(8)]
				b.dataset, b.name = was.dataset, was.name
				fallthrough
			case 1:
				both(func(s blob.Store) { b.add(t, s, list) })
				if ids[b.dataset] == 0 {
					ids[b.dataset] = uint32(len(ids) + 1)
				}
			case 2, 3:
				at := rng.IntN(8)
				name := fmt.Sprintf("%d/%s", ids[batches[at].dataset], batches[at].name)
				_, isLive := findLive(t, current(t, plain), ids[batches[at].dataset], batches[at].name)
				both(func(s blob.Store) {
					if isLive {
						retire(t, s, name)
					} else {
						restore(t, s, name)
					}
				})
			case 4:
				target := catalog.Target{Kind: catalog.HostTarget, Host: hosts[rng.IntN(len(hosts))]}
				both(func(s blob.Store) { takeDown(t, s, target) })
			}
			if seed%2 == 0 && rng.IntN(4) == 0 {
				suffixes = randomSuffixes(rng)
				both(func(s blob.Store) { list = testlake.SetList(t, s, suffixes) })
			}
			both(func(s blob.Store) { testlake.Publish(t, s) })
			if rng.IntN(4) == 0 {
				compact(t, tabled, rng.IntN(2) == 0)
			}
			if deadIn(t, tabled) > 0 {
				deleted++
			}
			if rng.IntN(3) == 0 {
				collect(t, tabled)
				versions = nil
			}
			checkLake(t, tabled)
			versions = append(versions, [2]string{current(t, plain).ID, current(t, tabled).ID})
			for n, v := range versions {
				want, got := unordered(answers(t, plain, hosts, v[0])), unordered(answers(t, tabled, hosts, v[1]))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d, step %d, version %d (-built again +taken out):\n%s", seed, i, n, diff)
				}
				last := versions[len(versions)-1]
				if diff := cmp.Diff(diffs(t, plain, v[0], last[0]), diffs(t, tabled, v[1], last[1])); diff != "" {
					t.Fatalf("seed %d, step %d, differences from version %d (-built again +taken out):\n%s", seed, i, n, diff)
				}
			}
		}
		compact(t, tabled, true)
		if dead := deadIn(t, tabled); dead != 0 {
			t.Errorf("seed %d: %d dead rows after a compaction", seed, dead)
		}
	}
	if deleted < 2*seeds {
		t.Errorf("%d versions with dead rows", deleted)
	}
}

func takeDown(t testing.TB, store blob.Store, target catalog.Target) {
	t.Helper()
	r := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC()}
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
}

func collect(t testing.TB, store blob.Store) {
	t.Helper()
	if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
}

// tabledLake makes a lake of two segments: a union of five batches of dataset 1, and three batches
// of dataset 2. From now on, batches are taken out of them by deletion tables.
func tabledLake(t testing.TB) (store blob.Store, hosts []string) {
	t.Helper()
	t.Cleanup(tablesFrom(0))
	rng := rand.New(rand.NewPCG(5, 5))
	store = blob.NewMemory()
	list := testlake.SetList(t, store, "x y a.x b.y")
	batches := datedBatches(rng, 8)
	for i := range batches {
		b := &batches[i]
		b.dataset, b.name = []string{"one", "two"}[i/5], fmt.Sprintf("b%d", i)
		b.add(t, store, list)
		if i == 4 {
			testlake.Publish(t, store)
			compact(t, store, true)
		}
	}
	testlake.Publish(t, store)
	if n := len(current(t, store).Segments); n != 2 {
		t.Fatalf("%d segments", n)
	}
	return store, hostsOf(batches)[:15]
}

// Nothing is wrong with an earlier version whose batches are all dead in the current one, and lack
// the rows that a takedown hid when they were united.
func TestCheckOfAnEarlierVersionOfADeadUnion(t *testing.T) {
	store, hosts := tabledLake(t)
	for _, host := range hosts[:3] {
		takeDown(t, store, catalog.Target{Kind: catalog.HostTarget, Host: host})
	}
	compact(t, store, true)
	collect(t, store) // no version is left that has the batches outside of unions
	retire(t, store, "2/b5", "2/b6", "2/b7")
	testlake.Publish(t, store)
	v, dropped := current(t, store), int64(0)
	for b, err := range v.DeadIn(t.Context(), v.Segments[0].ID) {
		if err != nil {
			t.Fatal(err)
		}
		key := lakecheck.StoredRef(b).Key()
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		union, err := lake.DecodeBatch(data, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range union.Members {
			dropped += m.Dropped
		}
	}
	if dropped == 0 {
		t.Fatal("no dead union lacks rows")
	}
	checkLake(t, store)
}

// A publish that takes batches out of segments, and stops at any of its operations, leaves the lake
// as it was, and the next one makes what an undisturbed one makes. A collection leaves nothing
// behind.
func TestTablesStopAnywhere(t *testing.T) {
	source, hosts := tabledLake(t)
	do := func(store blob.Store) error {
		if err := testlake.TryRetire(t.Context(), store, batchIDs([]string{"1/b1", "2/b6"})...); err != nil {
			return err
		}
		_, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
		return err
	}
	undisturbed := blob.NewMemory()
	blobtest.Copy(t, source, undisturbed)
	if err := do(undisturbed); err != nil {
		t.Fatal(err)
	}
	if deadIn(t, undisturbed) == 0 {
		t.Fatal("no dead rows")
	}
	before, after := answers(t, source, hosts, ""), answers(t, undisturbed, hosts, "")
	segments := current(t, undisturbed).Segments
	keys := func(store blob.Store) (all []string) {
		collect(t, store)
		for info, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(info.Key, "index/") && !strings.HasPrefix(info.Key, "index/versions/") || strings.HasPrefix(info.Key, "urls/") {
				if strings.HasPrefix(info.Key, "index/pieces/") { // which have times
					info.Key = "index/pieces/"
				}
				all = append(all, info.Key)
			}
		}
		return all
	}
	left := keys(undisturbed)
	points := 0
	for n := 0; ; n += stride {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		faults := blobtest.NewFaulty(store)
		faults.CrashAfter(n)
		if do(faults) == nil {
			break
		}
		points++
		if got := answers(t, store, hosts, ""); !cmp.Equal(before, got) && !cmp.Equal(after, got) {
			t.Fatalf("stopped at %d: neither the old state nor the new one", n)
		}
		if err := do(store); err != nil {
			t.Fatalf("after a stop at %d: %v", n, err)
		}
		if diff := cmp.Diff(segments, current(t, store).Segments); diff != "" {
			t.Fatalf("after a stop at %d (-undisturbed +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(left, keys(store)); diff != "" {
			t.Fatalf("after a stop at %d and a collection (-undisturbed +got):\n%s", n, diff)
		}
		checkLake(t, store)
	}
	if points < 15/stride {
		t.Errorf("%d points", points)
	}
	t.Logf("%d points", points)
}

// A segment out of which no batch can be taken, because something of it is damaged, is built again
// from the batches that are left.
func TestTableOfADamagedSegment(t *testing.T) {
	source, hosts := tabledLake(t)
	v := current(t, source)
	for _, name := range []string{segment.PostingsName(0), segment.PartsName, segment.FilesName} {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		whole := blob.NewMemory()
		blobtest.Copy(t, source, whole)
		damage(t, store, segment.Prefix(v.Segments[0].ID)+name, "flipped")
		for _, s := range []blob.Store{store, whole} {
			retire(t, s, "1/b1")
			testlake.Publish(t, s)
		}
		if rows := deadIn(t, whole); rows == 0 {
			t.Fatal("no dead rows")
		}
		if rows := deadIn(t, store); rows != 0 {
			t.Errorf("%s: %d rows were taken out of a damaged segment", name, rows)
		}
		if diff := cmp.Diff(unordered(answers(t, whole, hosts, "")), unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		collect(t, store)
		checkLake(t, store)
	}
}

// A lost deletion table is found and written again, and so are the lists of batches of a
// segment with dead rows.
func TestLostDeadRowsAreRestored(t *testing.T) {
	store, hosts := tabledLake(t)
	retire(t, store, "1/b0", "2/b7")
	testlake.Publish(t, store)
	retire(t, store, "1/b2")
	testlake.Publish(t, store)
	want := answers(t, store, hosts, "")
	prepared := store
	hows := []string{"missing", "flipped", "truncated"}
	for i, s := range current(t, prepared).Segments {
		if s.Dead == nil {
			t.Fatalf("segment %s has no dead rows", s.ID)
		}
		objects := []string{
			s.Dead.Table.Key, pieces.Key(catalog.VersionPiecesRoot, s.BatchPieces.Root), pieces.Key(catalog.VersionPiecesRoot, s.Dead.BatchPieces.Root),
		}
		for k, object := range objects {
			for n := (i + k) % testenv.Every(3); n < len(hows); n += testenv.Every(3) {
				how := hows[n]
				store := blob.NewMemory()
				blobtest.Copy(t, prepared, store)
				damage(t, store, object, how)
				report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{TempDir: t.TempDir()})
				if err != nil || len(report.Problems) == 0 || !strings.Contains(report.Problems[0], object) {
					t.Fatalf("%s %s: %v, %q", object, how, err, report.Problems)
				}
				out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
				if err != nil || len(out.Lost) > 0 || out.Version == current(t, prepared).ID {
					t.Fatalf("%s %s: %+v, %v", object, how, out, err)
				}
				report, err = lakecheck.Lake(t.Context(), store, lakecheck.Options{TempDir: t.TempDir(), Deep: true})
				if err != nil || len(report.Problems) > 0 {
					t.Fatalf("%s %s: %v, %q", object, how, err, report.Problems)
				}
				if diff := cmp.Diff(want, answers(t, store, hosts, "")); diff != "" {
					t.Errorf("%s %s: %s", object, how, diff)
				}
			}
		}
	}
}

// A commit that takes batches out of a segment is stale if a compaction has replaced the segment,
// and a compaction is stale if batches were taken out of one of its segments.
func TestTablesBesideACompaction(t *testing.T) {
	for _, first := range []string{"publish", "compaction"} {
		store, _ := tabledLake(t)
		retire(t, store, "1/b1", "2/b6")
		taken := begin(t, store)
		run := testlake.Run()
		plan, err := publish.PlanCompaction(t.Context(), store, run, 0, publish.Compaction{Full: true})
		if err != nil {
			t.Fatal(err)
		}
		for task := range plan.RewriteTasks {
			if _, err := publish.Rewrite(t.Context(), store, plan.RewriteKey, task, t.TempDir(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if plan, err = publish.PlanCompaction(t.Context(), store, run, 0, publish.Compaction{Full: true}); err != nil {
			t.Fatal(err)
		}
		built, err := publish.Build(t.Context(), store, plan.PlanKey, 0, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		compacted := pending{plan.PlanKey, built}
		one, two := taken, compacted
		if first == "compaction" {
			one, two = compacted, taken
		}
		if done := one.commit(t, store); done.Stale {
			t.Fatalf("%s first: %+v", first, done)
		}
		if done := two.commit(t, store); !done.Stale {
			t.Fatalf("%s first: the other is not stale: %+v", first, done)
		}
		testlake.Publish(t, store)
		compact(t, store, true)
		if got := slices.Sorted(maps.Keys(live(current(t, store)))); !slices.Equal(got, []string{"1/b0", "1/b2", "1/b3", "1/b4", "2/b5", "2/b7"}) {
			t.Errorf("%s first: %q", first, got)
		}
		checkLake(t, store)
	}
}

// BenchmarkRetire measures a publish that takes one batch of 20,000 rows out of a segment of a
// million: by a deletion table, and by building the segment again; as a batch of its own, and as
// one of a union of all.
func BenchmarkRetire(b *testing.B) {
	const batches, rows = 50, 20_000
	for _, union := range []bool{false, true} {
		source := blob.NewMemory()
		for i := range batches {
			var records []testlake.Record
			for n := range rows {
				records = append(records, testlake.Record{
					URL: fmt.Sprintf("http://www.site%d.example/page/%d?day=%d", n%5000, n/7, i%9), TS: int64(i*rows + n), HasTS: true,
				})
			}
			testlake.Ingest(b, source, "crawl", fmt.Sprintf("day-%03d", i), records)
		}
		testlake.Publish(b, source)
		if union {
			compact(b, source, true)
		}
		for _, how := range []struct {
			name  string
			least int64
		}{{"taken out", 0}, {"built again", math.MaxInt64}} {
			for _, batch := range []string{"day-007", "day-049"} { // the second one has the last times
				b.Run(fmt.Sprintf("union=%v/%s/%s", union, batch, how.name), func(b *testing.B) {
					defer tablesFrom(how.least)()
					for range b.N {
						b.StopTimer()
						store := blob.NewMemory()
						blobtest.Copy(b, source, store)
						retire(b, store, "1/"+batch)
						b.StartTimer()
						testlake.Publish(b, store)
					}
				})
			}
		}
	}
}
