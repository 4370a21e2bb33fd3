package publish_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	retirepkg "github.com/urlake/urlake/starter/retire"
)

func compact(t testing.TB, store blob.Store, full bool) publish.Committed {
	t.Helper()
	done, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: full}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// unordered returns answers without the order of URLs, which a compaction changes.
func unordered(answers map[string][]string) map[string][]string {
	out := map[string][]string{}
	for host, lines := range answers {
		var all []string
		dataset := ""
		for _, line := range lines {
			if at, url, ok := strings.Cut(line, ": "); ok && strings.Contains(at, " of ") {
				_, total, _ := strings.Cut(at, " of ")
				line = dataset + " of " + total + ": " + url
			} else {
				dataset, _, _ = strings.Cut(line, " ")
			}
			all = append(all, line)
		}
		slices.Sort(all)
		out[host] = all
	}
	return out
}

// randomBatches returns batches of two datasets with many rows in common. Some have a partition of
// their own for each prefix.
func randomBatches(rng *rand.Rand, n int) (batches []madeBatch) {
	rows := randomRows(rng, 300)
	for i := range n {
		b := madeBatch{dataset: []string{"one", "two"}[rng.IntN(2)], name: fmt.Sprintf("b%02d", i)}
		for _, r := range rows {
			if rng.IntN(4) == 0 {
				if r.HasSize = rng.IntN(2) == 0; r.HasSize {
					r.Size = rng.Int64N(3)
				}
				if rng.IntN(4) == 0 {
					r.Extras = fmt.Sprintf(`{"n":%d}`, rng.IntN(2))
				}
				b.rows = append(b.rows, r)
			}
		}
		b.options.Width, b.options.Limits = rng.IntN(3), indextest.TinyParts
		batches = append(batches, b)
	}
	return batches
}

// A lake that is compacted now and then answers like one that is not, whatever is ingested,
// replaced and retired, also when the public suffix list changes; and it has the same bytes as a
// lake that gets the same batches at once.
func TestCompactedLakeAnswersAlike(t *testing.T) {
	same := 0
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 23))
		plain, compacted := blob.NewMemory(), blob.NewMemory()
		stores := []blob.Store{plain, compacted}
		var list *urlnorm.SuffixList
		suffixes := randomSuffixes(rng)
		for _, s := range stores {
			list = testlake.SetList(t, s, suffixes)
		}
		batches := randomBatches(rng, 14)
		hosts := hostsOf(batches)
		hosts = hosts[:min(len(hosts), 25)]
		moved := false // to another list, after which a batch and a union have other records
		var names []string
		live := map[string]bool{}
		for i := range batches {
			b := &batches[i]
			if rng.IntN(5) == 0 && i > 0 { // another ingest of an earlier batch
				b.dataset, b.name = batches[0].dataset, batches[0].name
			}
			for _, s := range stores {
				b.add(t, s, list)
				testlake.Publish(t, s)
			}
			id := fmt.Sprintf("%d/%s", map[string]int{batches[0].dataset: 1}[b.dataset]+map[bool]int{true: 0, false: 2}[b.dataset == batches[0].dataset], b.name)
			if !live[id] {
				names, live[id] = append(names, id), true
			}
			if rng.IntN(4) == 0 {
				gone := names[rng.IntN(len(names))]
				if live[gone] {
					for _, s := range stores {
						retire(t, s, gone)
						testlake.Publish(t, s)
					}
					delete(live, gone)
					names = slices.DeleteFunc(names, func(n string) bool { return n == gone })
				}
			}
			if rng.IntN(3) == 0 {
				compact(t, compacted, rng.IntN(2) == 0)
			}
			if seed%2 == 1 && rng.IntN(6) == 0 {
				suffixes, moved = randomSuffixes(rng), true
				for _, s := range stores {
					list = testlake.SetList(t, s, suffixes)
					testlake.Publish(t, s)
				}
			}
			want, got := answers(t, plain, hosts, ""), answers(t, compacted, hosts, "")
			if diff := cmp.Diff(unordered(want), unordered(got)); diff != "" {
				t.Fatalf("seed %d, batch %d (-plain +compacted):\n%s", seed, i, diff)
			}
		}
		compact(t, compacted, true)
		v := current(t, compacted)
		if v.Counts.Segments != 1 || v.Counts.Batches != len(live) || v.Counts.Parts > 2*16 {
			t.Fatalf("seed %d: %+v", seed, v.Counts)
		}
		if again := compact(t, compacted, true); !again.Existed {
			t.Fatalf("seed %d: compacted again: %+v", seed, again)
		}
		checkLake(t, compacted)
		if moved {
			continue
		}
		same++
		compact(t, plain, true)
		one := current(t, plain).Segments[0]
		one.BatchPieces.Root = v.Segments[0].BatchPieces.Root // the pieces have the starts
		if diff := cmp.Diff(one, v.Segments[0]); diff != "" {
			t.Errorf("seed %d: compacted at once (-) and step by step (+):\n%s", seed, diff)
		}
	}
	if same == 0 || same == 2 {
		t.Errorf("%d of 2 lakes kept their list", same)
	}
}

// A compaction that stops at any of its operations leaves the lake as it was, and the next one
// makes what an undisturbed one makes.
func TestCompactionStopsAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	source := blob.NewMemory()
	list := testlake.SetList(t, source, "x y a.x b.y")
	batches := randomBatches(rng, 5)
	for i := range batches {
		batches[i].add(t, source, list)
		testlake.Publish(t, source)
	}
	hosts := hostsOf(batches)[:20]
	want := unordered(answers(t, source, hosts, ""))
	undisturbed := blob.NewMemory()
	blobtest.Copy(t, source, undisturbed)
	compact(t, undisturbed, true)
	segments := current(t, undisturbed).Segments
	points := 0
	for n := 0; ; n += testenv.Every(7) {
		store := blob.NewMemory()
		blobtest.Copy(t, source, store)
		faults := blobtest.NewFaulty(store)
		faults.CrashAfter(n)
		_, err := publish.CompactAll(t.Context(), faults, testlake.Run(), publish.Compaction{Full: true}, t.TempDir())
		if err == nil {
			break
		}
		points++
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Fatalf("stopped at %d:\n%s", n, diff)
		}
		compact(t, store, true)
		if diff := cmp.Diff(segments, current(t, store).Segments); diff != "" {
			t.Fatalf("after a stop at %d (-undisturbed +got):\n%s", n, diff)
		}
	}
	if points < 20/testenv.Every(7) {
		t.Errorf("%d points", points)
	}
	t.Logf("%d points", points)
}

// A batch whose parts were collected, because a union has its rows, returns after it was retired:
// before the next publish, and later as long as a version has the union.
func TestRestoredFromAUnion(t *testing.T) {
	store := blob.NewMemory()
	for i, batch := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, store, "alpha", batch, records(batch, 10+i))
		testlake.Publish(t, store)
	}
	hosts := []string{"site0.test", "site3.test", "site6.test"}
	want := unordered(answers(t, store, hosts, ""))
	compact(t, store, true)
	collect := func() {
		t.Helper()
		if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	for info, err := range store.List(t.Context(), "urls/") {
		if err != nil || !strings.Contains(info.Key, "/part-~") {
			t.Fatalf("%s is left, %v", info.Key, err)
		}
	}
	all := map[string]int64{"1/b1": 10, "1/b2": 11, "1/b3": 12}
	back := func() {
		t.Helper()
		opt := retirepkg.Options{Dataset: "alpha", Batches: []string{"b1"}, Restore: true}
		s, err := opt.Select(t.Context(), store)
		if err == nil {
			err = s.Apply(t.Context(), store)
		}
		if err != nil {
			t.Fatal(err)
		}
		// Nothing is wrong with a batch that waits for a publish in a union.
		if r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{TempDir: t.TempDir()}); err != nil || len(r.Problems) > 0 {
			t.Errorf("a check before the publish: %+v, %v", r.Problems, err)
		}
		if r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir()); err != nil || len(r.Lost) > 0 {
			t.Errorf("rebuild before the publish: %+v, %v", r, err)
		}
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%+v", done)
		}
		expectLive(t, store, all)
		if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		checkLake(t, store)
	}
	retire(t, store, "1/b1")
	back()
	retire(t, store, "1/b1")
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b2": 11, "1/b3": 12})
	back()
	collect()
	checkLake(t, store)
	retire(t, store, "1/b1")
	testlake.Publish(t, store)
	collect()
	opt := retirepkg.Options{Dataset: "alpha", Batches: []string{"b1"}, Restore: true}
	s, err := opt.Select(t.Context(), store)
	if err == nil {
		err = s.Apply(t.Context(), store)
	}
	if err == nil || !strings.Contains(err.Error(), "not all of it is left") {
		t.Errorf("a collected batch: %v", err)
	}
}

// A batch whose record was collected does not come back, although a union, which the plan of
// another run can hold, still has its rows: a version without the record of a batch is damaged.
func TestCollectedRecordIsNotRestored(t *testing.T) {
	store := blob.NewMemory()
	for i, batch := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, store, "alpha", batch, records(batch, 10+i))
		testlake.Publish(t, store)
	}
	compact(t, store, true)
	collect(t, store) // from now on only the union has the rows
	retire(t, store, "1/b1")
	testlake.Publish(t, store)
	b1 := ingestOf(t, store, "b1")
	if err := store.Delete(t.Context(), b1.Key()); err != nil {
		t.Fatal(err)
	}
	_, source, err := lakecheck.Source(t.Context(), store, b1)
	if err != nil || source.Rows != 10 {
		t.Fatalf("no union has the rows of the retired batch: %v", err)
	}
	opt := retirepkg.Options{Dataset: "alpha", Batches: []string{"b1"}, Restore: true}
	if _, err := opt.Select(t.Context(), store); err == nil || !strings.Contains(err.Error(), "deleted by a garbage collection") {
		t.Errorf("restored: %v", err)
	}
}

// ingestOf returns the finished ingest of a batch of dataset 1.
func ingestOf(t *testing.T, store blob.Store, batch string) segment.BatchRef {
	t.Helper()
	return testlake.Finished(t, store, 1, batch).BatchRef
}

// A batch that only a union still has returns also if the public suffix list has changed meanwhile.
func TestRestoredFromAUnionOfAnotherList(t *testing.T) {
	lake := func(list string) (blob.Store, func(rules string)) {
		store := blob.NewMemory()
		setList := func(rules string) { testlake.SetList(t, store, rules) }
		setList(list)
		for i, batch := range []string{"b1", "b2", "b3"} {
			list := records(batch, 10+i)
			for j := range list {
				list[j].URL = strings.Replace(list[j].URL, "//", "//www.", 1)
			}
			testlake.Ingest(t, store, "alpha", batch, list)
			testlake.Publish(t, store)
		}
		return store, setList
	}
	want, _ := lake("test site3.test")
	hosts := []string{"site0.test", "www.site0.test", "site3.test", "www.site3.test", "www.site6.test"}
	for _, gone := range [][]string{{"1/b1"}, {"1/b1", "1/b3"}} {
		store, setList := lake("test")
		compact(t, store, true)
		if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
			t.Fatal(err)
		}
		for _, id := range gone {
			retire(t, store, id)
		}
		testlake.Publish(t, store)
		for _, id := range gone {
			opt := retirepkg.Options{Dataset: "alpha", Batches: []string{strings.TrimPrefix(id, "1/")}, Restore: true}
			s, err := opt.Select(t.Context(), store)
			if err == nil {
				err = s.Apply(t.Context(), store)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		setList("test site3.test")
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Fatalf("%+v", done)
		}
		expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 11, "1/b3": 12})
		if diff := cmp.Diff(unordered(answers(t, want, hosts, "")), unordered(answers(t, store, hosts, ""))); diff != "" {
			t.Errorf("%q (-undisturbed +got):\n%s", gone, diff)
		}
		checkLake(t, store)
		if again := testlake.Publish(t, store); !again.Existed {
			t.Errorf("%q: %+v", gone, again)
		}
	}
}

// Whatever is lost or changed of a union, a rebuild takes the batches from their own parts. If
// those were collected, it names the batches, and they return when they are ingested again. Lost
// postings are extracted.
func TestDamagedUnions(t *testing.T) {
	prepared := blob.NewMemory()
	for i, batch := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, prepared, "alpha", batch, records(batch, 10+i))
		testlake.Publish(t, prepared)
	}
	compact(t, prepared, true)
	collected := blob.NewMemory()
	blobtest.Copy(t, prepared, collected)
	if _, err := gc.Collect(t.Context(), collected, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"site0.test", "site3.test", "site6.test"}
	want := answers(t, prepared, hosts, "")
	for key := range stored(t, collected) {
		if !strings.Contains(key, "~") {
			continue
		}
		for _, how := range []string{"missing", "flipped"} {
			for name, from := range map[string]blob.Store{"own parts": prepared, "collected": collected} {
				store := blob.NewMemory()
				blobtest.Copy(t, from, store)
				damage(t, store, key, how)
				rebuild := func() publish.Rebuilt {
					t.Helper()
					r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
					if err != nil {
						t.Fatalf("%s %s, %s: %v", key, how, name, err)
					}
					return r
				}
				r := rebuild()
				postings := strings.Contains(key, "/postings-")
				if name == "collected" && !postings {
					if r.LostBatches != 3 || r.LostRows != 33 || !strings.Contains(r.Lost[0], "batch b1 of alpha, 10 rows") {
						t.Errorf("%s %s, %s: %+v", key, how, name, r)
					}
					for i, batch := range []string{"b1", "b2", "b3"} {
						testlake.Ingest(t, store, "alpha", batch, records(batch, 10+i))
					}
					testlake.Publish(t, store)
					r = rebuild()
				}
				if len(r.Lost) > 0 || postings != (r.Postings == 1) {
					t.Errorf("%s %s, %s: %+v", key, how, name, r)
				}
				if diff := cmp.Diff(want, answers(t, store, hosts, "")); diff != "" {
					t.Errorf("%s %s, %s:\n%s", key, how, name, diff)
				}
				collect(t, store) // what the version before has lost stays lost
				checkLake(t, store)
			}
		}
	}
}
