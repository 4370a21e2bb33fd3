package manifest

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// VersionFormat is the format version of version documents.
	// 1: first.
	VersionFormat = 1

	// MaxSegments is the most segments that a version may have: a lookup reads each of them.
	MaxSegments = 32

	// ParquetRoot is the folder with which all paths in files.tsv.zst begin.
	ParquetRoot = "urls/"

	segmentRoot = "index/segments/"
	versionRoot = "index/versions/"
	timeLayout  = "20060102T150405.000Z"
)

// Version is one published state of a lake.
type Version struct {
	Format int `json:"format"`
	// ID sorts by time and is valid in a path, for example 20261120T101112.123Z-0f3c9a71.
	ID string `json:"id"`
	// Parent is the id of the version that this one follows, "" for a lake's first.
	Parent string `json:"parent"`
	// Commit is the ID of the Commit that made the version.
	Commit string `json:"commit"`
	// Created is the time by the committer's clock: UTC, RFC 3339 with milliseconds. The time in ID
	// may be later.
	Created string `json:"created"`
	// BuiltBy names the committer's program and build.
	BuiltBy string `json:"built_by"`
	// CanonicalForm and PublicSuffix name the URL rules and the public suffix list by which the
	// rows of every batch were made.
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`

	Counts   Counts    `json:"counts"`
	Segments []Segment `json:"segments"`
	Datasets []Dataset `json:"datasets"` // with live batches, by id
	Batches  []Batch   `json:"batches"`  // live, by dataset and name
}

// Counts are a version's totals.
type Counts struct {
	Segments   int   `json:"segments"`
	Datasets   int   `json:"datasets"`
	Batches    int   `json:"batches"`
	Parts      int64 `json:"parts"`
	Rows       int64 `json:"rows"`
	PartBytes  int64 `json:"part_bytes"`
	IndexBytes int64 `json:"index_bytes"`
}

// Segment names a segment and its files. Keys are relative to the lake's root.
type Segment struct {
	ID string `json:"id"`
	// Bytes is the size of all files of the segment. Domains and Rows count what they index. A
	// domain may be in several segments.
	Bytes   int64 `json:"bytes"`
	Domains int64 `json:"domains"`
	Rows    int64 `json:"rows"`

	SegmentJSON string `json:"segment_json"`
	// SegmentXXH64 is the hash of segment.json, 16 hex digits. segment.json has the hashes of all
	// other files.
	SegmentXXH64 string `json:"segment_xxh64"`
	DomainsTxt   string `json:"domains_txt"`
	DomainsMPHF  string `json:"domains_mphf"`
	D2DRoar      string `json:"d2d_roar"`
	PostingsIdx  string `json:"postings_idx"` // {shard} stands for the shard's four digits
	PostingsDat  string `json:"postings_dat"`
	FilesTSV     string `json:"files_tsv"`
	PartsIdx     string `json:"parts_idx"`
	ParquetRoot  string `json:"parquet_root"`
}

// NewSegment returns the description of a segment, with the keys of its files.
func NewSegment(id, segmentXXH64 string, bytes, domains, rows int64) Segment {
	dir := segmentRoot + id + "/"
	return Segment{
		ID: id, Bytes: bytes, Domains: domains, Rows: rows,
		SegmentJSON: dir + "segment.json", SegmentXXH64: segmentXXH64,
		DomainsTxt: dir + "domains.txt.zst", DomainsMPHF: dir + "domains.mphf", D2DRoar: dir + "domain_to_datasets.roar",
		PostingsIdx: dir + "postings/{shard}/postings.idx.zst", PostingsDat: dir + "postings/{shard}/postings.dat.zst",
		FilesTSV: dir + "files.tsv.zst", PartsIdx: dir + "parts.idx.zst", ParquetRoot: ParquetRoot,
	}
}

// Dataset describes a dataset as the registry had it when the version was made.
type Dataset struct {
	ID      uint32 `json:"id"`
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Source  string `json:"source,omitempty"`
	Licence string `json:"licence,omitempty"`
	Batches int    `json:"batches"`
	Parts   int64  `json:"parts"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"` // of its parts
}

// Batch is a live batch and the segment that indexes it.
type Batch struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"` // of the batch record, 32 hex digits
	Rows      int64  `json:"rows"`
	Parts     int64  `json:"parts"`
	Bytes     int64  `json:"bytes"` // of its parts
	Segment   string `json:"segment"`
	// Pack names the pack that holds what the ingest of the batch finished with (package
	// lake/pack). It is "" if those are objects of their own.
	Pack string `json:"pack,omitempty"`
}

// Record is the key of the batch's record.
func (b *Batch) Record() string { return lake.BatchKey(b.DatasetID, b.Batch, b.Digest) }

// compareBatches orders batches by dataset and name.
func compareBatches(a, b Batch) int {
	return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), cmp.Compare(a.Batch, b.Batch))
}

// Dataset returns the dataset with this id.
func (v *Version) Dataset(id uint32) (*Dataset, bool) {
	i, ok := slices.BinarySearchFunc(v.Datasets, id, func(d Dataset, id uint32) int { return cmp.Compare(d.ID, id) })
	if !ok {
		return nil, false
	}
	return &v.Datasets[i], true
}

// FindBatch returns a dataset's live batch of this name.
func (v *Version) FindBatch(dataset uint32, name string) (*Batch, bool) {
	i, ok := slices.BinarySearchFunc(v.Batches, Batch{DatasetID: dataset, Batch: name}, compareBatches)
	if !ok {
		return nil, false
	}
	return &v.Batches[i], true
}

// VersionKey is the key of a version's object.
func VersionKey(id string) string { return versionRoot + id + ".json" }

var versionID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}$`)

// ValidVersionID tells whether id has the form of a version id.
func ValidVersionID(id string) bool { return versionID.MatchString(id) }

// NextVersionID returns the id of a new version: a time, then the first eight digits of the
// commit's id. The time is now, or one millisecond after the time in last, the newest id so far, if
// that is later.
func NextVersionID(last string, now time.Time, commit string) string {
	now = now.UTC().Truncate(time.Millisecond)
	if ValidVersionID(last) {
		if t, err := time.Parse(timeLayout, last[:len(timeLayout)]); err == nil && !now.After(t) {
			now = t.Add(time.Millisecond)
		}
	}
	return now.Format(timeLayout) + "-" + commit[:8]
}

// versionTime is the time in a valid version id, in milliseconds since 1970.
func versionTime(id string) (uint64, error) {
	t, err := time.Parse(timeLayout, id[:len(timeLayout)])
	if err != nil {
		return 0, err
	}
	return uint64(max(1, t.UnixMilli())), nil
}

// DecodeVersion decodes and checks a version that was read from key.
func DecodeVersion(data []byte, key string) (*Version, error) {
	var v Version
	if err := codec.Unseal(data, key, &v); err != nil {
		return nil, err
	}
	if err := v.check(key); err != nil {
		return nil, err
	}
	return &v, nil
}

// complete sorts the lists, drops datasets without live batches, and computes all counts from the
// batches.
func (v *Version) complete() {
	slices.SortFunc(v.Batches, compareBatches)
	slices.SortFunc(v.Datasets, func(a, b Dataset) int { return cmp.Compare(a.ID, b.ID) })
	set := func(d *Dataset, batches int, parts, rows, bytes int64) {
		d.Batches, d.Parts, d.Rows, d.Bytes = batches, parts, rows, bytes
	}
	v.count(set)
	v.Datasets = slices.DeleteFunc(v.Datasets, func(d Dataset) bool { return d.Batches == 0 })
	v.Counts = v.count(set)
	if v.Segments == nil {
		v.Segments = []Segment{}
	}
	if v.Datasets == nil {
		v.Datasets = []Dataset{}
	}
	if v.Batches == nil {
		v.Batches = []Batch{}
	}
}

// count computes the totals of the batches, of each dataset and of the version. The lists must be
// sorted.
func (v *Version) count(each func(d *Dataset, batches int, parts, rows, bytes int64)) Counts {
	c := Counts{Segments: len(v.Segments), Datasets: len(v.Datasets), Batches: len(v.Batches)}
	at := 0
	for i := range v.Datasets {
		d := &v.Datasets[i]
		var batches int
		var parts, rows, bytes int64
		for at < len(v.Batches) && v.Batches[at].DatasetID == d.ID {
			b := &v.Batches[at]
			batches, parts, rows, bytes = batches+1, parts+b.Parts, rows+b.Rows, bytes+b.Bytes
			at++
		}
		each(d, batches, parts, rows, bytes)
		c.Parts, c.Rows, c.PartBytes = c.Parts+parts, c.Rows+rows, c.PartBytes+bytes
	}
	for i := range v.Segments {
		c.IndexBytes += v.Segments[i].Bytes
	}
	return c
}

func (v *Version) check(key string) error {
	c := checker{file: key}
	c.equal("format", VersionFormat, v.Format)
	c.that("id", ValidVersionID(v.ID), "a version id", v.ID)
	c.equal("key", VersionKey(v.ID), key)
	c.that("parent", v.Parent == "" || (ValidVersionID(v.Parent) && v.Parent < v.ID), "an id before "+v.ID, v.Parent)
	c.that("commit", validCommit(v.Commit), "a commit id", v.Commit)
	c.that("id", ValidVersionID(v.ID) && strings.HasPrefix(v.Commit, v.ID[len(v.ID)-8:]), "the first digits of "+v.Commit, v.ID)
	_, err := time.Parse(time.RFC3339, v.Created)
	c.that("created", err == nil, "an RFC 3339 time", v.Created)
	c.that("canonical_form", v.CanonicalForm != "", "a name", v.CanonicalForm)
	c.that("public_suffix_list", v.PublicSuffix != "", "a name", v.PublicSuffix)
	c.that("segments", len(v.Segments) <= MaxSegments, fmt.Sprintf("at most %d", MaxSegments), len(v.Segments))

	rows := map[string]int64{}
	for i := range v.Segments {
		s := &v.Segments[i]
		section := "segments[" + strconv.Itoa(i) + "]"
		c.hex(section+".id", s.ID, 32)
		c.hex(section+".segment_xxh64", s.SegmentXXH64, 16)
		for _, n := range []int64{s.Bytes, s.Domains, s.Rows} {
			c.that(section, 0 <= n && n <= math.MaxInt64/MaxSegments, "a count", n)
		}
		c.equal(section, NewSegment(s.ID, s.SegmentXXH64, s.Bytes, s.Domains, s.Rows), *s)
		_, twice := rows[s.ID]
		c.that(section+".id", !twice, "an id of its own", s.ID)
		rows[s.ID] = s.Rows
	}
	for i := range v.Datasets {
		d := &v.Datasets[i]
		section := "datasets[" + strconv.Itoa(i) + "]"
		c.that(section+".id", d.ID > 0 && (i == 0 || v.Datasets[i-1].ID < d.ID), "ascending ids", d.ID)
		c.that(section+".name", lake.CheckDatasetName(d.Name) == nil, "a dataset name", d.Name)
	}
	for i := range v.Batches {
		b := &v.Batches[i]
		section := "batches[" + strconv.Itoa(i) + "]"
		c.that(section, i == 0 || compareBatches(v.Batches[i-1], *b) < 0,
			"ascending datasets and names", fmt.Sprintf("%d/%s", b.DatasetID, b.Batch))
		c.that(section+".batch", lake.CheckBatchName(b.Batch) == nil, "a batch name", b.Batch)
		c.hex(section+".digest", b.Digest, 32)
		if b.Pack != "" {
			c.hex(section+".pack", b.Pack, 32)
		}
		for _, n := range []int64{b.Rows, b.Parts, b.Bytes} {
			c.that(section, 0 <= n && n < 1<<60, "a count", n)
		}
		_, known := v.Dataset(b.DatasetID)
		c.that(section+".dataset_id", known, "one of datasets", b.DatasetID)
		left, known := rows[b.Segment]
		c.that(section+".segment", known, "one of segments", b.Segment)
		rows[b.Segment] = left - b.Rows
	}
	for i := range v.Segments {
		s := &v.Segments[i]
		c.that("segments["+strconv.Itoa(i)+"].rows", rows[s.ID] == 0, s.Rows-rows[s.ID], s.Rows)
	}
	if c.err != nil {
		return c.err
	}
	sum := v.count(func(d *Dataset, batches int, parts, rows, bytes int64) {
		got := [4]int64{int64(d.Batches), d.Parts, d.Rows, d.Bytes}
		c.equal(fmt.Sprintf("datasets: %d", d.ID), [4]int64{int64(batches), parts, rows, bytes}, got)
		c.that(fmt.Sprintf("datasets: %d", d.ID), batches > 0, "a live batch", "none")
	})
	c.equal("counts", sum, v.Counts)
	return c.err
}
