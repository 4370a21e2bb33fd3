package pathtree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
	read   seekable.RangeReader
	cache  segment.Cache
}

const (
	// framesAtOnce is how many adjacent frames are read and held at once.
	framesAtOnce = 32
	// readBytes is about what a frame takes while it is read: itself, and compressed at most a
	// quarter of that.
	readBytes = frameBytes + frameBytes/4
)

// Open opens the index of a segment: it reads the document, and the footer of the file. It returns
// nil if the segment has none. Cache keeps decoded frames; nil keeps none.
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
	if x.frames, err = seekable.OpenAt(ctx, x.read, file, x.object, fenceBytes); err != nil {
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
	x.frames, err = seekable.OpenWithoutFooter(ctx, x.read, size, object, fenceBytes)
	return x, err
}

func readRange(ctx context.Context, store blob.Store, object string, off, n int64) ([]byte, error) {
	data, err := store.ReadRange(ctx, object, off, n)
	if errors.Is(err, blob.ErrRange) {
		err = codec.Corrupt(object, "file", off, "bytes up to its end", "fewer")
	}
	return data, err
}

// Info describes the index. It must not be changed.
func (x *Index) Info() *Info { return x.info }

// MemoryBytes is the memory that the index takes without the cache.
func (x *Index) MemoryBytes() int64 { return x.frames.MemoryBytes() + 256 }

// Range is the nodes of one level whose paths have a prefix.
type Range struct {
	Level  int
	Prefix []byte
}

// compare is 0 if the range has a node, negative if nodes of the range are only behind it, and else
// positive.
func (r *Range) compare(level int, path []byte) int {
	switch {
	case level < r.Level:
		return -1
	case level > r.Level:
		return 1
	case bytes.HasPrefix(path, r.Prefix):
		return 0
	}
	return bytes.Compare(path, r.Prefix)
}

// Read calls f for the nodes of some ranges of a domain, one range after the other, and i tells the
// range. A node is valid until the end of the call. Frames that are not in the cache are read in
// two rounds, and in further ones of ranges that have more than framesAtOnce. Before the nodes are
// read, reserve is called with the bytes of memory that they take until Read returns; nil stands
// for no limit.
func (x *Index) Read(
	ctx context.Context, k segment.Key, ranges []Range, reserve func(bytes int64) error, f func(i int, n *Node) error,
) error {
	var first, last [fenceBytes]byte
	putFence(&first, k, 0)
	putFence(&last, k, 1<<32-1)
	lo, hi := x.frames.Find(first[:], last[:])
	if lo == hi {
		return nil
	}
	if reserve == nil {
		reserve = func(int64) error { return nil }
	}
	if hi-lo == 1 || !bytes.Equal(x.frames.Fence(lo), first[:]) {
		if err := reserve(readBytes); err != nil {
			return err
		}
		return x.readShared(ctx, k, lo, ranges, f)
	}
	parts, err := x.directory(ctx, k, lo, hi-1)
	if err != nil {
		return err
	}
	runs := make([]run, len(ranges))
	frames := 0
	for i := range ranges {
		runs[i] = findRun(parts, &ranges[i])
		frames += min(runs[i].to-runs[i].from, framesAtOnce)
	}
	if err := reserve(int64(frames) * readBytes); err != nil {
		return err
	}
	var panicked atomic.Value
	g, gctx := errgroup.WithContext(ctx)
	for i := range ranges {
		g.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					panicked.Store(fmt.Sprint(v))
					err = errPanic
				}
			}()
			from, to := lo+runs[i].from, lo+min(runs[i].to, runs[i].from+framesAtOnce)
			runs[i].data, err = x.frame(gctx, from, to)
			return err
		})
	}
	err = g.Wait()
	if v := panicked.Load(); v != nil {
		panic(v) // whoever calls may recover from it
	}
	if err != nil {
		return err
	}
	for i := range ranges {
		if err := x.readRun(ctx, k, lo, parts, &runs[i], &ranges[i], func(n *Node) error { return f(i, n) }); err != nil {
			return err
		}
	}
	return nil
}

var errPanic = errors.New("panic")

// run is the frames of a large domain that have a range, by their numbers in its directory.
type run struct {
	from, to int
	data     [][]byte // of the first ones
}

// findRun finds the frames of a range. It begins in the last frame that begins before it, and ends
// before the first one that begins behind it.
func findRun(parts []directoryEntry, r *Range) run {
	from := sort.Search(len(parts), func(j int) bool { return r.compare(parts[j].level, parts[j].first) >= 0 }) - 1
	to := sort.Search(len(parts), func(j int) bool { return r.compare(parts[j].level, parts[j].first) > 0 })
	return run{from: min(max(0, from), to), to: to}
}

// readRun calls f for the nodes of a range. The frames of its domain begin with frame lo.
func (x *Index) readRun(
	ctx context.Context, k segment.Key, lo int, parts []directoryEntry, at *run, r *Range, f func(n *Node) error,
) (err error) {
	for from := at.from; from < at.to; from += framesAtOnce {
		data := at.data
		if from > at.from {
			if data, err = x.frame(ctx, lo+from, lo+min(at.to, from+framesAtOnce)); err != nil {
				return err
			}
		}
		for j := range data {
			err := x.decodeNodes(lo+from+j, data[j], k, &parts[from+j], func(n *Node) error {
				if r.compare(Level(n.Path), n.Path) != 0 {
					return nil
				}
				return f(n)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// readShared is Read for a domain that frame i has if any has.
func (x *Index) readShared(ctx context.Context, k segment.Key, i int, ranges []Range, f func(i int, n *Node) error) error {
	data, err := x.frame(ctx, i, i+1)
	if err != nil {
		return err
	}
	if len(data[0]) > 0 && data[0][0] != kindDomains {
		return nil // of a large domain before this one
	}
	return x.decodeDomains(i, data[0], func(at segment.Key, n *Node) error {
		if at != k {
			return nil
		}
		level := Level(n.Path)
		for j := range ranges {
			if ranges[j].compare(level, n.Path) == 0 {
				if err := f(j, n); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// frame returns the checked contents of the frames [lo, hi).
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
		body, err := codec.CheckCRC32C(data[i-first], x.object, section(i))
		if err != nil {
			return nil, err
		}
		out[i-lo] = body
		if x.cache != nil {
			x.cache.Add(segment.CacheKey{Object: x.object, Frame: i}, body, int64(cap(body)))
		}
	}
	return out, nil
}

func section(i int) string { return "frame " + strconv.Itoa(i) }

// begin checks the kind of frame i, and its fence with the key that it begins with and its number.
func (x *Index) begin(i int, body []byte, kind uint8) (d *codec.Decoder, k segment.Key) {
	d = codec.NewDecoder(body, x.object, section(i))
	if got := d.U8(); d.Err() == nil && got != kind {
		d.Fail(fmt.Sprintf("a frame of kind %d", kind), got)
	}
	if kind != kindDomains {
		k = readKey(d)
	}
	return d, k
}

// checkFence checks the fence of frame i, which is number n of those that begin with k.
func (x *Index) checkFence(i int, k segment.Key, n int) error {
	var want [fenceBytes]byte
	putFence(&want, k, uint32(n))
	if got := x.frames.Fence(i); !bytes.Equal(got, want[:]) {
		return codec.Corrupt(x.object, section(i), -1, fmt.Sprintf("fence %x", want), fmt.Sprintf("%x", got))
	}
	return nil
}

// decodeDomains calls f for the nodes of all domains of frame i.
func (x *Index) decodeDomains(i int, body []byte, f func(k segment.Key, n *Node) error) error {
	d, _ := x.begin(i, body, kindDomains)
	var last segment.Key
	var n Node
	for domains := 0; d.Err() == nil && (domains == 0 || d.Len() > 0); domains++ {
		k := readKey(d)
		if d.Err() == nil && domains > 0 && segment.CompareKeys(last, k) >= 0 {
			d.Fail("ascending domains", fmt.Sprintf("%016x", k.ID))
		}
		if last = k; domains == 0 && d.Err() == nil {
			if err := x.checkFence(i, k, 0); err != nil {
				return err
			}
		}
		if err := readNodes(d, &n, func() error { return f(k, &n) }); err != nil {
			return err
		}
	}
	return d.Close()
}

// readNodes calls f for each of the nodes that follow, whose number comes first.
func readNodes(d *codec.Decoder, n *Node, f func() error) error {
	count := int(d.Uint(uint64(d.Len() / minNode)))
	if d.Err() == nil && count == 0 {
		d.Fail("nodes", "none")
	}
	n.Path = n.Path[:0]
	var spare []byte
	for j := range count {
		readNode(d, n, &spare, j == 0)
		if d.Err() != nil {
			break
		}
		if err := f(); err != nil {
			return err
		}
	}
	return d.Err()
}

// decodeNodes calls f for the nodes of frame i, which are those of a domain that p describes.
func (x *Index) decodeNodes(i int, body []byte, k segment.Key, p *directoryEntry, f func(n *Node) error) error {
	d, got := x.begin(i, body, kindNodes)
	if d.Err() == nil && got != k {
		d.Fail(fmt.Sprintf("domain %016x", k.ID), fmt.Sprintf("%016x", got.ID))
	}
	var n Node
	count := int64(0)
	err := readNodes(d, &n, func() error {
		if count++; count == 1 && (Level(n.Path) != p.level || bytes.Compare(n.Path, p.first) < 0) {
			d.Fail("a first node as in the directory", "another")
			return d.Err()
		}
		return f(&n)
	})
	if err == nil && count != p.nodes {
		d.Fail(fmt.Sprintf("%d nodes", p.nodes), count)
	}
	if err != nil {
		return err
	}
	return d.Close()
}

// directory reads the directory of a large domain, which has the frames [lo, at). It is frame at.
func (x *Index) directory(ctx context.Context, k segment.Key, lo, at int) ([]directoryEntry, error) {
	data, err := x.frame(ctx, at, at+1)
	if err != nil {
		return nil, err
	}
	return x.decodeDirectory(at, data[0], k, at-lo)
}

func (x *Index) decodeDirectory(at int, body []byte, k segment.Key, frames int) ([]directoryEntry, error) {
	if err := x.checkFence(at, k, frames); err != nil {
		return nil, err
	}
	d, got := x.begin(at, body, kindDirectory)
	n := int(d.Uint(uint64(d.Len() / 3)))
	if d.Err() == nil && (got != k || n != frames) {
		d.Fail(fmt.Sprintf("%d frames of domain %016x", frames, k.ID), fmt.Sprintf("%d of %016x", n, got.ID))
	}
	parts := make([]directoryEntry, 0, n)
	for j := range n {
		p := directoryEntry{level: int(d.Uint(maxPath))}
		p.first = d.Bytes(int(d.Uint(maxPath)))
		p.nodes = int64(d.Uint(1 << 40))
		if d.Err() != nil {
			break
		}
		if j > 0 && (p.level < parts[j-1].level || p.level == parts[j-1].level && bytes.Compare(p.first, parts[j-1].first) <= 0) ||
			p.level < 1 || len(p.first) == 0 || p.nodes < 1 {
			d.Fail("ascending frames with nodes", fmt.Sprintf("frame %d of %d", j, n))
			break
		}
		parts = append(parts, p)
	}
	return parts, d.Close()
}

// DomainNode is a node and its domain.
type DomainNode struct {
	Key segment.Key
	*Node
}

// All yields all nodes in order, past the cache, and checks all that the document and the
// directories say of them. A node is valid until the next one. An error is the last thing that it
// yields.
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
	node := func(k segment.Key, n *Node) error {
		switch c := segment.CompareKeys(last, k); {
		case sums.Nodes == 0 || c < 0:
			sums.Domains++
		case c > 0:
			return codec.Corrupt(x.object, "frames", -1, "ascending domains", fmt.Sprintf("%016x", k.ID))
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
	uncached := *x
	uncached.cache = nil
	for i := 0; i < x.frames.Len(); {
		data, err := uncached.frame(ctx, i, i+1)
		if err != nil {
			return err
		}
		if len(data[0]) > 0 && data[0][0] == kindDomains {
			if err := x.decodeDomains(i, data[0], node); err != nil {
				return err
			}
			i++
			continue
		}
		d, k := x.begin(i, data[0], kindNodes)
		if d.Err() != nil {
			return d.Err()
		}
		if err := x.checkFence(i, k, 0); err != nil {
			return err
		}
		end := i + 1 // behind the domain's frames
		for end < x.frames.Len() && bytes.Equal(x.frames.Fence(end)[:fenceBytes-4], x.frames.Fence(i)[:fenceBytes-4]) {
			end++
		}
		parts, err := uncached.directory(ctx, k, i, end-1)
		if err != nil {
			return err
		}
		var before []byte
		for j := range parts {
			if data, err = uncached.frame(ctx, i+j, i+j+1); err != nil {
				return err
			}
			if err := x.checkFence(i+j, k, j); err != nil {
				return err
			}
			if j > 0 && Level(before) == parts[j].level && bytes.Compare(before, parts[j].first) >= 0 {
				return codec.Corrupt(x.object, section(end-1), -1, "first nodes behind those of the frames before", "others")
			}
			err := x.decodeNodes(i+j, data[0], k, &parts[j], func(n *Node) error {
				if before != nil && Compare(before, n.Path) >= 0 {
					return codec.Corrupt(x.object, section(i+j), -1, "ascending nodes", "others")
				}
				before = append(before[:0], n.Path...)
				return node(k, n)
			})
			if err != nil {
				return err
			}
		}
		i = end
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
