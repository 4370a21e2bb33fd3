package prefixtree

import (
	"context"
	"errors"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// The root needs no perfect hash. If it is not where it has to be the index is damaged, so whoever
// looks for the nearest folder above one ends there.
func TestRootIsAlwaysFound(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, randomObjects(1, 300))
		m := memory{files: readFolder(t, dir), unchecked: true}
		name := layouts[format].positions
		slots := append([]byte(nil), m.files[name]...)
		clear(slots[layouts[format].header:]) // all slots are the root's
		x, err := m.with(name, slots).index()
		if err != nil {
			t.Fatal(err)
		}
		if pos, ok, err := x.Lookup(nil); pos != 0 || !ok || err != nil {
			t.Errorf("%s: root at %d, %v: %v", format, pos, ok, err)
		}
		x.Close()
		blob := append([]byte(nil), m.files[layouts[format].blob]...)
		if format == Seed {
			blob[0] = 1 // the length of the first prefix
		} else {
			continue // there its length is in the offsets
		}
		if x, err = m.with(layouts[format].blob, blob).index(); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := x.Lookup(nil); ok || !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v, %v", format, ok, err)
		}
		if err := x.Verify(context.Background(), func(uint64) {}); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", format, err)
		}
		x.Close()
	}
}

func versionOf(t *testing.T, files map[string][]byte) int {
	t.Helper()
	var doc manifest
	if err := codec.Unseal(files[manifestName], manifestName, 0, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Version
}

// An index of a newer version is not called damaged.
func TestVersions(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, randomObjects(1, 10))
		files := readFolder(t, dir)
		if v := versionOf(t, files); v != version {
			t.Errorf("%s: version %d", format, v)
		}
		for v, fits := range map[int]func(error) bool{
			version + 1: codec.IsFormat,
			0:           func(err error) bool { return errors.Is(err, codec.ErrCorrupt) },
		} {
			var doc manifest
			if err := codec.Unseal(files[manifestName], manifestName, 0, &doc); err != nil {
				t.Fatal(err)
			}
			doc.Version = v
			data, err := codec.Seal(doc)
			if err != nil {
				t.Fatal(err)
			}
			m := memory{files: files}
			if _, err := m.with(manifestName, data).index(); !fits(err) {
				t.Errorf("%s: version %d: %v", format, v, err)
			}
		}
	}
}
