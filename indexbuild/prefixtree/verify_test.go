package prefixtree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/codec"
)

// replace writes a file of an index in a folder, and a manifest that has its hashes.
func replace(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	m, f, err := DecodeManifest(doc)
	if err != nil {
		t.Fatal(err)
	}
	if m.Files[name], err = sumFile(path, layouts[f].sha256); err != nil {
		t.Fatal(err)
	}
	if doc, err = codec.Seal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), doc, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Verify finds an element that the other files contradict in a file whose hash is right, and says
// which file it is.
func TestVerifyComparesFiles(t *testing.T) {
	// The nodes of damageObjects are the root, a/, a/b/, a/b/c/, b/ and b//.
	const nodes = 6
	type change struct {
		file    string
		width   int
		element int
		to      func(uint64) uint64
	}
	value := func(v uint64) func(uint64) uint64 { return func(uint64) uint64 { return v } }
	other := func(v uint64) uint64 { return v ^ 1 }
	for _, format := range Formats() {
		l := layouts[format]
		dir, _ := build(t, format, damageObjects)
		whole := readFolder(t, dir)
		changes := []change{
			{endName, 8, 0, value(4)},
			{endName, 8, 2, value(4)}, // outside of a/
			{endName, 8, 3, value(2)}, // before itself
			{endName, 8, 5, value(nodes)},
			{depthName, 4, 0, value(1)},
			{depthName, 4, 2, value(1)},
			{depthName, 4, 5, value(1)},
			{objectsName, 8, 1, value(7)}, // of 6
			{objectsName, 8, 3, value(3)}, // of 2
			{bytesName, 8, 1, value(22)},  // of 21
			{bytesName, 8, 5, value(10)},  // of 9
			{maxDepthName, 4, 0, value(2)},
			{maxDepthName, 4, 4, value(3)},
			{maxDepthName, 4, 5, value(4)},
			{l.hash, 1, 0, other},
		}
		if format == Seed {
			// A prefix is behind its length.
			changes = append(changes, change{l.blob, 1, 8, value('/')}, change{l.offsets, 8, 3, value(1 << 40)})
			for depth, n := range []int{1, 2, 2, 1} {
				for i := range n + 1 { // the count is first
					if depth > 0 {
						changes = append(changes, change{depthFile(uint32(depth)), 8, i, other})
					}
				}
			}
		} else {
			changes = append(changes, change{l.blob, 1, 0, value('/')}, change{l.offsets, 8, 3, value(0)})
			for i := range 5 {
				changes = append(changes, change{l.depthOffsets, 8, i, value(nodes + 1)})
			}
			for i := range nodes {
				changes = append(changes, change{l.depthPositions, 8, i, other}, change{l.prints, 8, i, other})
			}
		}
		for i := range nodes {
			changes = append(changes, change{l.positions, 8, i, other}, change{l.positions, 8, i, value(nodes)})
		}
		changed := map[string]bool{manifestName: true}
		for _, c := range changes {
			changed[c.file] = true
			t.Run(fmt.Sprint(format, "/", c.file, "/", c.element), func(t *testing.T) {
				data := bytes.Clone(whole[c.file])
				at := data[c.width*c.element:]
				if c.width > 1 { // an array
					at = at[l.header:]
				}
				var old [8]byte
				copy(old[:], at[:c.width])
				v := c.to(binary.LittleEndian.Uint64(old[:]))
				if v == binary.LittleEndian.Uint64(old[:]) {
					t.Fatalf("it is %d anyway", v)
				}
				binary.LittleEndian.PutUint64(old[:], v)
				copy(at[:c.width], old[:])
				checkNamed(t, dir, c.file, data)
				replace(t, dir, c.file, whole[c.file])
			})
		}
		if format == Seed {
			// One position more than there are nodes of the depth.
			data := codec.AppendU64(bytes.Clone(whole[depthFile(3)]), 5)
			data[0]++
			checkNamed(t, dir, depthFile(3), data)
		}
		for name := range whole {
			if !changed[name] {
				t.Errorf("%s: no case for %s", format, name)
			}
		}
	}
}

// checkNamed expects Verify to name a file that has other bytes.
func checkNamed(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	replace(t, dir, name, data)
	x, err := Open(dir)
	if err == nil {
		err = errors.Join(x.Verify(context.Background(), func(uint64) {}), x.Close())
	}
	var corrupt *codec.CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != name {
		t.Errorf("%s changed: %v", name, err)
	}
}

// Queries open the files of depths in any order, several at once.
func TestDepthsOpenAtOnce(t *testing.T) {
	objects := randomObjects(1, 300)
	for _, format := range Formats() {
		dir, _ := build(t, format, objects)
		x := open(t, dir)
		var g errgroup.Group
		for i := range uint32(8) {
			g.Go(func() error {
				for j := range x.doc.MaxDepth {
					depth := (j*7+i*13)%x.doc.MaxDepth + 1
					l, err := x.Descendants(0, depth)
					if err != nil {
						return err
					}
					if n, err := l.At(l.Len() - 1); err != nil || n.Depth != depth {
						return fmt.Errorf("depth %d: %+v, %w", depth, n, err)
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if format == Seed && len(x.levels) != int(x.doc.MaxDepth) {
			t.Errorf("%d files for %d depths", len(x.levels), x.doc.MaxDepth)
		}
	}
}
