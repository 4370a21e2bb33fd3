package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pack"
)

// copyRoot is the folder of the copies of the registry's entries, one object for each dataset. Only
// RestoreRegistry reads them.
const copyRoot = "registry/datasets/"

// DatasetCopyKey is the key of the copy of a dataset's entry in the registry.
func DatasetCopyKey(dataset uint32) string {
	return fmt.Sprintf("%sdataset_id=%d.json", copyRoot, dataset)
}

// datasetCopy is the document at DatasetCopyKey.
type datasetCopy struct {
	Format  int          `json:"format"`
	Dataset lake.Dataset `json:"dataset"`
}

// keepCopy writes the copy of a dataset's entry unless it is there.
func keepCopy(ctx context.Context, store blob.Store, d lake.Dataset) error {
	have, err := readCopy(ctx, store, d.ID)
	if err == nil && have == d {
		return nil
	}
	if err != nil && !errors.Is(err, blob.ErrNotExist) && !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	data, err := codec.Seal(datasetCopy{Format: registryFormat, Dataset: d})
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, DatasetCopyKey(d.ID), data, blob.Condition{})
	return err
}

func readCopy(ctx context.Context, store blob.Store, id uint32) (lake.Dataset, error) {
	key := DatasetCopyKey(id)
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return lake.Dataset{}, err
	}
	var c datasetCopy
	if err := codec.Unseal(data, key, &c); err != nil {
		return lake.Dataset{}, err
	}
	if c.Format != registryFormat || c.Dataset.ID != id {
		return lake.Dataset{}, codec.Corrupt(key, "document", -1, fmt.Sprintf("dataset %d in format %d", id, registryFormat),
			fmt.Sprintf("dataset %d in format %d", c.Dataset.ID, c.Format))
	}
	return c.Dataset, nil
}

// CheckCopy returns a *codec.CorruptError if the copy of a dataset's entry is damaged. A dataset
// that an earlier build of urlake has registered has no copy before its next ingest.
func CheckCopy(ctx context.Context, store blob.Store, dataset uint32) error {
	_, err := readCopy(ctx, store, dataset)
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}

// RestoreCopies writes the missing and damaged copies of the registry's entries. It returns the
// keys of the damaged ones.
func RestoreCopies(ctx context.Context, store blob.Store) (restored []string, err error) {
	datasets, err := Datasets(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, d := range datasets {
		if err := CheckCopy(ctx, store, d.ID); errors.Is(err, codec.ErrCorrupt) {
			restored = append(restored, DatasetCopyKey(d.ID))
		}
		if err := keepCopy(ctx, store, d); err != nil {
			return restored, err
		}
	}
	return restored, nil
}

// datasetOf returns the dataset in a key, as in "batches/dataset_id=3/…".
func datasetOf(key, prefix string) (id uint32, ok bool) {
	digits, ok := strings.CutPrefix(key, prefix+"dataset_id=")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

// RestoreRegistry writes the registry again if it is lost: damaged, or missing from a lake that is
// not new. Its datasets are those of the copies, and those of a version, which the caller passes.
// Restored is false if the registry is not lost. Nameless are the ids that keys of the lake contain
// but neither source does; they are not given again.
func RestoreRegistry(
	ctx context.Context, store blob.Store, rules lake.Rules, datasets []lake.Dataset,
) (restored bool, nameless []uint32, err error) {
	cond, lost, err := isLost(ctx, store, lake.RegistryKey, func(*registry) error { return nil })
	if err != nil || !lost {
		return false, nil, err
	}
	byID := map[uint32]lake.Dataset{}
	for _, d := range datasets {
		byID[d.ID] = d
	}
	used := map[uint32]bool{}
	for _, prefix := range []string{copyRoot, "registry/batches/", "batches/", "urls/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return false, nil, err
			}
			id, ok := datasetOf(info.Key, prefix)
			if !ok {
				continue
			}
			used[id] = true
			if prefix != copyRoot {
				continue
			}
			d, err := readCopy(ctx, store, id)
			if err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
				return false, nil, err
			}
			// A copy and a version have the same name. The title may be newer in the copy.
			if have, ok := byID[id]; err == nil && (!ok || have.Name == d.Name) {
				byID[id] = d
			}
		}
	}
	r := registry{Format: registryFormat, Rules: rules, NextID: 1}
	r.Datasets = slices.SortedFunc(maps.Values(byID), func(a, b lake.Dataset) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range r.Datasets {
		delete(used, d.ID)
		r.NextID = max(r.NextID, d.ID+1)
	}
	nameless = slices.Sorted(maps.Keys(used))
	if n := len(nameless); n > 0 {
		r.NextID = max(r.NextID, nameless[n-1]+1)
	}
	data, err := codec.Seal(r)
	if err != nil {
		return false, nil, err
	}
	_, err = store.Put(ctx, lake.RegistryKey, data, cond)
	return err == nil, nameless, err
}

// restoredRun is the run of the ingests that RestoreBatchRegistry has found.
const restoredRun = "restored"

// RestoredBatches is the result of RestoreBatchRegistry.
type RestoredBatches struct {
	// Restored tells that the registry was lost and is written again.
	Restored bool
	// Found are the batches that only their records still knew: finished, but in no version.
	Found []string
	// Unclear says for which batches it is not known which ingest is the newest, and which records
	// cannot be read: one line each.
	Unclear []string
}

// RestoreBatchRegistry writes the order of a dataset's ingests again if it is lost. What a version
// says wins: batches has the records of the batches that it contains, by name. A batch that the
// version lacks is restored from its record if it has one only; older has the digests of records
// that other versions contain, which were replaced. Runs in flight fail with ErrUnknownRun.
func RestoreBatchRegistry(
	ctx context.Context, store blob.Store, dataset uint32, batches map[string]Record, older map[string]bool,
) (out RestoredBatches, err error) {
	key := lake.BatchRegistryKey(dataset)
	cond, lost, err := isLost(ctx, store, key, func(r *batchRegistry) error { return r.belongTo(dataset) })
	if err != nil || !lost {
		return out, err
	}
	records, withdrawn, err := recordsOf(ctx, store, dataset, &out)
	if err != nil {
		return out, err
	}
	current := maps.Clone(batches)
	if current == nil {
		current = map[string]Record{}
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		live, published := current[name]
		others := records[name].newest(func(d string) bool { return d == live.Digest || older[d] })
		others = slices.DeleteFunc(others, func(d string) bool {
			if withdrawn[lake.WithdrawnKey(dataset, name, d)] {
				out.Unclear = append(out.Unclear, fmt.Sprintf("batch %s of dataset %d: the ingest with the record %s was "+
					"withdrawn; if it was started again since, ingest the batch again", name, dataset, d))
				return true
			}
			return false
		})
		switch {
		case len(others) == 0:
		case published:
			out.Unclear = append(out.Unclear, fmt.Sprintf("batch %s of dataset %d: the version's ingest stays; "+
				"%s may be of a newer one: if so, ingest the batch again", name, dataset, describe(others)))
		case len(others) > 1:
			out.Unclear = append(out.Unclear, fmt.Sprintf("batch %s of dataset %d: which of %s is the newest is lost; "+
				"ingest the batch again", name, dataset, describe(others)))
		default:
			current[name] = Record{others[0], records[name][records[name].ingest(others[0])].Pack}
			out.Found = append(out.Found, name)
		}
	}
	r := batchRegistry{Format: registryFormat, DatasetID: dataset, NextSeq: 1, Ingests: []entry{}}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		e := entry{Seq: r.NextSeq, Batch: name, Run: restoredRun, Digest: current[name].Digest, Pack: current[name].Pack}
		if first := records[name].ingest(e.Digest); first != e.Digest {
			e.MovedFrom = first
		}
		r.Ingests = append(r.Ingests, e)
		r.NextSeq++
	}
	data, err := codec.Seal(r)
	if err != nil {
		return out, err
	}
	_, err = store.Put(ctx, key, data, cond)
	out.Restored = err == nil
	return out, err
}

func describe(digests []string) string {
	if len(digests) == 1 {
		return "the record " + digests[0]
	}
	return "the records " + strings.Join(digests, ", ")
}

// batchRecords are the intact records of one batch, by digest: of each the pack that holds it, and
// as Digest, for one that was moved to another public suffix list, that of the record from which it
// was made, else "".
type batchRecords map[string]Record

// ingest returns the digest of the record that an ingest wrote, from which the record with that
// digest was moved, or the earliest of them that is there.
func (r batchRecords) ingest(digest string) string {
	for r[digest].Digest != "" {
		digest = r[digest].Digest
	}
	return digest
}

// newest returns the last record of each ingest, sorted, except for the ingests that have a known
// record.
func (r batchRecords) newest(known func(digest string) bool) []string {
	moved, done := map[string]bool{}, map[string]bool{}
	for digest, from := range r {
		moved[from.Digest] = true
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

// recordsOf returns the intact records of a dataset, by the name of the batch, and the keys of the
// marks of withdrawn ones.
func recordsOf(
	ctx context.Context, store blob.Store, dataset uint32, out *RestoredBatches,
) (records map[string]batchRecords, withdrawn map[string]bool, err error) {
	records, withdrawn = map[string]batchRecords{}, map[string]bool{}
	root := fmt.Sprintf("batches/dataset_id=%d/", dataset)
	add := func(key, pack string, data []byte, err error) error {
		name, file, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
		digest, ok := strings.CutSuffix(file, ".json")
		if key != "" && (!ok || !strings.HasPrefix(key, root)) {
			return nil // of another kind or dataset
		}
		var b *lake.Batch
		if err == nil {
			b, err = lake.DecodeBatch(data, key)
		}
		switch {
		case errors.Is(err, codec.ErrCorrupt):
			out.Unclear = append(out.Unclear, err.Error())
		case err != nil:
			return err
		default:
			if records[name] == nil {
				records[name] = batchRecords{}
			}
			records[name][digest] = Record{b.MovedFrom, pack}
		}
		return nil
	}
	for info, err := range store.List(ctx, root) {
		if err == nil && strings.HasSuffix(info.Key, lake.WithdrawnSuffix) {
			withdrawn[info.Key] = true
			continue
		}
		var data []byte
		if err == nil && strings.HasSuffix(info.Key, ".json") {
			data, _, err = store.Get(ctx, info.Key)
		}
		if err := add(info.Key, "", data, err); err != nil {
			return nil, nil, err
		}
	}
	for o, err := range pack.All(ctx, store) {
		if err := add(o.Key, o.Pack, o.Data, err); err != nil {
			return nil, nil, err
		}
	}
	return records, withdrawn, nil
}

// isLost reports whether a registry document must be restored, and the condition under which it may
// be replaced. A document of another format belongs to another program's version and is not lost.
// Check finds an intact document that is not the one of this key.
func isLost[T interface{ format() int }](
	ctx context.Context, store blob.Store, key string, check func(*T) error,
) (cond blob.Condition, lost bool, err error) {
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		err = CheckPresent(ctx, store, key)
		if errors.Is(err, codec.ErrCorrupt) {
			lost, err = true, nil
		}
		return blob.Condition{IfAbsent: true}, lost, err
	}
	if err != nil {
		return blob.Condition{}, false, err
	}
	var doc T
	switch err := codec.Unseal(data, key, &doc); {
	case err != nil:
		lost = codec.IsUnsealed(err)
	case doc.format() == registryFormat:
		lost = check(&doc) != nil
	}
	return blob.Condition{IfMatch: info.ETag}, lost, nil
}
