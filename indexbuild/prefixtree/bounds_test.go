package prefixtree

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

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
		name := cmp.Or(layouts[format].slots, layouts[format].positions)
		slots := append([]byte(nil), m.files[name]...)
		clear(slots[layouts[format].headerBytes():]) // all slots are the root's
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
		if err := x.Verify(context.Background(), nil); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", format, err)
		}
		x.Close()
	}
}

// Where a position and an offset do not fit into one element, and in indexes of earlier versions,
// slots have positions alone. The answers are the same.
func TestSlotsWithoutOffsets(t *testing.T) {
	seed := layouts[Seed]
	for _, n := range []int{0, 1, 2000} {
		objects := randomObjects(7, n)
		plain := *seed
		plain.slots = ""
		layouts[Seed] = &plain
		dir, _ := build(t, Options{}, objects)
		layouts[Seed] = seed
		files := readFolder(t, dir)
		if files[seed.positions] == nil || files[seed.slots] != nil {
			t.Fatalf("the files are %q", slices.Sorted(maps.Keys(files)))
		}
		if v := versionOf(t, files); v != 1 {
			t.Errorf("version %d", v)
		}
		x := open(t, dir)
		if err := x.Verify(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		checkTree(t, x, bruteForce(objects))
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

// An index has the version of what it needs, so that a program that knows nothing of it says that
// the index is newer, not that it is damaged.
func TestVersions(t *testing.T) {
	for format, newest := range map[Format]int{Seed: 2, S3Inv: 1} {
		dir, _ := build(t, Options{Format: format}, randomObjects(1, 10))
		files := readFolder(t, dir)
		if v := versionOf(t, files); v != newest {
			t.Errorf("%s: version %d", format, v)
		}
		for version, fits := range map[int]func(error) bool{
			newest + 1: codec.IsFormat,
			0:          func(err error) bool { return errors.Is(err, codec.ErrCorrupt) },
		} {
			var doc manifest
			if err := codec.Unseal(files[manifestName], manifestName, 0, &doc); err != nil {
				t.Fatal(err)
			}
			doc.Version = version
			data, err := codec.Seal(doc)
			if err != nil {
				t.Fatal(err)
			}
			m := memory{files: files}
			if _, err := m.with(manifestName, data).index(); !fits(err) {
				t.Errorf("%s: version %d: %v", format, version, err)
			}
		}
	}
}

func TestPositionBits(t *testing.T) {
	for _, c := range []struct {
		nodes, blobSize uint64
		bits            int
		ok              bool
	}{
		{1, 4, 0, true},
		{1, math.MaxUint64, 0, true},
		{2, math.MaxUint64, 1, false},
		{10_000_000, 400_000_000, 24, true},
		{1 << 28, 1<<36 - 1, 28, true},
		{1 << 28, 1 << 36, 28, false},
		{1<<28 + 1, 1<<36 - 1, 29, false},
		{MaxNodes, 1<<32 - 1, 32, true},
		{MaxNodes, 1 << 32, 32, false},
	} {
		if n, ok := positionBits(c.nodes, c.blobSize); n != c.bits || ok != c.ok {
			t.Errorf("%d nodes, %d bytes: %d bits, %t", c.nodes, c.blobSize, n, ok)
		}
	}
}

// Verify compares the offsets of slots with those of positions: that a slot leads to the bytes of
// its prefix is not enough, for others may contain them.
func TestVerifyFindsOffsetOfOtherPrefix(t *testing.T) {
	const inside = "x\x02\x00\x00\x00a/" // has the length of a/ and a/
	dir, _ := build(t, Options{}, []object{{"a/x", 1, NoTier}, {inside + "x", 2, NoTier}})
	files := readFolder(t, dir)
	bits, _ := positionBits(3, 0)
	slots := files[layouts[Seed].slots]
	for at := range slices.Chunk(slots, 8) {
		if v := binary.LittleEndian.Uint64(at); v&(1<<bits-1) == 1 {
			off := uint64(bytes.Index(files[layouts[Seed].blob], []byte(inside)) + 1)
			binary.LittleEndian.PutUint64(at, 1|off<<bits)
		}
	}
	var doc manifest
	if err := codec.Unseal(files[manifestName], manifestName, 0, &doc); err != nil {
		t.Fatal(err)
	}
	f := doc.Files[layouts[Seed].slots]
	f.XXHash64 = fmt.Sprintf("%016x", xxhash.Sum64(slots))
	doc.Files[layouts[Seed].slots] = f
	var err error
	if files[manifestName], err = codec.Seal(doc); err != nil {
		t.Fatal(err)
	}
	x, err := memory{files, true}.index()
	if err != nil {
		t.Fatal(err)
	}
	if pos, ok, err := x.Lookup([]byte("a/")); pos != 1 || !ok || err != nil {
		t.Fatalf("a/ is at %d, %t: %v", pos, ok, err)
	}
	var c *codec.CorruptError
	if err := x.Verify(context.Background(), nil); !errors.As(err, &c) || c.File != layouts[Seed].slots {
		t.Errorf("verify says %v", err)
	}
}
