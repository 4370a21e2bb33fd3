package prefixtree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchIndex builds an index of about a million folders: those of logs by host and day, and of
// uploads below hashes.
func benchIndex(b *testing.B, format Format) *Index {
	b.Helper()
	var objects []object
	for i := range 1_000_000 {
		key := fmt.Sprintf("logs/web-%04d/2026-%02d-%02d/access.log.gz", i/366, i%366/31+1, i%31+1)
		if h := uint64(i) * 0x9e3779b97f4a7c15; i%2 == 0 {
			key = fmt.Sprintf("uploads/%02x/%02x/%012x/original.jpg", h>>56, h>>48&0xff, h&0xffffffffffff)
		}
		objects = append(objects, object{key, uint64(i)})
	}
	dir, _ := build(b, format, objects)
	x, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { x.Close() })
	if err := x.Verify(context.Background(), func(uint64) {}); err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkQueries looks up random folders, lists a hundred children, and finds the ten largest of
// some thousand.
func BenchmarkQueries(b *testing.B) {
	for _, format := range Formats() {
		x := benchIndex(b, format)
		rng := rand.New(rand.NewPCG(3, 3))
		prefixes := make([][]byte, 1<<18)
		for i := range prefixes {
			prefixes[i], _ = x.AppendPrefix(nil, rng.Uint64N(x.Len()))
		}
		b.Run(string(format)+"/lookup", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok, err := x.Lookup(prefixes[i%len(prefixes)]); !ok || err != nil {
					b.Fatal("not found", err)
				}
			}
		})
		pos, _, err := x.Lookup([]byte("logs/"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(format)+"/children", func(b *testing.B) {
			for b.Loop() {
				count := 0
				if err := x.EachChild(pos, func(Node) bool { count++; return count < 100 }); err != nil || count != 100 {
					b.Fatal(count, err)
				}
			}
		})
		b.Run(string(format)+"/top", func(b *testing.B) {
			for b.Loop() {
				l, err := x.Descendants(pos, 1)
				if err != nil {
					b.Fatal(err)
				}
				if top, err := l.Top(context.Background(), 10, ByBytes, Filter{}); err != nil || len(top) != 10 {
					b.Fatal(top, err)
				}
			}
		})
	}
}
