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

// decodeBatch is the reverse of batchEntry. The errors name the document of the version.
func (v *Version) decodeBatch(e pieces.Entry, segment string) (Batch, error) {
	d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("batch %x of segment %s", e.Key, segment))
	b := Batch{Segment: segment}
	b.Digest = hex.EncodeToString(d.Bytes(digestBytes))
	b.Rows, b.Parts, b.Bytes = int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1))
	b.Start = int64(d.Uint(math.MaxInt64))
	if d.Err() == nil && d.Len() > 0 {
		b.Union = "~" + hex.EncodeToString(d.Bytes(unionIDBytes))
		b.UnionDigest = hex.EncodeToString(d.Bytes(digestBytes))
	}
	if d.Err() == nil && (len(e.Key) < 4 || lake.CheckBatchName(string(e.Key[4:])) != nil) {
		d.Fail("a key of dataset and batch", fmt.Sprintf("%x", e.Key))
	}
	if err := d.Close(); err != nil {
		return Batch{}, err
	}
	b.DatasetID, b.Batch = binary.BigEndian.Uint32(e.Key), string(e.Key[4:])
	return b, nil
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
func (v *Version) decodeGone(e pieces.Entry) (Gone, error) {
	d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("retired batch %x", e.Key))
	g := Gone{Start: int64(d.Uint(math.MaxInt64))}
	if len(e.Key) > 4 {
		g.Digest = hex.EncodeToString(d.Bytes(digestBytes))
	}
	if d.Err() == nil && (len(e.Key) < 4 || len(e.Key) > 4 && lake.CheckBatchName(string(e.Key[4:])) != nil) {
		d.Fail("a key of dataset and batch", fmt.Sprintf("%x", e.Key))
	}
	if err := d.Close(); err != nil {
		return Gone{}, err
	}
	g.DatasetID, g.Batch = binary.BigEndian.Uint32(e.Key), string(e.Key[4:])
	return g, nil
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
	if dataset == math.MaxUint32 {
		return v.merged(ctx, datasetKey(dataset), nil)
	}
	return v.merged(ctx, datasetKey(dataset), datasetKey(dataset+1))
}

// BatchesIn yields the live batches that a segment of the version indexes, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) BatchesIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	return v.inSegment(ctx, segment, nil, nil)
}

// DeadIn yields the batches that a segment of the version indexes and that the version does not
// have, by dataset and name. An error is the last thing that it yields.
func (v *Version) DeadIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	if v == nil {
		return func(func(Batch, error) bool) {}
	}
	return v.rangeOf(ctx, v.dead[segment], segment, nil, nil)
}

// Needed yields all batches whose objects the version needs: the live ones, then the dead ones. An
// error is the last thing that it yields.
func (v *Version) Needed(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		all := []iter.Seq2[Batch, error]{v.Batches(ctx)}
		if v != nil {
			for i := range v.Segments {
				all = append(all, v.DeadIn(ctx, v.Segments[i].ID))
			}
		}
		for _, batches := range all {
			for b, err := range batches {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// CountIn is the number of batches that BatchesIn yields. It reads nothing.
func (v *Version) CountIn(segment string) int64 {
	if v == nil {
		return 0
	}
	return v.batches[segment].Len()
}

// inSegment yields the batches of a segment with from <= key < to.
func (v *Version) inSegment(ctx context.Context, segment string, from, to []byte) iter.Seq2[Batch, error] {
	if v == nil {
		return func(func(Batch, error) bool) {}
	}
	return v.rangeOf(ctx, v.batches[segment], segment, from, to)
}

// rangeOf yields those of the batches of a segment in m, which may be nil, with from <= key < to.
func (v *Version) rangeOf(ctx context.Context, m *pieces.Map, segment string, from, to []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		if m == nil {
			return
		}
		for e, err := range m.Range(ctx, from, to) {
			var b Batch
			if err == nil {
				b, err = v.decodeBatch(e, segment)
			}
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// merged yields the batches of all segments with from <= key < to.
func (v *Version) merged(ctx context.Context, from, to []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		if v == nil {
			return
		}
		type source struct {
			next func() (Batch, error, bool)
			head Batch
		}
		var sources []*source
		var stops []func()
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		for i := range v.Segments {
			next, stop := iter.Pull2(v.inSegment(ctx, v.Segments[i].ID, from, to))
			stops = append(stops, stop)
			sources = append(sources, &source{next: next})
		}
		advance := func(s *source) (ok bool, err error) {
			s.head, err, ok = s.next()
			return ok, err
		}
		at := 0
		for _, s := range sources {
			ok, err := advance(s)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if ok {
				sources[at] = s
				at++
			}
		}
		sources = sources[:at]
		for len(sources) > 0 {
			first := 0
			for i, s := range sources {
				if CompareNames(s.head.BatchName, sources[first].head.BatchName) < 0 {
					first = i
				}
			}
			if !yield(sources[first].head, nil) {
				return
			}
			ok, err := advance(sources[first])
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if !ok {
				sources = slices.Delete(sources, first, first+1)
			}
		}
	}
}

// FindGone returns those of the named batches that are gone. A name without a batch stands for the
// dataset.
func (v *Version) FindGone(ctx context.Context, names []BatchName) (map[BatchName]Gone, error) {
	found := map[BatchName]Gone{}
	if v == nil || v.gone == nil {
		return found, nil
	}
	keys := make([][]byte, len(names))
	for i, n := range names {
		keys[i] = batchKey(n)
	}
	entries, err := v.gone.GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e == nil {
			continue
		}
		g, err := v.decodeGone(*e)
		if err != nil {
			return nil, err
		}
		found[g.BatchName] = g
	}
	return found, nil
}

// Gone yields what is gone of all datasets, or of one if that is not 0, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) Gone(ctx context.Context, dataset uint32) iter.Seq2[Gone, error] {
	return func(yield func(Gone, error) bool) {
		if v == nil || v.gone == nil {
			return
		}
		var from, to []byte
		if dataset != 0 {
			if from = datasetKey(dataset); dataset != math.MaxUint32 {
				to = datasetKey(dataset + 1)
			}
		}
		for e, err := range v.gone.Range(ctx, from, to) {
			var g Gone
			if err == nil {
				g, err = v.decodeGone(e)
			}
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
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
	found := map[BatchName]Batch{}
	if v == nil {
		return found, nil
	}
	for some := range slices.Chunk(names, findAtOnce) {
		keys := make([][]byte, len(some))
		for i, n := range some {
			keys[i] = batchKey(n)
		}
		entries := make([][]*pieces.Entry, len(v.Segments))
		group, groupCtx := errgroup.WithContext(ctx)
		for i := range v.Segments {
			group.Go(func() (err error) {
				entries[i], err = v.batches[v.Segments[i].ID].GetMany(groupCtx, keys)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for i := range entries {
			for _, e := range entries[i] {
				if e == nil {
					continue
				}
				b, err := v.decodeBatch(*e, v.Segments[i].ID)
				if err != nil {
					return nil, err
				}
				found[b.BatchName] = b
			}
		}
	}
	return found, nil
}

// Datasets yields the datasets with live batches by id, from the id first on. An error is the last
// thing that it yields.
func (v *Version) Datasets(ctx context.Context, first uint32) iter.Seq2[Dataset, error] {
	return func(yield func(Dataset, error) bool) {
		if v == nil || v.datasets == nil {
			return
		}
		for e, err := range v.datasets.Range(ctx, datasetKey(first), nil) {
			var d Dataset
			if err == nil {
				d, err = v.decodeDataset(e)
			}
			if err != nil {
				yield(Dataset{}, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// FindDatasets returns those of the datasets that have live batches, by id.
func (v *Version) FindDatasets(ctx context.Context, ids []uint32) (map[uint32]Dataset, error) {
	found := map[uint32]Dataset{}
	if v == nil || v.datasets == nil || len(ids) == 0 {
		return found, nil
	}
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = datasetKey(id)
	}
	entries, err := v.datasets.GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e == nil {
			continue
		}
		d, err := v.decodeDataset(*e)
		if err != nil {
			return nil, err
		}
		found[d.ID] = d
	}
	return found, nil
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
