package prefixtree

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// Stats describes an index.
type Stats struct {
	Format Format
	// Root is the node of all objects, Nodes the number of nodes.
	Root  Node
	Nodes uint64
	// Bytes is the size of all files.
	Bytes int64
	// Collisions is the number of prefixes whose FNV-1a is that of another. They are not in the
	// perfect hash; lookups find them by a binary search.
	Collisions uint64
}

// Writer writes an index: all nodes, then Finish. Abort frees everything in any case. The files
// depend on the nodes alone.
type Writer struct {
	out, dir string
	layout   *layout
	stats    Stats

	end, depth, objects, bytes, maxDepth, offsets *column

	counts   []uint64 // nodes of each depth
	blob     *stream
	blobSize uint64
	files    []string // that the manifest names
	open     []*os.File
}

// Create returns a Writer of an index that Finish puts into the folder out, which must not exist.
func Create(out string, format Format) (*Writer, error) {
	w := &Writer{out: filepath.Clean(out), layout: layouts[format], stats: Stats{Format: format}}
	if w.layout == nil {
		return nil, fmt.Errorf("no format %q; there are %q", format, Formats())
	}
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s exists; an index is written to a new folder", out)
	}
	var err error
	if w.dir, err = os.MkdirTemp(filepath.Dir(w.out), "."+filepath.Base(w.out)+"-*.tmp"); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		to    **column
		name  string
		width int
	}{
		{&w.end, endName, 8},
		{&w.depth, depthName, 4},
		{&w.objects, objectsName, 8},
		{&w.bytes, bytesName, 8},
		{&w.maxDepth, maxDepthName, 4},
		{&w.offsets, w.layout.offsets, 8},
	} {
		*a.to, err = w.column(a.name, a.width, err)
	}
	w.blob, err = w.create(w.layout.blob, err)
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Abort closes and removes all files of an index that is not finished.
func (w *Writer) Abort() {
	for _, f := range w.open {
		f.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// Open adds the next node in pre-order.
func (w *Writer) Open(prefix []byte, depth int) error {
	if w.stats.Nodes == MaxNodes {
		return fmt.Errorf("more than %d folders", uint64(MaxNodes))
	}
	w.stats.Nodes++
	for len(w.counts) <= depth {
		w.counts = append(w.counts, 0)
	}
	w.counts[depth]++
	err := cmp.Or(w.end.append(0), w.objects.append(0), w.bytes.append(0), w.maxDepth.append(0),
		w.depth.append(uint64(depth)), w.offsets.append(w.blobSize))
	if err == nil && w.layout.lengths {
		w.blobSize += lengthBytes
		_, err = w.blob.Write(codec.AppendU32(w.blob.AvailableBuffer(), uint32(len(prefix))))
	}
	if err == nil {
		w.blobSize += uint64(len(prefix))
		_, err = w.blob.Write(prefix)
	}
	return err
}

// Close completes a node that was opened, after all nodes below it.
func (w *Writer) Close(n Node) error {
	if n.Position == 0 {
		w.stats.Root = n
	}
	return cmp.Or(w.end.set(n.Position, n.End), w.objects.set(n.Position, n.Objects), w.bytes.set(n.Position, n.Bytes),
		w.maxDepth.set(n.Position, uint64(n.MaxDepth)))
}

// Finish writes the index. Its folder appears whole and durable, or not at all. Memory bounds the
// parts of the perfect hash that are built at once; of more than a billion folders one alone can
// take more. Created is the time in the manifest of S3Inv, where the zero time stands for 1970.
func (w *Writer) Finish(ctx context.Context, memory int64, created time.Time) (Stats, error) {
	if !w.layout.lengths {
		if err := w.offsets.append(w.blobSize); err != nil {
			return Stats{}, err
		}
	}
	err := w.blob.close()
	for _, c := range []*column{w.end, w.depth, w.objects, w.bytes, w.maxDepth, w.offsets} {
		err = cmp.Or(err, c.close())
	}
	if err != nil {
		return Stats{}, err
	}
	if err := w.index(ctx, memory); err != nil {
		return Stats{}, err
	}
	if err := w.manifest(ctx, created); err != nil {
		return Stats{}, err
	}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		return Stats{}, err
	}
	if err := syncAll(ctx, w.dir); err != nil {
		return Stats{}, err
	}
	// A rename would replace an empty folder that somebody has made meanwhile, and nothing else.
	if err := os.Rename(w.dir, w.out); err != nil {
		return Stats{}, err
	}
	return w.stats, syncFolder(filepath.Dir(w.out))
}

// index writes what follows from the nodes: the depth index and the perfect hash.
func (w *Writer) index(ctx context.Context, memory int64) (err error) {
	files, err := inFolder(w.dir)
	if err != nil {
		return err
	}
	x := &Index{layout: w.layout, open: files, doc: manifest{NodeCount: w.stats.Nodes, MaxDepth: w.stats.Root.MaxDepth, Files: map[string]file{}}}
	for _, name := range w.files {
		st, err := os.Stat(filepath.Join(w.dir, name))
		if err != nil {
			return err
		}
		x.doc.Files[name] = file{Size: st.Size()}
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.openNodes(); err != nil {
		return err
	}
	if err := w.depths(ctx, x); err != nil {
		return err
	}
	return w.perfectHash(ctx, x, memory)
}

// depthMemory is the memory for positions of all depths that are not written yet.
const depthMemory = 8 << 20

// level is the list of the positions of a depth while it is written, to a file of its own or to the
// depth's place in the file of all.
type level struct {
	name string // "" if there is no list
	at   int64  // where buf is to be in the file
	buf  []byte
}

// depths writes the depth index: for each depth, the positions of its nodes. It passes once over
// all nodes and opens a file for each piece that it writes, since there can be thousands of depths.
func (w *Writer) depths(ctx context.Context, x *Index) error {
	levels, err := w.createLevels()
	if err != nil {
		return err
	}
	room := min(depthMemory/len(levels), columnBuffer)
	for pos := range x.doc.NodeCount {
		if pos%ctxNodes == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		depth, err := x.depth.at(pos)
		if err != nil {
			return err
		}
		l := &levels[depth]
		if len(l.buf)+8 > room {
			if err := w.flushLevel(l); err != nil {
				return err
			}
		}
		l.buf = codec.AppendU64(l.buf, pos)
	}
	for i := range levels {
		if err := w.flushLevel(&levels[i]); err != nil {
			return err
		}
	}
	return nil
}

// createLevels creates the files of the depth index, with all but the positions.
func (w *Writer) createLevels() ([]level, error) {
	levels := make([]level, len(w.counts))
	create := func(name string, head []byte) error {
		f, err := w.createFile(name)
		if err != nil {
			return err
		}
		_, err = f.Write(head)
		return cmp.Or(err, f.Close())
	}
	if w.layout.depthPositions == "" {
		for d := 1; d < len(levels); d++ { // the root has no file
			name := depthFile(uint32(d))
			if err := create(name, codec.AppendU64(nil, w.counts[d])); err != nil {
				return nil, err
			}
			levels[d] = level{name: name, at: countBytes}
		}
		return levels, nil
	}
	offsets, err := w.column(w.layout.depthOffsets, 8, nil)
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for d, count := range w.counts {
		levels[d] = level{name: w.layout.depthPositions, at: w.layout.header + 8*int64(total)}
		err = cmp.Or(err, offsets.append(total))
		total += count
	}
	head := w.layout.appendHeader(nil, total, 8)
	return levels, cmp.Or(err, offsets.append(total), offsets.close(), create(w.layout.depthPositions, head))
}

// flushLevel writes the positions that are not written yet.
func (w *Writer) flushLevel(l *level) error {
	if l.name == "" {
		l.buf = l.buf[:0]
		return nil
	}
	f, err := os.OpenFile(filepath.Join(w.dir, filepath.FromSlash(l.name)), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(l.buf, l.at)
	l.at, l.buf = l.at+int64(len(l.buf)), l.buf[:0]
	return cmp.Or(err, f.Close())
}

// keyMemory is about what a key of the perfect hash takes while its part is built: itself and its
// position, both again in their order, and the levels of the hash.
const keyMemory = 16 + 16 + 8 + 4

// perfectHash writes the perfect hash of all prefixes, and the position and the fingerprint of each
// slot. Of prefixes that have the same key the first in pre-order gets the slot. It makes as many
// parts at once as there is memory for, and reads all prefixes for these.
func (w *Writer) perfectHash(ctx context.Context, x *Index, memory int64) error {
	out, err := w.create(w.layout.hash, nil)
	slots, err := w.column(w.layout.positions, 8, err)
	var prints *column
	if w.layout.prints != "" {
		prints, err = w.column(w.layout.prints, 8, err)
	}
	if err != nil {
		return err
	}
	parts := bbhash.Parts(w.stats.Nodes)
	hash, err := bbhash.NewWriter(out, parts)
	if err != nil {
		return err
	}
	together := int(max(1, min(memory/(keyMemory*int64(w.stats.Nodes)/int64(parts)+1), int64(parts))))
	for first := 0; first < parts; first += together {
		all := make([]hashPart, min(together, parts-first))
		for pos := range w.stats.Nodes {
			if pos%ctxNodes == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			p, err := x.prefix(pos)
			if err != nil {
				return err
			}
			key := fnv1a(p)
			if i := bbhash.PartOf(key, parts) - first; 0 <= i && i < len(all) {
				all[i].keys, all[i].at = append(all[i].keys, key), append(all[i].at, pos)
			}
		}
		var g errgroup.Group
		g.SetLimit(runtime.GOMAXPROCS(0))
		for i := range all {
			g.Go(all[i].build)
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i := range all {
			if err := w.hashPart(x, &all[i], hash, slots, prints); err != nil {
				return err
			}
		}
	}
	err = cmp.Or(hash.Finish(), out.close(), slots.close())
	if prints != nil {
		err = cmp.Or(err, prints.close())
	}
	return err
}

// hashPart is a part of the perfect hash, with its keys and their positions.
type hashPart struct {
	keys, at []uint64
	*bbhash.Part
}

func (p *hashPart) build() (err error) {
	p.Part, err = bbhash.Build(slices.Clone(p.keys)) // which it reorders
	return err
}

func (w *Writer) hashPart(x *Index, p *hashPart, hash *bbhash.Writer, slots, prints *column) error {
	if _, err := hash.Add(p.Part); err != nil {
		return err
	}
	const unset = MaxNodes
	at := slices.Repeat([]uint64{unset}, int(p.Keys()))
	for i, key := range p.keys {
		if slot, _ := p.Slot(key); at[slot] == unset {
			at[slot] = p.at[i]
		} else {
			w.stats.Collisions++
		}
	}
	for _, pos := range at {
		err := slots.append(pos)
		if err == nil && prints != nil {
			var prefix []byte
			if prefix, err = x.prefix(pos); err == nil {
				err = prints.append(fnv1(prefix))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// manifest hashes all files and writes the manifest.
func (w *Writer) manifest(ctx context.Context, created time.Time) error {
	m := manifest{Version: version, NodeCount: w.stats.Nodes, MaxDepth: w.stats.Root.MaxDepth, Files: map[string]file{}}
	if w.stats.Format == S3Inv {
		if created.IsZero() {
			created = time.Unix(0, 0)
		}
		created = created.UTC()
		m.CreatedAt = &created
	}
	all := make([]file, len(w.files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range w.files {
		g.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			all[i], err = sumFile(filepath.Join(w.dir, name), w.layout.sha256)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, name := range w.files {
		m.Files[name] = all[i]
		w.stats.Bytes += all[i].Size
	}
	doc, err := codec.Seal(m)
	if err != nil {
		return err
	}
	w.stats.Bytes += int64(len(doc))
	return os.WriteFile(filepath.Join(w.dir, manifestName), doc, 0o644)
}

// sumFile returns what the manifest says of a file.
func sumFile(path string, withSHA256 bool) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	h, sha := mapped.NewHash(), sha256.New()
	into := io.Writer(h)
	if withSHA256 {
		into = io.MultiWriter(h, sha)
	}
	if _, err := io.CopyBuffer(into, struct{ io.Reader }{f}, make([]byte, mapped.BlockSize)); err != nil {
		return file{}, err
	}
	s := h.Sums()
	if withSHA256 {
		return file{Size: s.Bytes, Checksum: hex.EncodeToString(sha.Sum(nil)), Blocks: hex64(s.Blocks...)}, nil
	}
	return file{Size: s.Bytes, XXHash64: hex64(s.XXH64), Blocks: hex64(s.Blocks...)}, nil
}

// columnBuffer is the size of a file's buffer in bytes.
const columnBuffer = 256 << 10

// stream is a file that is written from its beginning to its end.
type stream struct {
	f *os.File
	*bufio.Writer
}

// create creates a file of the index, unless there is an error already.
func (w *Writer) create(name string, err error) (*stream, error) {
	if err != nil {
		return nil, err
	}
	f, err := w.createFile(name)
	if err != nil {
		return nil, err
	}
	return &stream{f, bufio.NewWriterSize(f, columnBuffer)}, nil
}

func (w *Writer) createFile(name string) (*os.File, error) {
	path := filepath.Join(w.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	w.files, w.open = append(w.files, name), append(w.open, f)
	return f, nil
}

func (s *stream) close() error { return cmp.Or(s.Flush(), s.f.Close()) }

// column is an array that is being written. Elements are appended, and may be set again later.
type column struct {
	f       *os.File
	layout  *layout
	header  int64
	width   int
	count   uint64
	base    uint64 // elements before buf, which are in the file
	buf     []byte
	scratch [8]byte
}

// column creates an array, unless there is an error already.
func (w *Writer) column(name string, width int, err error) (*column, error) {
	s, err := w.create(name, err)
	if err != nil {
		return nil, err
	}
	return &column{f: s.f, layout: w.layout, header: w.layout.header, width: width, buf: make([]byte, 0, columnBuffer)}, nil
}

func (c *column) put(p []byte, v uint64) {
	if c.width == 4 {
		binary.LittleEndian.PutUint32(p, uint32(v))
	} else {
		binary.LittleEndian.PutUint64(p, v)
	}
}

func (c *column) append(v uint64) error {
	if len(c.buf) == cap(c.buf) {
		if err := c.flush(); err != nil {
			return err
		}
	}
	at := len(c.buf)
	c.buf = c.buf[:at+c.width]
	c.put(c.buf[at:], v)
	c.count++
	return nil
}

// set replaces an element. It has been flushed already if its node was open at the time; few are.
func (c *column) set(i, v uint64) error {
	if i >= c.base {
		c.put(c.buf[int(i-c.base)*c.width:], v)
		return nil
	}
	c.put(c.scratch[:], v)
	_, err := c.f.WriteAt(c.scratch[:c.width], c.header+int64(i)*int64(c.width))
	return err
}

func (c *column) flush() error {
	_, err := c.f.WriteAt(c.buf, c.header+int64(c.base)*int64(c.width))
	c.base, c.buf = c.count, c.buf[:0]
	return err
}

// close writes the rest and the header, and closes the file.
func (c *column) close() error {
	err := c.flush()
	if err == nil && c.header > 0 {
		_, err = c.f.WriteAt(c.layout.appendHeader(nil, c.count, c.width), 0)
	}
	return cmp.Or(err, c.f.Close())
}

// syncAll makes a folder durable, with all files and folders in it. File systems do so for several
// in hardly more time than for one.
func syncAll(ctx context.Context, dir string) error {
	const atOnce = 32
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	var folders []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			folders = append(folders, path)
			return ctx.Err()
		}
		g.Go(func() error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return cmp.Or(f.Sync(), f.Close())
		})
		return ctx.Err()
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	for _, path := range folders {
		if err := syncFolder(path); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be flushed there
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}
