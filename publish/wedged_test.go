package publish_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
)

// A segment that a publish has left behind, and that was damaged since, is built again.
func TestDamagedUnpublishedSegmentIsBuiltAgain(t *testing.T) {
	for _, how := range []string{"missing", "truncated", "flipped"} {
		for _, file := range []string{segment.MPHFName, segment.PostingsName(0), segment.InfoName} {
			store := blob.NewMemory()
			testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
			left := begin(t, store)
			damage(t, store, segment.Prefix(left.built.Segments[0].ID)+file, how)
			done, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
			if err != nil || len(done.Skipped) > 0 {
				t.Fatalf("%s %s: %+v, %v", file, how, done, err)
			}
			v := expectLive(t, store, map[string]int64{"1/b1": 10})
			if v.Segments[0].ID != left.built.Segments[0].ID || v.Segments[0].SegmentXXH64 != left.built.Segments[0].XXH64 {
				t.Errorf("%s %s: another segment: %+v", file, how, v.Segments[0])
			}
		}
	}
}

// damagesOnce is a store that damages the first file of a segment that is written.
type damagesOnce struct {
	blob.Store
	done atomic.Bool // a segment's files are written concurrently
}

type damagingWriter struct {
	blob.Writer
	damaged bool
}

func (w *damagingWriter) Write(p []byte) (int, error) {
	if !w.damaged && len(p) > 0 {
		w.damaged = true
		p = bytes.Clone(p)
		p[len(p)/2] ^= 1
	}
	return w.Writer.Write(p)
}

func (s *damagesOnce) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := s.Store.Create(ctx, key)
	if err != nil || !strings.HasSuffix(key, segment.MPHFName) || s.done.Swap(true) {
		return w, err
	}
	return &damagingWriter{Writer: w}, nil
}

// A segment that is damaged as soon as it is written is not published, and built again.
func TestSegmentThatFailsItsVerificationIsBuiltAgain(t *testing.T) {
	store := &damagesOnce{Store: blob.NewMemory()}
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	if _, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir()); err != nil || !store.done.Load() {
		t.Fatal(err)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10})
}

// A damaged document of what waits is named, and a rebuild says what is lost. Published batches
// stay, and the batches of others are published.
func TestDamagedDocumentStopsNoOther(t *testing.T) {
	for _, how := range []string{"truncated", "flipped"} {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "alpha", "b2", records("a2", 11))
		all := documents(t, store)
		key := all[len(all)-1]
		damage(t, store, key, how)
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		for range 2 {
			done := testlake.Publish(t, store)
			if len(done.Skipped) != 1 || done.Skipped[0].Dataset != "alpha" || !done.Skipped[0].Covers(1, "b2") ||
				done.Skipped[0].Covers(2, "b1") || !strings.Contains(done.Skipped[0].Reason, "starter rebuild") {
				t.Fatalf("%s: %+v", how, done.Skipped)
			}
			expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
		}
		out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil || len(out.Lost) != 1 || !strings.Contains(out.Lost[0], key) {
			t.Fatalf("%s: %+v, %v", how, out, err)
		}
		testlake.Ingest(t, store, "alpha", "b2", records("a2", 11))
		if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
			t.Errorf("%s: %+v", how, done.Skipped)
		}
		expectLive(t, store, map[string]int64{"1/b1": 10, "1/b2": 11, "2/b1": 20})
	}
}

// A batch whose parts are gone, or have another size, is left out with the command that mends it.
func TestLostPartsAreNotPublished(t *testing.T) {
	for _, how := range []string{"missing", "truncated", "flipped"} {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		res := testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		part := record(t, store, 2, "b1", res.Digest).Parts[0].Key
		damage(t, store, part, how)
		done := testlake.Publish(t, store)
		if len(done.Skipped) != 1 || !strings.Contains(done.Skipped[0].Reason, part) ||
			!strings.HasSuffix(done.Skipped[0].Reason, lake.Remedy(store.URL(), part)) {
			t.Fatalf("%s: %+v", how, done.Skipped)
		}
		expectLive(t, store, map[string]int64{"1/b1": 10})
		out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil || len(out.Lost) != 1 || !strings.Contains(out.Lost[0], part) || out.LostBatches > 0 {
			t.Errorf("%s: %+v, %v", how, out, err)
		}
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
	}
}

// covered returns the batches of a segment.
func covered(t *testing.T, store blob.Store, info *segment.Info) (all []segment.BatchRef) {
	t.Helper()
	for b, err := range info.Batches(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// asBuiltBy publishes the store's finished batches in one segment that another build has made.
func asBuiltBy(t *testing.T, store blob.Store, other segment.Builder) {
	t.Helper()
	s, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
	if err != nil {
		t.Fatal(err)
	}
	built, err := publish.Build(t.Context(), store, s.PlanKey, 0, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	info, err := segment.ReadInfo(t.Context(), store, built.Segments[0])
	if err != nil {
		t.Fatal(err)
	}
	if built.Segments[0], err = indexbuild.BuildSegment(t.Context(), store, covered(t, store, info), indexbuild.Options{Builder: other}); err != nil {
		t.Fatal(err)
	}
	if done, err := publish.Commit(t.Context(), store, s.PlanKey, built, t.TempDir()); err != nil || done.Stale {
		t.Fatal(done, err)
	}
}

// A damaged segment of another build is replaced by one of this build.
func TestDamagedSegmentOfAnotherBuild(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	asBuiltBy(t, store, "0123456789abcdef")
	before := current(t, store)
	damage(t, store, segment.Prefix(before.Segments[0].ID)+segment.DomainsName, "missing")
	out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	if err != nil || len(out.Lost) > 0 || !slices.Equal(out.Segments, []string{before.Segments[0].ID}) {
		t.Fatalf("%+v, %v", out, err)
	}
	v := expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20})
	if v.Segments[0].ID == before.Segments[0].ID {
		t.Errorf("segment %s again", v.Segments[0].ID)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("a2", 7)) // needs the segment's other batch
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 7, "2/b1": 20})
}

// A worker of another build that comes late does not touch what is published.
func TestLateWorkerOfAnotherBuild(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	info, err := segment.ReadInfo(t.Context(), store, refOf(current(t, store).Segments[0]))
	if err != nil {
		t.Fatal(err)
	}
	written := &recorder{Store: store}
	opt := indexbuild.Options{TempDir: t.TempDir(), Builder: "fedcba9876543210"}
	late, err := indexbuild.BuildSegment(t.Context(), written, covered(t, store, info), opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range written.keys {
		if !strings.HasPrefix(key, segment.Prefix(late.ID)) || late.ID == info.Segment {
			t.Errorf("%s was written", key)
		}
	}
	if len(written.keys) < 8 {
		t.Errorf("only %q were written", written.keys)
	}
}

// recorder is a store that records which objects are written.
type recorder struct {
	blob.Store
	mu   sync.Mutex
	keys []string
}

func (r *recorder) record(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
}

func (r *recorder) Create(ctx context.Context, key string) (blob.Writer, error) {
	r.record(key)
	return r.Store.Create(ctx, key)
}

func (r *recorder) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	r.record(key)
	return r.Store.Put(ctx, key, data, cond)
}

func refOf(s catalog.Segment) segment.Ref {
	return segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
}

// The registry and the manifest are lost together. Everything comes back.
func TestRegistryAndManifestLostTogether(t *testing.T) {
	for _, how := range []string{"missing", "flipped"} {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		before := current(t, store)
		testlake.Ingest(t, store, "gamma", "b1", records("c", 30)) // not published
		for _, key := range []string{catalog.ManifestKey, lake.RegistryKey} {
			damage(t, store, key, how)
		}
		out, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil {
			t.Fatalf("%s: %+v, %v", how, out, err)
		}
		if d := cmp.Diff([]string{lake.RegistryKey}, out.Restored); d != "" || len(out.Lost) != 1 {
			t.Errorf("%s: %+v: %s", how, out, d)
		}
		if d := cmp.Diff(before, current(t, store), cmpopts.IgnoreUnexported(catalog.Version{})); d != "" {
			t.Errorf("%s: %s", how, d)
		}
		testlake.Publish(t, store)
		expectLive(t, store, map[string]int64{"1/b1": 10, "2/b1": 20, "3/b1": 30})
	}
}

// The current version is lost with everything that names what it held. A publish makes it again
// from the version before and the registry.
func TestLostCurrentVersionIsPublishedAgain(t *testing.T) {
	for _, versions := range []int{1, 2} {
		store := blob.NewMemory()
		if versions == 2 {
			testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
			testlake.Publish(t, store)
		}
		testlake.Ingest(t, store, "alpha", "b1", records("a", 11))
		testlake.Ingest(t, store, "beta", "b1", records("b", 20))
		testlake.Publish(t, store)
		lost := current(t, store)
		damage(t, store, catalog.VersionKey(lost.ID), "flipped")
		plan, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
		if err != nil || plan.Nothing || len(plan.Lost) == 0 || !strings.Contains(plan.Lost[0], lost.ID) {
			t.Fatalf("%+v, %v", plan, err)
		}
		testlake.Publish(t, store)
		v := expectLive(t, store, map[string]int64{"1/b1": 11, "2/b1": 20})
		if v.ID <= lost.ID {
			t.Errorf("version %s after %s", v.ID, lost.ID)
		}
	}
}
