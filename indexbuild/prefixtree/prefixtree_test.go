package prefixtree

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// object is an object of a test.
type object struct {
	key  string
	size uint64
	tier Tier
}

// expected is what a node of the tree of some objects must be, found by looking at every object.
type expected struct {
	Prefix          string
	Depth, MaxDepth uint32
	Sum
	Tiers map[Tier]Sum
}

// bruteForce returns the nodes of the tree of objects by prefix.
func bruteForce(objects []object) map[string]*expected {
	all := map[string]*expected{"": {Tiers: map[Tier]Sum{}}}
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
				e = &expected{Prefix: prefix, Depth: depth, MaxDepth: depth, Tiers: map[Tier]Sum{}}
				all[prefix] = e
			}
			e.MaxDepth = max(e.MaxDepth, uint32(strings.Count(folder, "/")))
			e.Objects++
			e.Bytes += o.size
			t := e.Tiers[o.tier]
			e.Tiers[o.tier] = Sum{t.Objects + 1, t.Bytes + o.size}
		}
	}
	return all
}

// build writes the index of objects, which go to the collectors in turn, and returns its folder.
func build(tb testing.TB, opt Options, objects []object) (string, Stats) {
	tb.Helper()
	b, err := NewBuilder(opt)
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Close()
	var collectors []*Collector
	for range max(1, opt.Collectors) {
		c, err := b.Collector()
		if err != nil {
			tb.Fatal(err)
		}
		collectors = append(collectors, c)
	}
	for i, o := range objects {
		if err := collectors[i%len(collectors)].Add([]byte(o.key), o.size, o.tier); err != nil {
			tb.Fatal(err)
		}
	}
	dir := filepath.Join(tb.TempDir(), "index")
	stats, err := b.Finish(context.Background(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	return dir, stats
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
		{"/", 3, Standard}, {"//", 4, Glacier}, {"no-slash", 5, Standard}, {"a//b", 6, Standard}, {"folder/", 0, Standard},
		{strings.Repeat("long/", 100) + "end", 7, DeepArchive},
		{strings.Repeat("n", 1020) + "/k", 8, Standard},
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
		o := object{key.String(), rng.Uint64N(1 << 40), Tier(rng.IntN(3) * 4)}
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
	checkLookups(t, x, want)
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
		if s, err := x.Sums(at); err != nil || s != n.Sum {
			t.Fatalf("node %d has %+v, %v; want %+v", at, s, err, n.Sum)
		}
		got := expected{Prefix: p, Depth: n.Depth, MaxDepth: n.MaxDepth, Sum: n.Sum, Tiers: map[Tier]Sum{}}
		all, err := x.Tiers(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			got.Tiers[s.Tier] = s.Sum
		}
		if !reflect.DeepEqual(*want[p], got) {
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

// checkLookups looks up all prefixes at once, with some that there are not in between.
func checkLookups(t *testing.T, x *Index, want map[string]*expected) {
	t.Helper()
	var prefixes [][]byte
	for p := range want {
		prefixes = append(prefixes, []byte(p), []byte(p+"none/"))
	}
	positions := make([]uint64, len(prefixes))
	if err := x.Lookups(prefixes, positions); err != nil {
		t.Fatal(err)
	}
	for i, p := range prefixes {
		pos, ok, err := x.Lookup(p)
		if err != nil || ok != (want[string(p)] != nil) || ok && positions[i] != pos || !ok && positions[i] != NotFound {
			t.Fatalf("%q is at %d; alone %d %v %v", p, positions[i], pos, ok, err)
		}
	}
}

func TestTreeEqualsBruteForce(t *testing.T) {
	for _, format := range Formats() {
		for _, n := range []int{7, 60, 1500} {
			t.Run(fmt.Sprint(format, n), func(t *testing.T) {
				objects := randomObjects(uint64(n), n)
				dir, stats := build(t, Options{Format: format}, objects)
				x := open(t, dir)
				if err := x.Verify(context.Background(), nil); err != nil {
					t.Fatal(err)
				}
				want := bruteForce(objects)
				checkTree(t, x, want)
				if stats.Nodes != x.Len() || stats.Total != want[""].Sum || stats.MaxDepth != x.MaxDepth() || stats.Bytes != folderSize(t, dir) {
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
		dir, _ := build(t, Options{Format: format}, nil)
		x := open(t, dir)
		if err := x.Verify(context.Background(), nil); err != nil {
			t.Error(err)
		}
		checkTree(t, x, bruteForce(nil))
	}
}

// The same objects give the same bytes, in whatever order they come, however many collectors take
// them, and however little memory there is.
func TestBytesFollowFromTheObjects(t *testing.T) {
	objects := randomObjects(3, 3000)
	for _, format := range Formats() {
		dir, _ := build(t, Options{Format: format}, objects)
		want := readFolder(t, dir)
		shuffled := slices.Clone(objects)
		slices.SortFunc(shuffled, func(a, b object) int { return strings.Compare(b.key, a.key) })
		for _, opt := range []Options{
			{Format: format, Collectors: 3, Parallelism: 1},
			{Format: format, Memory: 1, Parallelism: 3},
			{Format: format, Memory: 1, Collectors: 5, Dir: t.TempDir()},
		} {
			b, _ := build(t, opt, shuffled)
			got := readFolder(t, b)
			for name, data := range want {
				if !bytes.Equal(got[name], data) {
					t.Errorf("%s, %+v: %s differs", format, opt, name)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d files, want %d", len(got), len(want))
			}
		}
	}
}
