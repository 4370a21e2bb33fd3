package catalog

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/blob"
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
