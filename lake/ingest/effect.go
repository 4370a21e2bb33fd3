package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// maxCompared bounds the records with which the inputs of an ingest are compared, as
	// maxRecordBytes does, so that an ingest costs the same in a dataset of a million batches. A
	// year of daily batches is far below.
	maxCompared = 1000

	// maxShared is how many batches with the same inputs are named.
	maxShared = 20

	recordReads = 16
)

// An Effect is what an ingest did to its dataset: whether its batch is new there or took the place
// of an earlier ingest, what the dataset has besides, and which other batches were made from the
// same inputs. About 12 MiB of records are read at most, so that a small ingest costs the same in a
// dataset of any size, and the rest is left out.
type Effect struct {
	// Replaced tells that the batch had an earlier ingest, whose place this one took. That had
	// ReplacedRows rows, -1 if its record is damaged. Otherwise the batch is new in the dataset, or
	// Returned: it was retired.
	Replaced     bool  `json:"replaced"`
	ReplacedRows int64 `json:"replaced_rows,omitempty"`
	Returned     bool  `json:"returned,omitempty"`
	// Displaced is how many other batches of the current version the ingest retires, since it
	// replaces the dataset, and DisplacedRows how many rows they have.
	Displaced     int64 `json:"displaced_batches,omitempty"`
	DisplacedRows int64 `json:"displaced_rows,omitempty"`
	// OtherRows is how many rows the dataset has in OtherBatches batches besides this one.
	OtherRows    int64 `json:"other_rows"`
	OtherBatches int64 `json:"other_batches"`
	// Shared are the first of SharedBatches other batches that were made from inputs of the same
	// names and sizes.
	Shared        []SharedBatch `json:"shared,omitempty"`
	SharedBatches int           `json:"shared_batches,omitempty"`
	// Uncompared is how many other batches were not compared, since there are too many, or since
	// their records are damaged.
	Uncompared int64 `json:"uncompared,omitempty"`
	// Retired tells that the batch was retired after the ingest had begun. The other fields are
	// those of nothing then.
	Retired bool `json:"retired,omitempty"`
}

// SharedBatch is another batch with the same inputs.
type SharedBatch struct {
	Batch string `json:"batch"`
	// Inputs is how many of the ingest's inputs it was made from.
	Inputs int `json:"inputs"`
}

// effectOf returns what an ingest does that began at start and has the record at key, if it
// finishes now; with replace it is to be the only batch of its dataset. The effect is nil if a
// version has the batch already. Current is false if an ingest of the batch that began later has
// finished, or if the batch was retired since.
func effectOf(ctx context.Context, store blob.Store, key string, start int64, replace bool) (e *Effect, current bool, err error) {
	spender := newSpender(store)
	record, err := readRecord(ctx, store, key)
	if err != nil {
		return nil, false, err
	}
	s, err := catalog.LookBatches(ctx, store, record.DatasetID)
	if err != nil {
		return nil, false, err
	}
	s = s.Without(start)
	id := catalog.BatchName{DatasetID: record.DatasetID, Batch: record.Batch}
	waiting, err := s.Find(ctx, append(s.Names(id.DatasetID), id)...)
	if err != nil {
		return nil, false, err
	}
	before, known := waiting[id]
	delete(waiting, id)
	switch {
	case known && before.Start == start:
		return nil, true, nil
	case known && before.Start > start && before.Retired:
		return &Effect{Retired: true}, false, nil
	case known && before.Start > start:
		return nil, false, nil
	}
	e = &Effect{Replaced: known && !before.Retired, Returned: before.Retired}
	if e.Replaced {
		earlier, err := readRecord(ctx, spender, lake.BatchKey(id.DatasetID, id.Batch, before.Digest))
		switch {
		case err == nil:
			e.ReplacedRows = earlier.Rows
		case lostRecord(err):
			e.ReplacedRows = -1
		default:
			return nil, true, err
		}
	}
	if !replace {
		start = 0
	}
	others, err := e.others(ctx, s, before.Live, id, waiting, start)
	if err != nil {
		return nil, true, err
	}
	return e, true, e.compare(ctx, spender, record, others)
}

// lostRecord reports whether err means that a record is missing or damaged, or that maxRecordBytes
// is used up.
func lostRecord(err error) bool {
	return errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) || errors.Is(err, errSpent)
}

func readRecord(ctx context.Context, store blob.Store, key string) (*lake.Batch, error) {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return lake.DecodeBatch(data, key)
}

// otherBatch is the record of another batch of the dataset.
type otherBatch struct {
	batch, key string
	counts     bool // its rows are not in OtherRows yet
}

// others counts the other batches of the dataset: those of the version, with what is not published
// yet. Those that began before start are displaced. It returns the keys of the first ones' records.
func (e *Effect) others(
	ctx context.Context, s *catalog.BatchState, own *catalog.Batch, id catalog.BatchName,
	waiting map[catalog.BatchName]catalog.PendingBatch, start int64,
) (all []otherBatch, err error) {
	v := s.Version
	cut, by := s.Replaced(id.DatasetID)
	datasets, err := v.FindDatasets(ctx, []uint32{id.DatasetID})
	if err != nil {
		return nil, err
	}
	e.OtherRows, e.OtherBatches = datasets[id.DatasetID].Rows, int64(datasets[id.DatasetID].Batches)
	drop := func(live *catalog.Batch) {
		if live != nil {
			e.OtherRows -= live.Rows
			e.OtherBatches--
		}
	}
	displace := func(live *catalog.Batch) {
		if drop(live); live != nil {
			e.Displaced++
			e.DisplacedRows += live.Rows
		}
	}
	drop(own)
	for _, b := range waiting {
		switch {
		case b.Retired:
			drop(b.Live)
		case b.Published: // it is among the version's below
		case b.Start < start:
			displace(b.Live)
		default:
			drop(b.Live)
			all = append(all, otherBatch{batch: b.Batch, key: lake.BatchKey(b.DatasetID, b.Batch, b.Digest), counts: true})
			e.OtherBatches++
		}
	}
	if len(all) > maxCompared {
		e.OtherRows = -1
		return all[:maxCompared], nil
	}
	for b, err := range v.BatchesOf(ctx, id.DatasetID) {
		if err != nil {
			return nil, err
		}
		now, ok := waiting[b.BatchName]
		if ok && (now.Retired || !now.Published) || b.BatchName == id {
			continue
		}
		b.Start = max(b.Start, now.Start)
		if b.Start < cut && b.Batch != by {
			drop(&b)
			continue
		}
		if b.Start < start {
			displace(&b)
			continue
		}
		if len(all) == maxCompared && start == 0 && cut == 0 {
			break
		}
		if len(all) < maxCompared {
			all = append(all, otherBatch{batch: b.Batch, key: b.Record()})
		}
	}
	return all, nil
}

// compare finds the batches that were made from the same inputs as a record.
func (e *Effect) compare(ctx context.Context, store blob.Store, record *lake.Batch, others []otherBatch) error {
	inputs := map[ingestedInput]bool{}
	for _, in := range record.Inputs {
		inputs[ingestedInput{in.Name, in.Bytes}] = true
	}
	var mu sync.Mutex
	compared, unknown := int64(0), e.OtherRows < 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(recordReads)
	for _, o := range others {
		g.Go(func() error {
			b, err := readRecord(ctx, store, o.key)
			if errors.Is(err, errSpent) && o.counts {
				mu.Lock()
				defer mu.Unlock()
				unknown = true
			}
			if lostRecord(err) {
				return nil // no version can have it, unless it is one too many
			}
			if err != nil {
				return err
			}
			same := 0
			for _, in := range b.Inputs {
				if inputs[ingestedInput{in.Name, in.Bytes}] {
					same++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			compared++
			if o.counts {
				e.OtherRows += b.Rows
			}
			if same > 0 {
				e.Shared = append(e.Shared, SharedBatch{o.batch, same})
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if unknown {
		e.OtherRows = -1
	}
	slices.SortFunc(e.Shared, func(a, b SharedBatch) int { return strings.Compare(a.Batch, b.Batch) })
	e.SharedBatches, e.Shared = len(e.Shared), e.Shared[:min(len(e.Shared), maxShared)]
	e.Uncompared = e.OtherBatches - compared
	return nil
}

// ingestedInput is what a batch record says of an object by which the object can be known again.
type ingestedInput struct {
	Name  string
	Bytes int64
}

// ingestedInputs returns what the finished batches of a dataset were made from, published or not,
// without retired ones and without the batch except. It reads all their records. One that is lost
// is a
// *codec.CorruptError, since its objects might be read twice.
func ingestedInputs(ctx context.Context, store blob.Store, dataset, except string) (map[ingestedInput]bool, error) {
	datasets, err := catalog.DatasetsNamed(ctx, store, dataset)
	d, ok := datasets[dataset]
	if err != nil || !ok {
		return nil, err
	}
	s, err := catalog.LookBatches(ctx, store, d.ID)
	if err != nil {
		return nil, err
	}
	records, err := s.Current(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	delete(records, except)
	found := map[ingestedInput]bool{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(recordReads)
	for batch, digest := range records {
		g.Go(func() error {
			key := lake.BatchKey(d.ID, batch, digest)
			b, err := readRecord(ctx, store, key)
			if errors.Is(err, blob.ErrNotExist) {
				err = codec.Corrupt(key, "object", -1, "one that exists", "none")
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, in := range b.Inputs {
				found[ingestedInput{in.Name, in.Bytes}] = true
			}
			return nil
		})
	}
	return found, g.Wait()
}

// maxRecordBytes is how many bytes of other batches' records are read. It is enough for those of
// some thousand batches.
const maxRecordBytes = 12 << 20

// errSpent is the error of a read beyond maxRecordBytes.
var errSpent = errors.New("more would be read than the comparison is worth")

// spender is a store whose calls of Get together read about left bytes. Later calls fail with
// errSpent.
type spender struct {
	blob.Store
	left atomic.Int64
}

func newSpender(store blob.Store) *spender {
	s := &spender{Store: store}
	s.left.Store(maxRecordBytes)
	return s
}

func (s *spender) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if s.left.Load() < 0 {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, errSpent)
	}
	r, err := s.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(&spending{r, &s.left})
	if err != nil {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, err)
	}
	return data, blob.Info{Key: key, Size: int64(len(data))}, nil
}

// spending is a stream whose bytes are taken from left. It reads little at once, since other
// streams take from left, too.
type spending struct {
	r    io.Reader
	left *atomic.Int64
}

func (s *spending) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 64<<10)])
	if s.left.Add(-int64(n)) < 0 {
		err = errSpent
	}
	return n, err
}
