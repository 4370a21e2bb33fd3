package prefixtree

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// object is an object of a test.
type object struct {
	key  string
	size uint64
}

// expected is what a node of the tree of some objects must be, found by looking at every object.
type expected struct {
	Prefix          string
	Depth, MaxDepth uint32
	Objects, Bytes  uint64
}

// bruteForce returns the nodes of the tree of objects by prefix.
func bruteForce(objects []object) map[string]*expected {
	all := map[string]*expected{"": {}}
	for _, o := range objects {
		folder := o.key[:strings.LastIndexByte(o.key, '/')+1]
		for n := 0; n <= len(folder); n++ {
			prefix := folder[:n]
			if prefix != "" && !strings.HasSuffix(prefix, "/") {
				continue
			}
			e := all[prefix]
			if e == nil {
				depth := uint32(strings.Count(prefix, "/"))
				e = &expected{Prefix: prefix, Depth: depth, MaxDepth: depth}
				all[prefix] = e
			}
			e.MaxDepth = max(e.MaxDepth, uint32(strings.Count(folder, "/")))
			e.Objects++
			e.Bytes += o.size
		}
	}
	return all
}

// write writes nodes in pre-order, whose ends are not set, and returns the index's folder.
func write(tb testing.TB, format Format, nodes []expected) (string, Stats) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "index")
	w, err := Create(dir, format)
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Abort()
	var above []Node
	closeTo := func(depth, next int) {
		for len(above) > depth {
			n := above[len(above)-1]
			above = above[:len(above)-1]
			n.End = uint64(next) - 1
			if err := w.Close(n); err != nil {
				tb.Fatal(err)
			}
		}
	}
	for pos, e := range nodes {
		closeTo(int(e.Depth), pos)
		if err := w.Open([]byte(e.Prefix), int(e.Depth)); err != nil {
			tb.Fatal(err)
		}
		above = append(above, Node{Position: uint64(pos), Depth: e.Depth, MaxDepth: e.MaxDepth, Objects: e.Objects, Bytes: e.Bytes})
	}
	closeTo(0, len(nodes))
	stats, err := w.Finish(tb.Context(), 1<<20, time.Time{})
	if err != nil {
		tb.Fatal(err)
	}
	return dir, stats
}

// build writes the index of objects and returns its folder.
func build(tb testing.TB, format Format, objects []object) (string, Stats) {
	tb.Helper()
	all := bruteForce(objects)
	var nodes []expected
	for _, p := range slices.Sorted(maps.Keys(all)) {
		nodes = append(nodes, *all[p])
	}
	return write(tb, format, nodes)
}

func open(tb testing.TB, dir string) *Index {
	tb.Helper()
	x, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x
}

// randomObjects returns objects with keys of all kinds, some of them several times.
func randomObjects(seed uint64, n int) []object {
	rng := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "c", "data", "2024", "01", "", "ä", "日本", "a!", "a0", "\x01", "\xff\xfe", "x y", "a+b", "%2F", "~"}
	objects := []object{
		{"/", 3}, {"//", 4}, {"no-slash", 5}, {"a//b", 6}, {"folder/", 0},
		{strings.Repeat("long/", 100) + "end", 7},
		{strings.Repeat("n", 1020) + "/k", 8},
	}
	for len(objects) < n {
		var key strings.Builder
		for range rng.IntN(6) {
			key.WriteString(names[rng.IntN(len(names))])
			if rng.IntN(4) == 0 {
				fmt.Fprint(&key, rng.IntN(20))
			}
			key.WriteByte('/')
		}
		if rng.IntN(8) > 0 {
			fmt.Fprintf(&key, "file%d", rng.IntN(1000))
		}
		if key.Len() == 0 {
			continue
		}
		o := object{key.String(), rng.Uint64N(1 << 40)}
		objects = append(objects, o)
		if rng.IntN(10) == 0 {
			objects = append(objects, o)
		}
	}
	rng.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	return objects
}

// checkTree compares every node of an index, and every list of descendants, with a walk over all
// objects.
func checkTree(t *testing.T, x *Index, want map[string]*expected) {
	t.Helper()
	ctx := context.Background()
	prefixes := slices.Sorted(maps.Keys(want))
	if x.Len() != uint64(len(prefixes)) {
		t.Fatalf("%d nodes, want %d", x.Len(), len(prefixes))
	}
	// below lists the descendants of each prefix by relative depth.
	below := map[string]map[uint32][]uint64{}
	for pos, p := range prefixes {
		for n := len(p) - 1; n >= 0; n-- {
			if n > 0 && p[n-1] != '/' {
				continue
			}
			above := p[:n]
			if below[above] == nil {
				below[above] = map[uint32][]uint64{}
			}
			rel := want[p].Depth - want[above].Depth
			below[above][rel] = append(below[above][rel], uint64(pos))
		}
	}
	for pos, p := range prefixes {
		at, ok, err := x.Lookup([]byte(p))
		if err != nil || !ok || at != uint64(pos) {
			t.Fatalf("%q is at %d, %t, %v; want %d", p, at, ok, err, pos)
		}
		if got, err := x.AppendPrefix(nil, at); err != nil || string(got) != p {
			t.Fatalf("node %d is %q, %v; want %q", pos, got, err, p)
		}
		n, err := x.Node(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := (expected{p, n.Depth, n.MaxDepth, n.Objects, n.Bytes}); *want[p] != got {
			t.Fatalf("%q is %+v, want %+v", p, got, *want[p])
		}
		for rel := uint32(0); rel <= n.MaxDepth-n.Depth+1; rel++ {
			l, err := x.Descendants(at, rel)
			if err != nil {
				t.Fatal(err)
			}
			var list []uint64
			for i := range l.Len() {
				d, err := l.At(i)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, d.Position)
			}
			if !slices.Equal(list, below[p][rel]) {
				t.Fatalf("%d below %q are %d, want %d", rel, p, list, below[p][rel])
			}
			if rel == 1 {
				var hops []uint64
				if err := x.EachChild(at, func(c Node) bool { hops = append(hops, c.Position); return true }); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(hops, list) {
					t.Fatalf("the children of %q are %d by hops and %d by the depth index", p, hops, list)
				}
			}
			if pos%7 == 0 {
				checkTop(t, ctx, x, l, list)
			}
		}
	}
	for _, absent := range []string{"x", "a", "/a", "nothing/", "a/ä/nothing/", "日本", "\x00/", strings.Repeat("/", 300)} {
		if _, there := want[absent]; there {
			continue
		}
		if pos, ok, err := x.Lookup([]byte(absent)); ok || err != nil {
			t.Errorf("%q is at %d (%v)", absent, pos, err)
		}
	}
}

// checkTop compares the largest nodes of a level with a sorted list.
func checkTop(t *testing.T, ctx context.Context, x *Index, l Level, list []uint64) {
	t.Helper()
	for _, order := range []Order{ByBytes, ByObjects} {
		for _, filter := range []Filter{{}, {MinObjects: 3}, {MinBytes: 1 << 40}} {
			var nodes []Node
			for _, pos := range list {
				n, err := x.Node(pos)
				if err != nil {
					t.Fatal(err)
				}
				if n.Objects >= filter.MinObjects && n.Bytes >= filter.MinBytes {
					nodes = append(nodes, n)
				}
			}
			slices.SortStableFunc(nodes, func(a, b Node) int {
				if order == ByObjects && a.Objects != b.Objects {
					return map[bool]int{true: -1, false: 1}[a.Objects > b.Objects]
				}
				if a.Bytes != b.Bytes {
					return map[bool]int{true: -1, false: 1}[a.Bytes > b.Bytes]
				}
				return map[bool]int{true: -1, false: 1}[a.Objects > b.Objects || a.Objects == b.Objects && a.Position < b.Position]
			})
			for _, count := range []int{0, 1, 3, len(nodes), len(nodes) + 5} {
				top, err := l.Top(ctx, count, order, filter)
				if err != nil {
					t.Fatal(err)
				}
				if want := nodes[:min(count, len(nodes))]; !slices.Equal(top, want) {
					t.Fatalf("top %d of %d is %+v, want %+v", count, len(nodes), top, want)
				}
			}
		}
	}
}

func TestTreeEqualsBruteForce(t *testing.T) {
	for _, format := range Formats() {
		for _, n := range []int{7, 60, 1500} {
			t.Run(fmt.Sprint(format, n), func(t *testing.T) {
				objects := randomObjects(uint64(n), n)
				dir, stats := build(t, format, objects)
				x := open(t, dir)
				if err := x.Verify(context.Background(), func(uint64) {}); err != nil {
					t.Fatal(err)
				}
				want := bruteForce(objects)
				checkTree(t, x, want)
				if stats.Nodes != x.Len() || stats.Root.Objects != uint64(len(objects)) || stats.Root.MaxDepth != x.doc.MaxDepth || stats.Bytes != folderSize(t, dir) {
					t.Errorf("stats %+v", stats)
				}
			})
		}
	}
}

// folderSize is the size of all files in a folder.
func folderSize(tb testing.TB, dir string) (n int64) {
	tb.Helper()
	for _, data := range readFolder(tb, dir) {
		n += int64(len(data))
	}
	return n
}

// readFolder returns the content of all files in a folder by name.
func readFolder(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestEmptyIndex(t *testing.T) {
	for _, format := range Formats() {
		dir, _ := build(t, format, nil)
		x := open(t, dir)
		if err := x.Verify(context.Background(), func(uint64) {}); err != nil {
			t.Error(err)
		}
		checkTree(t, x, bruteForce(nil))
	}
}

// Of thousands of depths one has so many nodes that their positions are written in several pieces.
// The time does not depend on the product of folders and depths.
func TestThousandsOfDepths(t *testing.T) {
	const depths, flat = 4000, 3000
	nodes := []expected{{MaxDepth: depths, Objects: flat + 1}}
	for d := uint32(1); d <= depths; d++ {
		nodes = append(nodes, expected{Prefix: strings.Repeat("/", int(d)), Depth: d, MaxDepth: depths, Objects: 1})
	}
	for i := range flat {
		nodes = append(nodes, expected{Prefix: fmt.Sprintf("%04d/", i), Depth: 1, MaxDepth: 1, Objects: 1})
	}
	for _, format := range Formats() {
		dir, _ := write(t, format, nodes)
		if err := open(t, dir).Verify(context.Background(), func(uint64) {}); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}
