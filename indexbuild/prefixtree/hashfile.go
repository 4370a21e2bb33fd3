package prefixtree

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/indexbuild/keysort"
)

// partBuffer is the size in bytes of the buffer of the keys of one part of the perfect hash. There
// are at most 255.
const partBuffer = 64 << 10

// keyParts are the keys of each part of the perfect hash, in pre-order: u64 key, u64 value of its
// slot, and u64 fingerprint if there is one.
type keyParts struct {
	record  int
	bufs    [][]byte
	extents [][]keysort.Extent
	spool   *keysort.Spool
	dir     string
}

func (k *keyParts) add(part int, key, value uint64, print []byte) error {
	buf := k.bufs[part]
	if len(buf)+k.record > partBuffer {
		if k.spool == nil {
			var err error
			if k.spool, err = keysort.NewSpool(k.dir); err != nil {
				return err
			}
		}
		e, err := k.spool.Write(buf)
		if err != nil {
			return err
		}
		k.extents[part] = append(k.extents[part], e)
		buf = buf[:0]
	}
	buf = binary.LittleEndian.AppendUint64(buf, key)
	buf = binary.LittleEndian.AppendUint64(buf, value)
	k.bufs[part] = append(buf, print...)
	return nil
}

// load returns the records of a part.
func (k *keyParts) load(part int) ([]byte, error) {
	n := int64(len(k.bufs[part]))
	for _, e := range k.extents[part] {
		n += e.Bytes
	}
	all := make([]byte, 0, n)
	for _, e := range k.extents[part] {
		if _, err := k.spool.Read(e, all[len(all):]); err != nil {
			return nil, err
		}
		all = all[:len(all)+int(e.Bytes)]
	}
	return append(all, k.bufs[part]...), nil
}

// partMemory is about what a key takes while its part is built besides its record: the key, its
// value and fingerprint, and the levels of the hash.
const partMemory = 8 + 8 + 8 + 4

// atOnce returns how many parts can be built at once in some memory: at least one, and at most
// parallelism.
func (k *keyParts) atOnce(memory int64, parallelism int) int {
	largest := int64(1)
	for part := range k.bufs {
		bytes := int64(len(k.bufs[part]))
		for _, e := range k.extents[part] {
			bytes += e.Bytes
		}
		largest = max(largest, bytes/int64(k.record)*int64(k.record+partMemory))
	}
	return int(max(1, min(memory/largest, int64(parallelism))))
}

// built is one part of the perfect hash, with the value and the fingerprint of each slot.
type built struct {
	part           *bbhash.Part
	values, prints []uint64
	keys           int
	err            error
}

// perfectHash writes the perfect hash of all prefixes and what belongs to its slots. Of prefixes
// that have the same key the first in pre-order gets the slot.
func (w *writer) perfectHash() error {
	k, err := w.keyParts()
	if err != nil {
		return err
	}
	defer k.spool.Close()
	name := w.layout.positions
	if w.packed() {
		name = w.layout.slots
	}
	w.files = append(w.files, w.layout.hash, name)
	file, err := newStream(w.dir, w.layout.hash)
	if err != nil {
		return err
	}
	values, err := newColumn(w.dir, name, w.layout, 8)
	if err != nil {
		file.f.Close()
		return err
	}
	var prints *column
	if w.layout.prints != "" {
		w.files = append(w.files, w.layout.prints)
		prints, err = newColumn(w.dir, w.layout.prints, w.layout, 8)
	}
	if err == nil {
		err = w.buildParts(k, file, values, prints)
	}
	if cerr := file.close(); err == nil {
		err = cerr
	}
	if cerr := values.close(); err == nil {
		err = cerr
	}
	if prints != nil {
		if cerr := prints.close(); err == nil {
			err = cerr
		}
	}
	return err
}

// packed tells whether slots have an offset beside the position.
func (w *writer) packed() bool {
	_, ok := positionBits(w.nodes, w.blobSize)
	return ok && w.layout.slots != ""
}

// keyParts distributes the keys among the parts.
func (w *writer) keyParts() (*keyParts, error) {
	parts := bbhash.Parts(w.nodes)
	k := &keyParts{
		record: 16, bufs: make([][]byte, parts), extents: make([][]keysort.Extent, parts),
		dir: w.b.opt.Dir,
	}
	width := 8
	if w.layout.prints != "" {
		k.record, width = k.record+8, width+8
	}
	f, err := os.Open(filepath.Join(w.dir, keysFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, columnBuffer)
	var offsets *bufio.Reader // nil if no offsets are in values
	positionBits, _ := positionBits(w.nodes, w.blobSize)
	if w.packed() {
		f, err := os.Open(filepath.Join(w.dir, w.layout.offsets))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		offsets = bufio.NewReaderSize(f, columnBuffer)
	}
	b := make([]byte, width)
	var offset [8]byte
	for pos := range w.nodes {
		if pos%ctxNodes == 0 {
			err = w.ctx.Err()
		}
		if err == nil {
			_, err = io.ReadFull(in, b)
		}
		if err == nil && offsets != nil {
			_, err = io.ReadFull(offsets, offset[:])
		}
		if err == nil {
			key := binary.LittleEndian.Uint64(b)
			value := pos | binary.LittleEndian.Uint64(offset[:])<<positionBits
			err = k.add(bbhash.PartOf(key, parts), key, value, b[8:])
		}
		if err != nil {
			k.spool.Close()
			return nil, err
		}
	}
	return k, nil
}

// buildParts builds the parts, some at a time, and writes them in order.
func (w *writer) buildParts(k *keyParts, file *stream, values, prints *column) error {
	hash, err := bbhash.NewWriter(file, len(k.bufs))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(w.ctx)
	// A part that waits to be written counts too, so that many processors do not take more memory.
	order := make(chan chan built, k.atOnce(w.b.opt.Memory, w.b.opt.Parallelism)-1)
	g.Go(func() error {
		defer close(order)
		for part := range k.bufs {
			done := make(chan built, 1)
			select {
			case order <- done:
			case <-ctx.Done():
				return ctx.Err()
			}
			go func() { done <- k.build(ctx, part) }()
		}
		return nil
	})
	g.Go(func() error {
		n := uint64(0)
		for done := range order {
			b := <-done // building looks at the context
			if b.err != nil {
				return b.err
			}
			if _, err := hash.Add(b.part); err != nil {
				return err
			}
			for _, value := range b.values {
				if err := values.append(value); err != nil {
					return err
				}
			}
			for _, print := range b.prints {
				if err := prints.append(print); err != nil {
					return err
				}
			}
			n += uint64(b.keys)
			w.collisions += uint64(b.keys) - b.part.Keys()
			w.b.progress(StageHash, n, w.nodes)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return hash.Finish()
}

func (k *keyParts) build(ctx context.Context, part int) (b built) {
	if b.err = ctx.Err(); b.err != nil {
		return b
	}
	records, err := k.load(part)
	if err != nil {
		return built{err: err}
	}
	keys := make([]uint64, 0, len(records)/k.record)
	for r := range slices.Chunk(records, k.record) {
		keys = append(keys, binary.LittleEndian.Uint64(r))
	}
	b.keys = len(keys)
	if b.part, b.err = bbhash.Build(keys); b.err != nil {
		return b
	}
	const unset = math.MaxUint64 // no value: offsets are below the size, positions below MaxNodes
	b.values = slices.Repeat([]uint64{unset}, int(b.part.Keys()))
	if k.record > 16 {
		b.prints = make([]uint64, b.part.Keys())
	}
	for r := range slices.Chunk(records, k.record) {
		slot, _ := b.part.Slot(binary.LittleEndian.Uint64(r))
		if b.values[slot] != unset {
			continue // a prefix with the same key
		}
		b.values[slot] = binary.LittleEndian.Uint64(r[8:])
		if b.prints != nil {
			b.prints[slot] = binary.LittleEndian.Uint64(r[16:])
		}
	}
	return b
}
