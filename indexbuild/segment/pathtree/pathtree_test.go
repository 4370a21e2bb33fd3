package pathtree

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

var update = flag.Bool("update", false, "write testdata")

const segmentID = "00112233445566778899aabbccddeeff"

// made is a node as a test knows it.
type made struct {
	key segment.Key
	Node
}

// random makes the nodes of a number of domains, some of which are larger than a frame. The counts
// of children need not be those of the nodes.
func random(rng *rand.Rand, domains, large int) (list []made) {
	for i := range domains {
		k := segment.KeyOf(fmt.Sprintf("site%d.test", i))
		paths := map[string]bool{}
		n := 1 + rng.IntN(6)
		if i < large {
			n = 1500
		}
		for range n {
			path := fmt.Sprintf("h%d.site%d.test/", rng.IntN(3), i)
			paths[path] = true
			for range rng.IntN(4) {
				path += fmt.Sprintf("%c%d/", 'a'+rng.IntN(3), rng.IntN(30))
				paths[path] = true
			}
		}
		for path := range paths {
			m := made{k, Node{Path: []byte(path)}}
			dataset := uint32(0)
			for range 1 + rng.IntN(3)*rng.IntN(2) {
				e := Entry{Dataset: dataset}
				dataset += 1 + uint32(rng.IntN(300))
				e.Rows = 1 + rng.Int64N(200)
				if e.Direct = e.Rows; rng.IntN(2) == 0 && e.Rows > 1 {
					e.Direct = rng.Int64N(e.Rows)
					e.Children = 1 + rng.Int64N(e.Rows-e.Direct)
				}
				if e.Sized = []int64{0, e.Rows, rng.Int64N(e.Rows)}[rng.IntN(3)]; e.Sized > 0 {
					e.Size = Sum{Lo: rng.Uint64()}
					if rng.IntN(10) == 0 {
						e.Size.Hi = 1 + rng.Uint64N(5)
					}
				}
				m.Entries = append(m.Entries, e)
				m.Children = max(m.Children, e.Children)
			}
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b made) int { return cmp.Or(segment.CompareKeys(a.key, b.key), comparePaths(a.Path, b.Path)) })
	return list
}

// comparePaths orders nodes of a domain: by level and path.
func comparePaths(a, b []byte) int {
	return cmp.Or(cmp.Compare(Level(a), Level(b)), bytes.Compare(a, b))
}

// write stores an index.
func write(t testing.TB, store blob.Store, list []made) *Info {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for i := range list {
		if err := w.Add(list[i].key, &list[i].Node); err != nil {
			t.Fatal(err)
		}
	}
	written, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	info, err := Store(t.Context(), store, segmentID, written, bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func open(t testing.TB, store blob.Store, cache segment.Cache) *Index {
	t.Helper()
	x, err := Open(t.Context(), store, segmentID, cache)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func clone(n *Node) Node {
	return Node{bytes.Clone(n.Path), n.Children, slices.Clone(n.Entries)}
}

// same reports whether two nodes are equal, much faster than gocmp does.
func same(a, b *Node) bool {
	return bytes.Equal(a.Path, b.Path) && a.Children == b.Children && slices.Equal(a.Entries, b.Entries)
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ domains, large int }{{1, 0}, {1, 1}, {30, 0}, {3000, 0}, {40, 3}} {
		store := blob.NewMemory()
		list := random(rng, c.domains, c.large)
		info := write(t, store, list)
		if again := write(t, store, list); *again != *info {
			t.Fatalf("%+v and then %+v", info, again)
		}
		x := open(t, store, segment.NewFrameCache(1<<20))
		if err := x.CheckFile(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		i := 0
		for n, err := range x.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if n.Key != list[i].key || !same(n.Node, &list[i].Node) {
				t.Fatalf("node %d of %v (-written +read):\n%s", i, n.Key, gocmp.Diff(list[i].Node, *n.Node))
			}
			i++
		}
		if i != len(list) {
			t.Fatalf("%d nodes of %d", i, len(list))
		}
		for range 300 {
			m := &list[rng.IntN(len(list))]
			path := m.Path
			if rng.IntN(2) == 0 { // a parent, or the domain
				path = path[:bytes.LastIndexByte(path[:len(path)-1], '/')+1]
			}
			k := m.key
			if rng.IntN(20) == 0 {
				k = segment.KeyOf(fmt.Sprint("absent", rng.IntN(100)))
			}
			if rng.IntN(20) == 0 {
				path = append(bytes.Clone(path), "none/"...)
			}
			level := Level(path)
			ranges := []Range{{level + 1, path}, {level + 2, path}, {level, path}}
			want, got := make([][]Node, 3), make([][]Node, 3)
			for i := range list {
				n := &list[i]
				if n.key != k {
					continue
				}
				for j := range ranges {
					if Level(n.Path) == ranges[j].Level && bytes.HasPrefix(n.Path, path) {
						want[j] = append(want[j], n.Node)
					}
				}
			}
			err := x.Read(t.Context(), k, ranges, nil, func(i int, n *Node) error {
				got[i] = append(got[i], clone(n))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			equal := func(a, b []Node) bool {
				return slices.EqualFunc(a, b, func(a, b Node) bool { return same(&a, &b) })
			}
			if !slices.EqualFunc(want, got, equal) {
				t.Fatalf("%q (-brute force +read):\n%s", path, gocmp.Diff(want, got))
			}
		}
	}
}

// However large a domain is, a lookup takes one round of reads.
func TestLookupTakesOneRound(t *testing.T) {
	store := blob.NewMemory()
	list := random(rand.New(rand.NewPCG(3, 4)), 200, 2)
	write(t, store, list)
	counting := blob.NewCounting(store)
	x := open(t, counting, nil)
	for _, m := range list {
		before := counting.Reads().Requests
		err := x.Read(t.Context(), m.key, []Range{{Level(m.Path), m.Path}, {Level(m.Path) + 1, m.Path}}, nil, func(int, *Node) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if n := counting.Reads().Requests - before; n > 2 {
			t.Fatalf("%s: %d requests", m.Path, n)
		}
	}
}

// Each flipped bit, and each truncation, is an error or changes nothing that is read.
func TestDamageIsFound(t *testing.T) {
	store := blob.NewMemory()
	list := random(rand.New(rand.NewPCG(5, 6)), 30, 0)
	list = append(list, random(rand.New(rand.NewPCG(5, 7)), 1, 1)...)
	slices.SortFunc(list, func(a, b made) int { return cmp.Or(segment.CompareKeys(a.key, b.key), comparePaths(a.Path, b.Path)) })
	list = slices.CompactFunc(list, func(a, b made) bool { return a.key == b.key && bytes.Equal(a.Path, b.Path) })
	info := write(t, store, list)
	var whole [2][]byte
	keys := []string{info.Object(), InfoKey(segmentID)}
	for i, key := range keys {
		var err error
		if whole[i], _, err = store.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	read := func() error {
		x, err := Open(t.Context(), store, segmentID, nil)
		if err != nil {
			return err
		}
		i := 0
		for n, err := range x.All(t.Context()) {
			if err != nil {
				return err
			}
			if n.Key != list[i].key || !bytes.Equal(n.Path, list[i].Path) || !slices.Equal(n.Entries, list[i].Entries) {
				t.Fatalf("node %d is %q %+v", i, n.Path, n.Entries)
			}
			i++
		}
		if i != len(list) {
			t.Fatalf("%d nodes of %d", i, len(list))
		}
		return nil
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 9))
	for i, key := range keys {
		tries := min(len(whole[i])*8, 400)
		unnoticed := 0
		for try := range tries {
			bad := bytes.Clone(whole[i])
			bit := rng.IntN(len(bad) * 8)
			if len(bad)*8 == tries {
				bit = try
			}
			if bad[bit/8] ^= 1 << (bit % 8); try%10 == 0 {
				bad = whole[i][:bit/8]
			}
			if _, err := store.Put(t.Context(), key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			err := read()
			if err == nil {
				unnoticed++ // an unused bit of zstd: what was read is right
				x := open(t, store, nil)
				err = x.CheckFile(t.Context(), store)
			}
			if !errors.Is(err, codec.ErrCorrupt) && !codec.IsFormat(err) {
				t.Fatalf("%s, bit %d: %v", key, bit, err)
			}
		}
		if unnoticed > tries/20 {
			t.Errorf("%s: %d of %d damages changed nothing that is read", key, unnoticed, tries)
		}
		if _, err := store.Put(t.Context(), key, whole[i], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), info.Object()); err != nil {
		t.Fatal(err)
	}
	if err := read(); !errors.Is(err, codec.ErrCorrupt) {
		t.Fatalf("without its file: %v", err)
	}
}

func TestWriterRejects(t *testing.T) {
	a, b := segment.KeyOf("a.test"), segment.KeyOf("b.test")
	if segment.CompareKeys(a, b) > 0 {
		a, b = b, a
	}
	entries := []Entry{{Dataset: 1, Counts: Counts{Rows: 1, Direct: 1}}}
	for what, list := range map[string][]made{
		"no entries":              {{a, Node{Path: []byte("a.test/")}}},
		"no slash at the end":     {{a, Node{Path: []byte("a.test"), Entries: entries}}},
		"a slash at the start":    {{a, Node{Path: []byte("/a/"), Entries: entries}}},
		"domains out of order":    {{b, Node{Path: []byte("b.test/"), Entries: entries}}, {a, Node{Path: []byte("a.test/"), Entries: entries}}},
		"a node twice":            {{a, Node{Path: []byte("a.test/"), Entries: entries}}, {a, Node{Path: []byte("a.test/"), Entries: entries}}},
		"levels out of order":     {{a, Node{Path: []byte("a.test/x/"), Entries: entries}}, {a, Node{Path: []byte("b.test/"), Entries: entries}}},
		"a path that is too long": {{a, Node{Path: []byte("a.test/" + strings.Repeat("x", maxPath) + "/"), Entries: entries}}},
	} {
		w := NewWriter(new(bytes.Buffer))
		var err error
		for i := range list {
			if err == nil {
				err = w.Add(list[i].key, &list[i].Node)
			}
		}
		if err == nil {
			_, err = w.Finish()
		}
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A segment without rows has an index without nodes.
func TestIndexWithoutNodes(t *testing.T) {
	store := blob.NewMemory()
	info := write(t, store, nil)
	if info.Nodes != 0 || info.Domains != 0 || info.Entries != 0 || info.Rows != 0 {
		t.Errorf("%+v", info)
	}
	x := open(t, store, nil)
	for n, err := range x.All(t.Context()) {
		t.Errorf("%+v, %v", n, err)
	}
	err := x.Read(t.Context(), segment.KeyOf("a.test"), []Range{{Level: 1}}, nil, func(int, *Node) error {
		t.Error("a node")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := x.CheckFile(t.Context(), store); err != nil {
		t.Error(err)
	}
}

// small is an index of two domains.
func small(t testing.TB) (*Info, *blob.Memory) {
	store := blob.NewMemory()
	node := func(path string, children int64, entries ...Entry) Node {
		return Node{Path: []byte(path), Children: children, Entries: entries}
	}
	list := []made{
		{segment.KeyOf("example.com"), node("example.com/", 1,
			Entry{1, Counts{3, 2, 1, Sum{Lo: 500}}, 1}, Entry{7, Counts{1, 1, 1, Sum{1, 5}}, 0})},
		{segment.KeyOf("example.com"), node("www.example.com/", 0, Entry{1, Counts{Rows: 1, Direct: 1}, 0})},
		{segment.KeyOf("example.com"), node("example.com/a/", 0, Entry{1, Counts{Rows: 1, Direct: 1}, 0})},
		{segment.KeyOf("example.org"), node("example.org/", 0, Entry{2, Counts{300, 300, 300, Sum{Lo: 70000}}, 0})},
	}
	slices.SortStableFunc(list, func(a, b made) int { return segment.CompareKeys(a.key, b.key) })
	return write(t, store, list), store
}

// The dump in testdata shows every byte of a small index's frame, and its document.
func TestGolden(t *testing.T) {
	info, store := small(t)
	x := open(t, store, nil)
	var out strings.Builder
	out.WriteString("# An index of trees (docs/formats/tree.md)\n# Written by go test ./indexbuild/segment/pathtree -run TestGolden -update\n")
	doc, _, err := store.Get(t.Context(), InfoKey(segmentID))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "\n# %s\n\n%s", InfoKey(segmentID), doc)
	for i := range x.frames.Len() {
		data, err := x.frames.Read(t.Context(), x.read, i, i+1)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "\n# %s, frame %d, decompressed\n\n", info.File, i)
		comment(&out, data[0], i == len(x.fences))
	}
	name := filepath.Join("testdata", "tree.txt")
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("(-testdata +now):\n%s", diff)
	}
}

// comment dumps a frame of nodes, or the directory, and says what each field is.
func comment(out *strings.Builder, data []byte, directory bool) {
	d := codec.NewDecoder(data, "frame", "dump")
	at := 0
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%4d  %-44s %s\n", at, hex.EncodeToString(data[at:d.Offset()]), fmt.Sprintf(format, args...))
		at = d.Offset()
	}
	if directory {
		say("%d frames of nodes", d.Uvarint())
	}
	for d.Len() > 0 {
		say("shared with the key before: %d", d.Uvarint())
		n := d.Uvarint()
		say("length of the rest")
		say("%q", d.Bytes(int(n)))
		if directory {
			continue
		}
		entries := d.Uvarint() + 1
		say("%d entries", entries)
		if entries > 1 {
			say("children of the node: %d", d.Uvarint())
		}
		for range entries {
			say("dataset, less the one before: %d", d.Uvarint())
			say("rows: %d", d.Uvarint())
			below := d.Uvarint()
			if say("of them below: %d", below); below > 0 {
				say("children: %d", d.Uvarint())
			}
			sized := d.Uvarint()
			if say("rows with a size: %d", sized); sized > 0 {
				say("sum of sizes: %d", d.Uvarint())
				say("sum of sizes, upper 64 bits: %d", d.Uvarint())
			}
		}
	}
}

// Any bytes are an error or nodes in order, and never a panic.
func FuzzFrames(f *testing.F) {
	_, store := small(f)
	x := open(f, store, nil)
	for i := range 2 {
		data, err := x.frames.Read(f.Context(), x.read, i, i+1)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[0])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var last []byte
		_ = x.decode(0, body, func(key []byte, n *Node) error {
			if !ValidPath(n.Path) || len(n.Entries) == 0 || bytes.Compare(last, key) >= 0 {
				t.Fatalf("node %q after %q", key, last)
			}
			for i := range n.Entries {
				if !n.Entries[i].Valid() || n.Entries[i].Rows < 1 {
					t.Fatalf("%+v", n.Entries[i])
				}
			}
			last = bytes.Clone(key)
			return nil
		})
		_ = new(Index).decodeDirectory(body, 1)
	})
}
