package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// versionReads is a store that counts the reads of version documents.
type versionReads struct {
	blob.Store
	mu   sync.Mutex
	keys []string
	// fault replaces those reads if it is set.
	fault func(ctx context.Context) error
}

func (v *versionReads) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if strings.HasPrefix(key, "index/versions/") {
		v.mu.Lock()
		v.keys = append(v.keys, key)
		fault := v.fault
		v.mu.Unlock()
		if fault != nil {
			return nil, blob.Info{}, fault(ctx)
		}
	}
	return v.Store.Get(ctx, key)
}

// reads returns the keys read since the last call.
func (v *versionReads) reads() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := v.keys
	v.keys = nil
	return keys
}

// publishVersions publishes n versions with a batch each, in datasets 0 to 2.
func publishVersions(t *testing.T, store blob.Store, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		var records []testlake.Record
		for r := range i + 1 {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%d/%d", i, r)})
		}
		testlake.Ingest(t, store, fmt.Sprint("d", i%3), fmt.Sprint("b", i), records)
		testlake.Publish(t, store)
	}
}

// bruteForce lists the versions newest first, from the documents alone.
func bruteForce(t *testing.T, store blob.Store) []catalog.Summary {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var list []catalog.Summary
	var before catalog.Counts
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		c := v.Counts
		var views []string
		for i := range v.Segments {
			views = append(views, v.Segments[i].View())
		}
		list = append(list, catalog.Summary{
			Views: views, VersionRef: ref, Current: ref.ID == m.CurrentVersion, Parent: v.Parent, Created: v.Created, BuiltBy: v.BuiltBy,
			CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix, Counts: c,
			Change: &catalog.Counts{
				Segments: c.Segments - before.Segments, Datasets: c.Datasets - before.Datasets,
				Batches: c.Batches - before.Batches, Parts: c.Parts - before.Parts, Rows: c.Rows - before.Rows,
				PartBytes: c.PartBytes - before.PartBytes, IndexBytes: c.IndexBytes - before.IndexBytes,
			},
		})
		before = c
	}
	slices.Reverse(list)
	return list
}

// allVersions follows the cursors, and calls between after each page but the last.
func allVersions(t *testing.T, s *Server, limit int, between func()) []catalog.Summary {
	t.Helper()
	var all []catalog.Summary
	for cursor := ""; ; between() {
		page, err := s.Versions(t.Context(), limit, cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Versions...)
		if page.Cursor == "" {
			return all
		}
		if len(page.Versions) != limit {
			t.Fatalf("a page of %d versions with a cursor, limit %d", len(page.Versions), limit)
		}
		cursor = page.Cursor
	}
}

func TestPagesOfVersionsAreTheList(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		publishVersions(t, store, 0, 7)
		want := bruteForce(t, store)
		for limit := 1; limit <= len(want)+1; limit++ {
			s := serve(t, store, Options{})
			if diff := gocmp.Diff(want, allVersions(t, s, limit, func() {})); diff != "" {
				t.Fatalf("limit %d (-brute force +served):\n%s", limit, diff)
			}
		}
	})
}

// Publishing between pages does not shift them. A server that has not polled since lists the
// versions that it knows, and polls when a cursor names a newer one.
func TestPublishDoesNotShiftPagesOfVersions(t *testing.T) {
	store := blob.NewMemory()
	publishVersions(t, store, 0, 5)
	want := bruteForce(t, store)
	s := serve(t, store, Options{})
	n := 5
	got := allVersions(t, s, 2, func() {
		publishVersions(t, store, n, 1)
		n++
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("(-before +served):\n%s", diff)
	}
	if n != 7 {
		t.Fatalf("%d versions", n)
	}
	behind := serve(t, store, Options{})
	publishVersions(t, store, n, 2)
	ahead := serve(t, store, Options{})
	first, err := ahead.Versions(t.Context(), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	all := bruteForce(t, store)
	if page, err := behind.Versions(t.Context(), 1, ""); err != nil || page.Versions[0].ID != all[2].ID || page.Total != n {
		t.Fatalf("a server that is behind: %+v, %v", page, err)
	}
	behind.mu.Lock()
	behind.polled = time.Now().Add(-time.Second)
	behind.mu.Unlock()
	page, err := behind.Versions(t.Context(), 1, first.Cursor)
	if err != nil || page.Versions[0].ID != all[1].ID || page.Total != n+2 || page.Current != all[0].ID {
		t.Fatalf("with a newer cursor: %+v, %v", page, err)
	}
}

// A version that is dropped between two pages leaves the cursor that names it valid.
func TestDroppedVersionKeepsItsCursor(t *testing.T) {
	store := blob.NewMemory()
	publishVersions(t, store, 0, 5)
	all := bruteForce(t, store)
	s := serve(t, store, Options{})
	first, err := s.Versions(t.Context(), 2, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), all[1].Object); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.DropLost(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := s.Versions(t.Context(), 2, first.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(all[2:4], second.Versions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := s.Versions(t.Context(), 2, "")
	if err != nil || again.Versions[0].Change != nil || again.Versions[0].Parent != all[1].ID {
		t.Errorf("without its parent: %+v, %v", again, err)
	}
}

// A page reads each of its versions and the parent of its oldest, unless they are cached.
func TestReadsOfAPageOfVersions(t *testing.T) {
	store := &versionReads{Store: blob.NewMemory()}
	publishVersions(t, store, 0, 6)
	s := serve(t, store, Options{})
	store.reads()
	var cursor string
	for i, want := range []int{4, 2, 0} { // the second page's first version is the first's parent
		page, err := s.Versions(t.Context(), 3, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if keys := store.reads(); len(keys) != want {
			t.Errorf("page %d reads %v, want %d", i, keys, want)
		}
		cursor = page.Cursor
	}
	// What is cached does not depend on the manifest.
	before, err := s.Versions(t.Context(), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	publishVersions(t, store, 6, 1)
	if _, _, err := catalog.SetTag(t.Context(), store, "release-1", before.Current, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := s.Versions(t.Context(), 2, "")
	if err != nil {
		t.Fatal(err)
	}
	want := before.Versions[0]
	want.Current, want.Tags = false, []string{"release-1"}
	if diff := gocmp.Diff(want, page.Versions[1]); diff != "" {
		t.Errorf("after a publish and a tag (-want +got):\n%s", diff)
	}
}

func TestDamagedVersionIsNamed(t *testing.T) {
	inner := blob.NewMemory()
	publishVersions(t, inner, 0, 3)
	all := bruteForce(t, inner)
	good, _, err := inner.Get(t.Context(), all[1].Object)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(good)
	bad[len(bad)/2] ^= 1
	for what, store := range map[string]blob.Store{
		"flipped":   &damaged{inner, all[1].Object, bad},
		"truncated": &damaged{inner, all[1].Object, good[:len(good)/2]},
		"missing":   missing{inner, all[1].Object},
	} {
		s := serve(t, store, Options{})
		_, err := s.Versions(t.Context(), 2, "")
		var corrupt *codec.CorruptError
		if !errors.As(err, &corrupt) || corrupt.File != all[1].Object {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// missing is a store without the object key.
type missing struct {
	blob.Store
	key string
}

func (m missing) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if key == m.key {
		return nil, blob.Info{}, blob.ErrNotExist
	}
	return m.Store.Get(ctx, key)
}

func TestFaultsOfVersionReads(t *testing.T) {
	store := &versionReads{Store: blob.NewMemory()}
	publishVersions(t, store, 0, 3)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, store, Options{Deadline: 50 * time.Millisecond})
		set := func(fault func(ctx context.Context) error) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.fault = fault
		}
		set(func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("cut off: %w", ctx.Err())
		})
		if _, err := s.Versions(t.Context(), 2, ""); !errors.Is(err, ErrDeadline) {
			t.Errorf("a store that does not answer: %v", err)
		}
		set(func(context.Context) error { panic("fault in a goroutine") })
		var panicked *PanicError
		if _, err := s.Versions(t.Context(), 2, ""); !errors.As(err, &panicked) {
			t.Errorf("a panic: %v", err)
		}
		set(nil)
		if page, err := s.Versions(t.Context(), 2, ""); err != nil || len(page.Versions) != 2 {
			t.Errorf("after the faults: %+v, %v", page, err)
		}
	})
}

func TestQueriesForVersionsThatAreRejected(t *testing.T) {
	store := blob.NewMemory()
	if _, err := NewServer(store, Options{}).Versions(t.Context(), 1, ""); !errors.As(err, new(*NotReadyError)) {
		t.Errorf("a server that has read nothing: %v", err)
	}
	publishVersions(t, store, 0, 2)
	s := serve(t, store, Options{})
	for _, limit := range []int{-1, 0, MaxVersions + 1} {
		if _, err := s.Versions(t.Context(), limit, ""); !errors.Is(err, ErrRange) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	forge := func(kind byte, fingerprint uint64, version string) string {
		c := cursor{kind: kind, fingerprint: fingerprint, version: version}
		return c.String()
	}
	own, version := fingerprint(cursorVersions, "", 0), s.Status().Version
	for text, want := range map[string]error{
		"forged": ErrBadCursor,
		forge(cursorAllDatasets, fingerprint(cursorAllDatasets, "", 0), version): ErrBadCursor,
		forge(cursorVersions, own+1, version):                                    ErrBadCursor,
		forge(cursorVersions, own, "newest"):                                     ErrBadCursor,
		forge(cursorVersions, own, ""):                                           ErrBadCursor,
		forge(cursorVersions, own, "29990101T000000.000Z-00000000"):              catalog.ErrUnknownVersion,
	} {
		if _, err := s.Versions(t.Context(), 1, text); !errors.Is(err, want) {
			t.Errorf("cursor %s: %v, want %v", text, err, want)
		}
	}
	// A cursor older than all versions is one of a list whose end was dropped.
	page, err := s.Versions(t.Context(), 1, forge(cursorVersions, own, "20000101T000000.000Z-00000000"))
	if err != nil || len(page.Versions) != 0 || page.Cursor != "" {
		t.Errorf("before all versions: %+v, %v", page, err)
	}
}

// A version can be dropped and deleted between the server's poll and a list of versions.
func TestVersionsLeaveOutWhatWasDeletedSinceThePoll(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	s := serve(t, store, Options{})
	unlist(t, store, h.versions[1])
	if err := store.Delete(t.Context(), catalog.VersionKey(h.versions[1])); err != nil {
		t.Fatal(err)
	}
	page, err := s.Versions(t.Context(), 10, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range page.Versions {
		got = append(got, v.ID)
	}
	if want := []string{h.versions[3], h.versions[2], h.versions[0]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// One that is listed and missing is damage.
	if err := store.Delete(t.Context(), catalog.VersionKey(h.versions[0])); err != nil {
		t.Fatal(err)
	}
	var corrupt *codec.CorruptError
	if _, err := serve(t, store, Options{}).Versions(t.Context(), 10, ""); !errors.As(err, &corrupt) {
		t.Errorf("got %v", err)
	}
}
