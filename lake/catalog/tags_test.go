package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

func TestTags(t *testing.T) {
	ctx := t.Context()
	store := blob.NewMemory()
	if _, _, err := SetTag(ctx, store, "release", "", false); !errors.Is(err, ErrNoVersion) {
		t.Fatalf("an empty lake: %v", err)
	}
	first := apply(t, store, addBatch(0)).Version.ID
	second := apply(t, store, addBatch(1)).Version.ID
	set := func(name, version string, move bool, want string) {
		t.Helper()
		if got, _, err := SetTag(ctx, store, name, version, move); got != want || err != nil {
			t.Fatalf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	set("release", first, false, first)
	m, _ := current(t, store)
	if m.Generation != 3 {
		t.Errorf("generation %d", m.Generation)
	}
	set("release", first, false, first) // again
	set("Nightly-2026.11_23", "", false, second)
	set("stable", "release", false, first) // by another tag
	if _, _, err := SetTag(ctx, store, "release", second, false); !errors.Is(err, ErrTagged) || !strings.Contains(err.Error(), first) {
		t.Errorf("of another version: %v", err)
	}
	third := apply(t, store, addBatch(2)).Version.ID // a commit keeps tags
	if id, before, err := SetTag(ctx, store, "release", Current, true); id != third || before != first || err != nil {
		t.Errorf("moved to %s from %s, %v", id, before, err)
	}
	m, _ = current(t, store)
	want := []Tag{{"Nightly-2026.11_23", second}, {"release", third}, {"stable", first}}
	if diff := cmp.Diff(want, m.Tags); diff != "" || m.Generation != 7 {
		t.Errorf("generation %d (-want +got):\n%s", m.Generation, diff)
	}
	if diff := cmp.Diff([]string{"release"}, m.TagsOf(third)); diff != "" {
		t.Error(diff)
	}
	for name, id := range map[string]string{"": third, "release": third, "stable": first, second: second} {
		if ref, err := m.Version(name); err != nil || ref.ID != id {
			t.Errorf("%s is %s, %v, want %s", name, ref.ID, err, id)
		}
	}
	if _, err := m.Version("relaese"); !errors.Is(err, ErrUnknownVersion) || !strings.Contains(err.Error(), "release") {
		t.Errorf("a misspelt tag: %v", err)
	}
	if _, _, err := SetTag(ctx, store, "x", "20200101T000000.000Z-00000000", false); !errors.Is(err, ErrUnknownVersion) {
		t.Errorf("a version that is not kept: %v", err)
	}
	for _, name := range []string{"", "1", "a b", "current", "Current", first, "-a", ".", "ä", strings.Repeat("a", 65), "a\n"} {
		if _, _, err := SetTag(ctx, store, name, "", false); !errors.Is(err, ErrBadTag) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, tag := range want {
		if id, err := RemoveTag(ctx, store, tag.Name); id != tag.Version || err != nil {
			t.Fatal(id, err)
		}
	}
	if _, err := RemoveTag(ctx, store, "release"); !errors.Is(err, ErrUnknownTag) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestManifestWithInconsistentTagsIsRejected(t *testing.T) {
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	id := apply(t, store, addBatch(1)).Version.ID
	if _, _, err := SetTag(t.Context(), store, "a", "", false); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *Manifest){
		"bad name":        func(m *Manifest) { m.Tags[0].Name = "1" },
		"unknown version": func(m *Manifest) { m.Tags[0].Version = "20200101T000000.000Z-00000000" },
		"twice":           func(m *Manifest) { m.Tags = append(m.Tags, m.Tags[0]) },
		"not ascending":   func(m *Manifest) { m.Tags = append(m.Tags, Tag{"A", id}) },
		"too many": func(m *Manifest) {
			for i := range maxTags {
				m.Tags = append(m.Tags, Tag{fmt.Sprintf("b%04d", i), id})
			}
		},
	} {
		m, _ := current(t, store)
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		if change(m); m.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Taggers and committers at once lose nothing, and none of them fails because another was first.
func TestTagsBesideCommits(t *testing.T) {
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	var wait sync.WaitGroup
	const taggers, committers = 4 * maxRejections, 6
	for i := range taggers {
		wait.Go(func() {
			if _, _, err := SetTag(t.Context(), store, fmt.Sprintf("tag%d", i), "", false); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range committers {
		wait.Go(func() {
			if _, err := addBatch(i+1).Apply(t.Context(), store); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	m, _ := current(t, store)
	if len(m.Tags) != taggers || len(m.Versions) != committers+1 || m.Generation != taggers+committers+1 {
		t.Errorf("%d tags, %d versions, generation %d", len(m.Tags), len(m.Versions), m.Generation)
	}
}

// A store that rejects puts of a manifest that nobody changes is not asked forever.
func TestTagsOnABusyStore(t *testing.T) {
	inner := blob.NewMemory()
	apply(t, inner, addBatch(0))
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == ManifestKey }, Err: blob.ErrPrecondition})
	if _, _, err := SetTag(t.Context(), store, "a", "", false); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
}

// If the current version is lost, so are its tags, and no others.
func TestTagsOfALostVersion(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	first := apply(t, store, addBatch(0)).Version.ID
	second := apply(t, store, addBatch(1)).Version
	for _, tag := range []Tag{{"a", first}, {"b", second.ID}} {
		if _, _, err := SetTag(ctx, store, tag.Name, tag.Version, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(ctx, second.Object); err != nil {
		t.Fatal(err)
	}
	s, err := Look(ctx, store)
	if err != nil || !slices.ContainsFunc(s.Lost, func(line string) bool { return strings.Contains(line, "the name b of version "+second.ID) }) {
		t.Errorf("%v, %v", s, err)
	}
	apply(t, store, addBatch(2))
	m, _ := current(t, store)
	if diff := cmp.Diff([]Tag{{"a", first}}, m.Tags); diff != "" || len(m.Versions) != 2 {
		t.Errorf("%d versions, tags (-want +got):\n%s", len(m.Versions), diff)
	}
}

// A version that is no longer listed because it is lost has no tags either.
func TestTagsOfADroppedVersion(t *testing.T) {
	ctx := t.Context()
	store := blob.NewMemory()
	first := apply(t, store, addBatch(0)).Version
	second := apply(t, store, addBatch(1)).Version.ID
	for _, tag := range []Tag{{"a", first.ID}, {"b", second}, {"c", first.ID}} {
		if _, _, err := SetTag(ctx, store, tag.Name, tag.Version, false); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := current(t, store)
	if err := store.Delete(ctx, first.Object); err != nil {
		t.Fatal(err)
	}
	dropped, err := DropLost(ctx, store)
	if err != nil || len(dropped) != 1 {
		t.Fatal(dropped, err)
	}
	if lines := before.LostTags(dropped); len(lines) != 2 || !strings.Contains(lines[1], "the name c of version "+first.ID) {
		t.Errorf("%q", lines)
	}
	m, _ := current(t, store)
	if diff := cmp.Diff([]Tag{{"b", second}}, m.Tags); diff != "" {
		t.Error(diff)
	}
}
