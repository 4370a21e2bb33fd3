// Package lake is the Parquet lake: where its objects are, what a row is and how rows are
// sorted, the files that hold them, and the records of what was ingested.
//
// Everything below a lake's root is named here:
//
//	registry/datasets.json                                name ↔ id                    (replaced by conditional put)
//	registry/batches/dataset_id={id}.json                 order of ingests             (replaced by conditional put)
//	urls/dataset_id={id}/domain_prefix={hh}/part-{batch}-{digest}-{n}.parquet          (immutable)
//	batches/dataset_id={id}/{batch}/postings-{digest}.zst what a segment is built from (immutable)
//	batches/dataset_id={id}/{batch}/{digest}.json         one finished ingest          (immutable)
//	rejects/dataset_id={id}/{batch}-{digest}.ndjson.zst   places and reasons           (immutable)
//	staging/{run}/…                                       between two steps, removed at the end
//	index/…                                               packages indexbuild/segment and lake/manifest
//
// Immutable objects are named by a digest of their content, so writing one twice, by a
// retry or by two workers at once, is writing the same bytes. All of them are the same
// for the same input whatever the splits, the workers and the crashes.
package lake

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/zeebo/xxh3"
)

// RegistryKey holds the datasets' names and ids.
const RegistryKey = "registry/datasets.json"

// AnyPrefix is the domain_prefix of a batch too small to be partitioned.
const AnyPrefix = "any"

var (
	batchName   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	datasetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// CheckBatchName refuses what cannot stand in an object key. A name of dots only is refused too: it
// would be a folder reference.
func CheckBatchName(name string) error {
	if !batchName.MatchString(name) || strings.Trim(name, ".") == "" {
		return fmt.Errorf("batch name %q: want 1 to 64 of A-Z a-z 0-9 . _ -, not dots alone", name)
	}
	return nil
}

// CheckDatasetName refuses names that do not print well in keys, tables and task queues.
func CheckDatasetName(name string) error {
	if !datasetName.MatchString(name) {
		return fmt.Errorf("dataset name %q: want 1 to 128 of A-Z a-z 0-9 . _ -, the first a letter or digit", name)
	}
	return nil
}

// Digest is the 128-bit xxh3 of b as 32 hex digits: the content's name in object keys.
func Digest(b []byte) string { return FormatDigest(xxh3.Hash128(b)) }

// FormatDigest prints a 128-bit hash as 32 hex digits.
func FormatDigest(h xxh3.Uint128) string {
	b := h.Bytes()
	return hex.EncodeToString(b[:])
}

// BatchRegistryKey holds the order in which one dataset's ingests were registered.
func BatchRegistryKey(dataset uint32) string {
	return fmt.Sprintf("registry/batches/dataset_id=%d.json", dataset)
}

// PartKey names a part. Seq numbers the parts of one partition.
func PartKey(dataset uint32, prefix, batch, digest string, seq int) string {
	return fmt.Sprintf("urls/dataset_id=%d/domain_prefix=%s/part-%s-%s-%d.parquet", dataset, prefix, batch, digest, seq)
}

// BatchPrefix is the folder of one batch's records and postings.
func BatchPrefix(dataset uint32, batch string) string {
	return fmt.Sprintf("batches/dataset_id=%d/%s/", dataset, batch)
}

// BatchKey names the record of a finished ingest.
func BatchKey(dataset uint32, batch, digest string) string {
	return BatchPrefix(dataset, batch) + digest + ".json"
}

// PostingsKey names a batch's postings object.
func PostingsKey(dataset uint32, batch, digest string) string {
	return BatchPrefix(dataset, batch) + "postings-" + digest + ".zst"
}

// RejectsKey names a batch's list of rejected records.
func RejectsKey(dataset uint32, batch, digest string) string {
	return fmt.Sprintf("rejects/dataset_id=%d/%s-%s.ndjson.zst", dataset, batch, digest)
}

// StagingPrefix is the folder of what one run keeps between its steps.
func StagingPrefix(run string) string { return "staging/" + run + "/" }
