package gc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish"
)

// references is what must not be deleted: what versions, the registry and plans of publishes refer
// to, and the batches that are being written. It takes 32 bytes a batch, and some for a segment and
// a piece.
type references struct {
	versions map[string]bool // ids
	segments map[string]bool // ids
	pieces   map[string]bool // keys
	// takedowns are the objects of the manifest's takedowns, and the deletion tables, by key.
	takedowns map[string]bool
	// anyTaken and anyPiece tell that it is not known which pieces of inputs, and of versions, are
	// needed.
	anyTaken, anyPiece bool
	// records are the records, by batch.
	records []record
	// writing are batches whose objects are being written.
	writing map[catalog.BatchName]bool

	store blob.Store
	// exact has the objects of some batches, by key, nil for a batch whose records cannot be read.
	exact map[catalog.BatchName]map[string]bool
	// unreadable has an error for each batch whose record is damaged.
	unreadable map[catalog.BatchName]error
	// unpublished are batches of which a record waits, which no version may have.
	unpublished []catalog.BatchName
}

// record is a batch record, in the order of batch, digest.
type record struct {
	batch  uint64 // a hash of dataset and name: two batches with the same are kept together
	digest [16]byte
	parts  int32 // -1 if that is not known
	hold   hold
}

// hold says why a record is kept. The strongest one counts.
type hold int8

const (
	// waits: it waits to be published. All its objects are kept, unless a version has the batch in
	// a union.
	waits hold = iota
	// inUnion: a version has the batch in a union. Parts and postings are those of the union.
	inUnion
	// itself: a version or a publish needs all its objects.
	itself
)

// exactBatches is of how many batches the objects are kept in memory.
const exactBatches = 4096

func hashOf(b catalog.BatchName) uint64 {
	key := append(binary.BigEndian.AppendUint32(nil, b.DatasetID), b.Batch...)
	return xxh3.Hash(key)
}

// reader collects references.
type reader struct {
	ctx   context.Context
	store blob.Store
	refs  *references

	maps map[string]bool // roots that were read
}

// readReferences reads all references of a lake. Held are versions that the manifest lists no
// longer, but that servers read.
func readReferences(
	ctx context.Context, store blob.Store, m *catalog.Manifest, held []string,
) (*references, error) {
	r := newReader(ctx, store)
	for _, ref := range m.Versions {
		if err := r.version(ref); err != nil {
			return nil, err
		}
	}
	if err := r.held(held); err != nil {
		return nil, err
	}
	if err := r.takedowns(m); err != nil {
		return nil, err
	}
	if err := r.registry(m); err != nil {
		return nil, err
	}
	if err := r.publishes(); err != nil {
		return nil, err
	}
	return r.done(), nil
}

func newReader(ctx context.Context, store blob.Store) *reader {
	return &reader{
		ctx: ctx, store: store, maps: map[string]bool{},
		refs: &references{
			versions: map[string]bool{}, segments: map[string]bool{}, pieces: map[string]bool{},
			takedowns: map[string]bool{}, writing: map[catalog.BatchName]bool{}, store: store,
			exact: map[catalog.BatchName]map[string]bool{}, unreadable: map[catalog.BatchName]error{},
		},
	}
}

func (r *reader) done() *references {
	slices.SortFunc(r.refs.records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.batch, b.batch), bytes.Compare(a.digest[:], b.digest[:]))
	})
	// A record that is known twice, from a version and the registry, keeps the number of its parts.
	all := r.refs.records[:0]
	for _, rec := range r.refs.records {
		if n := len(all); n > 0 && all[n-1].batch == rec.batch && all[n-1].digest == rec.digest {
			all[n-1].parts = max(all[n-1].parts, rec.parts)
			all[n-1].hold = max(all[n-1].hold, rec.hold)
			continue
		}
		all = append(all, rec)
	}
	r.refs.records = slices.Clip(all)
	return r.refs
}

// version adds what a version of the manifest refers to. The error is lease.ErrSweepOpen if another
// collection has dropped and deleted the version since the manifest was read.
func (r *reader) version(ref catalog.VersionRef) error {
	v, err := catalog.ReadVersion(r.ctx, r.store, ref)
	if err != nil {
		err = fmt.Errorf("version %s: %w", ref.ID, err)
	} else {
		err = r.contents(v)
	}
	if err == nil || r.ctx.Err() != nil {
		return err
	}
	m, _, manifestErr := catalog.ReadManifest(r.ctx, r.store)
	if manifestErr != nil {
		return errors.Join(err, manifestErr)
	}
	if _, dropped := m.Version(ref.ID); dropped != nil {
		return fmt.Errorf("version %s: %w", ref.ID, lease.ErrSweepOpen)
	}
	return err
}

// held adds what versions refer to that servers still read although the manifest lists them no
// longer. Nothing mends such a version. If it is damaged, what can be read of it names what is
// kept: it must not stop the collection for as long as a server holds it.
func (r *reader) held(ids []string) error {
	for _, id := range ids {
		if r.refs.versions[id] || !catalog.ValidVersionID(id) {
			continue
		}
		data, _, err := r.store.Get(r.ctx, catalog.VersionKey(id))
		if errors.Is(err, blob.ErrNotExist) {
			continue // it was collected before the server took its lease, which it is told then
		}
		if err != nil {
			return err
		}
		v, err := catalog.DecodeVersion(r.store, data, catalog.VersionKey(id))
		if err == nil {
			err = r.contents(v)
		}
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return fmt.Errorf("version %s, which a server holds: %w", id, err)
		}
	}
	return nil
}

// contents adds what a version refers to. If pieces of the version are lost, which nothing mends in
// an earlier version, its segments tell its batches, and no piece of a version is deleted.
func (r *reader) contents(v *catalog.Version) error {
	r.refs.versions[v.ID] = true
	for key, err := range v.PieceNames(r.ctx) {
		if errors.Is(err, codec.ErrCorrupt) {
			r.refs.anyPiece = true
		} else if err != nil {
			return fmt.Errorf("version %s: %w", v.ID, err)
		}
		r.refs.pieces[key] = true
	}
	for _, s := range v.Segments {
		r.refs.segments[s.ID] = true
		lists := []iter.Seq2[catalog.Batch, error]{}
		if s.Dead != nil { // without the dead batches it cannot be built again
			r.refs.takedowns[s.Dead.Table.Key] = true
			lists = append(lists, v.DeadIn(r.ctx, s.ID))
		}
		// Versions share the lists of batches of the segments that they share.
		if root := s.BatchPieces.Root; root == "" || !r.maps[root] {
			r.maps[root] = true
			lists = append(lists, v.BatchesIn(r.ctx, s.ID))
		}
		for _, list := range lists {
			err := r.batches(list)
			if errors.Is(err, codec.ErrCorrupt) {
				r.refs.anyPiece = true
				err = r.batches(publish.CoveredBatches(r.ctx, r.store, s, nil))
			}
			if err != nil {
				return fmt.Errorf("version %s: %w", v.ID, err)
			}
		}
	}
	return nil
}

func (r *reader) batches(list iter.Seq2[catalog.Batch, error]) error {
	for b, err := range list {
		if err == nil {
			err = r.batch(&b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// batch adds what a version refers to for a batch.
func (r *reader) batch(b *catalog.Batch) error {
	id := catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}
	if b.Union == "" {
		return r.add(id, b.Digest, b.Parts, itself)
	}
	if err := r.add(id, b.Digest, -1, inUnion); err != nil {
		return err
	}
	return r.add(catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Union}, b.UnionDigest, -1, itself)
}

// add adds a record. Parts is -1 if their number is not known.
func (r *reader) add(b catalog.BatchName, digest string, parts int64, why hold) error {
	rec := record{batch: hashOf(b), parts: int32(min(parts, 1<<30)), hold: why}
	if n, err := hex.Decode(rec.digest[:], []byte(digest)); err != nil || n != len(rec.digest) {
		return fmt.Errorf("batch %s of dataset %d: record %q: want 32 hex digits", b.Batch, b.DatasetID, digest)
	}
	r.refs.records = append(r.refs.records, rec)
	return nil
}

// takedowns adds what the manifest's takedowns refer to. Earlier ones are garbage.
func (r *reader) takedowns(m *catalog.Manifest) error {
	if m.Takedowns == nil {
		return nil
	}
	r.refs.takedowns[m.Takedowns.Object] = true
	doc, err := catalog.ReadTakedowns(r.ctx, r.store, m.Takedowns)
	if err != nil {
		return fmt.Errorf("takedowns: %w", err)
	}
	for key, err := range doc.Objects(r.ctx, r.store) {
		if err != nil {
			return fmt.Errorf("takedowns: %w", err)
		}
		r.refs.takedowns[key] = true
	}
	return nil
}

// registry adds what the registry refers to, what waits to be published, and what is being written.
func (r *reader) registry(m *catalog.Manifest) error {
	if err := catalog.RegistryPieces(r.ctx, r.store, func(key string) { r.refs.pieces[key] = true }); err != nil {
		return err
	}
	taken, ok, err := many.TakenPieces(r.ctx, r.store)
	if err != nil {
		return err
	}
	r.refs.anyTaken = !ok
	for _, key := range taken {
		r.refs.pieces[key] = true
	}
	for key, err := range numbers.Pieces(r.ctx, r.store) {
		if err != nil {
			return err
		}
		r.refs.pieces[key] = true
	}
	state, err := catalog.ReadWaiting(r.ctx, r.store)
	if err != nil {
		return err
	}
	for _, d := range state.Damaged { // it is not known what it names
		return d.Err
	}
	ref, err := m.Version("")
	if err != nil {
		return err
	}
	if state.Version, err = catalog.ReadVersion(r.ctx, r.store, ref); err != nil {
		return fmt.Errorf("version %s: %w", ref.ID, err)
	}
	unpublished, err := state.Unpublished(r.ctx)
	if err != nil {
		return err
	}
	waiting := map[uint32]map[lake.Member]bool{} // batches that no version may have, by dataset
	for _, b := range unpublished {
		if b.Retired {
			continue
		}
		if err := r.add(b.BatchName, b.Digest, -1, waits); err != nil {
			return err
		}
		if waiting[b.DatasetID] == nil {
			waiting[b.DatasetID] = map[lake.Member]bool{}
		}
		waiting[b.DatasetID][lake.Member{Batch: b.Batch, Digest: b.Digest}] = true
		r.refs.unpublished = append(r.refs.unpublished, b.BatchName)
	}
	for dataset, batches := range waiting {
		if err := r.unionsOf(dataset, batches); err != nil {
			return err
		}
	}
	// The ingests that are under way may write any object of their batches.
	running, err := many.Running(r.ctx, r.store)
	for _, name := range running {
		r.refs.writing[name] = true
	}
	return err
}

// unionsOf adds the unions of a dataset that have any of these batches. One that was restored may
// have no parts of its own any more (lakecheck.Source).
func (r *reader) unionsOf(dataset uint32, batches map[lake.Member]bool) error {
	for info, err := range r.store.List(r.ctx, lake.UnionPrefix(dataset)) {
		if err != nil {
			return err
		}
		o, ok := parse(info.Key)
		if !ok || o.kind != Records {
			continue
		}
		data, _, err := r.store.Get(r.ctx, info.Key)
		var union *lake.Batch
		if err == nil {
			union, err = lake.DecodeBatch(data, info.Key)
		}
		if errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(union.Members, func(m lake.Member) bool { return batches[lake.Member{Batch: m.Batch, Digest: m.Digest}] }) {
			if err := r.add(o.batch, lake.Digest(data), -1, itself); err != nil {
				return err
			}
		}
	}
	return nil
}

// publishes adds what publishes that are under way work on.
func (r *reader) publishes() error {
	work, err := publish.UnderWay(r.ctx, r.store)
	if err != nil {
		return err
	}
	for _, b := range work.Batches {
		id := catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}
		if err := r.add(id, b.Digest, -1, itself); err != nil {
			return err
		}
	}
	for _, b := range work.Moving {
		r.refs.writing[b] = true
	}
	for _, id := range work.Segments {
		r.refs.segments[id] = true
	}
	return nil
}

// readUnpublished reads the records of the batches that no version may have, which has would read.
func (r *references) readUnpublished(ctx context.Context) error {
	for _, b := range r.unpublished {
		if _, err := r.objects(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// of returns the records of a batch.
func (r *references) of(b catalog.BatchName) []record {
	h := hashOf(b)
	from, _ := slices.BinarySearchFunc(r.records, h, func(a record, h uint64) int {
		if a.batch < h {
			return -1
		}
		return 1
	})
	to := from
	for to < len(r.records) && r.records[to].batch == h {
		to++
	}
	return r.records[from:to]
}

// has reports whether anything refers to an object, or may.
func (r *references) has(ctx context.Context, key string, o object) (bool, error) {
	switch o.kind {
	case Versions:
		return r.versions[o.name], nil
	case SegmentInfos:
		return r.segments[o.name], nil
	case SegmentFiles:
		if !r.segments[o.name] {
			return false, nil
		}
		replaced, err := r.replacedTree(ctx, key, o.name)
		return !replaced, err
	case VersionPieces:
		return r.anyPiece || r.pieces[key], nil
	case RegistryPieces, NumberPieces:
		return r.pieces[key], nil
	case Takedowns, TakedownPieces, Deletions:
		return r.takedowns[key], nil
	case TakenPieces:
		return r.anyTaken || r.pieces[key], nil
	case Reports:
		return many.HasPlan(ctx, r.store, o.name)
	case Probes:
		return false, nil
	}
	if r.writing[o.batch] {
		return true, nil
	}
	if len(r.of(o.batch)) == 0 {
		return false, nil
	}
	objects, err := r.objects(ctx, o.batch)
	if err != nil {
		return false, err
	}
	return objects == nil || objects[key], nil
}

// replacedTree reports whether the document of a segment's index of path trees names another file.
// A file of which there is no document yet is being written.
func (r *references) replacedTree(ctx context.Context, key, id string) (bool, error) {
	if !pathtree.IsFile(key) {
		return false, nil
	}
	info, err := pathtree.ReadInfo(ctx, r.store, id)
	var later *codec.FormatError
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) || errors.As(err, &later) {
		return false, nil
	}
	return err == nil && info.Object() != key, err
}

// objects returns the keys of the objects of a batch's records. They are nil if a record cannot be
// read, so that it is not known what it refers to.
func (r *references) objects(ctx context.Context, b catalog.BatchName) (map[string]bool, error) {
	if all, ok := r.exact[b]; ok {
		return all, nil
	}
	all := map[string]bool{}
	for _, rec := range r.of(b) {
		digest := hex.EncodeToString(rec.digest[:])
		key := lake.BatchKey(b.DatasetID, b.Batch, digest)
		data, _, err := r.store.Get(ctx, key)
		var batch *lake.Batch
		if err == nil {
			batch, err = lake.DecodeBatch(data, key)
		}
		if errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) {
			r.unreadable[b] = err
			all = nil
			break
		}
		if err != nil {
			return nil, err
		}
		all[key] = true
		if rec.hold != inUnion {
			for _, p := range batch.Parts {
				all[p.Key] = true
			}
			for _, p := range batch.Postings {
				all[p.Key] = true
			}
		}
		if batch.Rejects != nil {
			all[batch.Rejects.Key] = true
		}
	}
	if len(r.exact) >= exactBatches {
		clear(r.exact)
	}
	r.exact[b] = all
	return all, nil
}
