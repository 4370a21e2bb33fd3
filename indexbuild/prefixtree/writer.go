package prefixtree

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
)

// keysFile is a temporary file: the hash of each prefix in pre-order, and its fingerprint if the
// format has them.
const keysFile = "keys.tmp"

// writer writes the files of an index to a folder.
type writer struct {
	ctx    context.Context
	b      *Builder
	dir    string
	layout *layout

	present uint32 // a bit for each tier that is stored
	// lump is the tier to which objects without tier are counted.
	lump Tier

	columns                              []*column
	end, depth, objects, bytes, maxDepth *column
	offsets                              *column
	tierObjects, tierBytes               [tiers]*column
	blob                                 *stream
	blobSize                             uint64
	keys                                 *stream
	levels                               []uint64 // nodes of each depth
	root                                 Folder
	files                                []string // that the manifest names
	nodes, done, rows, collisions        uint64
}

// write writes all files.
func (w *writer) write() (Stats, error) {
	sources, rows, err := w.b.sources(w.ctx)
	if err != nil {
		return Stats{}, err
	}
	w.rows = rows
	w.chooseTiers()
	if err := w.tree(sources); err != nil {
		return Stats{}, err
	}
	w.b.release()
	if err := w.depthIndex(); err != nil {
		return Stats{}, err
	}
	if err := w.perfectHash(); err != nil {
		return Stats{}, err
	}
	if err := os.Remove(filepath.Join(w.dir, keysFile)); err != nil {
		return Stats{}, err
	}
	stats := Stats{
		Format: w.b.opt.Format, Nodes: w.nodes, MaxDepth: w.root.MaxDepth, Total: w.root.Sum,
		Collisions: w.collisions,
	}
	for t := range Tier(tiers) {
		if w.present>>t&1 != 0 {
			stats.Tiers = append(stats.Tiers, TierSum{t, w.root.Tiers[t]})
		}
	}
	stats.Bytes, err = w.manifest(&stats)
	return stats, err
}

// chooseTiers decides which tiers are stored.
func (w *writer) chooseTiers() {
	set := w.b.present
	for _, c := range w.b.collectors {
		set |= c.tiers()
	}
	w.lump = NoTier
	if none := uint32(1 << NoTier); set&none != 0 && set != none {
		w.lump = Other
		set |= 1 << Other
	}
	w.present = set &^ (1 << NoTier)
}

// stored tells whether arrays of a tier are stored. If all objects are in one tier, the arrays of
// all objects have its sums; S3Inv wants them nevertheless.
func (w *writer) stored(t Tier) bool {
	return w.present>>t&1 != 0 && (w.b.opt.Format == S3Inv || w.present&(w.present-1) != 0)
}

// column creates an array.
func (w *writer) column(name string, width int) (*column, error) {
	c, err := newColumn(w.dir, name, w.layout, width)
	if err != nil {
		return nil, err
	}
	w.columns = append(w.columns, c)
	w.files = append(w.files, name)
	return c, nil
}

// tree writes everything that the nodes have in pre-order.
func (w *writer) tree(sources []keysort.Source) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, c := range w.columns {
			c.f.Close()
		}
		for _, s := range []*stream{w.blob, w.keys} {
			if s != nil {
				s.f.Close()
			}
		}
	}()
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
		if *a.to, err = w.column(a.name, a.width); err != nil {
			return err
		}
	}
	for t := range Tier(tiers) {
		if !w.stored(t) {
			continue
		}
		objects, bytes := tierFiles(t)
		if w.tierObjects[t], err = w.column(objects, 8); err != nil {
			return err
		}
		if w.tierBytes[t], err = w.column(bytes, 8); err != nil {
			return err
		}
	}
	if w.blob, err = newStream(w.dir, w.layout.blob); err != nil {
		return err
	}
	w.files = append(w.files, w.layout.blob)
	if w.keys, err = newStream(w.dir, keysFile); err != nil {
		return err
	}

	p := &Preorder{Opened: w.opened, Closed: w.closed}
	err = w.b.runs.Merge(w.ctx, sources, func(folder, value []byte) error {
		if w.done%ctxNodes == 0 {
			w.b.progress(StageTree, w.done, w.rows)
		}
		w.done++
		tier, sum, err := rowOf(value)
		if err != nil {
			return err
		}
		if tier == NoTier {
			tier = w.lump
		}
		return p.Add(folder, tier, sum)
	})
	if err != nil {
		return err
	}
	if err := p.Finish(); err != nil {
		return err
	}
	w.nodes = p.Count()
	if !w.layout.lengths {
		if err := w.offsets.append(w.blobSize); err != nil {
			return err
		}
	}
	// All are closed, so that an error leaves nothing open.
	for _, c := range w.columns {
		if cerr := c.close(); err == nil {
			err = cerr
		}
	}
	for _, s := range []*stream{w.blob, w.keys} {
		if cerr := s.close(); err == nil {
			err = cerr
		}
	}
	w.columns, w.blob, w.keys = nil, nil, nil
	return err
}

func (w *writer) opened(prefix []byte, n *Folder) error {
	if int(n.Depth) == len(w.levels) {
		w.levels = append(w.levels, 0)
	}
	w.levels[n.Depth]++
	for _, a := range [...]*column{w.end, w.objects, w.bytes, w.maxDepth} {
		if err := a.append(0); err != nil {
			return err
		}
	}
	for t := range w.tierObjects {
		if w.tierObjects[t] == nil {
			continue
		}
		if err := cmp.Or(w.tierObjects[t].append(0), w.tierBytes[t].append(0)); err != nil {
			return err
		}
	}
	if err := cmp.Or(w.depth.append(uint64(n.Depth)), w.offsets.append(w.blobSize)); err != nil {
		return err
	}
	if w.layout.lengths {
		w.blobSize += lengthBytes
		if _, err := w.blob.Write(binary.LittleEndian.AppendUint32(w.blob.AvailableBuffer(), uint32(len(prefix)))); err != nil {
			return err
		}
	}
	w.blobSize += uint64(len(prefix))
	if _, err := w.blob.Write(prefix); err != nil {
		return err
	}
	key := binary.LittleEndian.AppendUint64(w.keys.AvailableBuffer(), n.hash)
	if w.layout.prints != "" {
		key = binary.LittleEndian.AppendUint64(key, n.print)
	}
	_, err := w.keys.Write(key)
	return err
}

func (w *writer) closed(_ []byte, n *Folder) error {
	if n.Position == 0 {
		w.root = *n
	}
	for t := range w.tierObjects {
		if w.tierObjects[t] == nil || n.Tiers[t] == (Sum{}) {
			continue
		}
		err := cmp.Or(w.tierObjects[t].set(n.Position, n.Tiers[t].Objects), w.tierBytes[t].set(n.Position, n.Tiers[t].Bytes))
		if err != nil {
			return err
		}
	}
	return cmp.Or(
		w.end.set(n.Position, n.End), w.objects.set(n.Position, n.Objects), w.bytes.set(n.Position, n.Bytes),
		w.maxDepth.set(n.Position, uint64(n.MaxDepth)))
}

// depthIndex writes the positions of each depth, from the array of depths.
func (w *writer) depthIndex() (err error) {
	in, err := os.Open(filepath.Join(w.dir, depthName))
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(w.layout.headerBytes(), io.SeekStart); err != nil {
		return err
	}
	levels, err := w.newLevels()
	if err != nil {
		return err
	}
	depths := bufio.NewReaderSize(in, columnBuffer)
	var b [4]byte
	for pos := range w.nodes {
		if pos%ctxNodes == 0 {
			if err := w.ctx.Err(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(depths, b[:]); err != nil {
			return err
		}
		if err := levels.add(binary.LittleEndian.Uint32(b[:]), pos); err != nil {
			return err
		}
	}
	return levels.finish()
}

const (
	// levelBuffer is the size of the buffer of a depth in bytes. There may be MaxKey depths.
	levelBuffer = 16 << 10
	// countBytes is the size of the count at the beginning of a depth's file.
	countBytes = 8
)

// depthLevels writes the depth index. Each depth is written at an offset of its own, which is
// known, from a buffer of its own.
type depthLevels struct {
	w      *writer
	whole  *os.File // the file of all depths, nil if each depth has one
	bufs   [][]byte
	offset []int64 // where buf goes
}

func (w *writer) newLevels() (*depthLevels, error) {
	l := &depthLevels{w: w, bufs: make([][]byte, len(w.levels)), offset: make([]int64, len(w.levels))}
	if w.layout.depthPositions == "" {
		for d := range w.levels {
			if d > 0 {
				l.bufs[d] = binary.LittleEndian.AppendUint64(nil, w.levels[d])
				w.files = append(w.files, depthFile(uint32(d)))
			}
		}
		return l, nil
	}
	offsets, err := newColumn(w.dir, w.layout.depthOffsets, w.layout, 8)
	if err != nil {
		return nil, err
	}
	at := uint64(0)
	for d, n := range w.levels {
		l.offset[d] = w.layout.headerBytes() + int64(at)*8
		err = cmp.Or(err, offsets.append(at))
		at += n
	}
	err = cmp.Or(err, offsets.append(at))
	if cerr := offsets.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	w.files = append(w.files, w.layout.depthOffsets, w.layout.depthPositions)
	if l.whole, err = create(w.dir, w.layout.depthPositions); err != nil {
		return nil, err
	}
	_, err = l.whole.WriteAt(w.layout.appendHeader(nil, at, 8), 0)
	return l, err
}

func (l *depthLevels) add(depth uint32, pos uint64) error {
	if depth == 0 && l.whole == nil {
		return nil // the root
	}
	l.bufs[depth] = binary.LittleEndian.AppendUint64(l.bufs[depth], pos)
	if len(l.bufs[depth]) < levelBuffer {
		return nil
	}
	return l.flush(depth, false)
}

// flush writes the buffer of a depth. Last tells that nothing follows.
func (l *depthLevels) flush(depth uint32, last bool) error {
	buf := l.bufs[depth]
	f := l.whole
	if f == nil {
		name := depthFile(depth)
		var err error
		if l.offset[depth] == 0 {
			f, err = create(l.w.dir, name)
		} else {
			f, err = os.OpenFile(filepath.Join(l.w.dir, filepath.FromSlash(name)), os.O_RDWR, 0)
		}
		if err != nil {
			return err
		}
	}
	_, err := f.WriteAt(buf, l.offset[depth])
	l.offset[depth] += int64(len(buf))
	l.bufs[depth] = buf[:0]
	if l.whole != nil {
		return err
	}
	if !last {
		return cmp.Or(err, f.Close())
	}
	return closeFile(f, err)
}

func (l *depthLevels) finish() (err error) {
	for d := range l.bufs {
		if d > 0 || l.whole != nil {
			err = cmp.Or(err, l.flush(uint32(d), true))
		}
	}
	if l.whole != nil {
		err = closeFile(l.whole, err)
	}
	return err
}

// manifest hashes all files, writes the manifest, and returns the size of the index.
func (w *writer) manifest(stats *Stats) (int64, error) {
	if err := w.tierList(stats); err != nil {
		return 0, err
	}
	slices.Sort(w.files)
	all := make([]sums, len(w.files)+1) // the last one is of blocksName
	g, ctx := errgroup.WithContext(w.ctx)
	g.SetLimit(w.b.opt.Parallelism)
	for i, name := range w.files {
		w.b.progress(StageCheck, uint64(i), uint64(len(w.files)))
		g.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			all[i], err = sumFile(w.dir, name, w.layout.sha256)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	var blocks []byte
	for _, s := range all {
		for _, sum := range s.Blocks {
			blocks = binary.LittleEndian.AppendUint64(blocks, sum)
		}
	}
	if err := writeFile(w.dir, blocksName, blocks); err != nil {
		return 0, err
	}
	s, err := sumFile(w.dir, blocksName, w.layout.sha256)
	if err != nil {
		return 0, err
	}
	all[len(w.files)] = s
	w.files = append(w.files, blocksName)

	doc, err := encodeManifest(w.layout, w.b.opt.Created, stats, w.files, all)
	if err != nil {
		return 0, err
	}
	size := int64(len(doc))
	for _, s := range all {
		size += s.Bytes
	}
	return size, writeFile(w.dir, manifestName, doc)
}
