package gc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
)

// records makes n distinct URLs of seven domains. Another tag makes other URLs.
func records(tag string, n int) []testlake.Record {
	var list []testlake.Record
	for i := range n {
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%s/%d", i%7, tag, i)})
	}
	return list
}

// now is options of a collection that keeps the current version alone and waits for nothing.
func now() gc.Options { return gc.Options{Keep: 1} }

func collect(t testing.TB, store blob.Store, opt gc.Options) gc.Result {
	t.Helper()
	res, err := gc.Collect(t.Context(), store, opt)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// urls returns all URLs that a version has of the seven domains, by dataset, as a server answers.
func urls(t testing.TB, store blob.Store, version string) map[string][]string {
	t.Helper()
	server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	all := map[string][]string{}
	for i := range 7 {
		target := lookup.Target{Host: fmt.Sprintf("site%d.test", i)}
		page, err := snap.Domain(t.Context(), target, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Datasets {
			q := lookup.URLsQuery{Target: target, Dataset: d.ID, Limit: 1000}
			for {
				page, err := snap.URLs(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range page.Len() {
					all[d.Name] = append(all[d.Name], string(page.URL(i)))
				}
				if q.Cursor = page.Cursor; q.Cursor == "" {
					break
				}
			}
		}
	}
	for name := range all {
		slices.Sort(all[name])
	}
	return all
}

// expect checks that the current version answers with the records of each dataset, and that the
// lake is sound.
func expect(t testing.TB, store blob.Store, want map[string][][]testlake.Record) {
	t.Helper()
	wanted := map[string][]string{}
	for name, batches := range want {
		for _, b := range batches {
			for _, r := range b {
				wanted[name] = append(wanted[name], r.URL)
			}
		}
		slices.Sort(wanted[name])
	}
	if got := urls(t, store, ""); !maps.EqualFunc(got, wanted, slices.Equal) {
		t.Fatalf("the lake answers with %d datasets, want %d: %v", len(got), len(wanted), got)
	}
	sound(t, store)
}

// sound checks every object that the lake refers to.
func sound(t testing.TB, store blob.Store) {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("%+v", p)
	}
}

// objects returns the sizes of the objects below the roots where content is kept.
func objects(t testing.TB, store blob.Store, roots ...string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, root := range roots {
		for info, err := range store.List(t.Context(), root) {
			if err != nil {
				t.Fatal(err)
			}
			all[info.Key] = info.Size
		}
	}
	return all
}

// content are the roots whose objects are named by content and batches alone.
var content = []string{"urls/", "batches/", "rejects/", "index/segments/"}

// used is a lake with a history: replaced batches, a failed ingest, one that waits to be published.
func used(t testing.TB, store blob.Store) (want map[string][][]testlake.Record) {
	t.Helper()
	a, b, c := records("a", 40), records("b", 60), records("c", 50)
	testlake.Ingest(t, store, "alpha", "b1", records("old", 70))
	testlake.Ingest(t, store, "beta", "b1", b)
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", a)
	testlake.Publish(t, store)
	rejected := testlake.Record{URL: "http:///"} // whose list goes with its batch
	testlake.Ingest(t, store, "alpha", "b2", append(records("older", 30), rejected))
	if len(objects(t, store, "rejects/")) == 0 {
		t.Fatal("no list of rejects")
	}
	testlake.Ingest(t, store, "alpha", "b2", c)
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "gamma", "g", records("waits", 20))
	for _, tld := range []string{"com", "org"} {
		var names []domain64.Name
		for i := range 200 {
			names = append(names, domain64.Name{TLD: tld, Domain: fmt.Sprint("d", i)})
		}
		if _, err := numbers.Open(store, domain64.Document).Assign(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	return map[string][][]testlake.Record{"alpha": {a, c}, "beta": {b}}
}

// After a collection a lake has the objects of a lake that has never had anything else.
func TestWhatIsLeftIsWhatAFreshLakeHas(t *testing.T) {
	store := blob.NewMemory()
	want := used(t, store)
	// What a dead ingest of a batch has left.
	orphan := lake.BatchKey(2, "b1", strings.Repeat("0", 32))
	if _, err := store.Put(t.Context(), orphan, []byte("orphan"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	res := collect(t, store, now())
	expect(t, store, want)
	if len(res.Dropped) != 2 || res.Kept != 1 || res.Deleted.Total().Objects == 0 || res.Waiting.Objects != 0 {
		t.Errorf("%+v", res)
	}

	fresh := blob.NewMemory()
	testlake.Ingest(t, fresh, "alpha", "b1", want["alpha"][0])
	testlake.Ingest(t, fresh, "beta", "b1", want["beta"][0])
	testlake.Ingest(t, fresh, "alpha", "b2", want["alpha"][1])
	testlake.Publish(t, fresh)
	testlake.Ingest(t, fresh, "gamma", "g", records("waits", 20))
	// The segments differ, since the fresh lake was published at once.
	got, exp := objects(t, store, content[:3]...), objects(t, fresh, content[:3]...)
	if !maps.Equal(got, exp) {
		t.Errorf("left:\n%s\nfresh:\n%s", list(got), list(exp))
	}
	if n := len(objects(t, store, "index/versions/")); n != 1 {
		t.Errorf("%d versions are left", n)
	}
	if len(objects(t, store, "index/trash/lists/")) > 0 {
		t.Error("lists are left")
	}
	// Pieces are those that documents name, and no others.
	testlake.DropOldPieces(t, store)
	again := collect(t, store, now())
	if n := again.Found.Total(); n.Objects != 0 {
		t.Errorf("a second collection finds %+v", again.Found)
	}
	testlake.Publish(t, store)
	want["gamma"] = [][]testlake.Record{records("waits", 20)}
	expect(t, store, want)
}

func list(m map[string]int64) string { return strings.Join(slices.Sorted(maps.Keys(m)), "\n") }

// Nothing is deleted before its time of grace has passed, by the clock of the collections.
func TestGrace(t *testing.T) {
	store := blob.NewMemory()
	want := used(t, store)
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	opt := gc.Options{Keep: 1, Grace: time.Hour, Now: func() time.Time { return clock }}
	before := objects(t, store, content...)
	first := collect(t, store, opt)
	if got := objects(t, store, content...); !maps.Equal(got, before) {
		t.Error("objects are gone at once")
	}
	if n := first.Found.Total(); n.Objects == 0 || first.Waiting != n || first.Deleted.Total().Objects != 0 ||
		first.Next == nil || !first.Next.Equal(clock.Add(time.Hour)) {
		t.Errorf("%+v", first)
	}
	clock = clock.Add(time.Hour - time.Millisecond)
	if res := collect(t, store, opt); res.Found.Total().Objects != 0 || res.Waiting != first.Waiting {
		t.Errorf("%+v", res)
	}
	clock = clock.Add(-2 * time.Hour) // set back
	if res := collect(t, store, opt); res.Deleted.Total().Objects != 0 {
		t.Errorf("%+v", res)
	}
	clock = clock.Add(2*time.Hour + time.Millisecond)
	if res := collect(t, store, opt); res.Deleted.Total() != first.Waiting || res.Waiting.Objects != 0 {
		t.Errorf("%+v, want %+v", res, first.Waiting)
	}
	expect(t, store, want)
}

// A process that is killed while it probes the store leaves an object, which goes after an hour.
// One that probes at this moment keeps it. What else is in the folder stays.
func TestProbesOfTheDead(t *testing.T) {
	store := blob.NewMemory()
	want := used(t, store)
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(name string) string {
		key := catalog.ProbeRoot + name
		if _, err := store.Put(t.Context(), key, []byte("other"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	old := put("20260102T020404Z-ISW2VIDF2X4QIPLWQXTORRFUY5")
	stay := []string{
		put("20260102T020406Z-ISW2VIDF2X4QIPLWQXTORRFUY5"), put("20260103T020405Z-ISW2VIDF2X4QIPLWQXTORRFUY5"),
		put("ISW2VIDF2X4QIPLWQXTORRFUY5"), put("20260102T020404Z-colours"), put("20269902T020404Z-ISW2VIDF2X4QIPLWQXTORRFUY5"),
	}
	res := collect(t, store, gc.Options{Keep: 1, Now: func() time.Time { return clock }})
	if got := res.Deleted["probes"]; got.Objects != 1 || got.Bytes != 5 {
		t.Errorf("deleted %+v", res.Deleted)
	}
	if _, err := store.Stat(t.Context(), old); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%s: %v", old, err)
	}
	for _, key := range stay {
		if _, err := store.Stat(t.Context(), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	expect(t, store, want)
}

// What was written down, referred to again, and dropped again gets its whole time of grace.
func TestGraceBeginsAnew(t *testing.T) {
	store := blob.NewMemory()
	x, y := records("x", 30), records("y", 30)
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	opt := gc.Options{Keep: 1, Grace: time.Hour, Now: func() time.Time { return clock }}
	testlake.Ingest(t, store, "alpha", "b1", x)
	testlake.Publish(t, store)
	parts := objects(t, store, "urls/")
	testlake.Ingest(t, store, "alpha", "b1", y)
	testlake.Publish(t, store)
	collect(t, store, opt) // writes x down
	testlake.Ingest(t, store, "alpha", "b1", x)
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", y)
	testlake.Publish(t, store)
	clock = clock.Add(2 * time.Hour)
	collect(t, store, opt) // drops the second version with x
	left := objects(t, store, "urls/")
	for key := range parts {
		if _, ok := left[key]; !ok {
			t.Errorf("%s is gone as soon as the version is dropped", key)
		}
	}
	clock = clock.Add(time.Hour)
	collect(t, store, opt)
	left = objects(t, store, "urls/")
	for key := range parts {
		if _, ok := left[key]; ok {
			t.Errorf("%s is left", key)
		}
	}
	expect(t, store, map[string][][]testlake.Record{"alpha": {y}})
}

// Versions with a tag and the newest ones are kept with everything that they need.
func TestKeptVersionsAnswer(t *testing.T) {
	store := blob.NewMemory()
	var versions []string
	var want []map[string][]string
	for i := range 6 {
		testlake.Ingest(t, store, "alpha", "b1", records(fmt.Sprint("v", i), 20+i))
		versions = append(versions, testlake.Publish(t, store).Version)
		want = append(want, urls(t, store, ""))
	}
	if _, _, err := catalog.SetTag(t.Context(), store, "paper", versions[1], false); err != nil {
		t.Fatal(err)
	}
	res := collect(t, store, gc.Options{Keep: 2})
	if !slices.Equal(res.Dropped, []string{versions[0], versions[2], versions[3]}) || res.Kept != 3 || res.Tagged != 1 {
		t.Fatalf("%+v", res)
	}
	for _, i := range []int{1, 4, 5} {
		if got := urls(t, store, versions[i]); !maps.EqualFunc(got, want[i], slices.Equal) {
			t.Errorf("version %d answers otherwise", i)
		}
	}
	sound(t, store)
	if _, err := catalog.RemoveTag(t.Context(), store, "paper"); err != nil {
		t.Fatal(err)
	}
	if res := collect(t, store, gc.Options{Keep: 2}); !slices.Equal(res.Dropped, versions[1:2]) || res.Deleted.Total().Objects == 0 {
		t.Errorf("%+v", res)
	}
	sound(t, store)
}

// A dry run changes nothing and says what the collection then does.
func TestDryRun(t *testing.T) {
	store := blob.NewMemory()
	used(t, store)
	before := blobtest.Contents(t, store)
	opt := now()
	opt.DryRun = true
	said := collect(t, store, opt)
	if after := blobtest.Contents(t, store); after != before {
		t.Error("a dry run has changed the lake")
	}
	done := collect(t, store, now())
	if !maps.Equal(said.Deleted, done.Deleted) || !slices.Equal(said.Dropped, done.Dropped) || said.Kept != done.Kept {
		t.Errorf("said %+v, did %+v", said, done)
	}
}

// An ingest that has a plan keeps everything that can be its own.
func TestRunningIngestsKeepTheirObjects(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 30))
	testlake.Publish(t, store)
	had := objects(t, store, "urls/", "batches/")
	testlake.Ingest(t, store, "alpha", "b1", records("y", 30))
	testlake.Publish(t, store)
	run := testlake.Run()
	if _, err := ingest.MakePlan(t.Context(), store, run, testlake.Spec(t, store, "alpha", "b1", records("z", 3))); err != nil {
		t.Fatal(err)
	}
	collect(t, store, now())
	left := objects(t, store, "urls/", "batches/")
	for key := range had {
		if _, ok := left[key]; !ok {
			t.Errorf("%s is gone, although an ingest of its batch is under way", key)
		}
	}
	if err := ingest.Cleanup(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	collect(t, store, now())
	left = objects(t, store, "urls/", "batches/")
	for key := range had {
		if _, ok := left[key]; ok {
			t.Errorf("%s is left", key)
		}
	}
}

// A publish whose batch was replaced, and then collected, while it was built plans again.
func TestPublishOfACollectedBatchIsStale(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b2", records("x", 30))
	s, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
	if err != nil {
		t.Fatal(err)
	}
	built, err := publish.Build(t.Context(), store, s.PlanKey, 0, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// The plan is out of sight of the collection, as if it had been written just after that looked.
	plan, _, err := store.Get(t.Context(), s.PlanKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), s.PlanKey); err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b2", records("y", 30))
	testlake.Publish(t, store)
	collect(t, store, now())
	if _, err := store.Put(t.Context(), s.PlanKey, plan, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	done, err := publish.Commit(t.Context(), store, s.PlanKey, built, t.TempDir())
	if err != nil || !done.Stale {
		t.Errorf("%+v, %v", done, err)
	}
	expect(t, store, map[string][][]testlake.Record{"alpha": {records("a", 10), records("y", 30)}})
}

// A collection dies after each number of changes. Whatever is left is sound, and the next one
// leaves what an undisturbed one leaves.
func TestCollectionDiesAnywhere(t *testing.T) {
	prepared := blob.NewMemory()
	want := used(t, prepared)
	undisturbed := blob.NewMemory()
	blobtest.Copy(t, prepared, undisturbed)
	collect(t, undisturbed, now())
	roots := append([]string{"index/versions/", "index/pieces/", "registry/pieces/"}, content...)
	left := objects(t, undisturbed, roots...)
	opt := now()
	opt.Timeout = 200 * time.Millisecond // the next one waits for so long
	// A slow machine may not keep such a short timeout.
	late := func(err error) bool {
		return errors.Is(err, lease.ErrSweepLost) || errors.Is(err, context.DeadlineExceeded)
	}
	stride := testenv.Every(6)
	for n, points := 0, 0; ; n, points = n+stride, points+1 {
		inner := blob.NewMemory()
		blobtest.Copy(t, prepared, inner)
		store := blobtest.NewFaulty(inner)
		store.CrashAfter(n)
		_, err := gc.Collect(t.Context(), store, opt)
		if !store.Crashed() && late(err) {
			n, points = n-stride, points-1
			continue
		}
		if !store.Crashed() {
			if err != nil || n < 30 {
				t.Fatalf("after %d changes: %v", n, err)
			}
			t.Logf("%d points", points)
			return
		}
		if err == nil {
			t.Fatalf("crash after %d changes: no error", n)
		}
		if points%7 == 0 {
			expect(t, inner, want)
		}
		for _, err = gc.Collect(t.Context(), inner, opt); late(err); {
			_, err = gc.Collect(t.Context(), inner, opt)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := objects(t, inner, roots...); len(got) != len(left) || !maps.Equal(objects(t, inner, content...), objects(t, undisturbed, content...)) {
			t.Fatalf("crash after %d changes: left\n%s\nundisturbed\n%s", n, list(got), list(left))
		}
		if points%7 == 0 {
			expect(t, inner, want)
		}
	}
}

// A damaged manifest, version or registry stops a collection before it deletes. Beside a damaged
// piece nothing is deleted that is needed.
func TestDamageDeletesNothing(t *testing.T) {
	prepared := blob.NewMemory()
	used(t, prepared)
	stopped := 0
	for info, err := range prepared.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		document := strings.HasPrefix(info.Key, "index/versions/") || strings.HasPrefix(info.Key, "index/pieces/") ||
			strings.HasPrefix(info.Key, "registry/") && info.Key != catalog.RegistryCopyKey || info.Key == catalog.ManifestKey
		if !document {
			continue
		}
		store := blob.NewMemory()
		blobtest.Copy(t, prepared, store)
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if _, err := store.Put(t.Context(), info.Key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		_, err = gc.Collect(t.Context(), store, gc.Options{Keep: 10})
		piece := strings.Contains(info.Key, "/pieces/") || strings.HasPrefix(info.Key, "registry/domain64/")
		if !piece {
			stopped++
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("damage to %s: %v", info.Key, err)
			}
		} else if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("damage to %s: %v", info.Key, err)
		}
		after := objects(t, store, content...)
		sane := blob.NewMemory()
		blobtest.Copy(t, prepared, sane)
		collect(t, sane, gc.Options{Keep: 10})
		for key := range objects(t, sane, content...) {
			if _, ok := after[key]; !ok {
				t.Errorf("damage to %s: %s is gone", info.Key, key)
			}
		}
	}
	if stopped < 6 { // the manifest, three versions, two of the registry
		t.Errorf("%d documents", stopped)
	}
}

// Nothing mends pieces that only an earlier version needs. They stop no collection, which leaves
// what the version needs.
func TestLostPiecesOfAnEarlierVersion(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("one", 20))
	testlake.Ingest(t, prepared, "alpha", "b2", records("two", 20))
	first := testlake.Publish(t, prepared).Version
	if _, _, err := catalog.SetTag(t.Context(), prepared, "paper", first, false); err != nil {
		t.Fatal(err)
	}
	pieces := objects(t, prepared, catalog.VersionPiecesRoot)
	for _, v := range []string{"three", "four"} {
		testlake.Replace(t, prepared, "alpha", "b3", records(v, 20))
		testlake.Publish(t, prepared)
	}
	want := urls(t, prepared, "")
	newest := blob.NewMemory()
	blobtest.Copy(t, prepared, newest)
	if _, err := catalog.RemoveTag(t.Context(), newest, "paper"); err != nil {
		t.Fatal(err)
	}
	collect(t, newest, gc.Options{Keep: 1})
	kept := objects(t, newest, catalog.VersionPiecesRoot)
	sane := blob.NewMemory()
	blobtest.Copy(t, prepared, sane)
	collect(t, sane, gc.Options{Keep: 1})
	lost := 0
	for key := range pieces {
		if _, shared := kept[key]; shared {
			continue
		}
		lost++
		store := blob.NewMemory()
		blobtest.Copy(t, prepared, store)
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if res := collect(t, store, gc.Options{Keep: 1}); res.Deleted.Total().Objects == 0 {
			t.Errorf("without %s nothing is deleted", key)
		}
		left := objects(t, store, content...)
		for other := range objects(t, sane, content...) {
			if _, ok := left[other]; !ok {
				t.Errorf("without %s, %s is gone", key, other)
			}
		}
		if got := urls(t, store, ""); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("without %s the newest version answers otherwise", key)
		}
	}
	if lost == 0 {
		t.Error("no piece is of the first version alone")
	}
}

func TestLakeWithoutAVersion(t *testing.T) {
	store := blob.NewMemory()
	if res := collect(t, store, now()); !res.Nothing {
		t.Errorf("%+v", res)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	if res := collect(t, store, now()); !res.Nothing || res.Deleted.Total().Objects > 0 {
		t.Errorf("%+v", res)
	}
	testlake.Publish(t, store)
	if err := store.Delete(t.Context(), catalog.ManifestKey); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Collect(t.Context(), store, now()); err == nil || !strings.Contains(err.Error(), catalog.ManifestKey) {
		t.Errorf("without the manifest: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opt := range []gc.Options{{Keep: 0}, {Keep: 1, Grace: -1}} {
		if _, err := gc.Collect(t.Context(), blob.NewMemory(), opt); err == nil {
			t.Errorf("%+v is accepted", opt)
		}
	}
}

// checkFast checks that all objects of the current version and of the registry exist.
func checkFast(t *testing.T, store blob.Store, temp, name string) {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{TempDir: temp})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, p := range report.Problems {
		t.Fatalf("%s: %+v", name, p)
	}
}

// A collection that is stopped longer than its sweep lasts has lost it. The writer goes on, and the
// collection deletes nothing afterwards.
func TestStoppedCollectionDeletesNothing(t *testing.T) {
	x, y := records("x", 12), records("y", 9)
	testenv.Bubble(t, func(t *testing.T) {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", x)
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "alpha", "b1", y)
		testlake.Publish(t, store)
		deletes := make(chan struct{})
		once := sync.Once{}
		hold := &turns{store, func(ctx context.Context, op, key string) error {
			if op == "delete" || op == "put" && key == lease.SweepKey && isClosed(deletes) {
				once.Do(func() { close(deletes) })
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		opt := now()
		opt.Timeout = 200 * time.Millisecond
		done := make(chan error)
		go func() {
			_, err := gc.Collect(context.Background(), hold, opt)
			done <- err
		}()
		<-deletes
		testlake.Ingest(t, store, "alpha", "b1", x)
		testlake.Publish(t, store)
		if err := <-done; err == nil {
			t.Error("the collection ends without an error")
		}
		expect(t, store, map[string][][]testlake.Record{"alpha": {x}})
	})
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Two collections at once leave what one leaves; the second says that the first is deleting, or
// finds nothing more to do.
func TestTwoCollectionsAtOnce(t *testing.T) {
	store := blob.NewMemory()
	want := used(t, store)
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := gc.Collect(context.Background(), store, now())
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil && !errors.Is(err, lease.ErrSweepOpen) {
			t.Error(err)
		}
	}
	expect(t, store, want)
	collect(t, store, now())
	if res := collect(t, store, now()); res.Found.Total().Objects > 0 {
		t.Errorf("%+v", res)
	}
}

// What a server holds stays until it lets go of it or has died.
func TestLeasesHoldVersions(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 30))
	testlake.Publish(t, store)
	server := lookup.NewServer(store, lookup.Options{
		CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), LeaseTTL: lease.DefaultTTL,
	})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	had := objects(t, store, content...)
	testlake.Ingest(t, store, "alpha", "b1", records("y", 30))
	testlake.Publish(t, store)
	res := collect(t, store, now())
	if len(res.Dropped) != 1 || len(res.Held) != 1 || res.Held[0].Version != res.Dropped[0] {
		t.Errorf("%+v", res)
	}
	left := objects(t, store, content...)
	for key := range had {
		if _, ok := left[key]; !ok {
			t.Errorf("%s is gone, although a server holds it", key)
		}
	}
	target := lookup.Target{Host: "site1.test"}
	page, err := snap.URLs(t.Context(), lookup.URLsQuery{Target: target, Dataset: 1, Limit: 10})
	if err != nil || page.Len() == 0 || !strings.Contains(string(page.URL(0)), "/x/") {
		t.Errorf("%v", err)
	}
	// Damage to what it holds stops no collection.
	state, err := catalog.Recover(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	heldPieces := objects(t, store, catalog.VersionPiecesRoot)
	for key, err := range state.Current.PieceNames(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		delete(heldPieces, key)
	}
	for key := range heldPieces {
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if res := collect(t, store, now()); len(heldPieces) == 0 || len(res.Held) != 1 {
		t.Errorf("%+v", res)
	}
	// The server dies: nobody renews its lease.
	late := now()
	late.Now = func() time.Time { return time.Now().Add(lease.DefaultTTL + lease.MaxSkew + time.Second) }
	res = collect(t, store, late)
	if len(res.Held) != 0 || res.Deleted.Total().Objects == 0 || len(objects(t, store, lease.Root)) != 0 {
		t.Errorf("%+v", res)
	}
	left = objects(t, store, content...)
	for key := range had {
		if _, ok := left[key]; ok {
			t.Errorf("%s is left", key)
		}
	}
	snap.Release()
	sound(t, store)
	// A lease that cannot be read may hold anything.
	if _, err := store.Put(t.Context(), lease.Root+"other.json", []byte("{}"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Collect(t.Context(), store, now()); err == nil || !strings.Contains(err.Error(), "other.json") {
		t.Errorf("with a damaged lease: %v", err)
	}
}

// A collection whose clock is years ahead takes every lease for dead, and every time of grace for
// over. It deletes what nothing refers to, and no more: a server is told that a version is gone, or
// answers from what it has. One whose clock is years behind deletes nothing.
func TestCollectionWithAWrongClock(t *testing.T) {
	store := blob.NewMemory()
	x, y := records("x", 300), records("y", 300)
	testlake.Ingest(t, store, "alpha", "b1", x)
	testlake.Publish(t, store)
	server := lookup.NewServer(store, lookup.Options{
		CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), LeaseTTL: lease.DefaultTTL,
	})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	testlake.Ingest(t, store, "alpha", "b1", y)
	testlake.Publish(t, store)
	before := objects(t, store, content...)
	at := func(years int) gc.Options {
		opt := gc.Options{Keep: 1, Grace: time.Hour}
		opt.Now = func() time.Time { return time.Now().AddDate(years, 0, 0) }
		return opt
	}
	for range 2 {
		collect(t, store, at(-5))
		if !maps.Equal(objects(t, store, content...), before) {
			t.Error("a clock that is behind deletes")
		}
	}
	// What the clock that was behind wrote down is five years old by now.
	if res := collect(t, store, at(5)); res.Deleted.Total().Objects == 0 || len(res.Held) != 0 {
		t.Errorf("%+v", res)
	}
	expect(t, store, map[string][][]testlake.Record{"alpha": {y}})
	for i := range 7 {
		page, err := snap.URLs(t.Context(), lookup.URLsQuery{Target: lookup.Target{Host: fmt.Sprintf("site%d.test", i)}, Dataset: 1, Limit: 100})
		if err != nil {
			continue
		}
		for i := range page.Len() {
			if !strings.Contains(string(page.URL(i)), "/x/") {
				t.Fatalf("a row of another version: %s", page.URL(i))
			}
		}
	}
	// The lease is written again, since the server lives.
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	res := collect(t, store, at(0))
	if res.Deleted.Total().Objects != 0 {
		t.Errorf("%+v", res)
	}
	expect(t, store, map[string][][]testlake.Record{"alpha": {y}})
}
