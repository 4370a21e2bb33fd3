package mapped

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/urlake/urlake/internal/testenv"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const key = "a/b.bin"

func sumsOf(data []byte) Sums {
	h := NewHash()
	h.Write(data)
	return h.Sums()
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	return data
}

func put(tb testing.TB, store blob.Store, data []byte) {
	tb.Helper()
	if _, err := store.Put(context.Background(), key, data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
}

// openLocal opens data as a file of a local store and returns the file's path too.
func openLocal(tb testing.TB, data []byte, opt Options) (*File, string) {
	tb.Helper()
	store, err := blob.NewLocal(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	put(tb, store, data)
	f, err := Open(context.Background(), store, key, sumsOf(data), opt)
	if err != nil {
		tb.Fatal(err)
	}
	path, err := store.LocalPath(key)
	if err != nil {
		tb.Fatal(err)
	}
	return f, path
}

// However the bytes arrive, the sums are those of the whole and of each block.
func TestHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, BlockSize - 1, BlockSize, BlockSize + 1, 3*BlockSize + 17} {
		data := randomBytes(size)
		want := Sums{Bytes: int64(size), XXH64: xxhash.Sum64(data)}
		for block := range slices.Chunk(data, BlockSize) {
			want.Blocks = append(want.Blocks, xxhash.Sum64(block))
		}
		h := NewHash()
		for rest := data; len(rest) > 0; {
			n := min(1+rng.IntN(BlockSize*3/2), len(rest))
			h.Write(rest[:n])
			rest = rest[n:]
		}
		got := h.Sums()
		if got.Bytes != want.Bytes || got.XXH64 != want.XXH64 || !slices.Equal(got.Blocks, want.Blocks) {
			t.Errorf("%d bytes: %+v, want %+v", size, got, want)
		}
	}
}

func TestSlice(t *testing.T) {
	data := randomBytes(2*BlockSize + 99)
	f, _ := openLocal(t, data, Options{})
	defer f.Close()
	size := int64(len(data))
	for _, r := range [][2]int64{{0, 0}, {0, 1}, {BlockSize - 1, 2}, {0, size}, {size - 1, 1}, {size, 0}} {
		if got, err := f.Slice(r[0], r[1]); err != nil || !bytes.Equal(got, data[r[0]:r[0]+r[1]]) {
			t.Errorf("%d bytes at %d: %v", r[1], r[0], err)
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, size + 1}, {size, 1}, {size + 1, 0}, {1, 1<<63 - 1}} {
		if _, err := f.Slice(r[0], r[1]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d bytes at %d: %v", r[1], r[0], err)
		}
	}
}

// However often and by however many goroutines the others are checked, a block that nobody has
// checked is not taken for one that was.
func TestEveryBlockIsChecked(t *testing.T) {
	const blocks = 70
	data := make([]byte, blocks*BlockSize-1)
	want := sumsOf(data)
	for last := range int64(2) {
		bad := last * (blocks - 1)
		data[bad*BlockSize] ^= 1
		f := New("f", data, want)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for block := range int64(blocks) {
					if err := f.Check(block*BlockSize, 1); (err == nil) == (block == bad) {
						t.Errorf("block %d, of which %d is damaged: %v", block, bad, err)
					}
				}
			})
		}
		wg.Wait()
		if err := f.Check(0, f.Size()); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("block %d is damaged: %v", bad, err)
		}
		data[bad*BlockSize] ^= 1
		if err := f.Check(0, f.Size()); err != nil {
			t.Error(err)
		}
	}
}

// Only lookups that need a damaged block fail.
func TestDamagedBlock(t *testing.T) {
	data := randomBytes(2*BlockSize + 99)
	want := sumsOf(data)
	data[BlockSize+5] ^= 4
	f := New("f", data, want)
	if _, err := f.Slice(0, BlockSize); err != nil {
		t.Error(err)
	}
	if _, err := f.Slice(2*BlockSize, 99); err != nil {
		t.Error(err)
	}
	var c *codec.CorruptError
	if _, err := f.Slice(BlockSize-1, 2); !errors.As(err, &c) || c.File != "f" || c.Offset != BlockSize {
		t.Errorf("a slice of the damaged block: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A copy is fetched once, and damaged blocks of it are repaired from the store.
func TestCopy(t *testing.T) {
	data := randomBytes(2*BlockSize + 99)
	memory := blob.NewMemory()
	put(t, memory, data)
	store := blob.NewCounting(memory)
	opt := Options{CacheDir: filepath.Join(t.TempDir(), "cache"), CopyName: "copy"}
	open := func() *File {
		t.Helper()
		f, err := Open(context.Background(), store, key, sumsOf(data), opt)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if err := open().Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(opt.CacheDir, opt.CopyName)
	bad := bytes.Clone(data)
	bad[BlockSize] ^= 1
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	before := store.Reads().Requests
	f := open()
	if got, err := f.Slice(0, f.Size()); err != nil || !bytes.Equal(got, data) {
		t.Errorf("a copy with one damaged block: %v", err)
	}
	if n := store.Reads().Requests - before; n != 1 {
		t.Errorf("%d reads repaired one block, want 1", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy is still damaged (%v)", err)
	}
	if _, err := Open(context.Background(), store, key, sumsOf(data), Options{}); err == nil {
		t.Error("opened without a cache directory")
	}
	opt.CopyName = "other"
	if _, err := Open(context.Background(), store, "absent", sumsOf(data), opt); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("an absent object: %v", err)
	}
	if _, err := Open(context.Background(), store, key, sumsOf(bad), opt); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("an object with another hash: %v", err)
	}
}

// Reading behind the end of a truncated file is an error under Guard, not the end of the process.
func TestGuard(t *testing.T) {
	f, path := openLocal(t, randomBytes(BlockSize), Options{})
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		testenv.Missing(t, "a system that truncates mapped files: "+err.Error())
	}
	read := func() (err error) {
		defer Guard(debug.SetPanicOnFault(true), &err, nil, f)
		_, err = f.Slice(100, 1)
		return err
	}
	var c *codec.CorruptError
	if err := read(); !errors.As(err, &c) || c.File != key {
		t.Errorf("read of a truncated file: %v", err)
	}
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v, want the other panic", r)
		}
	}()
	func() {
		var err error
		defer Guard(debug.SetPanicOnFault(true), &err, f)
		panic("other")
	}()
}
