package registry

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
	"github.com/urlake/urlake/lake/trash"
)

// datasetOf returns the dataset in a key, as in "batches/dataset_id=3/…".
func datasetOf(key, prefix string) (id uint32, ok bool) {
	digits, ok := strings.CutPrefix(key, prefix+"dataset_id=")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

// Restored is what RestoreRegistry has done.
type Restored struct {
	// Keys are the objects that were lost and are written again: lake.RegistryKey, CopyKey.
	Keys []string
	// Anew tells that neither the document nor its copy could be read: the lake has the rules that
	// the caller passed.
	Anew bool
	// Lost are pieces that were missing or damaged.
	Lost []string
	// Nameless are the ids that keys of the lake contain but no source tells the names of; they are
	// not given again.
	Nameless []uint32
}

// RestoreRegistry writes the registry's datasets again if they are lost: the document or pieces of
// it damaged, or missing from a lake that is not new. The datasets are those of sound pieces that
// the document or its copy names, and those of a version, which the caller passes. Rules are used
// if neither the document nor its copy can be read.
func RestoreRegistry(
	ctx context.Context, store blob.Store, rules lake.Rules, datasets []lake.Dataset,
) (out Restored, err error) {
	h, cond, lost, err := readLost[head](ctx, store, lake.RegistryKey)
	if err != nil {
		return out, err
	}
	backup, _, backupLost, err := readLost[head](ctx, store, CopyKey)
	if err != nil {
		return out, err
	}
	if !lost && h != nil && backup != nil && h.notOlder(backup.Generation) != nil {
		h, lost = nil, true
	}
	byID := map[uint32]lake.Dataset{}
	for _, d := range datasets {
		byID[d.ID] = d
	}
	source := h
	if lost {
		source = backup
	}
	if source != nil {
		broken, err := source.soundDatasets(ctx, store, byID)
		if err != nil {
			return out, err
		}
		out.Lost = broken
	}
	if lost || len(out.Lost) > 0 {
		if h, err = restoredHead(ctx, store, source, rules, byID, &out); err != nil {
			return out, err
		}
		data, err := codec.Seal(h)
		if err != nil {
			return out, err
		}
		if _, err = store.Put(ctx, lake.RegistryKey, data, cond); err != nil {
			return out, err
		}
		out.Keys, out.Anew = append(out.Keys, lake.RegistryKey), source == nil
	}
	if h == nil {
		return out, nil
	}
	if backupLost {
		out.Keys = append(out.Keys, CopyKey)
	}
	return out, keepCopy(ctx, store, h)
}

// restoredHead is the document of these datasets. Source is what could be read of the lost one, nil
// for nothing.
func restoredHead(
	ctx context.Context, store blob.Store, source *head, rules lake.Rules, byID map[uint32]lake.Dataset, out *Restored,
) (*head, error) {
	used := map[uint32]bool{}
	for _, prefix := range []string{"batches/", "urls/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if id, ok := datasetOf(info.Key, prefix); ok {
				used[id] = true
			}
		}
	}
	for n := range Shards { // which may be lost themselves, and are restored next
		s, _, err := read[shard](ctx, store, ShardKey(n))
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return nil, err
		}
		for i := range s.Open {
			used[s.Open[i].DatasetID] = err == nil
		}
	}
	h := &head{Format: headFormat, Rules: rules, NextID: 1}
	var err error
	if h.Swept, err = trash.Last(ctx, store); err != nil {
		return nil, err
	}
	if source != nil {
		h.Rules, h.NextID, h.Generation = source.Rules, source.NextID, source.Generation
		h.Version, h.Takedowns, h.Ledger = source.Version, source.Takedowns, source.Ledger
	}
	h.Generation++
	all := slices.SortedFunc(maps.Values(byID), func(a, b lake.Dataset) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range all {
		delete(used, d.ID)
		h.NextID = max(h.NextID, d.ID+1)
	}
	out.Nameless = slices.Sorted(maps.Keys(used))
	if n := len(out.Nameless); n > 0 {
		h.NextID = max(h.NextID, out.Nameless[n-1]+1)
	}
	return h, h.set(ctx, store, all)
}

// restoredRun is the run of the ingests that RestoreShard has found.
const restoredRun = "restored"

// RestoredShard is the result of RestoreShard.
type RestoredShard struct {
	// Keys are the objects that were lost: the shard, or pieces of it, which are written again.
	Keys []string
	// Found are the batches that only their records still knew, in a lake without a version.
	Found []BatchID
	// Retired are batches with a record that the version lacks. They waited to be published, or
	// were retired; that is lost. The restored ledger has them as retired.
	Retired []BatchID
	// Unclear says for which batches it is not known which ingest is the newest, and which records
	// cannot be read: one line each.
	Unclear []string
}

// RestoreShard writes a shard of the ledger again if it is lost, or pieces of it. What can be read
// of it stays. For the rest the records of batches say what was ingested, and the newest version
// that can be read says what of it is in the lake: live returns the digests of the batches that it
// has of the shard's datasets, nil if there is no version. Batches that the version lacks are
// retired then; without a version all batches wait to be published. older has the digests of the
// records that other versions have, newest first, which were replaced or retired. Runs that the
// lost shard has registered fail with ErrUnknownRun.
func RestoreShard(
	ctx context.Context, store blob.Store, n int, live func() (map[BatchID]string, error), older []string,
) (out RestoredShard, err error) {
	s, cond, lost, err := readLost[shard](ctx, store, ShardKey(n))
	if err == nil && s == nil && !lost { // in a lake of lists
		_, err = readShard(ctx, store, n)
		if lost = errors.Is(err, codec.ErrCorrupt); lost {
			err = nil
		}
	}
	if err != nil || s == nil && !lost {
		return out, err
	}
	least, err := leastGeneration(ctx, store, n)
	if err != nil {
		return out, err
	}
	if !lost && s.notOlder(least) != nil {
		s, lost = nil, true
	}
	orders := map[BatchID]*order{}
	next := newShard(n)
	next.Generation = least + 1
	if next.Swept, err = trash.Last(ctx, store); err != nil {
		return out, err
	}
	if lost {
		out.Keys = append(out.Keys, ShardKey(n))
	} else {
		if orders, out.Keys, err = s.sound(ctx, store); err != nil || len(out.Keys) == 0 {
			return out, err
		}
		next.NextSeq, next.Version, next.Generation = s.NextSeq, s.Version, s.Generation+1
	}
	batches, err := live()
	if err != nil {
		return out, err
	}
	records, err := recordsOf(ctx, store, n, &out)
	if err != nil {
		return out, err
	}
	replaced := map[string]bool{}
	for _, d := range older {
		replaced[d] = true
	}
	for _, id := range sortedIDs(batches, records) {
		if o := orders[id]; o != nil && o.current() >= 0 {
			continue
		}
		record, published := batches[id]
		others := records[id].newest(func(d string) bool { return d == record || replaced[d] })
		switch {
		case published && len(others) > 0:
			out.Unclear = append(out.Unclear, fmt.Sprintf("batch %s of dataset %d: the version's ingest stays; "+
				"%s may be of a newer one: if so, ingest the batch again", id.Batch, id.DatasetID, describeRecords(others)))
		case published:
		case len(others) == 0: // only an earlier version has it
			at := slices.IndexFunc(older, func(d string) bool { _, ok := records[id][d]; return ok })
			if at < 0 {
				continue
			}
			others = older[at : at+1]
		case len(others) > 1:
			out.Unclear = append(out.Unclear, fmt.Sprintf("batch %s of dataset %d: which of %s is the newest is lost; "+
				"ingest the batch again", id.Batch, id.DatasetID, describeRecords(others)))
			continue
		}
		if !published {
			record = others[0]
		}
		o := orders[id]
		if o == nil {
			o = &order{BatchID: id}
			orders[id] = o
		}
		in := Ingest{Run: restoredRun, Digest: record}
		if first := records[id].ingest(in.Digest); first != in.Digest {
			in.MovedFrom = first
		}
		o.insert(in)
		switch {
		case published:
			o.Settled = record
		case batches == nil:
			out.Found = append(out.Found, id)
		default:
			out.Retired = append(out.Retired, id)
			o.insert(Ingest{Seq: next.NextSeq, Run: restoredRun, Retired: true})
			next.NextSeq++
		}
	}
	if err := next.set(ctx, store, orders, nil); err != nil {
		return out, err
	}
	data, err := codec.Seal(next)
	if err == nil {
		_, err = store.Put(ctx, ShardKey(n), data, cond)
	}
	return out, err
}

// sound returns the orders of a shard as far as they can be read, as orders that are not stored,
// and the keys of the pieces that are lost.
func (s *shard) sound(ctx context.Context, store blob.Store) (orders map[BatchID]*order, lost []string, err error) {
	orders = map[BatchID]*order{}
	for i := range s.Open {
		orders[s.Open[i].id()] = &order{BatchID: s.Open[i].id()}
	}
	for e, err := range s.pieces(store).Sound(ctx, func(key string) { lost = append(lost, key) }) {
		if err != nil {
			return nil, nil, err
		}
		o, err := decodeOrder(e.Key, e.Value)
		if err != nil {
			return nil, nil, err
		}
		o.stored = nil
		orders[o.BatchID] = o
	}
	s.open(orders)
	return orders, lost, nil
}

func sortedIDs(batches map[BatchID]string, records map[BatchID]batchRecords) []BatchID {
	ids := slices.AppendSeq(slices.Collect(maps.Keys(batches)), maps.Keys(records))
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

func describeRecords(digests []string) string {
	if len(digests) == 1 {
		return "the record " + digests[0]
	}
	return "the records " + strings.Join(digests, ", ")
}

// batchRecords are the intact records of one batch, by digest. The value is the digest of the
// record from which one was made that was moved to another public suffix list, "" for others.
type batchRecords map[string]string

// ingest returns the digest of the record that an ingest wrote, from which the record with that
// digest was moved, or the earliest of them that is there.
func (r batchRecords) ingest(digest string) string {
	for r[digest] != "" {
		digest = r[digest]
	}
	return digest
}

// newest returns the last record of each ingest, sorted, except for the ingests that have a known
// record.
func (r batchRecords) newest(known func(digest string) bool) []string {
	moved, done := map[string]bool{}, map[string]bool{}
	for digest, from := range r {
		moved[from] = true
		if known(digest) {
			done[r.ingest(digest)] = true
		}
	}
	var list []string
	for digest := range r {
		if !moved[digest] && !done[r.ingest(digest)] && !known(r.ingest(digest)) {
			list = append(list, digest)
		}
	}
	slices.Sort(list)
	return list
}

// recordsOf returns the intact records of the datasets of a shard.
func recordsOf(ctx context.Context, store blob.Store, n int, out *RestoredShard) (map[BatchID]batchRecords, error) {
	const root = "batches/"
	records := map[BatchID]batchRecords{}
	for info, err := range store.List(ctx, root) {
		if err != nil {
			return nil, err
		}
		dataset, ok := datasetOf(info.Key, root)
		folders := strings.Split(info.Key, "/")
		if !ok || ShardOf(dataset) != n || len(folders) != 4 || lake.IsUnionName(folders[2]) {
			continue
		}
		digest, ok := strings.CutSuffix(folders[3], ".json")
		if !ok {
			continue
		}
		data, _, err := store.Get(ctx, info.Key)
		var b *lake.Batch
		if err == nil {
			b, err = lake.DecodeBatch(data, info.Key)
		}
		switch id := (BatchID{dataset, folders[2]}); {
		case errors.Is(err, codec.ErrCorrupt):
			out.Unclear = append(out.Unclear, err.Error())
		case err != nil:
			return nil, err
		default:
			if records[id] == nil {
				records[id] = batchRecords{}
			}
			records[id][digest] = b.MovedFrom
		}
	}
	return records, nil
}

// readLost reads a registry document to see whether it has to be restored, and the condition under
// which it may be replaced. The document is nil if it cannot be read. One of another format belongs
// to another program's version and is not lost.
func readLost[T any, D document[T]](
	ctx context.Context, store blob.Store, key string,
) (doc D, cond blob.Condition, lost bool, err error) {
	var info blob.Info
	doc, err = codec.Confirm(func() (D, error) {
		var data []byte
		if data, info, err = store.Get(ctx, key); err != nil {
			return nil, err
		}
		doc := D(new(T))
		if err := codec.Unseal(data, key, doc.newest(), doc); err != nil {
			return nil, err
		}
		return doc, doc.check(key)
	})
	if errors.Is(err, blob.ErrNotExist) {
		err = nil
		if key != CopyKey {
			err = CheckPresent(ctx, store, key)
		}
		if errors.Is(err, codec.ErrCorrupt) {
			lost, err = true, nil
		}
		return nil, blob.Condition{IfAbsent: true}, lost, err
	}
	cond = blob.Condition{IfMatch: info.ETag}
	var damage *codec.CorruptError
	switch {
	case codec.IsUnsealed(err):
		return nil, cond, true, nil
	case doc != nil && errors.As(err, &damage):
		return nil, cond, damage.Section != "format", nil
	case errors.Is(err, codec.ErrCorrupt):
		return nil, cond, false, nil
	case err != nil:
		return nil, blob.Condition{}, false, err
	}
	return doc, cond, false, nil
}

// soundDatasets adds the datasets of h that can be read to those of byID, and returns the keys of
// the pieces that are lost.
func (h *head) soundDatasets(ctx context.Context, store blob.Store, byID map[uint32]lake.Dataset) (lost []string, err error) {
	add := func(d lake.Dataset) {
		// A version has the same name. The title may be newer here.
		if have, ok := byID[d.ID]; !ok || have.Name == d.Name {
			byID[d.ID] = d
		}
	}
	damaged := func(key string) { lost = append(lost, key) }
	for e, err := range h.byName(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if len(e.Value) == 4 {
			id := binary.BigEndian.Uint32(e.Value)
			if _, ok := byID[id]; !ok {
				add(lake.Dataset{ID: id, Name: string(e.Key)})
			}
		}
	}
	for e, err := range h.byID(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if d, err := decodeDataset(e); err == nil {
			add(d)
		}
	}
	return lost, nil
}

// Check calls damaged with the error of every lost object of the registry that others can be read
// without: the copy of the document, pieces, and shards. It returns other errors.
func Check(ctx context.Context, store blob.Store, damaged func(err error) error) error {
	note := func(err error) error {
		if errors.Is(err, codec.ErrCorrupt) {
			return damaged(err)
		}
		return err
	}
	checkPieces := func(maps ...*pieces.Map) error {
		for _, m := range maps {
			for _, err := range m.Pieces(ctx) {
				if err := note(err); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if _, _, err := read[head](ctx, store, CopyKey); err != nil {
		if err := note(err); err != nil {
			return err
		}
	}
	h, err := readHead(ctx, store)
	if err != nil {
		return note(err)
	}
	if h.Format != 0 {
		if err := checkPieces(h.byID(store), h.byName(store)); err != nil {
			return err
		}
	}
	for n := range Shards {
		s, err := readShard(ctx, store, n)
		if err == nil {
			err = checkPieces(s.pieces(store))
		}
		if err := note(err); err != nil {
			return err
		}
	}
	return nil
}
