package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	mmap "github.com/edsrzf/mmap-go"
	"github.com/gofrs/flock"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// mapBlock is the unit in which mapped files are checked: reading it costs about as much as
// hashing it, and its hash takes a few bytes of segment.json.
const mapBlock = mph.BlockSize

// repairTimeout bounds the read of one block from the store in the middle of a lookup.
const repairTimeout = 30 * time.Second

// mapped is a file mapped into memory. No byte of it is used before the block that holds it
// was hashed.
type mapped struct {
	name string
	data mmap.MMap
	sums []uint64
	seen []atomic.Uint64 // a bit for each block
	// repair writes block i of the object over that of the copy that is mapped; nil where that
	// is the object itself.
	repair func(i int64) error
	// resident bounds what of it is resident; nil does not.
	resident *Residency
}

// mapFile maps the file at path, which must have f's size.
func mapFile(path, name string, f *File) (*mapped, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != f.Bytes {
		return nil, codec.Corrupt(name, "file", -1, fmt.Sprintf("%d bytes", f.Bytes), st.Size())
	}
	data, err := mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &mapped{name: name, data: data, sums: f.blocks, seen: make([]atomic.Uint64, len(f.blocks)/64+1)}, nil
}

// bytes returns n bytes from off, checked. They live until close.
func (m *mapped) bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > int64(len(m.data)) || n > int64(len(m.data))-off {
		return nil, codec.Corrupt(m.name, "file", off, fmt.Sprintf("%d bytes", n), fmt.Sprintf("a file of %d", len(m.data)))
	}
	if err := m.check(off, n); err != nil {
		return nil, err
	}
	return m.data[off : off+n : off+n], nil
}

// check has the blocks hashed that hold the n bytes at off and were not before.
func (m *mapped) check(off, n int64) error {
	if n == 0 {
		return nil
	}
	for i := off / mapBlock; i <= (off+n-1)/mapBlock; i++ {
		bit := uint64(1) << (i % 64)
		if m.seen[i/64].Load()&bit != 0 {
			continue
		}
		got := m.hash(i)
		if got != m.sums[i] && m.repair != nil {
			if err := m.repair(i); err != nil {
				return fmt.Errorf("repair block %d of the copy of %s: %w", i, m.name, err)
			}
			got = m.hash(i)
		}
		if got != m.sums[i] {
			return corruptBlock(m.name, i, m.sums[i], got)
		}
		m.seen[i/64].Or(bit)
		if m.resident != nil {
			// Hashing has touched all of the block, a lookup needs a few bytes of it.
			from, to := m.block(i)
			dropResident(m.data[from:to])
		}
	}
	return nil
}

// block is the place of block i.
func (m *mapped) block(i int64) (from, to int64) {
	return i * mapBlock, min((i+1)*mapBlock, int64(len(m.data)))
}

func (m *mapped) hash(i int64) uint64 {
	from, to := m.block(i)
	return xxhash.Sum64(m.data[from:to])
}

func corruptBlock(name string, i int64, want, got uint64) error {
	return codec.Corrupt(name, fmt.Sprintf("block %d", i), i*mapBlock, fmt.Sprintf("xxh64 %016x", want), fmt.Sprintf("%016x", got))
}

// checkEnds checks the first block and the last two: what mph.Open reads.
func (m *mapped) checkEnds() error {
	size := int64(len(m.data))
	if err := m.check(0, min(1, size)); err != nil {
		return err
	}
	from := max(0, (size-1)/mapBlock-1) * mapBlock
	return m.check(from, size-from)
}

// guard is to be deferred by what reads mapped memory, with the result of debug.SetPanicOnFault(true). A file that was
// cut after it was mapped has no memory behind its end: touching it is a fault (SIGBUS) that would
// end the process with all its requests. It becomes a corruption error instead. The
// setting is one of the goroutine, so it is put back.
func guard(previous bool, err *error, files ...*mapped) {
	debug.SetPanicOnFault(previous)
	switch r := recover().(type) {
	case nil:
	case interface {
		error
		Addr() uintptr
	}:
		for _, m := range files {
			if m == nil || len(m.data) == 0 {
				continue
			}
			if off := r.Addr() - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))); off < uintptr(len(m.data)) {
				*err = codec.Corrupt(m.name, "file", int64(off), fmt.Sprintf("%d bytes", len(m.data)), "a file cut since it was opened")
				return
			}
		}
		panic(r)
	default:
		panic(r)
	}
}

func (m *mapped) close() error {
	if m == nil || m.data == nil {
		return nil
	}
	if m.resident != nil {
		m.resident.remove(m)
	}
	return m.data.Unmap()
}

// openMapped maps an object: in place where the store has files, else a copy in dir.
func openMapped(ctx context.Context, store blob.Store, key string, f *File, dir, id string) (*mapped, error) {
	if local, ok := blob.AsLocalFiler(store); ok {
		path, err := local.LocalPath(key)
		if err != nil {
			return nil, err
		}
		m, err := mapFile(path, key, f)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("map %s: %w", key, blob.ErrNotExist)
		}
		return m, err
	}
	if dir == "" {
		return nil, fmt.Errorf("map %s: a store without files needs a cache directory", key)
	}
	path := filepath.Join(dir, cacheName(id, f))
	m, err := mapFile(path, key, f)
	if err != nil {
		// Absent, or not whole: fetched anew.
		if err := fetch(ctx, store, key, f, dir, path); err != nil {
			return nil, fmt.Errorf("fetch %s: %w", key, err)
		}
		if m, err = mapFile(path, key, f); err != nil {
			return nil, err
		}
	}
	// A lookup that meets a bad block has no context; it gets its own, and this one's values.
	ctx = context.WithoutCancel(ctx)
	m.repair = func(i int64) error {
		ctx, cancel := context.WithTimeout(ctx, repairTimeout)
		defer cancel()
		return repair(ctx, store, m, i, path)
	}
	return m, nil
}

// repair reads block i from the store and writes it into the copy, whose mapping shows it.
func repair(ctx context.Context, store blob.Store, m *mapped, i int64, path string) error {
	from, to := m.block(i)
	data, err := store.ReadRange(ctx, m.name, from, to-from)
	if err != nil {
		return err
	}
	if got := xxhash.Sum64(data); got != m.sums[i] {
		return corruptBlock(m.name, i, m.sums[i], got)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, from)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// cacheName is the name of a file's copy. The hash is in it, so that a copy of anything else
// is never taken for it.
func cacheName(id string, f *File) string {
	return id + "-" + f.XXH64 + "-" + f.Name
}

const tempPrefix = "fetch-"

// fetch copies an object to path. It appears there whole and checked, or not at all.
func fetch(ctx context.Context, store blob.Store, key string, f *File, dir, path string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, tempPrefix+"*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	// Held until the file is in place: PruneCache removes temporary files that nobody holds.
	lock := flock.New(tmp.Name())
	if _, err := lock.TryLock(); err != nil {
		return err
	}
	defer lock.Close()

	r, err := store.Open(ctx, key, 0, f.Bytes)
	if err != nil {
		return err
	}
	h := newBlockHash()
	_, err = io.Copy(io.MultiWriter(tmp, h), r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if got := h.file(""); got.XXH64 != f.XXH64 {
		return codec.Corrupt(key, "file", -1, "xxh64 "+f.XXH64, got.XXH64)
	}
	// A crash must not leave a name on bytes that were never written.
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// PruneCache removes from a cache directory the copies of all segments but those in keep, and
// what processes that died while fetching have left. Files of other names stay. A segment
// that is open keeps its bytes where the system lets mapped files be removed; where it does
// not, they stay until the next call.
func PruneCache(dir string, keep []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, id := range keep {
		kept[id] = true
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(dir, name)
		switch {
		case strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, ".tmp"):
			// An empty one may have been made just now and not be locked yet.
			if st, err := e.Info(); err != nil || st.Size() == 0 {
				continue
			}
			lock := flock.New(path)
			if free, err := lock.TryLock(); err == nil && free {
				_ = os.Remove(path)
			}
			lock.Close()
		case isCacheName(name) && !kept[name[:idDigits]]:
			_ = os.Remove(path)
		}
	}
	return nil
}

func isCacheName(name string) bool {
	const sum = 16
	if len(name) <= idDigits+sum+2 || name[idDigits] != '-' || name[idDigits+1+sum] != '-' {
		return false
	}
	file := name[idDigits+sum+2:]
	return checkHex(name[:idDigits], idDigits) && (file == MPHFName || file == MembershipName)
}

// blockHash hashes a file as a whole and block by block.
type blockHash struct {
	whole, block xxhash.Digest
	n            int64
	blocks       []uint64
}

func newBlockHash() *blockHash {
	h := &blockHash{}
	h.whole.Reset()
	h.block.Reset()
	return h
}

func (h *blockHash) Write(p []byte) (int, error) {
	n := len(p)
	h.whole.Write(p)
	for len(p) > 0 {
		k := min(int64(len(p)), mapBlock-h.n%mapBlock)
		h.block.Write(p[:k])
		p = p[k:]
		if h.n += k; h.n%mapBlock == 0 {
			h.blocks = append(h.blocks, h.block.Sum64())
			h.block.Reset()
		}
	}
	return n, nil
}

// file describes what was written.
func (h *blockHash) file(name string) File {
	f := File{Name: name, Bytes: h.n, XXH64: formatSum(h.whole.Sum64()), blocks: h.blocks}
	if h.n%mapBlock != 0 {
		f.blocks = append(f.blocks[:len(f.blocks):len(f.blocks)], h.block.Sum64())
	}
	var b strings.Builder
	for _, s := range f.blocks {
		b.WriteString(formatSum(s))
	}
	f.BlockXXH64 = b.String()
	return f
}
