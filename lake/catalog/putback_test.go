package catalog

import (
	"errors"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// told returns a lake with a registry and some versions, and the manifest after each.
func told(t *testing.T, versions int) (store blob.Store, docs [][]byte) {
	t.Helper()
	store = blob.NewMemory()
	if _, err := RegisterDataset(t.Context(), store, lake.Dataset{Name: "alpha"}); err != nil {
		t.Fatal(err)
	}
	for n := range versions {
		apply(t, store, addBatch(n))
		docs = append(docs, get(t, store, ManifestKey))
	}
	return store, docs
}

// notCommitted writes the version of a commit whose manifest was not written.
func notCommitted(t *testing.T, store blob.Store, n int) {
	t.Helper()
	dying := blobtest.NewFaulty(store)
	dying.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == ManifestKey }})
	if _, err := addBatch(n).Apply(t.Context(), dying); !errors.Is(err, blobtest.ErrInjected) {
		t.Fatal(err)
	}
}

// A version that nobody committed is never published, whatever else is lost: neither when the
// current version is lost, nor when the manifest is.
func TestVersionThatWasNotCommittedStaysUnpublished(t *testing.T) {
	for name, damage := range ways {
		t.Run(name, func(t *testing.T) {
			store, _ := told(t, 2)
			m, _ := current(t, store)
			notCommitted(t, store, 2)
			damage(t, store, m.Versions[1].Object)
			s := recoverAll(t, store)
			if err := s.Settle(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			if s := recoverAll(t, store); len(s.Lost) > 0 || s.Current.ID != m.Versions[0].ID {
				t.Errorf("after the loss of its current version a lake has lost %q and is at %s", s.Lost, s.Current.ID)
			}
			if _, v := current(t, store); v.ID != m.Versions[0].ID {
				t.Errorf("the lake is at version %s of %+v", v.ID, m.Versions)
			}

			store, _ = told(t, 2)
			m, _ = current(t, store)
			notCommitted(t, store, 2)
			damage(t, store, ManifestKey)
			if s := recoverAll(t, store); s.Current.ID != m.CurrentVersion {
				t.Errorf("a lost manifest comes back with version %s, want %s", s.Current.ID, m.CurrentVersion)
			}
			done := apply(t, store, addBatch(3))
			if m, v := current(t, store); v.ID != done.Version.ID || len(m.Versions) != 3 {
				t.Errorf("after a commit: %+v", m)
			}
		})
	}
}

// A version that was published is recovered even if the registry was not told of it: the next one
// follows it.
func TestVersionThatIsFollowedIsPublished(t *testing.T) {
	store, docs := told(t, 4)
	data := get(t, store, lake.RegistryKey)
	m, _ := current(t, store)
	var doc map[string]any
	if err := codec.Unseal(data, lake.RegistryKey, 9, &doc); err != nil {
		t.Fatal(err)
	}
	doc["version"] = m.Versions[0].ID
	sealed, err := codec.Seal(doc)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, lake.RegistryKey, sealed)
	put(t, store, ManifestKey, docs[0])
	s := recoverAll(t, store)
	if s.Current.ID != m.Versions[2].ID {
		t.Errorf("recovered version %s of %+v", s.Current.ID, m.Versions)
	}
}

// A manifest that cannot be read again was not put back for that.
func TestFailedReadIsNoDamage(t *testing.T) {
	inner, docs := told(t, 3)
	put(t, inner, ManifestKey, docs[0])
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpGet, Key: func(key string) bool { return key == ManifestKey }, Nth: 2})
	if _, _, err := ReadManifest(t.Context(), store); !errors.Is(err, blobtest.ErrInjected) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, _, err := ReadManifest(t.Context(), inner); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("an old manifest: %v", err)
	}
}

// A follower that starts with a manifest that was put back serves the newest version, and accepts
// the right manifest once that is back, whatever its generation.
func TestFollowerOfManifestThatWasPutBack(t *testing.T) {
	store, docs := told(t, 4)
	newest, _ := current(t, store)
	put(t, store, ManifestKey, docs[1])
	f := NewFollower(store)
	for step, doc := range [][]byte{docs[1], docs[2], docs[3]} {
		put(t, store, ManifestKey, doc)
		m, changed, err := f.Poll(t.Context())
		if err != nil || !changed || m.CurrentVersion != newest.CurrentVersion {
			t.Fatalf("step %d: %+v, %v, %v", step, m, changed, err)
		}
		if old := step < 2; (f.Stale() != nil) != old {
			t.Errorf("step %d: stale %v", step, f.Stale())
		}
	}
	put(t, store, ManifestKey, docs[2])
	if _, _, err := f.Poll(t.Context()); !errors.Is(err, ErrGeneration) {
		t.Errorf("a manifest that goes back: %v", err)
	}

	// Another writer replaces the manifest between two reads of the follower.
	put(t, store, ManifestKey, docs[1])
	faulty := blobtest.NewFaulty(store)
	faulty.Inject(blobtest.Fault{
		Op: blob.OpGet, Key: func(key string) bool { return key == ManifestKey }, Nth: 3,
		Do: func() { put(t, store, ManifestKey, docs[3]) },
	})
	f = NewFollower(faulty)
	m, _, err := f.Poll(t.Context())
	if err != nil || faulty.Fired() != 1 || f.Stale() != nil || !slices.Equal(m.Versions, newest.Versions) {
		t.Errorf("%+v, %v, %v after %d replacements", m, err, f.Stale(), faulty.Fired())
	}
}
