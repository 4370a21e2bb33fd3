package catalog

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

const (
	// versionFormat is the format version of version documents.
	versionFormat = 1

	// VersionPiecesRoot is the folder of the pieces (package pieces) that versions name.
	VersionPiecesRoot = "index/pieces/"

	// MaxSegments is the most segments that a version may have: a lookup reads each of them.
	MaxSegments = 32

	// parquetRoot is the folder with which all paths in files.tsv.zst begin.
	parquetRoot = "urls/"

	segmentRoot = "index/segments/"
	versionRoot = "index/versions/"
	timeLayout  = "20060102T150405.000Z"
)

// Version is one published state of a lake. Its document is small: datasets and batches are in
// pieces, which versions share, and are read by the methods that take a context. The nil version is
// that of a lake of which nothing is published.
//
// The batches are kept by segment, since a segment keeps its batches as long as it is published. So
// a publish writes the batches of its own segment and changes none of the others.
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

	datasets *pieces.Map            // by datasetKey
	gone     *pieces.Map            // by batchKey
	batches  map[string]*pieces.Map // of each segment, by batchKey
	dead     map[string]*pieces.Map // of each segment with dead rows, by batchKey
}

// versionDocument is the JSON of a version.
type versionDocument struct {
	Version
	// DatasetPieces has the datasets with live batches.
	DatasetPieces pieces.Ref `json:"dataset_pieces"`
	// GonePieces has what was retired (Gone).
	GonePieces pieces.Ref `json:"gone_pieces"`
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

	// BatchPieces has the live batches that the segment indexes.
	BatchPieces pieces.Ref `json:"batch_pieces"`
	// Dead is what the version takes out of the segment, nil for nothing.
	Dead *Dead `json:"dead,omitempty"`
}

// Dead are batches that a segment indexes and that its version does not have, because they were
// retired or replaced. Their objects stay until a later version has another segment in this one's
// place: the segment can be checked, and built again, as it is.
type Dead struct {
	// Table is the deletion table that says which rows are left (package indexbuild/deletion).
	Table lake.FrameObject `json:"table"`
	// Rows is the number of rows that are not left.
	Rows int64 `json:"rows"`
	// BatchPieces has the batches.
	BatchPieces pieces.Ref `json:"batch_pieces"`
}

// Live is the number of rows of the segment that the version has.
func (s *Segment) Live() int64 {
	if s.Dead == nil {
		return s.Rows
	}
	return s.Rows - s.Dead.Rows
}

// View names what the version has of the segment: the id of the segment, or if rows are dead, a
// digest of that and of the table. So versions with the same view have the same rows of it.
func (s *Segment) View() string {
	if s.Dead == nil {
		return s.ID
	}
	return lake.Digest([]byte("what " + s.Dead.Table.Key + " leaves of segment " + s.ID))
}

// bytes is the size of the files.
func (s *Segment) bytes() int64 {
	if s.Dead == nil {
		return s.Bytes
	}
	return s.Bytes + s.Dead.Table.Bytes
}

// NewSegment returns the description of a segment, with the keys of its files.
func NewSegment(id, segmentXXH64 string, bytes, domains, rows int64) Segment {
	dir := segmentRoot + id + "/"
	return Segment{
		ID: id, Bytes: bytes, Domains: domains, Rows: rows,
		SegmentJSON: dir + "segment.json", SegmentXXH64: segmentXXH64,
		DomainsTxt: dir + "domains.txt.zst", DomainsMPHF: dir + "domains.mphf", D2DRoar: dir + "domain_to_datasets.roar",
		PostingsIdx: dir + "postings/{shard}/postings.idx.zst", PostingsDat: dir + "postings/{shard}/postings.dat.zst",
		FilesTSV: dir + "files.tsv.zst", PartsIdx: dir + "parts.idx.zst", ParquetRoot: parquetRoot,
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

// Batch is a live batch.
type Batch struct {
	BatchName
	Digest  string // of the batch record, 32 hex digits
	Rows    int64
	Parts   int64
	Bytes   int64  // of its parts
	Segment string // that indexes it
	// Start is when the ingest of the batch began: nanoseconds since 1970 by Temporal's clock. Of
	// two ingests of a batch the one that began later wins. It is 0 if that is lost.
	Start int64
	// Union is the name of the union that has the batch's rows, UnionDigest that of its record.
	// They are "" if the batch has parts of its own. All batches of a union are in one segment.
	// Parts and Bytes of a union are those of the first of its batches; the others have none.
	Union, UnionDigest string
}

// Gone is what a version no longer has: a batch that was retired or, if the name of the batch is
// "", all batches of a dataset that another one replaced. An ingest that began before Start does
// not bring the batch back.
type Gone struct {
	BatchName
	Start int64
	// Digest names the record that the batch had. It is "" for a dataset.
	Digest string
}

// BatchName names a batch of a dataset.
type BatchName struct {
	DatasetID uint32
	Batch     string
}

// CompareNames orders batches by dataset and name.
func CompareNames(a, b BatchName) int {
	return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), cmp.Compare(a.Batch, b.Batch))
}

// Record is the key of the batch's record.
func (b *Batch) Record() string { return lake.BatchKey(b.DatasetID, b.Batch, b.Digest) }

// Stored returns the name and the digest of the record that has the parts with the batch's rows:
// its own, or that of its union.
func (b *Batch) Stored() (name, digest string) {
	if b.Union != "" {
		return b.Union, b.UnionDigest
	}
	return b.Batch, b.Digest
}

// VersionKey is the key of a version's object.
func VersionKey(id string) string { return versionRoot + id + ".json" }

var versionID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}$`)

// ValidVersionID tells whether id has the form of a version id.
func ValidVersionID(id string) bool { return versionID.MatchString(id) }

// nextVersionID returns the id of a new version: a time, then the first eight digits of the
// commit's id. The time is now, or one millisecond after the time in last, the newest id so far, if
// that is later.
func nextVersionID(last string, now time.Time, commit string) string {
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

// DecodeVersion decodes and checks a version that was read from key of store.
func DecodeVersion(store blob.Store, data []byte, key string) (*Version, error) {
	var d versionDocument
	if err := codec.Unseal(data, key, versionFormat, &d); err != nil {
		return nil, err
	}
	v := &d.Version
	if err := d.check(key); err != nil {
		return nil, err
	}
	v.open(store, d.DatasetPieces, d.GonePieces)
	return v, nil
}

// DeadRows is the number of rows of the version's segments that it does not have, and that of the
// segments with such rows.
func (v *Version) DeadRows() (rows int64, segments int) {
	for i := range v.Segments {
		if s := &v.Segments[i]; s.Dead != nil {
			rows, segments = rows+s.Dead.Rows, segments+1
		}
	}
	return rows, segments
}

// open opens the pieces of a version.
func (v *Version) open(store blob.Store, datasets, gone pieces.Ref) {
	v.datasets = pieces.Open(store, VersionPiecesRoot, datasets)
	v.gone = pieces.Open(store, VersionPiecesRoot, gone)
	v.batches, v.dead = map[string]*pieces.Map{}, map[string]*pieces.Map{}
	for i := range v.Segments {
		s := &v.Segments[i]
		v.batches[s.ID] = pieces.Open(store, VersionPiecesRoot, s.BatchPieces)
		if s.Dead != nil {
			v.dead[s.ID] = pieces.Open(store, VersionPiecesRoot, s.Dead.BatchPieces)
		}
	}
}

// encode returns the bytes of a version of which all but the document is written.
func (v *Version) encode(key string) ([]byte, error) {
	d := versionDocument{Version: *v, DatasetPieces: v.datasets.Ref(), GonePieces: v.gone.Ref()}
	if err := d.check(key); err != nil {
		return nil, err
	}
	return codec.Seal(&d)
}

// check checks what follows from the document alone.
func (d *versionDocument) check(key string) error {
	v := &d.Version
	c := checker{file: key}
	c.equal("format", versionFormat, v.Format)
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

	seen := map[string]bool{}
	sum := Counts{Segments: len(v.Segments)}
	for i := range v.Segments {
		s := &v.Segments[i]
		section := "segments[" + strconv.Itoa(i) + "]"
		c.hex(section+".id", s.ID, 32)
		c.hex(section+".segment_xxh64", s.SegmentXXH64, 16)
		for _, n := range []int64{s.Bytes, s.Domains, s.Rows} {
			c.that(section, 0 <= n && n <= math.MaxInt64/MaxSegments, "a count", n)
		}
		want := NewSegment(s.ID, s.SegmentXXH64, s.Bytes, s.Domains, s.Rows)
		want.BatchPieces, want.Dead = s.BatchPieces, s.Dead
		c.equal(section, want, *s)
		if s.Dead != nil && c.err == nil {
			c.that(section+".dead", 0 < s.Dead.Rows && s.Dead.Rows < s.Rows &&
				s.Dead.BatchPieces.Entries > 0 && s.BatchPieces.Entries > 0, "dead rows of a segment with others", s.Dead.Rows)
			if c.err == nil {
				c.err = cmp.Or(s.Dead.Table.CheckDeletion(key, section+".dead", s.ID), s.Dead.BatchPieces.Check(key))
			}
		}
		c.that(section+".id", !seen[s.ID], "an id of its own", s.ID)
		seen[s.ID] = true
		sum.Rows, sum.IndexBytes = sum.Rows+s.Live(), sum.IndexBytes+s.bytes()
		if c.err == nil {
			c.err = s.BatchPieces.Check(key)
			sum.Batches += int(s.BatchPieces.Entries)
		}
	}
	if c.err == nil {
		c.err = cmp.Or(d.DatasetPieces.Check(key), d.GonePieces.Check(key))
	}
	if c.err != nil {
		return c.err
	}
	// The other counts are compared when all datasets are read, see Check.
	sum.Datasets, sum.Parts, sum.PartBytes = int(d.DatasetPieces.Entries), v.Counts.Parts, v.Counts.PartBytes
	c.equal("counts", sum, v.Counts)
	return c.err
}
