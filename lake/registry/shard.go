package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

const (
	// Shards is the number of documents into which the ledger is divided. They are replaced
	// independently, and a publish reads all of them.
	Shards = 8

	// shardFormat is the version of these documents.
	shardFormat = 1

	// keepUnfinished is the number of ingests without an end that stay registered: the newest ones
	// of a shard. It is far more than run at once. AbandonIngest removes those that fail or are
	// cancelled, so only runs that were terminated or deleted from Temporal count.
	keepUnfinished = 20_000

	// MaxRunning is the most ingests that one caller should have registered and not finished, so
	// that they do not remove each other, or those of others, from the ledger.
	MaxRunning = Shards * keepUnfinished / 2

	// keepSuperseded is the number of superseded ingests of a batch that stay registered. Only a
	// run that finishes a second time looks for them; one that is later than that gets
	// ErrUnknownRun.
	keepSuperseded = 16
)

// ShardOf returns the number of the shard that has the ingests of a dataset.
func ShardOf(dataset uint32) int { return int(dataset % Shards) }

// ShardKey is the key of a shard of the ledger.
func ShardKey(shard int) string { return fmt.Sprintf("registry/ledger/%02d.json", shard) }

// BatchID names a batch of a dataset.
type BatchID struct {
	DatasetID uint32
	Batch     string
}

func compareIDs(a, b BatchID) int {
	return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), cmp.Compare(a.Batch, b.Batch))
}

// key is the key of a batch in pieces: the dataset's id, the most significant byte first, and the
// name.
func (b BatchID) key() []byte { return append(idKey(b.DatasetID), b.Batch...) }

// shard is the document at a ShardKey. The order of the ingests of a batch is divided: what waits
// is in the document, so that a publish has not to look for it, and the rest is in pieces.
type shard struct {
	Format int `json:"format"`
	Shard  int `json:"shard"`
	// Generation grows by one with every change.
	Generation uint64 `json:"generation,omitempty"`
	// NextSeq is the number of the shard's next ingest.
	NextSeq int64 `json:"next_seq"`
	// Settled is the number of batches with a settled record.
	Settled int64 `json:"settled"`
	// Retired is the number of batches with an entry that retires them, or others of their dataset,
	// whether it is the current one or not.
	Retired int64 `json:"retired,omitempty"`
	// Version is the id of the version of which Settle was told last, "" for none.
	Version string `json:"version,omitempty"`
	// Swept is the number of the last sweep of a garbage collection (package lake/trash), 0 for
	// none. Whoever replaces the document waits until that sweep has ended.
	Swept uint64 `json:"swept,omitempty"`
	// Open has, by number, the ingests that have not finished, and of each batch the current one
	// unless that is settled.
	Open []openIngest `json:"open"`
	// Batches has the settled record and the other ingests of each batch, by BatchID.key.
	Batches pieces.Ref `json:"batch_pieces"`

	noted uint64 // the generation that the registry's document vouched for when the shard was read
}

type openIngest struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Ingest
}

func (o *openIngest) id() BatchID { return BatchID{o.DatasetID, o.Batch} }

// Ingest is one registered ingest of a batch, or an entry that retires the batch.
type Ingest struct {
	// Seq is its number in the order of its shard's ingests, from 1. A restored one may have 0.
	Seq int64  `json:"seq"`
	Run string `json:"run"`
	// Digest names the batch's record. It is "" until the ingest has finished, and in entries that
	// retire the batch.
	Digest string `json:"digest,omitempty"`
	// MovedFrom is the digest that the ingest finished with, if the batch was moved to another
	// public suffix list since; else "".
	MovedFrom string `json:"moved_from,omitempty"`
	// Retired tells that this is no ingest: it takes the batch out of the lake, in the place that
	// an ingest of that number would have in the order. Run names who did it. If that was an ingest
	// of another batch, which is the dataset's only one from its place in the order on, By is that
	// batch and Seq its number. No version then lacks this batch before it has the other.
	Retired bool   `json:"retired,omitempty"`
	By      string `json:"by,omitempty"`
	// Replaces tells that the ingest has retired the other batches of its dataset. It is dropped
	// when a version has the ingest.
	Replaces bool `json:"replaces,omitempty"`
}

// retires reports whether the entry retires the batch, or others.
func (i Ingest) retires() bool { return i.Retired || i.Replaces }

// Finished reports whether the entry can be the current one of its batch: it is an ingest that has
// finished, or retires the batch.
func (i Ingest) Finished() bool { return i.Digest != "" || i.Retired }

// settledRetired is what an order has as Settled if a version is known to lack the retired batch.
const settledRetired = "retired"

// settled is what an order has as Settled when a version agrees with the entry.
func (i Ingest) settled() string {
	if i.Retired {
		return settledRetired
	}
	return i.Digest
}

// Is reports whether the ingest finished with the record of that digest, moved since or not.
func (i Ingest) Is(digest string) bool {
	return digest != "" && (i.Digest == digest || i.MovedFrom == digest)
}

func newShard(n int) *shard {
	return &shard{Format: shardFormat, Shard: n, NextSeq: 1, Open: []openIngest{}}
}

func (s *shard) newest() int { return shardFormat }

func (s *shard) check(key string) error {
	if s.Format != shardFormat {
		return codec.Corrupt(key, "format", -1, shardFormat, s.Format)
	}
	if ShardKey(s.Shard) != key {
		return codec.Corrupt(key, "shard", -1, "that of the key", s.Shard)
	}
	for _, o := range s.Open {
		if ShardOf(o.DatasetID) != s.Shard {
			return codec.Corrupt(key, "open", -1, "datasets of the shard", o.DatasetID)
		}
		if o.Retired && o.Digest != "" {
			return codec.Corrupt(key, "open", -1, "retired batches without a record", o.Digest)
		}
	}
	return s.Batches.Check(key)
}

// readShard reads a shard. In a new lake it is empty. In other lakes, a shard that is missing, or
// has a lower generation than in the registry's document, is a *codec.CorruptError.
func readShard(ctx context.Context, store blob.Store, n int) (*shard, error) {
	least, err := leastGeneration(ctx, store, n)
	if err != nil {
		return nil, err
	}
	return readShardSince(ctx, store, n, least)
}

// readShardSince is readShard for a caller that knows the lowest generation that the shard may
// have.
func readShardSince(ctx context.Context, store blob.Store, n int, least uint64) (*shard, error) {
	s, etag, err := read[shard](ctx, store, ShardKey(n))
	switch {
	case err == nil && etag == "":
		s, err = missingShard(ctx, store, n)
	case err == nil:
		err = s.notOlder(least)
	}
	return s, err
}

// missingShard returns what takes the place of a shard that is not there.
func missingShard(ctx context.Context, store blob.Store, n int) (*shard, error) {
	h, err := readHead(ctx, store)
	if err != nil {
		return nil, err
	}
	if h.Format != 0 {
		if err := CheckPresent(ctx, store, ShardKey(n)); err != nil {
			return nil, err
		}
		s, etag, err := read[shard](ctx, store, ShardKey(n))
		if etag != "" || err != nil {
			return s, err
		}
	}
	return newShard(n), nil
}

// createShards writes the shards that are missing.
func createShards(ctx context.Context, store blob.Store) error {
	g, ctx := errgroup.WithContext(ctx)
	for n := range Shards {
		g.Go(func() error {
			if _, err := store.Stat(ctx, ShardKey(n)); !errors.Is(err, blob.ErrNotExist) {
				return err
			}
			data, err := codec.Seal(newShard(n))
			if err != nil {
				return err
			}
			_, err = store.Put(ctx, ShardKey(n), data, blob.Condition{IfAbsent: true})
			if err != nil {
				// Another writer was first, or only the reply was lost.
				if _, statErr := store.Stat(ctx, ShardKey(n)); statErr == nil {
					return nil
				}
			}
			return err
		})
	}
	return g.Wait()
}

// order is the order of the ingests of one batch.
type order struct {
	BatchID
	// Settled is the digest of the record that a version has by what Settle was told, "" for none,
	// or settledRetired.
	Settled string
	// Ingests are by number.
	Ingests []Ingest

	stored []byte // in pieces, nil for nothing
}

// storedOrder is the JSON of what pieces have of an order.
type storedOrder struct {
	Settled string   `json:"settled,omitempty"`
	Ingests []Ingest `json:"ingests,omitempty"`
}

// current returns the index of the current entry: of the finished ones the last. It is -1 if none
// has finished.
func (o *order) current() int {
	for i := len(o.Ingests) - 1; i >= 0; i-- {
		if o.Ingests[i].Finished() {
			return i
		}
	}
	return -1
}

// record returns the digest of the record of the current ingest. Ok is false if none has finished,
// or if the batch is retired.
func (o *order) record() (digest string, ok bool) {
	at := o.current()
	if at < 0 || o.Ingests[at].Retired {
		return "", false
	}
	return o.Ingests[at].Digest, true
}

// hasSettledRecord reports whether a version has a record of the batch by what Settle was told.
func (o *order) hasSettledRecord() bool { return o.Settled != "" && o.Settled != settledRetired }

// retires reports whether an entry of the order retires the batch, or others.
func (o *order) retires() bool { return slices.ContainsFunc(o.Ingests, Ingest.retires) }

// find returns the index of a run's ingest, or, in a restored ledger, which does not know its runs,
// of the restored ingest with that digest. It is -1 if there is none.
func (o *order) find(run, digest string) int {
	at := slices.IndexFunc(o.Ingests, func(i Ingest) bool { return i.Run == run && !i.Retired })
	if at < 0 {
		at = slices.IndexFunc(o.Ingests, func(i Ingest) bool { return i.Run == restoredRun && i.Is(digest) })
	}
	return at
}

// insert puts an ingest at its place.
func (o *order) insert(in Ingest) {
	at, _ := slices.BinarySearchFunc(o.Ingests, in.Seq, func(i Ingest, seq int64) int { return cmp.Compare(i.Seq, seq) })
	o.Ingests = slices.Insert(o.Ingests, at, in)
}

// divide returns what of the order is in pieces, nil for nothing, and what is open. Retired tells
// that some of it retires the batch, or others.
func (o *order) divide() (stored []byte, open []openIngest, retired bool, err error) {
	s := storedOrder{Settled: o.Settled}
	current := o.current()
	// If a version has the current ingest, that cannot be withdrawn. So no earlier entry that
	// retires the batch becomes current again, and none is kept.
	published := o.hasSettledRecord() && current >= 0 && o.Ingests[current].Digest == o.Settled
	for i, in := range o.Ingests {
		if published {
			in.Replaces = false
		}
		switch {
		case in.Retired && published:
		case !in.Finished() || i == current && in.settled() != o.Settled:
			open = append(open, openIngest{o.DatasetID, o.Batch, in})
			retired = retired || in.retires()
		default:
			s.Ingests = append(s.Ingests, in)
		}
	}
	if n := len(s.Ingests) - keepSuperseded; n > 0 {
		s.Ingests = s.Ingests[n:]
	}
	retired = retired || slices.ContainsFunc(s.Ingests, Ingest.retires)
	if s.Settled == "" && len(s.Ingests) == 0 {
		return nil, open, retired, nil
	}
	stored, err = json.Marshal(s)
	return stored, open, retired, err
}

func decodeOrder(key, value []byte) (*order, error) {
	o := &order{stored: value}
	var s storedOrder
	err := json.Unmarshal(value, &s)
	if err != nil || len(key) < 5 {
		return nil, codec.Corrupt(PiecesRoot, fmt.Sprintf("batch %q", key), -1, "the order of its ingests", string(value))
	}
	o.BatchID = BatchID{binary.BigEndian.Uint32(key), string(key[4:])}
	o.Settled, o.Ingests = s.Settled, s.Ingests
	return o, nil
}

func (s *shard) pieces(store blob.Store) *pieces.Map {
	return pieces.Open(store, PiecesRoot, s.Batches)
}

// open adds what the document has to the orders of some batches.
func (s *shard) open(orders map[BatchID]*order) {
	for i := range s.Open {
		if o := orders[s.Open[i].id()]; o != nil {
			o.insert(s.Open[i].Ingest)
		}
	}
}

// find returns the orders of some batches. A batch without ingests has an empty one.
func (s *shard) find(ctx context.Context, store blob.Store, ids []BatchID) (map[BatchID]*order, error) {
	found := make(map[BatchID]*order, len(ids))
	keys := make([][]byte, 0, len(ids))
	for _, id := range ids {
		if found[id] == nil {
			found[id] = &order{BatchID: id}
			keys = append(keys, id.key())
		}
	}
	entries, err := s.pieces(store).GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e == nil {
			continue
		}
		o, err := decodeOrder(e.Key, e.Value)
		if err != nil {
			return nil, err
		}
		found[o.BatchID] = o
	}
	s.open(found)
	return found, nil
}

// all yields the orders of all batches, by dataset and name, or of one dataset if that is not 0.
func (s *shard) all(ctx context.Context, store blob.Store, dataset uint32) iter.Seq2[*order, error] {
	return func(yield func(*order, error) bool) {
		opened := map[BatchID]*order{}
		for i := range s.Open {
			if o := &s.Open[i]; dataset == 0 || o.DatasetID == dataset {
				opened[o.id()] = &order{BatchID: o.id()}
			}
		}
		s.open(opened)
		rest := make([]*order, 0, len(opened))
		for _, o := range opened {
			rest = append(rest, o)
		}
		slices.SortFunc(rest, func(a, b *order) int { return compareIDs(a.BatchID, b.BatchID) })
		var from, to []byte
		if dataset != 0 {
			from = idKey(dataset)
			if to = idKey(dataset + 1); dataset+1 == 0 {
				to = nil
			}
		}
		for e, err := range s.pieces(store).Range(ctx, from, to) {
			var o *order
			if err == nil {
				o, err = decodeOrder(e.Key, e.Value)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for len(rest) > 0 && compareIDs(rest[0].BatchID, o.BatchID) <= 0 {
				if rest[0].BatchID == o.BatchID {
					for _, in := range rest[0].Ingests {
						o.insert(in)
					}
				} else if !yield(rest[0], nil) {
					return
				}
				rest = rest[1:]
			}
			if !yield(o, nil) {
				return
			}
		}
		for _, o := range rest {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// counted is how an order counts in its shard.
type counted struct{ settled, retired bool }

func (o *order) counted() counted { return counted{o.hasSettledRecord(), o.retires()} }

// add adds n times an order that counts so.
func (s *shard) add(n int64, c counted) {
	if c.settled {
		s.Settled += n
	}
	if c.retired {
		s.Retired += n
	}
}

// set writes orders that find has returned and that were changed since. Before tells how each was
// counted before.
func (s *shard) set(ctx context.Context, store blob.Store, orders map[BatchID]*order, before map[BatchID]counted) error {
	s.Open = slices.DeleteFunc(s.Open, func(o openIngest) bool { return orders[o.id()] != nil })
	var edits []pieces.Edit
	for id, o := range orders {
		stored, open, retired, err := o.divide()
		if err != nil {
			return err
		}
		s.Open = append(s.Open, open...)
		if !bytes.Equal(stored, o.stored) {
			edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: id.key(), Value: stored}, Delete: stored == nil})
		}
		s.add(1, counted{o.hasSettledRecord(), retired})
		s.add(-1, before[id])
	}
	slices.SortFunc(s.Open, func(a, b openIngest) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), compareIDs(a.id(), b.id()))
	})
	s.dropUnfinished()
	if len(edits) == 0 {
		return nil
	}
	m, err := s.pieces(store).Apply(ctx, edits)
	if err == nil {
		s.Batches = m.Ref()
	}
	return err
}

// dropUnfinished removes the oldest ingests without an end beyond keepUnfinished.
func (s *shard) dropUnfinished() {
	n := 0
	for i := range s.Open {
		if !s.Open[i].Finished() {
			n++
		}
	}
	s.Open = slices.DeleteFunc(s.Open, func(o openIngest) bool {
		if n <= keepUnfinished || o.Finished() {
			return false
		}
		n--
		return true
	})
}

// edit changes the orders of some batches of one shard. Change is called with an order for each of
// them and reports whether it changed any. It may be called again, see update.
func edit(
	ctx context.Context, store blob.Store, n int, ids []BatchID,
	change func(s *shard, orders map[BatchID]*order) (bool, error),
) error {
	return editAll(ctx, store, n, ids, nil, change)
}

// editAll is edit, also for all batches of the datasets that more returns, which may be nil. More
// is called with the orders of the batches ids.
func editAll(
	ctx context.Context, store blob.Store, n int, ids []BatchID, more func(orders map[BatchID]*order) []uint32,
	change func(s *shard, orders map[BatchID]*order) (bool, error),
) error {
	missing := func() (*shard, error) { return missingShard(ctx, store, n) }
	least, err := leastGeneration(ctx, store, n)
	if err != nil {
		return err
	}
	_, err = update(ctx, store, ShardKey(n), missing,
		func(s *shard) (bool, error) {
			if err := s.notOlder(least); err != nil {
				return false, err
			}
			orders, err := s.find(ctx, store, ids)
			if err == nil && more != nil {
				err = s.addAll(ctx, store, orders, more(orders))
			}
			if err != nil {
				return false, err
			}
			before := map[BatchID]counted{}
			for id, o := range orders {
				before[id] = o.counted()
			}
			changed, err := change(s, orders)
			if err != nil || !changed {
				return false, err
			}
			s.Generation++
			return true, s.set(ctx, store, orders, before)
		})
	return err
}

// addAll adds the orders of all batches of datasets.
func (s *shard) addAll(ctx context.Context, store blob.Store, orders map[BatchID]*order, datasets []uint32) error {
	for _, dataset := range datasets {
		for o, err := range s.all(ctx, store, dataset) {
			if err != nil {
				return err
			}
			if orders[o.BatchID] == nil {
				orders[o.BatchID] = o
			}
		}
	}
	return nil
}
