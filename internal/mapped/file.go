// Package mapped holds immutable files that are mapped into memory. Every byte that it hands out
// was hashed first, block by block, against hashes that the caller brings; a block that does not
// match is a *codec.CorruptError, and so is a file that was truncated while it was mapped. Package
// indexbuild/segment reads its mapped files through it, and serve/lookup bounds with a Residency
// how much of them stays resident.
//
// Whoever opens a File owns its mapping. Slices of it are valid until Close, which must not be
// called while any other call on the File is in flight or a slice of it is in use. Code that reads
// mapped bytes runs under Guard.
package mapped

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	mmap "github.com/edsrzf/mmap-go"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// BlockSize is the unit in which files are checked. Reading a block from disk costs about as much
// as hashing it, and its hash takes only a few bytes wherever hashes are stored.
const BlockSize = 1 << 20

// File is a file mapped into memory. It is safe for concurrent use until Close.
type File struct {
	name    string
	data    []byte
	mapping mmap.MMap // nil where the caller of New owns data
	want    []uint64  // hashes of the blocks
	checked []atomic.Uint64
	// unchecked is the number of blocks without a bit in checked.
	unchecked atomic.Int64
	// repair replaces a block of the mapped copy with the object's; nil where the object itself
	// is mapped.
	repair    func(block int64) error
	residency *Residency
}

// Options are options of Open.
type Options struct {
	// CacheDir holds copies of objects whose store does not keep them in files. CopyName is the
	// base name of this object's copy. It must differ for objects of different content.
	CacheDir, CopyName string
	// Residency bounds the resident memory of all files opened with it; nil sets no bound.
	Residency *Residency
}

// Open maps the object with that key, whose size must be want.Bytes. A store that keeps objects in
// files has the object's own file mapped. For other stores Open maps a copy in opt.CacheDir, which
// it fetches unless the copy is there. Blocks of a copy that turn out to be damaged are repaired
// from the store.
func Open(ctx context.Context, store blob.Store, key string, want Sums, opt Options) (*File, error) {
	f, err := open(ctx, store, key, want, opt)
	if err != nil {
		return nil, err
	}
	if f.residency = opt.Residency; f.residency != nil {
		f.residency.add(f)
	}
	return f, nil
}

func open(ctx context.Context, store blob.Store, key string, want Sums, opt Options) (*File, error) {
	if local, ok := blob.AsLocalFiler(store); ok {
		path, err := local.LocalPath(key)
		if err != nil {
			return nil, err
		}
		f, err := mapFile(path, key, want)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("map %s: %w", key, blob.ErrNotExist)
		}
		return f, err
	}
	if opt.CacheDir == "" {
		return nil, fmt.Errorf("map %s: a store without files needs a cache directory", key)
	}
	path := filepath.Join(opt.CacheDir, opt.CopyName)
	f, err := mapFile(path, key, want)
	if err != nil { // no copy, or one of another size
		if err := fetch(ctx, store, key, want, path); err != nil {
			return nil, fmt.Errorf("fetch %s: %w", key, err)
		}
		if f, err = mapFile(path, key, want); err != nil {
			return nil, err
		}
	}
	// A lookup that meets a damaged block has no context. It gets a deadline of its own, and the
	// values of this context.
	ctx = context.WithoutCancel(ctx)
	f.repair = func(block int64) error {
		ctx, cancel := context.WithTimeout(ctx, repairTimeout)
		defer cancel()
		return f.repairCopy(ctx, store, block, path)
	}
	return f, nil
}

// mapFile maps the file at path. Errors call it name.
func mapFile(path, name string, want Sums) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != want.Bytes {
		return nil, codec.Corrupt(name, "file", -1, fmt.Sprintf("%d bytes", want.Bytes), st.Size())
	}
	data, err := mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	f := New(name, data, want)
	f.mapping = data
	return f, nil
}

// New returns a File over memory that the caller owns and does not change. Close does nothing to
// that memory.
func New(name string, data []byte, want Sums) *File {
	f := &File{name: name, data: data, want: want.Blocks}
	f.checked = make([]atomic.Uint64, len(want.Blocks)/64+1)
	f.unchecked.Store((int64(len(data)) + BlockSize - 1) / BlockSize)
	return f
}

// Name is the key of the file's object.
func (f *File) Name() string { return f.name }

// Size is the file's size in bytes.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Data is the whole file, unchecked: Check a range before its bytes are used.
func (f *File) Data() []byte { return f.data }

// Slice returns n bytes at off, checked.
func (f *File) Slice(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > f.Size() || n > f.Size()-off {
		got := fmt.Sprintf("a file of %d", f.Size())
		return nil, codec.Corrupt(f.name, "file", off, fmt.Sprintf("%d bytes", n), got)
	}
	if err := f.Check(off, n); err != nil {
		return nil, err
	}
	return f.data[off : off+n : off+n], nil
}

// Check hashes the blocks that hold the n bytes at off, unless that was done before. The range must
// be within the file, which is not checked: see Slice. A damaged block of a copy is repaired.
func (f *File) Check(off, n int64) error {
	if n == 0 || f.unchecked.Load() == 0 {
		return nil
	}
	return f.check(off, n)
}

func (f *File) check(off, n int64) error {
	for block := off / BlockSize; block <= (off+n-1)/BlockSize; block++ {
		bit := uint64(1) << (block % 64)
		if f.checked[block/64].Load()&bit != 0 {
			continue
		}
		got := f.hash(block)
		if got != f.want[block] && f.repair != nil {
			if err := f.repair(block); err != nil {
				return fmt.Errorf("repair block %d of the copy of %s: %w", block, f.name, err)
			}
			got = f.hash(block)
		}
		if got != f.want[block] {
			return f.corrupt(block, got)
		}
		if f.checked[block/64].Or(bit)&bit == 0 {
			f.unchecked.Add(-1)
		}
		if f.residency != nil {
			// Hashing made the whole block resident; a lookup needs only a few bytes of it.
			from, to := f.bounds(block)
			dropResident(f.data[from:to])
		}
	}
	return nil
}

// bounds returns the offsets at which a block starts and ends.
func (f *File) bounds(block int64) (from, to int64) {
	return block * BlockSize, min((block+1)*BlockSize, f.Size())
}

func (f *File) hash(block int64) uint64 {
	from, to := f.bounds(block)
	return xxhash.Sum64(f.data[from:to])
}

func (f *File) corrupt(block int64, got uint64) error {
	want := fmt.Sprintf("xxh64 %016x", f.want[block])
	return codec.Corrupt(f.name, fmt.Sprintf("block %d", block), block*BlockSize, want, fmt.Sprintf("%016x", got))
}

// Touch counts a lookup in the file. Once in a while the Residency it was opened with then trims
// the resident memory.
func (f *File) Touch() { f.residency.touch() }

// Close unmaps the file. Closing a nil File does nothing.
func (f *File) Close() error {
	if f == nil || f.mapping == nil {
		return nil
	}
	if f.residency != nil {
		f.residency.remove(f)
	}
	return f.mapping.Unmap()
}

// Guard turns a fault in the memory of files into a *codec.CorruptError in *err. Functions that
// read mapped bytes defer it like this:
//
//	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f)
//
// A file that is truncated after it was mapped has no memory behind its new end: touching that
// memory is a fault (SIGBUS), which would end the process. The setting belongs to the goroutine, so
// Guard restores previous. Other panics pass through. Nil files are ignored.
func Guard(previous bool, err *error, files ...*File) {
	debug.SetPanicOnFault(previous)
	switch r := recover().(type) {
	case nil:
	case interface {
		error
		Addr() uintptr
	}:
		for _, f := range files {
			if f == nil || len(f.data) == 0 {
				continue
			}
			off := r.Addr() - uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
			if off < uintptr(len(f.data)) {
				want := fmt.Sprintf("%d bytes", len(f.data))
				*err = codec.Corrupt(f.name, "file", int64(off), want, "a file cut since it was opened")
				return
			}
		}
		panic(r)
	default:
		panic(r)
	}
}
