package catalog

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// The maps of a version. docs/formats/version.md describes their keys and values.

const (
	// maxCount bounds rows, parts and bytes, so that sums do not overflow.
	maxCount = 1 << 60

	digestBytes = 16

	// findAtOnce is how many batches are looked for in one pass, which bounds memory.
	findAtOnce = 1 << 14
)

func datasetKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

func batchKey(n BatchName) []byte { return append(datasetKey(n.DatasetID), n.Batch...) }

func batchKeys(names []BatchName) [][]byte {
	keys := make([][]byte, len(names))
	for i, n := range names {
		keys[i] = batchKey(n)
	}
	return keys
}

// orEmpty returns the version, or an empty one in the place of the nil version.
func (v *Version) orEmpty() *Version {
	if v == nil {
		return &Version{}
	}
	return v
}

// openPieces returns a map of a version.
func openPieces(store blob.Store, ref pieces.Ref) *pieces.Map {
	return pieces.Open(store, VersionPiecesRoot, ref)
}

// batchEntry returns the entry of a batch, whose name and digest must be valid.
func batchEntry(b *Batch) (pieces.Entry, error) {
	digest, err := hex.DecodeString(b.Digest)
	if err == nil && len(digest) != digestBytes {
		err = fmt.Errorf("%d bytes", len(digest))
	}
	if err == nil {
		err = lake.CheckBatchName(b.Batch)
	}
	for _, n := range []int64{b.Rows, b.Parts, b.Bytes} {
		if err == nil && (n < 0 || n >= maxCount) {
			err = fmt.Errorf("count %d", n)
		}
	}
	union, unionErr := unionBytes(b)
	if err = cmp.Or(err, unionErr); err != nil {
		return pieces.Entry{}, fmt.Errorf("batch %q of dataset %d with digest %q: %w", b.Batch, b.DatasetID, b.Digest, err)
	}
	value := digest
	for _, n := range []int64{b.Rows, b.Parts, b.Bytes, b.Start} {
		value = codec.AppendUvarint(value, uint64(n))
	}
	return pieces.Entry{Key: batchKey(b.BatchName), Value: append(value, union...)}, nil
}

// unionIDBytes is the size of what tells the name of a union from others.
const unionIDBytes = 8

// unionBytes returns the union of a batch: the digits of its name, and its digest. It is nil for
// none.
func unionBytes(b *Batch) ([]byte, error) {
	if b.Union == "" && b.UnionDigest == "" {
		return nil, nil
	}
	union, err := hex.DecodeString(strings.TrimPrefix(b.Union, "~") + b.UnionDigest)
	if err != nil || !lake.IsUnionName(b.Union) || len(union) != unionIDBytes+digestBytes {
		return nil, fmt.Errorf("union %q with digest %q", b.Union, b.UnionDigest)
	}
	return union, nil
}

// decodeBatch returns the reverse of batchEntry. The errors name the document of the version.
func (v *Version) decodeBatch(segment string) func(e pieces.Entry) (Batch, error) {
	return func(e pieces.Entry) (b Batch, err error) {
		d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("batch %x of segment %s", e.Key, segment))
		b.Segment, b.Digest = segment, hex.EncodeToString(d.Bytes(digestBytes))
		b.Rows, b.Parts, b.Bytes = int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1))
		b.Start = int64(d.Uint(math.MaxInt64))
		if d.Err() == nil && d.Len() > 0 {
			b.Union = "~" + hex.EncodeToString(d.Bytes(unionIDBytes))
			b.UnionDigest = hex.EncodeToString(d.Bytes(digestBytes))
		}
		b.BatchName, err = closeKey(d, e.Key, false)
		return b, err
	}
}

// closeKey closes the decoder of a value, and returns the name that is its key. Only what is gone
// can be a whole dataset, without a batch.
func closeKey(d *codec.Decoder, key []byte, whole bool) (n BatchName, err error) {
	if d.Err() == nil && (len(key) < 4 || lake.CheckBatchName(string(key[4:])) != nil && !(whole && len(key) == 4)) {
		d.Fail("a key of dataset and batch", fmt.Sprintf("%x", key))
	}
	if err := d.Close(); err != nil {
		return n, err
	}
	return BatchName{binary.BigEndian.Uint32(key), string(key[4:])}, nil
}

// goneEntry returns the entry of a batch, or of a dataset, that is gone.
func goneEntry(g *Gone) (pieces.Entry, error) {
	digest, err := hex.DecodeString(g.Digest)
	if want := min(len(g.Batch), 1) * digestBytes; err == nil && len(digest) != want {
		err = fmt.Errorf("%d bytes, want %d", len(digest), want)
	}
	if err != nil {
		return pieces.Entry{}, fmt.Errorf("retired batch %q of dataset %d with digest %q: %w", g.Batch, g.DatasetID, g.Digest, err)
	}
	return pieces.Entry{Key: batchKey(g.BatchName), Value: append(codec.AppendUvarint(nil, uint64(g.Start)), digest...)}, nil
}

// decodeGone is the reverse of goneEntry.
func (v *Version) decodeGone(e pieces.Entry) (g Gone, err error) {
	d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("retired batch %x", e.Key))
	g.Start = int64(d.Uint(math.MaxInt64))
	if len(e.Key) > 4 {
		g.Digest = hex.EncodeToString(d.Bytes(digestBytes))
	}
	g.BatchName, err = closeKey(d, e.Key, true)
	return g, err
}

// datasetEntry returns the entry of a dataset.
func datasetEntry(d *Dataset) pieces.Entry {
	var value []byte
	for _, s := range []string{d.Name, d.Title, d.Source, d.Licence} {
		value = codec.AppendString(value, s)
	}
	for _, n := range d.sums() {
		value = codec.AppendUvarint(value, uint64(n))
	}
	return pieces.Entry{Key: datasetKey(d.ID), Value: value}
}

// decodeDataset is the reverse of datasetEntry.
func (v *Version) decodeDataset(e pieces.Entry) (Dataset, error) {
	d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("dataset %x", e.Key))
	s := Dataset{Name: d.String(), Title: d.String(), Source: d.String(), Licence: d.String()}
	s.Batches = int(d.Uint(math.MaxInt32))
	s.Parts, s.Rows, s.Bytes = int64(d.Uint(math.MaxInt64)), int64(d.Uint(math.MaxInt64)), int64(d.Uint(math.MaxInt64))
	if d.Err() == nil && (len(e.Key) != 4 || lake.CheckDatasetName(s.Name) != nil || s.Batches == 0) {
		d.Fail("a dataset with batches", fmt.Sprintf("%q with %d", s.Name, s.Batches))
	}
	if err := d.Close(); err != nil {
		return Dataset{}, err
	}
	s.ID = binary.BigEndian.Uint32(e.Key)
	return s, nil
}

// sums returns the counts of a dataset.
func (d *Dataset) sums() [4]int64 { return [4]int64{int64(d.Batches), d.Parts, d.Rows, d.Bytes} }

// add adds n times the counts of a batch.
func (d *Dataset) add(n int, parts, rows, bytes int64) {
	d.Batches += n
	d.Parts += int64(n) * parts
	d.Rows += int64(n) * rows
	d.Bytes += int64(n) * bytes
}

// Batches yields all live batches by dataset and name. An error is the last thing that it yields.
func (v *Version) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return v.merged(ctx, nil, nil)
}

// BatchesOf yields the live batches of a dataset by name. An error is the last thing that it
// yields.
func (v *Version) BatchesOf(ctx context.Context, dataset uint32) iter.Seq2[Batch, error] {
	from, to := span(dataset)
	return v.merged(ctx, from, to)
}

// BatchesIn yields the live batches that a segment of the version indexes, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) BatchesIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	v = v.orEmpty()
	return entries(ctx, v.batches[segment], nil, nil, v.decodeBatch(segment))
}

// DeadIn yields the batches that a segment of the version indexes and that the version does not
// have, by dataset and name. An error is the last thing that it yields.
func (v *Version) DeadIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	v = v.orEmpty()
	return entries(ctx, v.dead[segment], nil, nil, v.decodeBatch(segment))
}

// CountIn is the number of batches that BatchesIn yields. It reads nothing.
func (v *Version) CountIn(segment string) int64 { return v.orEmpty().batches[segment].Len() }

// span returns the first key of a dataset, and the first one behind it, nil for no end.
func span(dataset uint32) (from, to []byte) {
	if dataset < math.MaxUint32 {
		to = datasetKey(dataset + 1)
	}
	return datasetKey(dataset), to
}

// merged yields the batches of all segments with from <= key < to.
func (v *Version) merged(ctx context.Context, from, to []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		type source struct {
			next func() (Batch, error, bool)
			head Batch
		}
		var sources []source
		advance := func(i int) bool {
			b, err, ok := sources[i].next()
			switch {
			case err != nil:
				return yield(Batch{}, err) && false
			case ok:
				sources[i].head = b
			default:
				sources = slices.Delete(sources, i, i+1)
			}
			return true
		}
		v := v.orEmpty()
		for i := range v.Segments {
			id := v.Segments[i].ID
			next, stop := iter.Pull2(entries(ctx, v.batches[id], from, to, v.decodeBatch(id)))
			defer stop()
			sources = append(sources, source{next: next})
			if !advance(len(sources) - 1) {
				return
			}
		}
		for len(sources) > 0 {
			first := 0
			for i := range sources {
				if CompareNames(sources[i].head.BatchName, sources[first].head.BatchName) < 0 {
					first = i
				}
			}
			if !yield(sources[first].head, nil) || !advance(first) {
				return
			}
		}
	}
}

// FindGone returns those of the named batches that are gone. A name without a batch stands for the
// dataset.
func (v *Version) FindGone(ctx context.Context, names []BatchName) (map[BatchName]Gone, error) {
	v = v.orEmpty()
	all, err := find(ctx, v.gone, batchKeys(names), v.decodeGone)
	found := map[BatchName]Gone{}
	for _, g := range all {
		found[g.BatchName] = g
	}
	return found, err
}

// Gone yields what is gone of all datasets, or of one if that is not 0, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) Gone(ctx context.Context, dataset uint32) iter.Seq2[Gone, error] {
	v = v.orEmpty()
	if dataset == 0 {
		return entries(ctx, v.gone, nil, nil, v.decodeGone)
	}
	from, to := span(dataset)
	return entries(ctx, v.gone, from, to, v.decodeGone)
}

// SoundGone returns what is gone as far as that can be read, and the keys of the pieces that are
// lost.
func (v *Version) SoundGone(ctx context.Context) (all []Gone, lost []string, err error) {
	for e, err := range v.gone.Sound(ctx, func(key string) { lost = append(lost, key) }) {
		var g Gone
		if err == nil {
			g, err = v.decodeGone(e)
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, g)
	}
	return all, lost, nil
}

// FindBatch returns a live batch.
func (v *Version) FindBatch(ctx context.Context, dataset uint32, name string) (Batch, bool, error) {
	n := BatchName{DatasetID: dataset, Batch: name}
	found, err := v.FindBatches(ctx, []BatchName{n})
	b, ok := found[n]
	return b, ok, err
}

// FindBatches returns those of the named batches that are live. It reads a few pieces for each
// name and segment, but each piece once.
func (v *Version) FindBatches(ctx context.Context, names []BatchName) (map[BatchName]Batch, error) {
	v = v.orEmpty()
	found := map[BatchName]Batch{}
	for some := range slices.Chunk(names, findAtOnce) {
		keys := batchKeys(some)
		batches := make([][]Batch, len(v.Segments))
		group, groupCtx := errgroup.WithContext(ctx)
		for i := range v.Segments {
			id := v.Segments[i].ID
			group.Go(func() (err error) {
				batches[i], err = find(groupCtx, v.batches[id], keys, v.decodeBatch(id))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for _, b := range slices.Concat(batches...) {
			found[b.BatchName] = b
		}
	}
	return found, nil
}

// Datasets yields the datasets with live batches by id, from the id first on. An error is the last
// thing that it yields.
func (v *Version) Datasets(ctx context.Context, first uint32) iter.Seq2[Dataset, error] {
	v = v.orEmpty()
	return entries(ctx, v.datasets, datasetKey(first), nil, v.decodeDataset)
}

// FindDatasets returns those of the datasets that have live batches, by id.
func (v *Version) FindDatasets(ctx context.Context, ids []uint32) (map[uint32]Dataset, error) {
	v = v.orEmpty()
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = datasetKey(id)
	}
	all, err := find(ctx, v.datasets, keys, v.decodeDataset)
	found := map[uint32]Dataset{}
	for _, d := range all {
		found[d.ID] = d
	}
	return found, err
}

// DatasetPieces yields the key of every piece of the version's datasets, with the
// *codec.CorruptError of one that is missing or damaged, below which nothing is known. Another
// error ends it.
func (v *Version) DatasetPieces(ctx context.Context) iter.Seq2[string, error] {
	return v.datasets.Pieces(ctx)
}

// GonePieces is DatasetPieces for what is gone.
func (v *Version) GonePieces(ctx context.Context) iter.Seq2[string, error] { return v.gone.Pieces(ctx) }

// BatchPieces is DatasetPieces for the batches of a segment of the version.
func (v *Version) BatchPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	return v.batches[segment].Pieces(ctx)
}

// DeadPieces is DatasetPieces for the dead batches of a segment of the version.
func (v *Version) DeadPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	return v.dead[segment].Pieces(ctx)
}

// PieceNames yields the key of every piece of the version, without reading the leaves of its maps.
// An error, also that of a damaged piece, is the last thing that it yields.
func (v *Version) PieceNames(ctx context.Context) iter.Seq2[string, error] {
	maps := []*pieces.Map{v.datasets, v.gone}
	for i := range v.Segments {
		id := v.Segments[i].ID
		maps = append(maps, v.batches[id], v.dead[id])
	}
	return names(ctx, maps...)
}

// Check reads all datasets and batches and checks that the counts of the document are their sums.
// That is so in every version that Apply has written.
func (v *Version) Check(ctx context.Context) error {
	sums := map[uint32]*Dataset{}
	c := checker{file: VersionKey(v.ID)}
	total := Counts{Segments: v.Counts.Segments, IndexBytes: v.Counts.IndexBytes}
	for i := range v.Segments {
		s := &v.Segments[i]
		rows := int64(0)
		dead := int64(0)
		for b, err := range v.DeadIn(ctx, s.ID) {
			if err != nil {
				return err
			}
			dead += b.Rows
		}
		c.equal("dead rows of segment "+s.ID, dead, s.Rows-s.Live())
		for b, err := range v.BatchesIn(ctx, s.ID) {
			if err != nil {
				return err
			}
			if sums[b.DatasetID] == nil {
				sums[b.DatasetID] = &Dataset{}
			}
			sums[b.DatasetID].add(1, b.Parts, b.Rows, b.Bytes)
			rows += b.Rows
			total.Batches++
			total.Parts, total.Rows, total.PartBytes = total.Parts+b.Parts, total.Rows+b.Rows, total.PartBytes+b.Bytes
		}
		c.equal("rows of segment "+s.ID, rows, s.Live())
	}
	for d, err := range v.Datasets(ctx, 0) {
		if err != nil {
			return err
		}
		total.Datasets++
		section, sum := fmt.Sprintf("datasets: %d", d.ID), sums[d.ID]
		if c.that(section, sum != nil, "a live batch", "none"); sum != nil {
			c.equal(section, sum.sums(), d.sums())
		}
	}
	c.equal("datasets", len(sums), total.Datasets)
	c.equal("counts", total, v.Counts)
	return c.err
}
