package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// published returns a lake with four versions, and the manifest.
func published(t *testing.T) (blob.Store, *Manifest) {
	t.Helper()
	store := blob.NewMemory()
	for n := range 4 {
		apply(t, store, addBatch(n))
	}
	m, _ := current(t, store)
	return store, m
}

// ways damages an object in each way in which it can be lost.
var ways = map[string]func(t *testing.T, store blob.Store, key string){
	"missing": func(t *testing.T, store blob.Store, key string) {
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	},
	"flipped": func(t *testing.T, store blob.Store, key string) {
		data := get(t, store, key)
		data[len(data)/2] ^= 4
		put(t, store, key, data)
	},
	"truncated": func(t *testing.T, store blob.Store, key string) {
		put(t, store, key, get(t, store, key)[:10])
	},
}

func recoverAll(t *testing.T, store blob.Store) *State {
	t.Helper()
	s, err := Recover(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestIntactLakeHasLostNothing(t *testing.T) {
	store, m := published(t)
	before := get(t, store, ManifestKey)
	s := recoverAll(t, store)
	if len(s.Lost) > 0 || s.Current.ID != m.CurrentVersion {
		t.Errorf("%+v", s)
	}
	if err := s.Settle(t.Context(), store); err != nil || !bytes.Equal(before, get(t, store, ManifestKey)) {
		t.Errorf("the manifest changed, %v", err)
	}
	if s := recoverAll(t, blob.NewMemory()); s.Manifest != nil || s.Current != nil || len(s.Lost) > 0 {
		t.Errorf("an empty lake: %+v", s)
	}
}

// onTheWay is a store whose first reply with an object has a flipped bit.
type onTheWay struct {
	blob.Store
	key     string
	flipped bool
}

func (s *onTheWay) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	data, info, err := s.Store.Get(ctx, key)
	if key == s.key && !s.flipped && err == nil {
		s.flipped = true
		data[len(data)/2] ^= 4
	}
	return data, info, err
}

// What is damaged on its way to the reader is not lost. A manifest that is written again would have
// no tags, and no takedowns.
func TestDamageOnTheWayIsNoLoss(t *testing.T) {
	inner, m := published(t)
	if _, _, err := SetTag(t.Context(), inner, "kept", m.Versions[0].ID, false); err != nil {
		t.Fatal(err)
	}
	before := get(t, inner, ManifestKey)
	for _, key := range []string{ManifestKey, m.Versions[3].Object, m.Versions[0].Object} {
		for name, do := range map[string]func(store blob.Store) error{
			"recover": func(store blob.Store) error {
				s, err := Recover(t.Context(), store)
				if err == nil && len(s.Lost) > 0 {
					err = fmt.Errorf("lost %q", s.Lost)
				}
				return err
			},
			"drop lost": func(store blob.Store) error {
				dropped, err := DropLost(t.Context(), store)
				if err == nil && len(dropped) > 0 {
					err = fmt.Errorf("dropped %q", dropped)
				}
				return err
			},
		} {
			store := &onTheWay{Store: inner, key: key}
			if err := do(store); err != nil {
				t.Errorf("%s with %s: %v", name, key, err)
			}
			if !bytes.Equal(before, get(t, inner, ManifestKey)) {
				t.Fatalf("%s with %s: the manifest changed", name, key)
			}
		}
	}
	store := &onTheWay{Store: inner, key: ManifestKey}
	apply(t, store, addBatch(4))
	if after, _ := current(t, inner); !store.flipped || len(after.Tags) != 1 || len(after.Versions) != len(m.Versions)+1 {
		t.Errorf("a commit leaves %+v", after)
	}
}

// A lost manifest lists the newest version and its predecessors again, with a generation that
// readers of the lost one accept. A version of a commit that lost a race does not come back.
func TestLostManifestIsRestored(t *testing.T) {
	for name, damage := range ways {
		t.Run(name, func(t *testing.T) {
			store, m := published(t)
			// Two commits on the second version: this one lost the race to be the third.
			loser := blob.NewMemory()
			for n := range 2 {
				apply(t, loser, addBatch(n))
			}
			lost := apply(t, loser, addBatch(9)).Version
			if lost.ID <= m.Versions[2].ID || lost.ID >= m.Versions[3].ID {
				t.Fatalf("version %s is not between those of %+v", lost.ID, m.Versions)
			}
			put(t, store, lost.Object, get(t, loser, lost.Object))
			f := NewFollower(store)
			if _, _, err := f.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			damage(t, store, ManifestKey)
			s := recoverAll(t, store)
			if len(s.Lost) != 1 || !strings.HasPrefix(s.Lost[0], ManifestKey+": ") || s.Current.ID != m.CurrentVersion {
				t.Errorf("lost %q, current %s; want %s", s.Lost, s.Current.ID, m.CurrentVersion)
			}
			got, v := current(t, store)
			if v.ID != m.CurrentVersion || !slices.Equal(got.Versions, m.Versions) {
				t.Errorf("%+v", got)
			}
			if _, changed, err := f.Poll(t.Context()); err != nil || !changed {
				t.Errorf("a reader of the lost manifest: %v, %v", changed, err)
			}
			done := apply(t, store, addBatch(4))
			if done.Generation != got.Generation+1 {
				t.Errorf("generation %d after %d", done.Generation, got.Generation)
			}
		})
	}
}

// Without its current version a lake goes on from the version before, which becomes current only
// with the next commit, or when there is nothing to commit.
func TestLostCurrentVersion(t *testing.T) {
	for name, damage := range ways {
		t.Run(name, func(t *testing.T) {
			for _, settle := range []bool{false, true} {
				store, m := published(t)
				lost, before := m.Versions[3], m.Versions[2]
				damage(t, store, lost.Object)
				manifest := get(t, store, ManifestKey)
				s := recoverAll(t, store)
				if s.Current.ID != before.ID || len(s.Lost) != 2 || !strings.HasPrefix(s.Lost[0], lost.Object+": ") {
					t.Errorf("%+v", s)
				}
				if !bytes.Equal(manifest, get(t, store, ManifestKey)) {
					t.Error("the manifest changed before a commit")
				}
				if settle {
					if err := s.Settle(t.Context(), store); err != nil {
						t.Fatal(err)
					}
					if got, v := current(t, store); v.ID != before.ID || got.Generation != m.Generation+1 || len(got.Versions) != 3 {
						t.Errorf("%+v", got)
					}
				}
				done := apply(t, store, addBatch(7))
				got, v := current(t, store)
				if v.Parent != before.ID || done.Generation <= m.Generation || len(got.Versions) != 4 || v.ID <= lost.ID {
					t.Errorf("%+v after %+v", got, m)
				}
			}
		})
	}
}

// If no version can be read, the next commit starts anew, with a higher generation.
func TestAllVersionsLost(t *testing.T) {
	for _, alsoManifest := range []bool{false, true} {
		store, m := published(t)
		for _, v := range m.Versions {
			ways["flipped"](t, store, v.Object)
		}
		if alsoManifest {
			ways["truncated"](t, store, ManifestKey)
		}
		if s := recoverAll(t, store); s.Current != nil || s.Manifest != nil || len(s.Lost) < 4 {
			t.Errorf("%+v", s)
		}
		done := apply(t, store, addBatch(7))
		got, v := current(t, store)
		if v.Counts.Batches != 1 || len(got.Versions) != 1 || done.Generation <= m.Generation || v.ID <= m.CurrentVersion {
			t.Errorf("%+v after %+v", got, m)
		}
	}
}

// Documents of another format are of another build of urlake. They are neither lost nor replaced.
func TestOtherFormatsAreNotLost(t *testing.T) {
	store, m := published(t)
	good := get(t, store, ManifestKey)
	m.Format = ManifestFormat + 1
	newer, err := codec.Seal(m)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, ManifestKey, newer)
	if _, err := Recover(t.Context(), store); !codec.IsFormat(err) {
		t.Errorf("a newer manifest: %v", err)
	}
	if _, err := addBatch(8).Apply(t.Context(), store); err == nil || !bytes.Equal(newer, get(t, store, ManifestKey)) {
		t.Errorf("a newer manifest: %v", err)
	}
	put(t, store, ManifestKey, good)

	_, v := current(t, store)
	var d versionDocument
	if err := codec.Unseal(get(t, store, VersionKey(v.ID)), VersionKey(v.ID), versionFormat, &d); err != nil {
		t.Fatal(err)
	}
	d.Format = versionFormat + 1
	data, err := codec.Seal(&d)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, VersionKey(v.ID), data)
	m.Versions[3] = refOf(v, data)
	if data, err = m.encode(); err != nil {
		t.Fatal(err)
	}
	put(t, store, ManifestKey, data)
	if _, err := Recover(t.Context(), store); !codec.IsFormat(err) {
		t.Errorf("a newer version: %v", err)
	}
}

// DropLost removes lost versions from the manifest, but never the current one.
func TestDropLost(t *testing.T) {
	store, m := published(t)
	ways["missing"](t, store, m.Versions[0].Object)
	ways["truncated"](t, store, m.Versions[2].Object)
	dropped, err := DropLost(t.Context(), store)
	if err != nil || !slices.Equal(dropped, []string{m.Versions[0].Object, m.Versions[2].Object}) {
		t.Fatalf("%q, %v", dropped, err)
	}
	got, _ := current(t, store)
	if !slices.Equal(got.Versions, []VersionRef{m.Versions[1], m.Versions[3]}) || got.Generation != m.Generation+1 {
		t.Errorf("%+v", got)
	}
	if dropped, err := DropLost(t.Context(), store); err != nil || len(dropped) > 0 {
		t.Errorf("%q, %v", dropped, err)
	}
}

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

// TestNamesOfDigitsAreIDs holds that no dataset gets a name of digits alone, with whatever others,
// and that one of an earlier program goes on.
func TestNamesOfDigitsAreIDs(t *testing.T) {
	store := blob.NewMemory()
	if _, err := RegisterDataset(t.Context(), store, lake.Dataset{Name: "a1"}); err != nil {
		t.Fatal(err)
	}
	_, err := RegisterDatasets(t.Context(), store, []lake.Dataset{{Name: "b"}, {Name: "42"}})
	var name *NameError
	if !errors.As(err, &name) || !strings.Contains(err.Error(), `"42": digits alone are the id of a dataset; use a name with a letter, such as d42`) {
		t.Errorf("%v", err)
	}
	if found, err := DatasetsNamed(t.Context(), store, "b", "42"); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	old := lake.Dataset{ID: 2, Name: "42"}
	if err := makeLive(t.Context(), store, func(h *head) (bool, error) {
		h.NextID = 3
		return true, h.set(t.Context(), store, []lake.Dataset{old})
	}); err != nil {
		t.Fatal(err)
	}
	if d, err := RegisterDataset(t.Context(), store, lake.Dataset{Name: "42"}); err != nil || d != old {
		t.Errorf("%+v, %v", d, err)
	}
}
