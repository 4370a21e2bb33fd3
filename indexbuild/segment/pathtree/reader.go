package pathtree

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Index is an open index. It is safe for concurrent use, and needs no closing.
type Index struct {
	info   *Info
	object string
	frames *seekable.Frames
	// fences are the directory: of each frame of nodes the beginning of its first key, behind the
	// last key of the frame before.
	fences [][]byte
	memory int64
	read   seekable.RangeReader
	cache  segment.Cache
}

const (
	// framesAtOnce is how many adjacent frames are read and held at once.
	framesAtOnce = 32
	// readBytes is about what a frame takes while it is read: itself, and compressed at most a
	// quarter of that.
	readBytes = frameBytes + frameBytes/4
	// fenceMemory is what a fence takes besides its bytes.
	fenceMemory = 24
)

// Open opens the index of a segment: it reads the document, and the footer and the directory of the
// file. It returns nil if the segment has none. Cache keeps decoded frames; nil keeps none.
func Open(ctx context.Context, store blob.Store, segmentID string, cache segment.Cache) (*Index, error) {
	info, err := ReadInfo(ctx, store, segmentID)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open index of trees: %w", err)
	}
	x := &Index{info: info, object: info.Object(), cache: cache}
	x.read = func(ctx context.Context, off, n int64) ([]byte, error) {
		data, err := readRange(ctx, store, x.object, off, n)
		if errors.Is(err, blob.ErrNotExist) {
			err = codec.Corrupt(x.object, "object", -1, "one that exists, since "+InfoKey(segmentID)+" names it", "none")
		}
		return data, err
	}
	footer, err := strconv.ParseUint(info.FooterXXH64, 16, 64)
	if err != nil {
		return nil, err
	}
	file := seekable.File{Bytes: info.Bytes, FooterBytes: info.FooterBytes, FooterXXH64: footer}
	if x.frames, err = seekable.OpenAt(ctx, x.read, file, x.object, 0); err == nil {
		err = x.readDirectory(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("open index of trees: %w", err)
	}
	return x, nil
}

// OpenFile opens the file of an index of size bytes without its document, which may be gone or name
// another file. Only All may be called.
func OpenFile(ctx context.Context, store blob.Store, object string, size int64) (*Index, error) {
	x := &Index{object: object}
	x.read = func(ctx context.Context, off, n int64) ([]byte, error) { return readRange(ctx, store, object, off, n) }
	var err error
	if x.frames, err = seekable.OpenWithoutFooter(ctx, x.read, size, object, 0); err != nil {
		return nil, err
	}
	return x, x.readDirectory(ctx)
}

func readRange(ctx context.Context, store blob.Store, object string, off, n int64) ([]byte, error) {
	data, err := store.ReadRange(ctx, object, off, n)
	if errors.Is(err, blob.ErrRange) {
		err = codec.Corrupt(object, "file", off, "bytes up to its end", "fewer")
	}
	return data, err
}

// readDirectory reads the fences, which are the last frame.
func (x *Index) readDirectory(ctx context.Context) error {
	last := x.frames.Len() - 1
	if last < 0 {
		return codec.Corrupt(x.object, "directory", -1, "a frame", "none")
	}
	data, err := x.frames.Read(ctx, x.read, last, last+1)
	if err != nil {
		return err
	}
	return x.decodeDirectory(data[0], last)
}

func (x *Index) decodeDirectory(body []byte, frames int) error {
	d := codec.NewDecoder(body, x.object, "directory")
	if n := d.Uvarint(); d.Err() == nil && n != uint64(frames) {
		d.Fail(fmt.Sprintf("%d frames", frames), n)
	}
	var fence []byte
	for range frames {
		if fence = readShared(d, fence); d.Err() != nil {
			break
		}
		x.fences = append(x.fences, bytes.Clone(fence))
		x.memory += fenceMemory + int64(len(fence))
	}
	return d.Close()
}

// Info describes the index. It must not be changed.
func (x *Index) Info() *Info { return x.info }

// MemoryBytes is the memory that the index takes without the cache.
func (x *Index) MemoryBytes() int64 { return x.frames.MemoryBytes() + x.memory + 256 }

// Range is the nodes of one level whose paths have a prefix.
type Range struct {
	Level  int
	Prefix []byte
}

// run is adjacent frames.
type run struct {
	from, to int
	data     [][]byte // of the first ones
}

// runs returns the frames that can have keys that begin with one of some prefixes, in order.
func (x *Index) runs(prefixes [][]byte) (all []run) {
	for _, p := range prefixes {
		from := sort.Search(len(x.fences), func(i int) bool { return bytes.Compare(x.fences[i], p) > 0 })
		to := from + sort.Search(len(x.fences)-from, func(i int) bool { return !bytes.HasPrefix(x.fences[from+i], p) })
		all = append(all, run{from: max(0, from-1), to: to})
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	joined := all[:0]
	for _, r := range all {
		if n := len(joined); n > 0 && r.from < joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, r.to)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// Read calls f for the nodes of some ranges of a domain, in their order, and i tells the range. A
// node is valid until the end of the call. Frames that are not in the cache are read in one round,
// and in further ones where more than framesAtOnce follow each other. Before they are read, reserve
// is called with the bytes of memory that they take until Read returns; nil stands for no limit.
func (x *Index) Read(
	ctx context.Context, k segment.Key, ranges []Range, reserve func(bytes int64) error, f func(i int, n *Node) error,
) error {
	prefixes := make([][]byte, len(ranges))
	for i, r := range ranges {
		prefixes[i] = appendKey(nil, k, r.Level, r.Prefix)
	}
	runs := x.runs(prefixes)
	if err := x.load(ctx, runs, reserve); err != nil {
		return err
	}
	node := func(key []byte, n *Node) error {
		for i, p := range prefixes {
			if bytes.HasPrefix(key, p) {
				if err := f(i, n); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, r := range runs {
		for from := r.from; from < r.to; from += framesAtOnce {
			data := r.data
			if from > r.from {
				var err error
				if data, err = x.frame(ctx, from, min(r.to, from+framesAtOnce)); err != nil {
					return err
				}
			}
			for j := range data {
				if err := x.decode(from+j, data[j], node); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// load reads the first frames of all runs at once.
func (x *Index) load(ctx context.Context, runs []run, reserve func(bytes int64) error) error {
	frames := 0
	for _, r := range runs {
		frames += min(r.to-r.from, framesAtOnce)
	}
	if reserve != nil {
		if err := reserve(int64(frames) * readBytes); err != nil {
			return err
		}
	}
	var panicked atomic.Value
	g, ctx := errgroup.WithContext(ctx)
	for i := range runs {
		g.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					panicked.Store(fmt.Sprint(v))
					err = errPanic
				}
			}()
			r := &runs[i]
			r.data, err = x.frame(ctx, r.from, min(r.to, r.from+framesAtOnce))
			return err
		})
	}
	err := g.Wait()
	if v := panicked.Load(); v != nil {
		panic(v) // whoever calls may recover from it
	}
	return err
}

var errPanic = errors.New("panic")

// frame returns the contents of the frames [lo, hi).
func (x *Index) frame(ctx context.Context, lo, hi int) ([][]byte, error) {
	out := make([][]byte, hi-lo)
	first, last := hi, lo // those that are missing
	for i := lo; i < hi; i++ {
		if x.cache != nil {
			if v, ok := x.cache.Get(segment.CacheKey{Object: x.object, Frame: i}); ok {
				out[i-lo] = v.([]byte)
				continue
			}
		}
		first, last = min(first, i), i+1
	}
	if first >= last {
		return out, nil
	}
	data, err := x.frames.Read(ctx, x.read, first, last)
	if err != nil {
		return nil, err
	}
	for i := first; i < last; i++ {
		body := data[i-first]
		out[i-lo] = body
		if x.cache != nil {
			x.cache.Add(segment.CacheKey{Object: x.object, Frame: i}, body, int64(cap(body)))
		}
	}
	return out, nil
}

// decode calls f for the nodes of frame i, with their keys. Both are valid during the call.
func (x *Index) decode(i int, body []byte, f func(key []byte, n *Node) error) error {
	d := codec.NewDecoder(body, x.object, "frame "+strconv.Itoa(i))
	var n Node
	var key []byte
	for first := true; first || d.Len() > 0 && d.Err() == nil; first = false {
		key = readShared(d, key)
		if d.Err() == nil {
			n.Path = key[min(keyBytes, len(key)):]
			level := Level(n.Path)
			switch {
			case !ValidPath(n.Path) || int(binary.BigEndian.Uint16(key[domainBytes:])) != level:
				d.Fail("the path of a node of the level of its key", "another")
			case first && bytes.Compare(key, x.fences[i]) < 0 || i+1 < len(x.fences) && bytes.Compare(key, x.fences[i+1]) >= 0:
				d.Fail("keys between the fences of the directory", "others")
			}
		}
		readEntries(d, &n)
		if d.Err() != nil {
			break
		}
		if err := f(key, &n); err != nil {
			return err
		}
	}
	return d.Close()
}

// DomainNode is a node and its domain.
type DomainNode struct {
	Key segment.Key
	*Node
}

// All yields all nodes in order, past the cache, and checks all that the document says of them. A
// node is valid until the next one. An error is the last thing that it yields.
func (x *Index) All(ctx context.Context) iter.Seq2[DomainNode, error] {
	return func(yield func(DomainNode, error) bool) {
		if err := x.all(ctx, yield); err != nil && !errors.Is(err, errStop) {
			yield(DomainNode{}, err)
		}
	}
}

var errStop = errors.New("stop")

func (x *Index) all(ctx context.Context, yield func(DomainNode, error) bool) error {
	var sums Totals
	var last segment.Key
	node := func(key []byte, n *Node) error {
		k := segment.Key{ID: binary.BigEndian.Uint64(key), Check: binary.BigEndian.Uint32(key[8:])}
		if sums.Nodes == 0 || k != last {
			sums.Domains++
		}
		last = k
		sums.Nodes++
		sums.Entries += int64(len(n.Entries))
		if Level(n.Path) == 1 {
			for i := range n.Entries {
				sums.Rows += n.Entries[i].Rows
			}
		}
		if !yield(DomainNode{k, n}, nil) {
			return errStop
		}
		return nil
	}
	for i := range x.fences {
		data, err := x.frames.Read(ctx, x.read, i, i+1)
		if err != nil {
			return err
		}
		if err := x.decode(i, data[0], node); err != nil {
			return err
		}
	}
	if x.info != nil && sums != x.info.Totals {
		return codec.Corrupt(InfoKey(x.info.Segment), "counts", -1, fmt.Sprintf("%+v", sums), fmt.Sprintf("%+v", x.info.Totals))
	}
	return nil
}

// CheckFile reads the whole file and compares its hash.
func (x *Index) CheckFile(ctx context.Context, store blob.Store) error {
	in, err := store.Open(ctx, x.object, 0, -1)
	if err != nil {
		return err
	}
	defer in.Close()
	hash := xxhash.New()
	n, err := io.Copy(hash, in)
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%016x", hash.Sum64()); got != x.info.XXH64 || n != x.info.Bytes {
		return codec.Corrupt(x.object, "file", -1, fmt.Sprintf("%d bytes, xxh64 %s", x.info.Bytes, x.info.XXH64), fmt.Sprintf("%d, %s", n, got))
	}
	return nil
}
