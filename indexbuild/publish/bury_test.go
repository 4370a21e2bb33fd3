package publish_test

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/gc"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// burying sets from how many rows on batches are taken out of a segment by an overlay. The result
// sets what was.
func burying(rows int64) func() {
	was := publish.LeastBuried
	publish.LeastBuried = rows
	return func() { publish.LeastBuried = was }
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

// A lake whose retired and replaced batches are taken out of segments by overlays answers like one
// whose segments are built again: each version, each difference between two versions, with
// takedowns, compactions, collections and other public suffix lists in between.
func TestBuriedBatchesAnswerAlike(t *testing.T) {
	defer burying(publish.LeastBuried)()
	buried := 0
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 41))
		plain, tabled := blob.NewMemory(), blob.NewMemory()
		var list *urlnorm.SuffixList
		both := func(do func(s blob.Store)) {
			burying(math.MaxInt64)
			do(plain)
			burying(0)
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
				target := takedown.Target{Kind: takedown.Host, Host: hosts[rng.IntN(len(hosts))]}
				both(func(s blob.Store) { takeDown(t, s, target) })
			}
			if seed == 3 && rng.IntN(4) == 0 {
				suffixes = randomSuffixes(rng)
				both(func(s blob.Store) { list = testlake.SetList(t, s, suffixes) })
			}
			both(func(s blob.Store) { testlake.Publish(t, s) })
			if rng.IntN(4) == 0 {
				compact(t, tabled, rng.IntN(2) == 0)
			}
			if deadIn(t, tabled) > 0 {
				buried++
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
	if buried < 10 {
		t.Errorf("%d versions with dead rows", buried)
	}
}

func takeDown(t testing.TB, store blob.Store, target takedown.Target) {
	t.Helper()
	r := takedown.Rule{ID: takedown.NewID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC()}
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
