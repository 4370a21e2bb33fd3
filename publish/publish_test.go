package publish_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
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
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
)

// records makes n distinct URLs of seven domains. Another tag makes other URLs.
func records(tag string, n int) []testlake.Record {
	var list []testlake.Record
	for i := range n {
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%s/%d", i%7, tag, i)})
	}
	return list
}

// current returns the current version, nil before the first publish.
func current(t testing.TB, store blob.Store) *catalog.Version {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version("")
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// live returns the rows of a version's batches, by dataset id/name.
func live(v *catalog.Version) map[string]int64 {
	m := map[string]int64{}
	if v != nil {
		for b, err := range v.Batches(context.Background()) {
			if err != nil {
				panic(err)
			}
			m[fmt.Sprintf("%d/%s", b.DatasetID, b.Batch)] = b.Rows
		}
	}
	return m
}

// nameOf returns the name of a dataset of a version.
func nameOf(t testing.TB, v *catalog.Version, id uint32) string {
	t.Helper()
	found, err := v.FindDatasets(t.Context(), []uint32{id})
	if err != nil {
		t.Fatal(err)
	}
	return found[id].Name
}

// findLive returns a live batch of a version.
func findLive(t testing.TB, v *catalog.Version, dataset uint32, batch string) (catalog.Batch, bool) {
	t.Helper()
	b, ok, err := v.FindBatch(t.Context(), dataset, batch)
	if err != nil {
		t.Fatal(err)
	}
	return b, ok
}

// allLive returns all live batches of a version.
func allLive(t testing.TB, v *catalog.Version) (all []catalog.Batch) {
	t.Helper()
	for b, err := range v.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// expectLive checks which batches the current version has, and that its segments cover just those.
func expectLive(t testing.TB, store blob.Store, want map[string]int64) *catalog.Version {
	t.Helper()
	v := current(t, store)
	if diff := cmp.Diff(want, live(v)); diff != "" {
		t.Fatalf("live batches (-want +got):\n%s", diff)
	}
	if v == nil {
		return nil
	}
	covered := map[string]string{}
	for _, s := range v.Segments {
		info, err := segment.ReadInfo(t.Context(), store, segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64})
		if err != nil {
			t.Fatal(err)
		}
		if info.Rows != s.Rows || info.Domains != s.Domains {
			t.Fatalf("segment %s: %d rows of %d domains, the version says %d of %d", s.ID, info.Rows, info.Domains, s.Rows, s.Domains)
		}
		for b, err := range info.Batches(t.Context(), store) {
			if err != nil {
				t.Fatal(err)
			}
			covered[b.Key()] = s.ID
		}
	}
	listed := map[string]string{}
	for b, err := range v.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ref := lakecheck.StoredRef(b)
		listed[ref.Key()] = b.Segment
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listed, covered); diff != "" {
		t.Fatalf("batches of the segments (-version +segments):\n%s", diff)
	}
	return v
}

func TestPublishTakesFinishedBatchesOnce(t *testing.T) {
	store := blob.NewMemory()
	first := testlake.Publish(t, store)
	if first.Version != "" || !first.Existed {
		t.Fatalf("an empty lake: %+v", first)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	done := testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
	if v.ID != done.Version || len(v.Segments) != 1 || v.Parent != "" || nameOf(t, v, 2) != "beta" {
		t.Fatalf("%+v, %+v", done, v)
	}
	again := testlake.Publish(t, store)
	if !again.Existed || again.Version != done.Version {
		t.Fatalf("nothing new: %+v", again)
	}
	// Ingesting the same content again adds nothing.
	if res := testlake.Ingest(t, store, "alpha", "b1", records("a", 10)); !res.Existed {
		t.Fatalf("%+v", res)
	}
	if again := testlake.Publish(t, store); again.Version != done.Version {
		t.Fatalf("the same content: %+v", again)
	}
	// New batches become a second segment; the first stays as it is.
	testlake.Ingest(t, store, "alpha", "b2", records("c", 5))
	testlake.Publish(t, store)
	next := expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 5, "2/b1": 20})
	kept := next.Segments[0]
	kept.BatchPieces = v.Segments[0].BatchPieces // which have the start of the later ingest now
	if len(next.Segments) != 2 || kept != v.Segments[0] || next.Parent != v.ID {
		t.Fatalf("%+v", next.Segments)
	}
}

func TestReplacedBatchLeavesTheVersion(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "gamma", "b1", records("c", 30))
	testlake.Publish(t, store)
	before := current(t, store)
	testlake.Ingest(t, store, "alpha", "b1", records("other", 7))
	testlake.Publish(t, store)
	v := expectLive(t, store, map[string]int64{"1/b1": 7, "2/b1": 20, "3/b1": 30})
	if len(v.Segments) != 2 || v.Segments[0] != before.Segments[1] {
		t.Fatalf("segments %+v", v.Segments)
	}
	// The first content again makes the same segment, with the same name.
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	v = expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30})
	if v.Segments[1].ID != before.Segments[0].ID {
		t.Fatalf("segments %+v", v.Segments)
	}
}

// Over many publishes readers have few segments to read, and a row is built again a number of times
// that is logarithmic in the number of publishes.
func TestSegmentsStayFew(t *testing.T) {
	store := blob.NewMemory()
	want := map[string]int64{}
	built, rows := int64(0), int64(0)
	const publishes = 60
	for i := range publishes {
		name := fmt.Sprintf("b%02d", i)
		n := 10 + i%3
		testlake.Ingest(t, store, "alpha", name, records(name, n))
		want["1/"+name] = int64(n)
		rows += int64(n)
		before := current(t, store)
		testlake.Publish(t, store)
		compact(t, store, false)
		v := expectLive(t, store, want)
		if len(v.Segments) > publish.TargetSegments+1 {
			t.Fatalf("publish %d: %d segments", i, len(v.Segments))
		}
		for _, s := range v.Segments {
			if before == nil || !slices.ContainsFunc(before.Segments, func(o catalog.Segment) bool { return o.ID == s.ID }) {
				built += s.Rows
			}
		}
	}
	if limit := float64(rows) * math.Log2(publishes); float64(built) > limit {
		t.Fatalf("%d rows were indexed for %d, more than %.0f", built, rows, limit)
	}
}

func TestTenPublishersAtOnceLoseNothing(t *testing.T) {
	race := func(t *testing.T, store blob.Store) {
		const publishers = 10
		want := map[string]int64{}
		for i := range 4 {
			testlake.Ingest(t, store, fmt.Sprintf("d%d", i), "seed", records(fmt.Sprintf("seed%d", i), 5))
			want[fmt.Sprintf("%d/seed", i+1)] = 5
		}
		testlake.Publish(t, store)
		var wg sync.WaitGroup
		for i := range publishers {
			dataset, batch := fmt.Sprintf("d%d", i%4), fmt.Sprintf("b%d", i)
			if i >= 8 {
				batch = "seed" // an existing batch, replaced while the others publish
			}
			want[fmt.Sprintf("%d/%s", i%4+1, batch)] = int64(10 + i)
			wg.Go(func() {
				testlake.Ingest(t, store, dataset, batch, records(fmt.Sprint(i), 10+i))
				if _, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		expectLive(t, store, want)
	}
	t.Run("memory", func(t *testing.T) { race(t, blob.NewMemory()) })
	t.Run("file", func(t *testing.T) { race(t, open(t, "file://"+t.TempDir())) })
	t.Run("s3", func(t *testing.T) { race(t, open(t, testenv.S3(t))) })
}

func open(t *testing.T, url string) blob.Store {
	t.Helper()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// pending is a publish that is built but not committed.
type pending struct {
	key   string
	built publish.Built
}

func begin(t *testing.T, store blob.Store) pending {
	t.Helper()
	s, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
	if err != nil || s.Nothing {
		t.Fatalf("%+v, %v", s, err)
	}
	built, err := publish.Build(t.Context(), store, s.PlanKey, 0, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return pending{s.PlanKey, built}
}

func (b pending) commit(t *testing.T, store blob.Store) publish.Committed {
	t.Helper()
	done, err := publish.Commit(t.Context(), store, b.key, b.built, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestCommitIsRebasedOrStale(t *testing.T) {
	start := func(t *testing.T) blob.Store {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		return store
	}
	t.Run("other batches came first", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "alpha", "b2", records("c", 1))
		slow := begin(t, store)
		testlake.Ingest(t, store, "alpha", "b3", records("d", 2))
		fast, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
		if err != nil || fast.Batches != 2 {
			t.Fatalf("%+v, %v", fast, err)
		}
		// A third plan has the new batch alone, as if the other batch had not been finished yet.
		other := blob.NewMemory()
		blobtest.Copy(t, store, other)
		b2 := testlake.Finished(t, store, 1, "b2")
		for _, key := range documents(t, store) {
			if strings.HasPrefix(key, fmt.Sprintf("pending/1/%019d", b2.Start)) {
				if err := other.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		alone := begin(t, other)
		blobtest.Copy(t, other, store)
		if done := alone.commit(t, store); done.Stale {
			t.Fatal("the first is stale")
		}
		done := slow.commit(t, store)
		if done.Stale {
			t.Fatal("stale, although it can be rebased")
		}
		expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 1, "1/b3": 2, "2/b1": 20})
		// A second attempt finds the first one's version, although the plan is gone.
		if again := slow.commit(t, store); !again.Existed || again.Version != done.Version {
			t.Fatalf("%+v, then %+v", done, again)
		}
	})
	t.Run("its batch was published", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "alpha", "b2", records("c", 1))
		slow := begin(t, store)
		testlake.Ingest(t, store, "alpha", "b3", records("d", 2))
		testlake.Publish(t, store)
		if done := slow.commit(t, store); !done.Stale {
			t.Fatalf("%+v", done)
		}
		expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 1, "1/b3": 2, "2/b1": 20})
	})
	t.Run("its batch was replaced by a later one", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "alpha", "b1", records("older", 3))
		slow := begin(t, store)
		testlake.Ingest(t, store, "alpha", "b1", records("newer", 4))
		testlake.Publish(t, store)
		if done := slow.commit(t, store); !done.Stale {
			t.Fatalf("%+v", done)
		}
		expectLive(t, store, map[string]int64{"1/b1": 4, "2/b1": 20})
	})
	t.Run("the segment it replaces is gone", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "alpha", "b1", records("other", 3))
		slow := begin(t, store)
		testlake.Ingest(t, store, "beta", "b1", records("other", 4))
		testlake.Publish(t, store)
		if done := slow.commit(t, store); !done.Stale {
			t.Fatalf("%+v", done)
		}
		expectLive(t, store, map[string]int64{"1/b1": 3, "2/b1": 4})
	})
	t.Run("two with the same plan", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "alpha", "b2", records("c", 1))
		one, two := begin(t, store), begin(t, store)
		a, b := one.commit(t, store), two.commit(t, store)
		if a.Stale || b.Stale || a.Version != b.Version || !b.Existed {
			t.Fatalf("%+v, %+v", a, b)
		}
	})
}

// A publisher crashes after each number of changes. Readers see the old or the new version, and the
// next publish completes the work.
func TestReadersSeeOldOrNewWhereverAPublisherDies(t *testing.T) {
	before := map[string]int64{"1/b1": 10, "2/b1": 20}
	after := map[string]int64{"1/b1": 7, "2/b1": 20, "3/b1": 5}
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, prepared, "beta", "b1", records("b", 20))
	testlake.Publish(t, prepared)
	testlake.Ingest(t, prepared, "alpha", "b1", records("other", 7))
	testlake.Ingest(t, prepared, "gamma", "b1", records("c", 5))
	for n := 0; ; n += testenv.Every(3) {
		inner := blob.NewMemory()
		blobtest.Copy(t, prepared, inner)
		store := blobtest.NewFaulty(inner)
		store.CrashAfter(n)
		_, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
		if !store.Crashed() {
			if err != nil || n < 5 {
				t.Fatalf("after %d changes: %v", n, err)
			}
			expectLive(t, inner, after)
			return
		}
		if err == nil {
			t.Fatalf("crash after %d changes: no error", n)
		}
		if got := live(current(t, inner)); !maps.Equal(got, before) && !maps.Equal(got, after) {
			t.Fatalf("crash after %d changes: a reader sees %v", n, got)
		}
		expectLive(t, inner, live(current(t, inner)))
		testlake.Publish(t, inner)
		expectLive(t, inner, after)
	}
}

// A batch of another canonical form is left out and named. Others are published.
func TestBatchOfOtherRulesIsLeftOut(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	res := testlake.Ingest(t, store, "alpha", "b2", records("b", 10))
	data, _, err := store.Get(t.Context(), res.BatchKey)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, res.BatchKey)
	if err != nil {
		t.Fatal(err)
	}
	b.CanonicalForm = "another form"
	data, digest, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), lake.BatchKey(1, "b2", digest), data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	finish(t, store, 1, "b2", digest, time.Now().UnixNano(), false)
	testlake.Ingest(t, store, "beta", "b1", records("c", 20))
	done := testlake.Publish(t, store)
	if len(done.Skipped) != 1 || done.Skipped[0].Batch != "b2" || !strings.Contains(done.Skipped[0].Reason, "another form") {
		t.Fatalf("skipped %+v", done.Skipped)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
}

func TestPublishLeavesNothingInStaging(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	for info, err := range store.List(t.Context(), "staging/") {
		t.Errorf("%s, %v", info.Key, err)
	}
	// A commit that was stale is stale again when its reply was lost.
	key := lake.StagingPrefix("run") + "publish-0-00000000000000000000000000000000.json"
	done, err := publish.Commit(t.Context(), store, key, publish.Built{}, t.TempDir())
	if err != nil || !done.Stale {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestDamagedPlanIsRejected(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	b := begin(t, store)
	good, _, err := store.Get(t.Context(), b.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range testenv.Places(0, len(good), 5) {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := store.Put(t.Context(), b.key, bad, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := publish.Commit(t.Context(), store, b.key, b.built, t.TempDir()); err == nil {
			t.Fatalf("byte %d changed: no error", i)
		}
	}
	if current(t, store) != nil {
		t.Fatal("a version was published")
	}
}

func TestVersionNamesTheFilesOfItsSegments(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	s := current(t, store).Segments[0]
	shard := func(pattern string) string { return strings.ReplaceAll(pattern, "{shard}", "0000") }
	got := []string{s.SegmentJSON, s.DomainsTxt, s.DomainsMPHF, s.D2DRoar, shard(s.PostingsIdx), shard(s.PostingsDat), s.FilesTSV, s.PartsIdx}
	want := []string{}
	bytes := int64(0)
	for info, err := range store.List(t.Context(), segment.Prefix(s.ID)) {
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size
		name := strings.TrimPrefix(info.Key, segment.Prefix(s.ID))
		// The rest is found by segment.json.
		unnamed := slices.Contains([]string{
			segment.BatchesName, segment.PageKeysName, segment.DomainStartsName, segment.ReversedName, segment.ReversedStartsName,
		}, name) || strings.HasPrefix(name, "built-by/")
		if !unnamed {
			want = append(want, info.Key)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("files (-there +named):\n%s", diff)
	}
	if s.Bytes != bytes {
		t.Fatalf("%d bytes, the version says %d", bytes, s.Bytes)
	}
}
