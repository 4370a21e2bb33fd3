package prefixtree

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Index is an open index. It is safe for concurrent use until Close. Bytes are hashed before they
// are used for the first time, in blocks of 1 MiB; an index of another program has no hashes of
// blocks, so only Verify finds its damage. Errors about bytes are *codec.CorruptErrors.
type Index struct {
	format Format
	layout *layout
	doc    manifest
	blocks map[string][]uint64 // nil if the index has none
	tiers  []tierEntry

	source source
	files  []*mapped.File // all but those of depths

	end, depth, objects, bytes, maxDepth array
	offsets                              array
	slots                                array   // positions of slots, or packed
	packed                               bool    // with offsets
	positionBits                         int     // of an element of slots, if packed
	tierObjects, tierBytes               []array // by the index in tiers
	blob                                 mappedFile
	hashFile                             mappedFile
	prints                               array // of S3Inv
	depthOffsets, depthPositions         array // of S3Inv

	mu     sync.Mutex
	hash   atomic.Pointer[bbhash.Hash] // nil before the first lookup
	levels []atomic.Pointer[array]     // by depth, nil before their first use; of Seed
}

// source has the files of an index.
type source interface {
	// open opens a file of the given size. An absent file is a *codec.CorruptError.
	open(name string, want mapped.Sums) (*mapped.File, error)
	// size returns the size of a file that the manifest does not name, or false if there is none.
	size(name string) (int64, bool, error)
}

// folder is the source of an index in a folder.
type folder struct {
	dir   string
	store *blob.Local
}

func (d folder) open(name string, want mapped.Sums) (*mapped.File, error) {
	if want.Bytes == 0 { // nothing to map
		return mapped.New(name, nil, want), nil
	}
	f, err := mapped.Open(context.Background(), d.store, name, want, mapped.Options{})
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(name, "file", -1, fmt.Sprintf("%d bytes", want.Bytes), "no file")
	}
	return f, err
}

func (d folder) size(name string) (int64, bool, error) {
	st, err := os.Stat(filepath.Join(d.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return st.Size(), true, nil
}

// ErrNoIndex means that a folder has no manifest.json of an index.
var ErrNoIndex = errors.New("no path-tree index")

// Open opens the index in a folder. It reads the manifest and the hashes of blocks, and checks the
// sizes of all files but those of the depth index, which are opened when they are needed.
func Open(dir string) (*Index, error) {
	store, err := blob.NewLocal(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, manifestName)
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: there is no %s", dir, ErrNoIndex, manifestName)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	return openIndex(dir, doc, folder{dir, store})
}

func openIndex(dir string, doc []byte, from source) (_ *Index, err error) {
	x := &Index{source: from}
	defer func() {
		if err != nil {
			x.Close()
			err = fmt.Errorf("open index %s: %w", dir, err)
		}
	}()
	if err := x.readManifest(doc); err != nil {
		return nil, err
	}
	if err := x.readBlocks(); err != nil {
		return nil, err
	}
	if err := x.openArrays(); err != nil {
		return nil, err
	}
	if err := x.openDepths(); err != nil {
		return nil, err
	}
	return x, x.openTiers()
}

// readManifest decodes the manifest and recognises the format.
func (x *Index) readManifest(data []byte) error {
	if len(data) > maxManifest {
		return codec.Corrupt(manifestName, "file", -1, fmt.Sprintf("at most %d bytes", maxManifest), len(data))
	}
	if err := decodeSealed(data, manifestName, &x.doc); err != nil {
		return err
	}
	bad := func(want string, got any) error { return codec.Corrupt(manifestName, "document", -1, want, got) }
	for _, f := range Formats() {
		if _, ok := x.doc.Files[layouts[f].blob]; ok {
			x.format, x.layout = f, layouts[f]
		}
	}
	switch {
	case x.layout == nil:
		return fmt.Errorf("%w: %s is that of something else", ErrNoIndex, manifestName)
	case x.doc.Version > x.layout.newest():
		return &codec.FormatError{Key: manifestName, Found: x.doc.Version, Known: x.layout.newest()}
	case x.doc.Version < manifestVersion:
		return bad(fmt.Sprintf("version %d or newer", manifestVersion), x.doc.Version)
	case x.doc.NodeCount < 1 || x.doc.NodeCount > MaxNodes:
		return bad(fmt.Sprintf("1 to %d nodes", uint64(MaxNodes)), x.doc.NodeCount)
	case x.doc.MaxDepth > MaxKey:
		return bad(fmt.Sprintf("a depth of at most %d", MaxKey), x.doc.MaxDepth)
	}
	for name, f := range x.doc.Files {
		if f.Size < 0 {
			return bad("the size of "+name, f.Size)
		}
	}
	return nil
}

// sumsOf returns what the manifest says of a file, without its blocks.
func (x *Index) sumsOf(name string) (s mapped.Sums, err error) {
	f, ok := x.doc.Files[name]
	if !ok {
		return s, codec.Corrupt(manifestName, "document", -1, "the file "+name, "none")
	}
	s.Bytes = f.Size
	if !x.layout.sha256 {
		if s.XXH64, err = strconv.ParseUint(f.XXHash64, 16, 64); err != nil {
			err = codec.Corrupt(manifestName, "document", -1, "the xxh64 of "+name, strconv.Quote(f.XXHash64))
		}
	}
	return s, err
}

// readBlocks reads the hashes of blocks, if the index has them.
func (x *Index) readBlocks() (err error) {
	if _, ok := x.doc.Files[blocksName]; !ok {
		return nil
	}
	want, err := x.sumsOf(blocksName)
	if err != nil {
		return err
	}
	f, err := x.source.open(blocksName, want)
	if err != nil {
		return err
	}
	x.files = append(x.files, f)
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f)
	data := f.Data()
	if err := x.checkFile(blocksName, data); err != nil {
		return err
	}
	x.blocks = map[string][]uint64{}
	for _, name := range x.fileNames() {
		n := (x.doc.Files[name].Size + mapped.BlockSize - 1) / mapped.BlockSize
		if name == blocksName {
			continue
		}
		if n > int64(len(data)/8) {
			return codec.Corrupt(blocksName, "file", f.Size(), fmt.Sprintf("%d blocks of %s", n, name), len(data)/8)
		}
		sums := make([]uint64, n)
		for i := range sums {
			sums[i], data = binary.LittleEndian.Uint64(data), data[8:]
		}
		x.blocks[name] = sums
	}
	if len(data) > 0 {
		return codec.Corrupt(blocksName, "file", f.Size()-int64(len(data)), "the end", fmt.Sprintf("%d bytes", len(data)))
	}
	return nil
}

// file opens a file. Those of tiers need not be in the manifest of another program.
func (x *Index) file(name string) (mappedFile, error) {
	want, err := x.sumsOf(name)
	if err != nil && x.blocks == nil && x.format == S3Inv && strings.HasPrefix(name, tierFolder) {
		want.Bytes, err = x.layout.headerBytes()+int64(x.doc.NodeCount)*8, nil
	}
	if err != nil {
		return mappedFile{}, err
	}
	want.Blocks = x.blocks[name]
	f, err := x.source.open(name, want)
	return mappedFile{f, x.blocks != nil}, err
}

// array opens the array of count elements of a file. Any count is right if it is unknownCount.
func (x *Index) array(name string, width, count uint64) (array, error) {
	f, err := x.file(name)
	if err != nil {
		return array{}, err
	}
	x.files = append(x.files, f.File)
	a, err := openArray(f, x.layout, width)
	if err == nil && count != unknownCount && a.count != count {
		err = codec.Corrupt(name, "file", -1, fmt.Sprintf("%d elements", count), a.count)
	}
	return a, err
}

const unknownCount = ^uint64(0)

func (x *Index) openArrays() (err error) {
	n := x.doc.NodeCount
	offsets := n
	if !x.layout.lengths {
		offsets++
	}
	slots := x.layout.positions
	if _, ok := x.doc.Files[x.layout.slots]; ok && x.layout.slots != "" {
		slots, x.packed = x.layout.slots, true
		x.positionBits, _ = positionBits(n, 0)
	}
	for _, a := range []struct {
		to           *array
		name         string
		width, count uint64
	}{
		{&x.end, endName, 8, n},
		{&x.depth, depthName, 4, n},
		{&x.objects, objectsName, 8, n},
		{&x.bytes, bytesName, 8, n},
		{&x.maxDepth, maxDepthName, 4, n},
		{&x.offsets, x.layout.offsets, 8, offsets},
		{&x.slots, slots, 8, unknownCount},
		{&x.prints, x.layout.prints, 8, unknownCount},
	} {
		if a.name == "" {
			continue
		}
		if *a.to, err = x.array(a.name, a.width, a.count); err != nil {
			return err
		}
	}
	if x.slots.count > n || x.layout.prints != "" && x.prints.count != x.slots.count {
		return codec.Corrupt(x.slots.Name(), "file", -1, fmt.Sprintf("at most %d slots", n), x.slots.count)
	}
	for _, f := range []struct {
		to   *mappedFile
		name string
	}{{&x.blob, x.layout.blob}, {&x.hashFile, x.layout.hash}} {
		if *f.to, err = x.file(f.name); err != nil {
			return err
		}
		x.files = append(x.files, f.to.File)
	}
	return nil
}

func (x *Index) openDepths() (err error) {
	if x.layout.depthPositions == "" {
		x.levels = make([]atomic.Pointer[array], x.doc.MaxDepth+1)
		return nil
	}
	if x.depthOffsets, err = x.array(x.layout.depthOffsets, 8, uint64(x.doc.MaxDepth)+2); err != nil {
		return err
	}
	x.depthPositions, err = x.array(x.layout.depthPositions, 8, x.doc.NodeCount)
	return err
}

// openTiers opens the sums by tier.
func (x *Index) openTiers() error {
	x.tiers = x.doc.Tiers
	if x.format == S3Inv {
		doc, err := x.tierDoc()
		if err != nil {
			return err
		}
		x.tiers = doc.Tiers
	}
	for i, t := range x.tiers {
		if int(t.ID) >= tiers || tierNames[t.ID] != [2]string{t.Name, t.File} || i > 0 && x.tiers[i-1].ID >= t.ID && x.blocks != nil {
			return codec.Corrupt(manifestName, "tiers", -1, "known tiers", fmt.Sprintf("%d %q", t.ID, t.Name))
		}
		if x.format == Seed && len(x.tiers) == 1 {
			x.tierObjects, x.tierBytes = []array{x.objects}, []array{x.bytes}
			break
		}
		objects, bytes := tierFiles(t.ID)
		for _, a := range []struct {
			to   *[]array
			name string
		}{{&x.tierObjects, objects}, {&x.tierBytes, bytes}} {
			one, err := x.array(a.name, 8, x.doc.NodeCount)
			if err != nil {
				return err
			}
			*a.to = append(*a.to, one)
		}
	}
	return nil
}

// checkFile compares a whole file with the manifest.
func (x *Index) checkFile(name string, data []byte) error {
	if x.layout.sha256 {
		return checkSHA256(name, data, x.doc.Files[name].Checksum)
	}
	want, err := x.sumsOf(name)
	if err != nil {
		return err
	}
	if got := xxhash.Sum64(data); got != want.XXH64 {
		return codec.Corrupt(name, "file", -1, fmt.Sprintf("xxh64 %016x", want.XXH64), fmt.Sprintf("%016x", got))
	}
	return nil
}

// Close unmaps all files. No other call may be in flight.
func (x *Index) Close() error {
	var all error
	for _, f := range x.files {
		all = errors.Join(all, f.Close())
	}
	for i := range x.levels {
		if a := x.levels[i].Load(); a != nil {
			all = errors.Join(all, a.Close())
		}
	}
	x.files, x.levels = nil, nil
	return all
}

// Format is the encoding.
func (x *Index) Format() Format { return x.format }

// Len is the number of nodes.
func (x *Index) Len() uint64 { return x.doc.NodeCount }

// MaxDepth is the largest depth of a node.
func (x *Index) MaxDepth() uint32 { return x.doc.MaxDepth }

// perfect returns the perfect hash, which it decodes once.
func (x *Index) perfect() (*bbhash.Hash, error) {
	if h := x.hash.Load(); h != nil {
		return h, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.hash.Load(); h != nil {
		return h, nil
	}
	data, err := x.hashFile.slice(0, uint64(x.hashFile.Size()))
	if err != nil {
		return nil, err
	}
	h, err := bbhash.Open(data, x.hashFile.Name())
	if err != nil {
		return nil, err
	}
	if h.Keys() != x.slots.count {
		return nil, codec.Corrupt(x.hashFile.Name(), "perfect hash", -1, fmt.Sprintf("%d slots", x.slots.count), h.Keys())
	}
	x.hash.Store(h)
	return h, nil
}

// Lookup returns the position of the node of a prefix, which is empty or ends in a slash. The first
// call decodes the perfect hash, which takes one or two milliseconds for ten million nodes.
func (x *Index) Lookup(prefix []byte) (pos uint64, ok bool, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	if len(prefix) == 0 {
		// Every index has the root, at position 0.
		if p, err := x.prefix(0); err != nil || len(p) > 0 {
			return 0, false, cmp.Or(err, codec.Corrupt(x.blob.Name(), "prefixes", 0, "the empty prefix first", fmt.Sprintf("%.40q", p)))
		}
		return 0, true, nil
	}
	h := x.hash.Load()
	if h == nil {
		if h, err = x.perfect(); err != nil {
			return 0, false, err
		}
	}
	if slot, found := h.Slot(fnv1a(fnvOffset, prefix)); found {
		pos, p, err := x.atSlot(slot)
		if err != nil || bytes.Equal(p, prefix) {
			return pos, err == nil, err
		}
	}
	if h.Keys() == x.doc.NodeCount {
		return 0, false, nil
	}
	// Some prefixes have the same key as another and no slot.
	return x.search(prefix)
}

// atSlot returns the position and the prefix of a slot.
func (x *Index) atSlot(slot uint64) (pos uint64, prefix []byte, err error) {
	value, err := x.slots.at(slot)
	if err != nil {
		return 0, nil, err
	}
	pos, off, err := x.split(slot, value)
	if err != nil {
		return 0, nil, err
	}
	if x.packed {
		prefix, err = x.prefixAt(off)
	} else {
		prefix, err = x.prefix(pos)
	}
	return pos, prefix, err
}

// split returns the position of a slot that has that value and, if the index is packed, the offset
// of the prefix.
func (x *Index) split(slot, value uint64) (pos, off uint64, err error) {
	pos = value
	if x.packed {
		pos, off = pos&(1<<x.positionBits-1), pos>>x.positionBits
	}
	if pos >= x.doc.NodeCount {
		return 0, 0, x.slots.bad(slot, fmt.Sprintf("a position below %d", x.doc.NodeCount), pos)
	}
	return pos, off, nil
}

// search finds a prefix without the perfect hash.
func (x *Index) search(prefix []byte) (pos uint64, ok bool, err error) {
	from, to := uint64(0), x.doc.NodeCount
	for from < to {
		mid := from + (to-from)/2
		p, err := x.prefix(mid)
		if err != nil {
			return 0, false, err
		}
		switch bytes.Compare(p, prefix) {
		case 0:
			return mid, true, nil
		case -1:
			from = mid + 1
		default:
			to = mid
		}
	}
	return 0, false, nil
}

// prefix returns the mapped bytes of a prefix.
func (x *Index) prefix(pos uint64) ([]byte, error) {
	off, end, err := x.bounds(pos)
	if err != nil {
		return nil, err
	}
	if x.layout.lengths {
		return x.prefixAt(off)
	}
	return x.blob.slice(off, end-off)
}

// prefixAt returns the prefix that follows the length at off.
func (x *Index) prefixAt(off uint64) ([]byte, error) {
	head, err := x.blob.slice(off, lengthBytes)
	if err != nil {
		return nil, err
	}
	return x.blob.slice(off+lengthBytes, uint64(binary.LittleEndian.Uint32(head)))
}

// AppendPrefix appends the prefix of a node to buf.
func (x *Index) AppendPrefix(buf []byte, pos uint64) (_ []byte, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	p, err := x.prefix(pos)
	if err != nil {
		return nil, err
	}
	return append(buf, p...), nil
}
