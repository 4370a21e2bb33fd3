// Package lake names the objects of a lake and holds its descriptions of datasets, batch records
// and public suffix lists. A lake is one root in an object store (package blob) with everything
// that urlake knows about some datasets of URLs.
//
// # Keys
//
//	registry/datasets.json                                names and ids of datasets   (mutable)
//	registry/datasets.copy.json                           copy of the first, to restore it (mutable)
//	registry/pieces/{hh}/{digest}                         the datasets (package pieces)
//	registry/taken.json, registry/taken/{hh}/{digest}     what ingests of many datasets have read
//	registry/domain64.json, registry/domain64/{hh}/{digest}
//	                                                      numbers of exports (package numbers)
//	rules/public-suffix-{digest}.txt                      public suffix lists
//	access/…                                              readers of datasets, tokens (package access)
//	urls/dataset_id={id}/domain_prefix={hh}/part-{batch}-{digest}-{n}.parquet
//	                                                      rows
//	batches/dataset_id={id}/{batch}/postings-{digest}.zst input of segments
//	rejects/dataset_id={id}/{batch}-{digest}.ndjson.zst   list of rejected records
//	batches/dataset_id={id}/{batch}/{digest}.json         record of one finished ingest
//	pending/{dataset}/{start}-{run}.json                  what waits to be published (package catalog)
//	reports/{run}/{round}.ndjson.zst                      outcomes of an ingest of many datasets
//	staging/{run}/…                                       between the steps of a run; then removed
//	frontier/visits/{dataset}/…                           visits of a crawl, to be ingested (package feed)
//	index/…                                               segments, versions, manifest
//
// Keys of segments are in package indexbuild/segment, those of versions and of the manifest in
// package lake/catalog.
//
// # Writers and their order
//
// An ingest (package lake/ingest) registers its dataset, writes parts, postings and the list of
// rejects, then the batch record, and then a document that names it (package lake/catalog). A
// publish (package publish) starts from these documents. So an object exists before
// anything names it.
//
// The registry's document is replaced by conditional put. All other objects are immutable and named
// by a digest: public suffix lists by that of their identity, the others by that of their
// content. Their bytes depend on the input alone, not on splits, workers or retries, so a step that
// runs twice writes the same objects twice.
package lake

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// RegistryKey is the key of the datasets' names and ids.
const RegistryKey = "registry/datasets.json"

// AnyPrefix is the domain_prefix of a batch that is too small to be partitioned.
const AnyPrefix = "any"

var (
	batchName   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	datasetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// CheckBatchName rejects names that cannot be an element of an object key. A name of dots alone is
// rejected because it would refer to a folder.
func CheckBatchName(name string) error {
	if !batchName.MatchString(name) || strings.Trim(name, ".") == "" {
		return fmt.Errorf("batch name %q: want 1 to 64 of A-Z a-z 0-9 . _ -, not dots alone", name)
	}
	return nil
}

var unionName = regexp.MustCompile(`^~[0-9a-f]{16}$`)

// UnionName is the name under which the record and the objects of a union are kept, in the place of
// a batch's name. members is Batch.UnionDigest.
func UnionName(members string) string { return "~" + members[:16] }

// IsUnionName reports whether name is one that UnionName returns. No batch has such a name.
func IsUnionName(name string) bool { return unionName.MatchString(name) }

// CheckStoredName rejects what names neither a batch nor a union.
func CheckStoredName(name string) error {
	if IsUnionName(name) {
		return nil
	}
	return CheckBatchName(name)
}

// CheckDatasetName rejects names that do not print well in keys, tables and task queues.
func CheckDatasetName(name string) error {
	if !datasetName.MatchString(name) {
		return fmt.Errorf("dataset name %q: want 1 to 128 of A-Z a-z 0-9 . _ -, the first a letter or digit", name)
	}
	return nil
}

// DatasetID returns the id by which text names a dataset: digits alone are an id wherever a dataset
// is named by id or name. An id that is too large is 0, which no dataset has.
func DatasetID(text string) (id uint32, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, true
	}
	return uint32(n), true
}

// CheckNewDatasetName is CheckDatasetName for a dataset that is to be made. Earlier programs made
// datasets with names of digits alone, which are reached by their ids.
func CheckNewDatasetName(name string) error {
	if _, ok := DatasetID(name); ok {
		return fmt.Errorf("dataset name %q: digits alone are the id of a dataset; use a name with a letter, such as d%s", name, name)
	}
	return CheckDatasetName(name)
}

// Digest is the 128-bit xxh3 of b as 32 hex digits. Object keys name contents by it.
func Digest(b []byte) string { return FormatDigest(xxh3.Hash128(b)) }

// FormatDigest formats a 128-bit hash as 32 hex digits, as Digest does.
func FormatDigest(h xxh3.Uint128) string {
	b := h.Bytes()
	return hex.EncodeToString(b[:])
}

// SuffixListKey is the key of the public suffix list with that identity.
func SuffixListKey(identity string) string {
	return "rules/public-suffix-" + Digest([]byte(identity)) + ".txt"
}

// PartKey is the key of a part. Seq numbers the parts of one partition from 0.
func PartKey(dataset uint32, prefix, batch, digest string, seq int) string {
	return fmt.Sprintf("urls/dataset_id=%d/domain_prefix=%s/part-%s-%s-%d.parquet", dataset, prefix, batch, digest, seq)
}

// BatchPrefix is the folder of one batch's records and postings.
func BatchPrefix(dataset uint32, batch string) string {
	return fmt.Sprintf("batches/dataset_id=%d/%s/", dataset, batch)
}

// UnionPrefix begins the keys of the records and postings of all unions of a dataset.
func UnionPrefix(dataset uint32) string { return strings.TrimSuffix(BatchPrefix(dataset, "~"), "/") }

// BatchKey is the key of the record of a finished ingest.
func BatchKey(dataset uint32, batch, digest string) string {
	return BatchPrefix(dataset, batch) + digest + ".json"
}

// PostingsKey is the key of a postings object of a batch.
func PostingsKey(dataset uint32, batch, digest string) string {
	return BatchPrefix(dataset, batch) + "postings-" + digest + ".zst"
}

// RejectsKey is the key of the list of a batch's rejected records.
func RejectsKey(dataset uint32, batch, digest string) string {
	return fmt.Sprintf("rejects/dataset_id=%d/%s-%s.ndjson.zst", dataset, batch, digest)
}

// StagingPrefix is the folder of the objects that one run keeps between its steps.
func StagingPrefix(run string) string { return "staging/" + run + "/" }
