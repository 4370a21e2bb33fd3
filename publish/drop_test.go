package publish_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/suppress"
)

// addTakedown adds a takedown and returns its id.
func addTakedown(t testing.TB, store blob.Store, kind catalog.TargetKind, text string, edit func(*catalog.Takedown)) string {
	t.Helper()
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	r := catalog.Takedown{ID: catalog.NewTakedownID(now), Target: target, Reason: "test", Created: now}
	if edit != nil {
		edit(&r)
	}
	res, err := suppress.Add(t.Context(), store, r, suppress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res.ID
}

func lift(t testing.TB, store blob.Store, id string) {
	t.Helper()
	if _, err := suppress.Lift(t.Context(), store, id, "me", "over", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
}

// hiddenRows is how many rows takedowns hide in the current version.
func hiddenRows(t testing.TB, store blob.Store) (rows int64) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := catalog.ReadTakedowns(t.Context(), store, m.Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range current(t, store).Segments {
		rows += doc.Hidden([]string{s.View()})
	}
	return rows
}

// status is what "takedown status" says.
func status(t testing.TB, store blob.Store, id string) *suppress.State {
	t.Helper()
	s, err := suppress.Inspect(t.Context(), store, id, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A compaction drops what is hidden, whatever the scope of the takedown, from single batches and
// from unions, and answers stay as they are.
func TestCompactionDropsHiddenRows(t *testing.T) {
	var all []testlake.Record
	for i := range 60 {
		r := testlake.Record{URL: fmt.Sprintf("https://h%d.site%d.test/p%d/%d", i%3, i%5, i%4, i)}
		if r.HasTS = i%2 == 0; r.HasTS {
			r.TS = int64(1_500_000_000_000 + i*1000)
		}
		all = append(all, r)
	}
	hosts := []string{"site0.test", "site1.test", "site2.test", "site3.test", "site4.test"}
	from, to := int64(1_500_000_010_000), int64(1_500_000_040_000)
	for name, c := range map[string]struct {
		kind catalog.TargetKind
		text string
		edit func(*catalog.Takedown)
	}{
		"domain":  {catalog.DomainTarget, "site1.test", nil},
		"host":    {catalog.HostTarget, "h2.site2.test", nil},
		"url":     {catalog.URLTarget, "https://h0.site3.test/p2/18", nil},
		"prefix":  {catalog.PrefixTarget, "h1.site4.test/p0/", nil},
		"dataset": {catalog.DomainTarget, "site1.test", func(r *catalog.Takedown) { r.DatasetID, r.Dataset = 2, "beta" }},
		"time":    {catalog.DomainTarget, "site1.test", func(r *catalog.Takedown) { r.From, r.To = &from, &to }},
	} {
		for _, united := range []bool{false, true} {
			if !united && c.edit == nil && testenv.Every(2) > 1 {
				continue // the scopes differ in what is hidden, not in how it is dropped
			}
			t.Run(fmt.Sprintf("%s united=%v", name, united), func(t *testing.T) {
				store := blob.NewMemory()
				for i, b := range []string{"alpha/b1", "alpha/b2", "beta/b1"} {
					dataset, batch, _ := strings.Cut(b, "/")
					testlake.Ingest(t, store, dataset, batch, all[:40+10*i])
					testlake.Publish(t, store)
				}
				if united {
					compact(t, store, true)
				}
				before := current(t, store).Counts.Rows
				id := addTakedown(t, store, c.kind, c.text, c.edit)
				hidden := hiddenRows(t, store)
				if hidden == 0 {
					t.Fatal("nothing is hidden")
				}
				want := unordered(answers(t, store, hosts, ""))
				if s := status(t, store, id); s.Gone {
					t.Fatal("gone before")
				}
				done := compact(t, store, false)
				v := current(t, store)
				if done.Existed || v.Counts.Rows != before-hidden || v.Counts.Batches != 3 || hiddenRows(t, store) != 0 {
					t.Fatalf("%+v, %d of %d rows hidden: %+v", done, hidden, before, v.Counts)
				}
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("(-hidden +dropped):\n%s", diff)
				}
				checkLake(t, store)
				if again := compact(t, store, false); !again.Existed {
					t.Errorf("again: %+v", again)
				}
				collect(t, store)
				if s := status(t, store, id); !s.Gone {
					t.Errorf("%+v", s)
				}
				checkLake(t, store)
				// What is dropped does not come back with a lift.
				lift(t, store, id)
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("(-dropped +lifted):\n%s", diff)
				}
				checkLake(t, store)
			})
		}
	}
}

// kinds returns the folders of keys.
func kinds(keys []string) string {
	all := map[string]bool{}
	for _, key := range keys {
		switch {
		case strings.Contains(key, "/postings-"):
			all["postings"] = true
		default:
			a, b, _ := strings.Cut(key, "/")
			b, _, _ = strings.Cut(b, "/")
			if a == "index" {
				a += "/" + b
			}
			all[a] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), " ")
}

// After a takedown, a compaction and a garbage collection no object of the lake has a byte of it,
// but for the list of the rules in force; after the takedown is lifted, not even that.
func TestNothingIsLeftOfATakedown(t *testing.T) {
	const host, path = "qzxhost.kvwsite.test", "/qpathz"
	store := blob.NewMemory()
	with := func(tag string, n int) []testlake.Record {
		all := records(tag, 5)
		for i := range n {
			all = append(all, testlake.Record{URL: fmt.Sprintf("https://%s%s/%s/%d", host, path, tag, i)})
		}
		return append(all, testlake.Record{URL: "no:url at " + host}) // is rejected
	}
	testlake.Ingest(t, store, "alpha", "b1", with("b1", 30))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b2", with("b2", 20))
	testlake.Publish(t, store)
	compact(t, store, true) // a union, older versions, and the batches' own parts
	testlake.Ingest(t, store, "alpha", "b3", with("b3", 10))
	for i := range 4 { // small batches; one lacks it
		testlake.Ingest(t, store, fmt.Sprintf("list%d", i), "b", with(fmt.Sprint("l", i), 3*i))
	}
	testlake.Ingest(t, store, "other", "b", records("o", 9))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "other", "b2", records("o2", 9))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", with("again", 3)) // replaces b1
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "waits", with("w", 5)) // is not published yet
	hosts := []string{"site0.test", "site1.test", "kvwsite.test"}
	if got := kinds(append(testlake.Holders(t, store, "kvwsite"), testlake.Holders(t, store, "qpathz")...)); got != "index/segments postings urls" {
		t.Fatalf("the test sees %q", got)
	}
	id := addTakedown(t, store, catalog.DomainTarget, "kvwsite.test", nil)
	if s := status(t, store, id); s.Gone {
		t.Fatal("gone too soon")
	}
	testlake.Publish(t, store)
	want := unordered(answers(t, store, hosts, ""))
	compact(t, store, false)
	if s := status(t, store, id); s.Gone {
		t.Fatal("gone before the garbage collection")
	}
	collect(t, store)
	for _, text := range []string{"kvwsite", "qzxhost", "qpathz"} {
		for _, key := range testlake.Holders(t, store, text) {
			if !strings.HasPrefix(key, catalog.TakedownRoot) {
				t.Errorf("%s has %q", key, text)
			}
		}
	}
	if s := status(t, store, id); !s.Gone {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
		t.Errorf("(-hidden +dropped):\n%s", diff)
	}
	checkLake(t, store)
	lift(t, store, id)
	collect(t, store)
	for _, text := range []string{"kvwsite", "qzxhost", "qpathz"} {
		if left := testlake.Holders(t, store, text); len(left) > 0 {
			t.Errorf("%q is in %q", text, left)
		}
	}
	checkLake(t, store)
}

// intruder is a store that lets somebody else do something before its nth operation.
type intruder struct {
	blob.Store
	mu sync.Mutex
	n  int
	do func()
}

func (s *intruder) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.n == -1 {
		s.do()
	}
}

func (s *intruder) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	s.step()
	return s.Store.Get(ctx, key)
}

func (s *intruder) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	s.step()
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s *intruder) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.step()
	return s.Store.Open(ctx, key, off, n)
}

func (s *intruder) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	s.step()
	return s.Store.Put(ctx, key, data, cond)
}

func (s *intruder) Delete(ctx context.Context, keys ...string) error {
	s.step()
	return s.Store.Delete(ctx, keys...)
}

// lakeWithHidden returns a lake with a union and single batches, and a takedown that hides rows of
// all.
func lakeWithHidden(t testing.TB) (store blob.Store, id string, hosts []string) {
	t.Helper()
	store = blob.NewMemory()
	for i, b := range []string{"alpha/b1", "alpha/b2", "beta/b1", "gamma/b1", "delta/b1"} {
		dataset, batch, _ := strings.Cut(b, "/")
		testlake.Ingest(t, store, dataset, batch, records(batch, 14+i))
		if i == 3 {
			continue
		}
		testlake.Publish(t, store)
		if i == 1 {
			compact(t, store, true)
		}
	}
	return store, addTakedown(t, store, catalog.DomainTarget, "site3.test", nil), []string{"site0.test", "site3.test", "site5.test"}
}

// stride is how far apart the operations are at which a test lets something happen.
var stride = testenv.Every(12)

// A compaction that drops rows, and stops at any of its operations, leaves the lake with the same
// answers, and the next one makes what an undisturbed one makes. Nothing is left after a garbage
// collection.
func TestDroppingStopsAnywhere(t *testing.T) {
	source, id, hosts := lakeWithHidden(t)
	want := unordered(answers(t, source, hosts, ""))
	undisturbed := blob.NewMemory()
	blobtest.Copy(t, source, undisturbed)
	compact(t, undisturbed, false)
	segments := current(t, undisturbed).Segments
	points := 0
	for n := 0; ; n += stride {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		faults := blobtest.NewFaulty(store)
		faults.CrashAfter(n)
		run := testlake.Run()
		if _, err := publish.CompactAll(t.Context(), faults, run, publish.Compaction{}, t.TempDir()); err == nil {
			break
		}
		points++
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("stopped at %d:\n%s", n, diff)
		}
		checkLake(t, store)
		if points%3 == 0 {
			collect(t, store)
		}
		compact(t, store, false)
		if diff := cmp.Diff(segments, current(t, store).Segments); diff != "" {
			t.Fatalf("after a stop at %d (-undisturbed +got):\n%s", n, diff)
		}
		if err := lake.DeleteStaging(t.Context(), store, run); err != nil { // as a collection that asks Temporal
			t.Fatal(err)
		}
		collect(t, store)
		checkLake(t, store)
		if s := status(t, store, id); !s.Gone {
			t.Fatalf("after a stop at %d: %+v", n, s)
		}
	}
	if points < 20/stride {
		t.Errorf("%d points", points)
	}
	t.Logf("%d points", points)
}

// A takedown is lifted before any operation of a compaction that drops its rows. Unless the
// compaction has ended, the rows come back.
func TestLiftRacesWithACompaction(t *testing.T) {
	source, id, hosts := lakeWithHidden(t)
	hidden := unordered(answers(t, source, hosts, ""))
	lifted := blob.NewMemory()
	blobtest.Copy(t, source, lifted)
	lift(t, lifted, id)
	whole := unordered(answers(t, lifted, hosts, ""))
	before := current(t, source).ID
	compact := func(in *intruder) error {
		_, err := publish.CompactAll(t.Context(), in, testlake.Run(), publish.Compaction{}, t.TempDir())
		return err
	}
	undisturbed := &intruder{Store: blob.NewMemory(), n: math.MaxInt}
	blobtest.Copy(t, source, undisturbed.Store)
	if err := compact(undisturbed); err != nil {
		t.Fatal(err)
	}
	last := math.MaxInt - undisturbed.n - 1 // one of the few after which the rows are gone
	back, ended := 0, 0
	for n := last % stride; ; n += stride {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		want := whole
		in := &intruder{Store: store, n: n, do: func() {
			if current(t, store).ID != before { // the rows are gone
				want = hidden
				ended++
			} else {
				back++
			}
			lift(t, store, id)
		}}
		if err := compact(in); err != nil {
			t.Fatalf("lifted before %d: %v", n, err)
		}
		if in.n >= 0 {
			break
		}
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("lifted before %d:\n%s", n, diff)
		}
		if n%7 == 0 {
			checkLake(t, store)
			collect(t, store)
			checkLake(t, store)
		}
	}
	t.Logf("the rows came back in %d cases, and were gone in %d", back, ended)
	if back < 50/stride || ended == 0 {
		t.Errorf("the rows came back in %d cases, and were gone in %d", back, ended)
	}
}

// A takedown is added before any operation of a compaction that drops the rows of another. Its rows
// are hidden when the compaction has ended, and the next one drops them.
func TestAddRacesWithACompaction(t *testing.T) {
	source, _, hosts := lakeWithHidden(t)
	both := blob.NewMemory()
	blobtest.Copy(t, source, both)
	addTakedown(t, both, catalog.PrefixTarget, "site5.test/b1/", nil)
	want := unordered(answers(t, both, hosts, ""))
	left := 0
	for n := 0; ; n += stride {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		id := ""
		in := &intruder{Store: store, n: n, do: func() { id = addTakedown(t, store, catalog.PrefixTarget, "site5.test/b1/", nil) }}
		if _, err := publish.CompactAll(t.Context(), in, testlake.Run(), publish.Compaction{}, t.TempDir()); err != nil {
			t.Fatalf("added before %d: %v", n, err)
		}
		if id == "" {
			break
		}
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("added before %d:\n%s", n, diff)
		}
		if hiddenRows(t, store) > 0 {
			left++
			compact(t, store, false)
		}
		collect(t, store)
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("added before %d, dropped:\n%s", n, diff)
		}
		if s := status(t, store, id); !s.Gone {
			t.Fatalf("added before %d: %+v", n, s)
		}
	}
	if left < 50/stride {
		t.Errorf("the rows were left to the next compaction in %d cases", left)
	}
}

// A batch of which everything is dropped stays a batch, with 0 rows. It can be retired, restored
// and replaced, and a lake of nothing else can be read and compacted.
func TestAllRowsOfABatchAreDropped(t *testing.T) {
	for _, others := range []bool{true, false} {
		store := blob.NewMemory()
		only := []testlake.Record{{URL: "https://a.gone.test/1"}, {URL: "https://b.gone.test/2"}}
		want := map[string]int64{"1/b1": 0}
		testlake.Ingest(t, store, "alpha", "b1", only)
		testlake.Publish(t, store)
		if others {
			testlake.Ingest(t, store, "alpha", "b2", append(records("x", 7), only...))
			testlake.Publish(t, store)
			want["1/b2"] = 7
		}
		id := addTakedown(t, store, catalog.DomainTarget, "gone.test", nil)
		compact(t, store, false)
		expectLive(t, store, want)
		collect(t, store)
		checkLake(t, store)
		if s := status(t, store, id); !s.Gone {
			t.Errorf("%+v", s)
		}
		retire(t, store, "1/b1")
		testlake.Publish(t, store)
		delete(want, "1/b1")
		expectLive(t, store, want)
		checkLake(t, store)
		restore(t, store, "1/b1")
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%+v", done)
		}
		want["1/b1"] = 0
		expectLive(t, store, want)
		checkLake(t, store)
		if others {
			compact(t, store, true)
			expectLive(t, store, want)
		}
		testlake.Ingest(t, store, "alpha", "b1", append(records("new", 3), only...))
		testlake.Publish(t, store)
		want["1/b1"] = 5
		expectLive(t, store, want)
		if n := hiddenRows(t, store); n != 2 {
			t.Errorf("%d rows are hidden", n)
		}
		compact(t, store, false)
		want["1/b1"] = 3
		expectLive(t, store, want)
		collect(t, store)
		checkLake(t, store)
		if s := status(t, store, id); !s.Gone {
			t.Errorf("%+v", s)
		}
	}
}

// What is dropped stays dropped as long as the takedown is in force, whatever becomes of the union:
// batches are retired, restored, replaced, ingested again with the same content, the public suffix
// list changes. After it is lifted, an ingest brings the rows back.
func TestDroppedRowsStayAway(t *testing.T) {
	store := blob.NewMemory()
	testlake.SetList(t, store, "test")
	for i, batch := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, store, "alpha", batch, records(batch, 14+i))
		testlake.Publish(t, store)
	}
	hosts := []string{"site0.test", "site3.test", "site6.test"}
	whole := unordered(answers(t, store, hosts, ""))
	id := addTakedown(t, store, catalog.HostTarget, "site3.test", nil)
	want := unordered(answers(t, store, hosts, ""))
	rows := map[string]int64{"1/b1": 12, "1/b2": 13, "1/b3": 14}
	compact(t, store, false)
	same := func(what string) {
		t.Helper()
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("%s:\n%s", what, diff)
		}
		checkLake(t, store)
	}
	expectLive(t, store, rows)
	same("dropped")
	for _, collected := range []bool{false, true} {
		if collected {
			collect(t, store)
		}
		retire(t, store, "1/b2")
		testlake.Publish(t, store)
		restore(t, store, "1/b2")
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%+v", done)
		}
		same("retired and restored")
		if compact(t, store, true); hiddenRows(t, store) != 0 {
			t.Fatal("rows are hidden")
		}
		expectLive(t, store, rows)
		same("compacted")
	}
	testlake.Ingest(t, store, "alpha", "b1", records("b1", 14)) // as before
	testlake.Publish(t, store)
	expectLive(t, store, rows)
	same("ingested again")
	testlake.SetList(t, store, "test site0.test")
	testlake.Publish(t, store)
	testlake.SetList(t, store, "test")
	testlake.Publish(t, store)
	expectLive(t, store, rows)
	same("moved")
	collect(t, store)
	expectLive(t, store, rows)
	same("collected")
	if s := status(t, store, id); !s.Gone {
		t.Errorf("%+v", s)
	}
	lift(t, store, id)
	same("lifted")
	for i, batch := range []string{"b1", "b2", "b3"} {
		retire(t, store, "1/"+batch)
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "alpha", batch, records(batch, 14+i))
		testlake.Publish(t, store)
	}
	want = whole
	same("ingested after the lift")
}

// Whatever is lost or changed of a union that lacks rows, a rebuild shows none of these rows again:
// not from the batches' own parts, and not when the batches are ingested again. The next compaction
// drops them.
func TestDamagedUnionsStayWithoutDroppedRows(t *testing.T) {
	prepared := blob.NewMemory()
	for i, batch := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, prepared, "alpha", batch, records(batch, 14+i))
		testlake.Publish(t, prepared)
	}
	id := addTakedown(t, prepared, catalog.URLTarget, "https://site3.test/b1/3", nil)
	addTakedown(t, prepared, catalog.HostTarget, "site6.test", nil)
	addTakedown(t, prepared, catalog.HostTarget, "site5.nowhere.test", nil)
	compact(t, prepared, true)
	collected := blob.NewMemory()
	blobtest.Copy(t, prepared, collected)
	collect(t, collected)
	hosts := []string{"site0.test", "site3.test", "site6.test"}
	want := unordered(answers(t, prepared, hosts, ""))
	union := 0
	for key := range stored(t, collected) {
		if !strings.Contains(key, "~") {
			continue
		}
		union++
		for _, how := range []string{"missing", "flipped"} {
			for name, from := range map[string]blob.Store{"own parts": prepared, "collected": collected} {
				store := blob.NewMemory()
				blobtest.Copy(t, from, store)
				damage(t, store, key, how)
				r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				if r.LostBatches > 0 {
					for i, batch := range []string{"b1", "b2", "b3"} {
						testlake.Ingest(t, store, "alpha", batch, records(batch, 14+i))
					}
					testlake.Publish(t, store)
				}
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("%s %s, %s, before the compaction:\n%s", key, how, name, diff)
				}
				compact(t, store, true)
				expectLive(t, store, map[string]int64{"1/b1": 11, "1/b2": 13, "1/b3": 14})
				if n := hiddenRows(t, store); n != 0 {
					t.Errorf("%s %s, %s: %d rows are hidden, not dropped", key, how, name, n)
				}
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("%s %s, %s:\n%s", key, how, name, diff)
				}
				checkLake(t, store)
				collect(t, store)
				checkLake(t, store)
				if s := status(t, store, id); !s.Gone {
					t.Errorf("%s %s, %s: %+v", key, how, name, s)
				}
			}
		}
	}
	if union < 3 {
		t.Errorf("%d objects of a union", union)
	}
}

// Rows of batches that were retired are dead in a segment that stays. A compaction writes the
// segment again if a takedown may match them, also if it hides nothing else; and what it drops of a
// union whose other batches are dead is what the version shows of it.
func TestDeadRowsOfATakedown(t *testing.T) {
	defer tablesFrom(0)()
	for _, liveToo := range []bool{false, true} {
		store := blob.NewMemory()
		site := func(n int) (all []testlake.Record) {
			for i := range n {
				all = append(all, testlake.Record{URL: fmt.Sprintf("https://qzxhost.kvwsite.test/%d", i)})
			}
			return all
		}
		live := site(0)
		if liveToo {
			live = site(7)
		}
		testlake.Ingest(t, store, "alpha", "b1", append(records("b1", 20), live...))
		testlake.Ingest(t, store, "alpha", "b2", append(records("b2", 9), site(9)...))
		testlake.Ingest(t, store, "alpha", "b3", records("b3", 40))
		testlake.Ingest(t, store, "beta", "b1", records("b1", 160))
		testlake.Publish(t, store)
		compact(t, store, true)
		retire(t, store, "1/b2")
		testlake.Publish(t, store)
		v := current(t, store)
		if len(v.Segments) != 1 || v.Segments[0].Dead == nil {
			t.Fatalf("%+v", v)
		}
		hosts := []string{"site0.test", "site1.test", "kvwsite.test"}
		id := addTakedown(t, store, catalog.DomainTarget, "kvwsite.test", nil)
		if n := hiddenRows(t, store); n > 0 != liveToo {
			t.Fatalf("%d rows are hidden", n)
		}
		answered := unordered(answers(t, store, hosts, ""))
		collect(t, store)
		if s := status(t, store, id); s.Gone {
			t.Fatalf("%+v", s)
		}
		compact(t, store, false)
		expectLive(t, store, map[string]int64{"1/b1": 20, "1/b3": 40, "2/b1": 160})
		if diff := cmp.Diff(answered, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Errorf("(-hidden +dropped):\n%s", diff)
		}
		checkLake(t, store)
		collect(t, store)
		if s := status(t, store, id); !s.Gone {
			t.Errorf("%+v", s)
		}
		for _, key := range testlake.Holders(t, store, "kvwsite") {
			if !strings.HasPrefix(key, catalog.TakedownRoot) {
				t.Errorf("it is left in %s", key)
			}
		}
	}
}

// A batch with large parts is not united with others. If it has hidden rows, it is written again by
// itself, and its neighbours stay as they are.
func TestLargeBatchesAreDroppedByThemselves(t *testing.T) {
	defer func(n int64) { *publish.LargeParts = n }(*publish.LargeParts)
	store := blob.NewMemory()
	for i, batch := range []string{"b1", "b2", "b3", "b4"} {
		testlake.Ingest(t, store, "alpha", batch, records(batch, 14+i))
		testlake.Publish(t, store)
		if i == 1 {
			compact(t, store, true)
		}
	}
	*publish.LargeParts = 1
	id := addTakedown(t, store, catalog.PrefixTarget, "site3.test/b1/", nil)
	addTakedown(t, store, catalog.PrefixTarget, "site3.test/b3/", nil)
	compact(t, store, false)
	unions := map[string][]string{}
	for b, err := range current(t, store).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		unions[b.Union] = append(unions[b.Union], b.Batch)
	}
	if len(unions) != 3 || !slices.Equal(unions[""], []string{"b4"}) {
		t.Errorf("%v", unions)
	}
	expectLive(t, store, map[string]int64{"1/b1": 12, "1/b2": 15, "1/b3": 14, "1/b4": 17})
	collect(t, store)
	checkLake(t, store)
	if s := status(t, store, id); !s.Gone {
		t.Errorf("%+v", s)
	}
}
