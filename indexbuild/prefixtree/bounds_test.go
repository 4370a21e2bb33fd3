package prefixtree

import (
	"context"
	"errors"
	"testing"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/lake/codec"
)

// However many processors there are, the parts of the perfect hash that are built at once fit into
// the memory, unless one alone is larger.
func TestPartsOfTheHashFitIntoMemory(t *testing.T) {
	k := &keyParts{record: 20, bufs: make([][]byte, 3), extents: make([][]keysort.Extent, 3)}
	k.bufs[1] = make([]byte, 20*1000)
	k.extents[2] = []keysort.Extent{{Offset: 0, Bytes: 20 << 20}, {Offset: 20 << 20, Bytes: 20 << 20}}
	const largest = 2 << 20 * (20 + partMemory)
	for _, memory := range []int64{1, largest - 1, largest, 3*largest + 1, 100 * largest} {
		for _, processors := range []int{1, 2, 64, 1000} {
			n := k.atOnce(memory, processors)
			if n < 1 || n > processors || n > 1 && int64(n)*largest > memory {
				t.Errorf("%d parts of %d bytes at once in %d, on %d processors", n, largest, memory, processors)
			}
			if n < processors && int64(n+1)*largest <= memory {
				t.Errorf("only %d parts at once in %d bytes, on %d processors", n, memory, processors)
			}
		}
	}
}

// The root needs no perfect hash. If it is not where it has to be the index is damaged, so whoever
// looks for the nearest folder above one ends there.
func TestRootIsAlwaysFound(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, Options{Format: format}, randomObjects(1, 300))
		m := memory{files: readFolder(t, dir), unchecked: true}
		positions := append([]byte(nil), m.files[layouts[format].positions]...)
		clear(positions[layouts[format].headerBytes():]) // all slots are the root's
		x, err := m.with(layouts[format].positions, positions).index()
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
		if err := x.Verify(context.Background(), nil); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", format, err)
		}
		x.Close()
	}
}
