package catalog

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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
// the state of a lake without published batches.
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

// ValidVersionID reports whether id has the form of a version id.
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

// DeadRows returns how many rows of its segments the version lacks, and how many segments have such
// rows.
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
	v.datasets = openPieces(store, datasets)
	v.gone = openPieces(store, gone)
	v.batches, v.dead = map[string]*pieces.Map{}, map[string]*pieces.Map{}
	for i := range v.Segments {
		s := &v.Segments[i]
		v.batches[s.ID] = openPieces(store, s.BatchPieces)
		if s.Dead != nil {
			v.dead[s.ID] = openPieces(store, s.Dead.BatchPieces)
		}
	}
}

// encode returns the document of a version. The objects that it names are written.
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
	c.that("commit", commitID.MatchString(v.Commit), "a commit id", v.Commit)
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

func batchKeys(names []BatchName) [][]byte {
	keys := make([][]byte, len(names))
	for i, n := range names {
		keys[i] = batchKey(n)
	}
	return keys
}

// orEmpty returns the version, or an empty one in the place of the nil version.
func (v *Version) orEmpty() *Version {
	if v == nil {
		return &Version{}
	}
	return v
}

// openPieces returns a map of a version.
func openPieces(store blob.Store, ref pieces.Ref) *pieces.Map {
	return pieces.Open(store, VersionPiecesRoot, ref)
}

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

// decodeBatch returns the reverse of batchEntry. The errors name the document of the version.
func (v *Version) decodeBatch(segment string) func(e pieces.Entry) (Batch, error) {
	return func(e pieces.Entry) (b Batch, err error) {
		d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("batch %x of segment %s", e.Key, segment))
		b.Segment, b.Digest = segment, hex.EncodeToString(d.Bytes(digestBytes))
		b.Rows, b.Parts, b.Bytes = int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1)), int64(d.Uint(maxCount-1))
		b.Start = int64(d.Uint(math.MaxInt64))
		if d.Err() == nil && d.Len() > 0 {
			b.Union = "~" + hex.EncodeToString(d.Bytes(unionIDBytes))
			b.UnionDigest = hex.EncodeToString(d.Bytes(digestBytes))
		}
		b.BatchName, err = closeKey(d, e.Key, false)
		return b, err
	}
}

// closeKey closes the decoder of a value, and returns the name that is its key. Only what is gone
// can be a whole dataset, without a batch.
func closeKey(d *codec.Decoder, key []byte, whole bool) (n BatchName, err error) {
	if d.Err() == nil && (len(key) < 4 || lake.CheckBatchName(string(key[4:])) != nil && !(whole && len(key) == 4)) {
		d.Fail("a key of dataset and batch", fmt.Sprintf("%x", key))
	}
	if err := d.Close(); err != nil {
		return n, err
	}
	return BatchName{binary.BigEndian.Uint32(key), string(key[4:])}, nil
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
func (v *Version) decodeGone(e pieces.Entry) (g Gone, err error) {
	d := codec.NewDecoder(e.Value, VersionKey(v.ID), fmt.Sprintf("retired batch %x", e.Key))
	g.Start = int64(d.Uint(math.MaxInt64))
	if len(e.Key) > 4 {
		g.Digest = hex.EncodeToString(d.Bytes(digestBytes))
	}
	g.BatchName, err = closeKey(d, e.Key, true)
	return g, err
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
	from, to := span(dataset)
	return v.merged(ctx, from, to)
}

// BatchesIn yields the live batches that a segment of the version indexes, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) BatchesIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	v = v.orEmpty()
	return entries(ctx, v.batches[segment], nil, nil, v.decodeBatch(segment))
}

// DeadIn yields the batches that a segment of the version indexes and that the version does not
// have, by dataset and name. An error is the last thing that it yields.
func (v *Version) DeadIn(ctx context.Context, segment string) iter.Seq2[Batch, error] {
	v = v.orEmpty()
	return entries(ctx, v.dead[segment], nil, nil, v.decodeBatch(segment))
}

// CountIn is the number of batches that BatchesIn yields. It reads nothing.
func (v *Version) CountIn(segment string) int64 { return v.orEmpty().batches[segment].Len() }

// span returns the first key of a dataset, and the first one behind it, nil for no end.
func span(dataset uint32) (from, to []byte) {
	if dataset < math.MaxUint32 {
		to = datasetKey(dataset + 1)
	}
	return datasetKey(dataset), to
}

// merged yields the batches of all segments with from <= key < to.
func (v *Version) merged(ctx context.Context, from, to []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		type source struct {
			next func() (Batch, error, bool)
			head Batch
		}
		var sources []source
		var stops []func()
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		advance := func(i int) bool {
			b, err, ok := sources[i].next()
			switch {
			case err != nil:
				return yield(Batch{}, err) && false
			case ok:
				sources[i].head = b
			default:
				sources = slices.Delete(sources, i, i+1)
			}
			return true
		}
		v := v.orEmpty()
		for i := range v.Segments {
			id := v.Segments[i].ID
			next, stop := iter.Pull2(entries(ctx, v.batches[id], from, to, v.decodeBatch(id)))
			stops = append(stops, stop)
			sources = append(sources, source{next: next})
			if !advance(len(sources) - 1) {
				return
			}
		}
		for len(sources) > 0 {
			first := 0
			for i := range sources {
				if CompareNames(sources[i].head.BatchName, sources[first].head.BatchName) < 0 {
					first = i
				}
			}
			if !yield(sources[first].head, nil) || !advance(first) {
				return
			}
		}
	}
}

// FindGone returns those of the named batches that are gone. A name without a batch stands for the
// dataset.
func (v *Version) FindGone(ctx context.Context, names []BatchName) (map[BatchName]Gone, error) {
	v = v.orEmpty()
	all, err := find(ctx, v.gone, batchKeys(names), v.decodeGone)
	found := map[BatchName]Gone{}
	for _, g := range all {
		found[g.BatchName] = g
	}
	return found, err
}

// Gone yields what is gone of all datasets, or of one if that is not 0, by dataset and name. An
// error is the last thing that it yields.
func (v *Version) Gone(ctx context.Context, dataset uint32) iter.Seq2[Gone, error] {
	v = v.orEmpty()
	if dataset == 0 {
		return entries(ctx, v.gone, nil, nil, v.decodeGone)
	}
	from, to := span(dataset)
	return entries(ctx, v.gone, from, to, v.decodeGone)
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
	v = v.orEmpty()
	found := map[BatchName]Batch{}
	for some := range slices.Chunk(names, findAtOnce) {
		keys := batchKeys(some)
		batches := make([][]Batch, len(v.Segments))
		group, groupCtx := errgroup.WithContext(ctx)
		for i := range v.Segments {
			id := v.Segments[i].ID
			group.Go(func() (err error) {
				batches[i], err = find(groupCtx, v.batches[id], keys, v.decodeBatch(id))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for _, b := range slices.Concat(batches...) {
			found[b.BatchName] = b
		}
	}
	return found, nil
}

// Datasets yields the datasets with live batches by id, from the id first on. An error is the last
// thing that it yields.
func (v *Version) Datasets(ctx context.Context, first uint32) iter.Seq2[Dataset, error] {
	v = v.orEmpty()
	return entries(ctx, v.datasets, datasetKey(first), nil, v.decodeDataset)
}

// FindDatasets returns those of the datasets that have live batches, by id.
func (v *Version) FindDatasets(ctx context.Context, ids []uint32) (map[uint32]Dataset, error) {
	v = v.orEmpty()
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = datasetKey(id)
	}
	all, err := find(ctx, v.datasets, keys, v.decodeDataset)
	found := map[uint32]Dataset{}
	for _, d := range all {
		found[d.ID] = d
	}
	return found, err
}

// DatasetPieces yields the key of every piece of the version's datasets, with the
// *codec.CorruptError of one that is missing or damaged, below which nothing is known. Another
// error ends it.
func (v *Version) DatasetPieces(ctx context.Context) iter.Seq2[string, error] {
	return v.datasets.Pieces(ctx)
}

// GonePieces is DatasetPieces for what is gone.
func (v *Version) GonePieces(ctx context.Context) iter.Seq2[string, error] { return v.gone.Pieces(ctx) }

// BatchPieces is DatasetPieces for the batches of a segment of the version.
func (v *Version) BatchPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	return v.batches[segment].Pieces(ctx)
}

// DeadPieces is DatasetPieces for the dead batches of a segment of the version.
func (v *Version) DeadPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	return v.dead[segment].Pieces(ctx)
}

// PieceNames yields the key of every piece of the version, without reading the leaves of its maps.
// An error, also that of a damaged piece, is the last thing that it yields.
func (v *Version) PieceNames(ctx context.Context) iter.Seq2[string, error] {
	maps := []*pieces.Map{v.datasets, v.gone}
	for i := range v.Segments {
		id := v.Segments[i].ID
		maps = append(maps, v.batches[id], v.dead[id])
	}
	return names(ctx, maps...)
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
