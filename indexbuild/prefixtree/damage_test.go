package prefixtree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/codec"
)

// memory is an index in memory. Unchecked, the hashes of blocks are ignored.
type memory struct {
	files     map[string][]byte
	unchecked bool
}

func (m memory) open(name string, want mapped.Sums) (*mapped.File, error) {
	data, ok := m.files[name]
	if !ok || want.Bytes != int64(len(data)) {
		return nil, codec.Corrupt(name, "file", -1, fmt.Sprintf("%d bytes", want.Bytes), len(data))
	}
	if m.unchecked {
		h := mapped.NewHash()
		_, _ = h.Write(data)
		want = h.Sums()
	}
	return mapped.New(name, data, want), nil
}

func (m memory) index() (*Index, error) { return openIndex(m.files[manifestName], m.open) }

// with returns a copy in which one file has other bytes.
func (m memory) with(name string, data []byte) memory {
	files := maps.Clone(m.files)
	files[name] = data
	return memory{files, m.unchecked}
}

// damageObjects are few, so that every bit of their index can be flipped.
var damageObjects = []object{
	{"a/x", 1}, {"a/b/x", 2}, {"a/b/c/x", 3}, {"b/x", 4}, {"b//x", 5}, {"top", 6},
}

// readAll asks an index everything and returns the answers as text.
func readAll(x *Index, prefixes []string) (string, error) {
	var s strings.Builder
	for _, p := range append(prefixes, "absent/", "a/absent/", "b") {
		pos, ok, err := x.Lookup([]byte(p))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&s, p, pos, ok)
	}
	for pos := range min(x.Len(), 64) {
		n, err := x.Node(pos)
		if err != nil {
			return "", err
		}
		prefix, err := x.AppendPrefix(nil, pos)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&s, "%+v %q\n", n, prefix)
		if err := x.EachChild(pos, func(n Node) bool { fmt.Fprint(&s, n.Position, " "); return true }); err != nil {
			return "", err
		}
		for depth := uint32(1); depth <= min(n.MaxDepth-n.Depth, 64); depth++ {
			l, err := x.Descendants(pos, depth)
			if err != nil {
				return "", err
			}
			top, err := l.Top(context.Background(), 2, ByBytes, Filter{})
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&s, "%d %+v\n", l.Len(), top)
		}
	}
	return s.String(), nil
}

// A flipped bit in any byte of any file is found by verify, and by queries unless their answers are
// right.
func TestFlippedBits(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, damageObjects)
		whole := memory{files: readFolder(t, dir)}
		x, err := whole.index()
		if err != nil {
			t.Fatal(err)
		}
		prefixes := slices.Sorted(maps.Keys(bruteForce(damageObjects)))
		want, err := readAll(x, prefixes)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range whole.files {
			for _, i := range testenv.Places(0, len(data), 5) {
				i = 8*i + (5*i+3)%8 // one bit of each byte
				bad := bytes.Clone(data)
				bad[i/8] ^= 1 << (i % 8)
				x, err := whole.with(name, bad).index()
				if err == nil {
					var got string
					if got, err = readAll(x, prefixes); err == nil && got != want {
						t.Fatalf("%s: bit %d of %s flipped: other answers", format, i, name)
					}
					verr := x.Verify(context.Background(), func(uint64) {})
					if !errors.Is(verr, codec.ErrCorrupt) {
						t.Fatalf("%s: bit %d of %s flipped: verify says %v", format, i, name, verr)
					}
				}
				// A manifest may seem to be that of another version or program.
				if err != nil && !errors.Is(err, codec.ErrCorrupt) && (name != manifestName || !codec.IsFormat(err) && !errors.Is(err, ErrNoIndex)) {
					t.Fatalf("%s: bit %d of %s flipped: %v", format, i, name, err)
				}
			}
		}
	}
}

// A file that is cut anywhere, or absent, is damage.
func TestTruncatedFiles(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, damageObjects)
		whole := memory{files: readFolder(t, dir)}
		for name, data := range whole.files {
			if name == manifestName {
				continue // see TestFlippedBits
			}
			for _, n := range testenv.Places(0, len(data), 9) {
				x, err := whole.with(name, data[:n]).index()
				if err == nil {
					err = x.Verify(context.Background(), func(uint64) {})
				}
				if !errors.Is(err, codec.ErrCorrupt) {
					t.Fatalf("%s: %d bytes of %s: %v", format, n, name, err)
				}
			}
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, "away")); err != nil {
				t.Fatal(err)
			}
			x, err := Open(dir)
			if err == nil {
				err = errors.Join(x.Verify(context.Background(), func(uint64) {}), x.Close())
			}
			var c *codec.CorruptError
			if !errors.As(err, &c) || c.File != name || !strings.Contains(err.Error(), "no file") {
				t.Fatalf("%s: without %s: %v", format, name, err)
			}
			if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A file that is cut while it is mapped is damage, and does not end the process.
func TestFileCutWhileOpen(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, damageObjects)
		for name := range readFolder(t, dir) {
			if name == manifestName {
				continue // read once
			}
			x, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 0); err != nil {
				testenv.Missing(t, "a system that truncates mapped files: "+err.Error())
			}
			if _, err := readAll(x, []string{"a/"}); !errors.Is(err, codec.ErrCorrupt) && !strings.HasSuffix(name, "mph_fp.u64") {
				t.Errorf("%s: %s cut: %v", format, name, err)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Prefixes that have the same FNV-1a are all found, although the perfect hash has one of them.
func TestPrefixesWithEqualHashes(t *testing.T) {
	equal := []string{"!0IC=VloaY/", "77kepQFQ8Kl/", "QvXtM>@Fp%/"}
	for _, p := range equal[1:] {
		if fnv1a([]byte(p)) != fnv1a([]byte(equal[0])) {
			t.Fatalf("%q has another hash than %q", p, equal[0])
		}
	}
	var objects []object
	for i, p := range equal {
		objects = append(objects, object{p + "x", uint64(i + 1)}, object{p + "y/x", uint64(i + 10)}, object{"a/" + p, 1})
	}
	for _, format := range Formats() {
		dir, stats := build(t, format, objects)
		if stats.Collisions != 4 {
			t.Errorf("%d collisions, want 4: of the prefixes and of those below", stats.Collisions)
		}
		x := open(t, dir)
		if err := x.Verify(context.Background(), func(uint64) {}); err != nil {
			t.Error(err)
		}
		checkTree(t, x, bruteForce(objects))
	}
}

// FuzzIndex damages a file of an index whose hashes nobody checks: no query panics or runs forever,
// and errors are about damage.
func FuzzIndex(f *testing.F) {
	var all []memory
	for _, format := range Formats() {
		dir, _ := build(f, format, damageObjects)
		all = append(all, memory{files: readFolder(f, dir), unchecked: true})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		f.Add(uint8(i%2), uint8(i/2), rng.Uint32(), rng.Uint64())
	}
	f.Fuzz(func(t *testing.T, format, file uint8, at uint32, value uint64) {
		m := all[int(format)%len(all)]
		names := slices.Sorted(maps.Keys(m.files))
		name := names[int(file)%len(names)]
		if name == manifestName || len(m.files[name]) == 0 {
			return
		}
		bad := bytes.Clone(m.files[name])
		for i := range 8 {
			if off := int(at)%len(bad) + i; off < len(bad) {
				bad[off] ^= byte(value >> (8 * i))
			}
		}
		x, err := m.with(name, bad).index()
		if err == nil {
			_, err = readAll(x, []string{"", "a/", "a/b/", "b/"})
			if verr := x.Verify(context.Background(), func(uint64) {}); verr != nil && !errors.Is(verr, codec.ErrCorrupt) {
				t.Fatal(verr)
			}
		}
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
