// Package segment is one self-contained, immutable index over a set of batches: its file
// formats, each with writer and reader together, and the lookups on them. docs/formats
// describes every byte; package indexbuild makes segments.
//
//	index/segments/{id}/segment.json                 names, sizes and hashes of the others; written last
//	                    domains.txt.zst              sorted unique domains, one a line
//	                    domains.mphf                 domain → ordinal, its line number (package mph)
//	                    domain_to_datasets.roar      ordinal → set of datasets
//	                    postings/{shard}/postings.idx.zst, postings.dat.zst   domain and dataset → totals and places of rows
//	                    files.tsv.zst                file_id → part of the lake
//	                    parts.idx.zst                place of rows → pages and their checksums
//
// What it promises: a segment is read only as far as its reference vouches for it.
// The reference has the hash of segment.json, which has those of everything else: whole small
// files and the tails of compressed ones are checked when the segment is opened, frames
// when they are read (tails hold their checksums), mapped files block by block at first touch.
// What does not agree is a *codec.CorruptError; it is never a wrong answer, and nothing panics.
package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Format is the version of segments as a whole: of segment.json, of the set of files, and of what zstd makes of them.
// 1: first.
// 2: blocks of postings are not compressed, other frames at a faster level; the perfect hash has more buckets.
// 3: domains are compressed by an encoder for text. What reads one reads the others.
const Format = 3

// firstFormat is the first that is still read.
const firstFormat = 1

// Names of a segment's files below its prefix. Postings have two files a shard.
const (
	InfoName       = "segment.json"
	DomainsName    = "domains.txt.zst"
	MPHFName       = "domains.mphf"
	MembershipName = "domain_to_datasets.roar"
	FilesName      = "files.tsv.zst"
	PartsName      = "parts.idx.zst"
)

// PostingsName is the name of a shard's postings.idx.zst.
func PostingsName(shard int) string { return fmt.Sprintf("postings/%04d/postings.idx.zst", shard) }

// PayloadsName is the name of a shard's postings.dat.zst.
func PayloadsName(shard int) string { return fmt.Sprintf("postings/%04d/postings.dat.zst", shard) }

const root = "index/segments/"

// Prefix is what the keys of a segment's files start with.
func Prefix(id string) string { return root + id + "/" }

// openParallel is how many tails are fetched at once when a segment is opened: enough to hide
// an object store's latency behind a thousand shards.
const openParallel = 16

// scanBytes is how many compressed bytes a scan over all frames of a file fetches at once.
const scanBytes = 1 << 20

// idDigits is the length of a segment id.
const idDigits = 32

// Ref names a segment and vouches for its bytes.
type Ref struct {
	ID string `json:"id"`
	// XXH64 is the hash of segment.json, which holds those of all other files. 16 hex digits.
	XXH64 string `json:"xxh64"`
	// Bytes is the size of all files, segment.json included. Domains and Rows are what they index.
	Bytes   int64 `json:"bytes"`
	Domains int64 `json:"domains"`
	Rows    int64 `json:"rows"`
}

// BatchRef names a batch record.
type BatchRef struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"` // of the batch record, 32 hex digits
}

// Key is the key of the batch record.
func (b BatchRef) Key() string { return lake.BatchKey(b.DatasetID, b.Batch, b.Digest) }

func compareBatches(a, b BatchRef) int {
	return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), strings.Compare(a.Batch, b.Batch))
}

// SortBatches orders batches as a segment does, by dataset and name, and refuses two of one name.
func SortBatches(batches []BatchRef) error {
	slices.SortFunc(batches, compareBatches)
	for i := 1; i < len(batches); i++ {
		if compareBatches(batches[i-1], batches[i]) == 0 {
			return fmt.Errorf("batch %q of dataset %d twice, as %s and %s", batches[i].Batch, batches[i].DatasetID, batches[i-1].Digest, batches[i].Digest)
		}
	}
	return nil
}

// Formats are the versions of the files' formats.
type Formats struct {
	DomainsTxt       int `json:"domains_txt"`
	DomainsMPHF      int `json:"domains_mphf"`
	DomainToDatasets int `json:"domain_to_datasets"`
	Postings         int `json:"postings"`
	FilesTSV         int `json:"files_tsv"`
	PartsIdx         int `json:"parts_idx"`
}

// formats are those written and read here.
var formats = Formats{DomainsTxt: 1, DomainsMPHF: 1, DomainToDatasets: membershipVersion, Postings: postingsVersion, FilesTSV: 1, PartsIdx: 1}

// ID is the id of the segment over batches, which have to be sorted: it follows from formats
// and inputs alone, so that whoever builds it writes the same bytes under the same keys.
func ID(batches []BatchRef) string { return formatID(Format, batches) }

// formatID is the id of a segment of any format.
func formatID(format int, batches []BatchRef) string {
	f := formats
	s := fmt.Appendf(nil, "urlake segment %d %d %d %d %d %d %d\n", format, f.DomainsTxt, f.DomainsMPHF, f.DomainToDatasets, f.Postings, f.FilesTSV, f.PartsIdx)
	for _, b := range batches {
		s = fmt.Appendf(s, "%d\t%s\t%s\n", b.DatasetID, b.Batch, b.Digest)
	}
	return lake.Digest(s)
}

// File is what segment.json says of one file.
type File struct {
	Name  string `json:"name"` // below the segment's prefix
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"`
	// TailBytes and TailXXH64 describe the tail of a frame file, Frames and RawBytes how many
	// frames it has and what they decompress to.
	TailBytes int64  `json:"tail_bytes,omitempty"`
	TailXXH64 string `json:"tail_xxh64,omitempty"`
	Frames    int    `json:"frames,omitempty"`
	RawBytes  int64  `json:"raw_bytes,omitempty"`
	// BlockXXH64 has 16 hex digits for each MiB of a file that is mapped.
	BlockXXH64 string `json:"block_xxh64,omitempty"`

	frame  seekable.File
	blocks []uint64
}

// frameFile describes a frame file in segment.json's terms.
func frameFile(name string, f seekable.File) File {
	return File{
		Name: name, Bytes: f.Bytes, XXH64: formatSum(f.XXH64), TailBytes: f.FooterBytes, TailXXH64: formatSum(f.FooterXXH64),
		Frames: f.Frames, RawBytes: f.RawBytes, frame: f,
	}
}

// Info is segment.json.
type Info struct {
	Format        int    `json:"format"`
	Segment       string `json:"segment"`
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`

	Formats Formats `json:"formats"`

	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"` // pairs of domain and dataset
	Inline  int64 `json:"inline"`  // of those with a single tuple, which needs no payload
	Rows    int64 `json:"rows"`
	Parts   int64 `json:"parts"`
	// ShardBits: postings have 1 << ShardBits shards.
	ShardBits int `json:"shard_bits"`

	Batches []BatchRef `json:"batches"` // by dataset and name
	Files   []File     `json:"files"`   // by name
}

// Bytes is the size of all files but segment.json.
func (i *Info) Bytes() int64 {
	var n int64
	for _, f := range i.Files {
		n += f.Bytes
	}
	return n
}

// names are the files that a segment has to have, sorted.
func (i *Info) names() []string {
	names := []string{DomainsName, MPHFName, MembershipName, FilesName, PartsName}
	for s := range 1 << i.ShardBits {
		names = append(names, PostingsName(s), PayloadsName(s))
	}
	slices.Sort(names)
	return names
}

// File returns the file of that name. Info was checked to have all there are.
func (i *Info) File(name string) *File {
	n, _ := slices.BinarySearchFunc(i.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
	return &i.Files[n]
}

func formatSum(v uint64) string { return fmt.Sprintf("%016x", v) }

func parseSum(s string) (uint64, bool) {
	if !checkHex(s, 16) {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil
}

func checkHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// check holds the document against itself and prepares its files.
func (i *Info) check(key, id string) error {
	bad := func(section string, want, got any) error { return codec.Corrupt(key, section, -1, want, got) }
	if i.Format < firstFormat || i.Format > Format {
		return bad("format", fmt.Sprintf("%d to %d", firstFormat, Format), i.Format)
	}
	if i.Formats != formats {
		return bad("formats", fmt.Sprintf("%+v", formats), fmt.Sprintf("%+v", i.Formats))
	}
	if i.Segment != id {
		return bad("segment", id, i.Segment)
	}
	for n := 1; n < len(i.Batches); n++ {
		if compareBatches(i.Batches[n-1], i.Batches[n]) >= 0 {
			return bad("batches", "ascending datasets and names", i.Batches[n])
		}
	}
	if got := formatID(i.Format, i.Batches); got != id {
		return bad("batches", "those of segment "+id, "those of "+got)
	}
	for _, n := range []int64{i.Domains, i.Entries, i.Inline, i.Rows, i.Parts} {
		if n < 0 {
			return bad("counts", "none below zero", n)
		}
	}
	if i.Domains > mph.MaxDomains || i.Parts > math.MaxUint32 || i.ShardBits < 0 || i.ShardBits > MaxShardBits {
		return bad("counts", "counts of a segment", fmt.Sprintf("%d domains, %d parts, %d shard bits", i.Domains, i.Parts, i.ShardBits))
	}
	names := i.names()
	if len(names) != len(i.Files) {
		return bad("files", fmt.Sprintf("%d files", len(names)), len(i.Files))
	}
	for n := range i.Files {
		f := &i.Files[n]
		if f.Name != names[n] {
			return bad("files", names[n], f.Name)
		}
		if err := f.check(); err != nil {
			return bad("files: "+f.Name, err, "something else")
		}
	}
	return nil
}

func (f *File) check() error {
	sum, ok := parseSum(f.XXH64)
	if !ok || f.Bytes < 0 {
		return errors.New("a size and an xxh64")
	}
	if f.Name == MPHFName || f.Name == MembershipName {
		blocks := (f.Bytes + mapBlock - 1) / mapBlock
		if blocks > math.MaxInt64/16 || int64(len(f.BlockXXH64)) != blocks*16 || f.TailBytes != 0 || f.Frames != 0 || f.RawBytes != 0 || f.TailXXH64 != "" {
			return fmt.Errorf("%d hashes of blocks", blocks)
		}
		f.blocks = make([]uint64, blocks)
		for i := range f.blocks {
			if f.blocks[i], ok = parseSum(f.BlockXXH64[16*i : 16*i+16]); !ok {
				return fmt.Errorf("a hash for block %d", i)
			}
		}
		return nil
	}
	tail, ok := parseSum(f.TailXXH64)
	if !ok || f.TailBytes < 0 || f.TailBytes > f.Bytes || f.Frames < 0 || f.RawBytes < 0 || f.BlockXXH64 != "" {
		return errors.New("a frame file")
	}
	f.frame = seekable.File{Bytes: f.Bytes, XXH64: sum, FooterBytes: f.TailBytes, FooterXXH64: tail, Frames: f.Frames, RawBytes: f.RawBytes}
	return nil
}

// ReadInfo reads the segment.json of ref.
func ReadInfo(ctx context.Context, store blob.Store, ref Ref) (*Info, error) {
	key := Prefix(ref.ID) + InfoName
	if !checkHex(ref.ID, idDigits) {
		return nil, fmt.Errorf("segment id %q: want %d hex digits", ref.ID, idDigits)
	}
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if got := formatSum(xxhash.Sum64(data)); got != ref.XXH64 {
		return nil, codec.Corrupt(key, "file", -1, "xxh64 "+ref.XXH64, got)
	}
	return decodeInfo(data, key, ref.ID)
}

func decodeInfo(data []byte, key, id string) (*Info, error) {
	var i Info
	if err := codec.Unseal(data, key, &i); err != nil {
		return nil, err
	}
	if err := i.check(key, id); err != nil {
		return nil, err
	}
	return &i, nil
}

// Find returns the reference of the segment over batches, which have to be sorted, if it is there and finished.
func Find(ctx context.Context, store blob.Store, batches []BatchRef) (Ref, bool, error) {
	id := ID(batches)
	key := Prefix(id) + InfoName
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return Ref{}, false, nil
	}
	if err != nil {
		return Ref{}, false, err
	}
	i, err := decodeInfo(data, key, id)
	if err != nil {
		return Ref{}, false, err
	}
	return i.ref(data), true, nil
}

func (i *Info) ref(data []byte) Ref {
	return Ref{ID: i.Segment, XXH64: formatSum(xxhash.Sum64(data)), Bytes: i.Bytes() + int64(len(data)), Domains: i.Domains, Rows: i.Rows}
}

// Cache keeps decoded frames. Values are immutable; bytes is what one holds in memory. It must
// be safe for concurrent use.
type Cache interface {
	Get(key CacheKey) (value any, ok bool)
	Add(key CacheKey, value any, bytes int64)
}

// CacheKey names a frame. Objects are immutable, so it names its bytes too.
type CacheKey struct {
	Object string // key in the store
	Frame  int
}

// Options of Open.
type Options struct {
	// CacheDir holds copies of the mapped files of stores whose objects are not files. Copies
	// are kept for the next Open; PruneCache removes them.
	CacheDir string
	// Cache keeps decoded frames; nil keeps none.
	Cache Cache
	// Residency bounds the resident memory of mapped files; nil does not.
	Residency *Residency
}

// Segment is an open segment. It is safe for concurrent use until Close.
type Segment struct {
	info    *Info
	cache   Cache
	domains *frames
	mphf    *mapped
	roar    *mapped
	table   *mph.Table
	member  *membership
	shards  []shard
	files   *Files
	parts   *frames
}

type shard struct {
	idx, dat *frames
	want     expectation
}

// Open opens the segment of ref: it reads segment.json, the tails of all compressed files and
// files.tsv, and maps the perfect hash and the sets of datasets.
func Open(ctx context.Context, store blob.Store, ref Ref, opt Options) (*Segment, error) {
	s, err := open(ctx, store, ref, opt)
	if err != nil {
		return nil, fmt.Errorf("open segment %q: %w", ref.ID, err)
	}
	return s, nil
}

func open(ctx context.Context, store blob.Store, ref Ref, opt Options) (s *Segment, err error) {
	info, err := ReadInfo(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	s = &Segment{info: info, cache: opt.Cache, shards: make([]shard, 1<<info.ShardBits)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	prefix := Prefix(ref.ID)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(openParallel)
	openFrames := func(to **frames, name string, width int) {
		g.Go(func() (err error) {
			*to, err = newFrames(gctx, store, prefix+name, info.File(name), width)
			return err
		})
	}
	openMap := func(to **mapped, name string) {
		g.Go(func() (err error) {
			*to, err = openMapped(gctx, store, prefix+name, info.File(name), opt.CacheDir, ref.ID)
			if err == nil && opt.Residency != nil {
				(*to).resident = opt.Residency
				opt.Residency.add(*to)
			}
			return err
		})
	}
	openMap(&s.mphf, MPHFName)
	openMap(&s.roar, MembershipName)
	g.Go(func() (err error) {
		s.files, err = readFiles(gctx, store, prefix+FilesName, info)
		return err
	})
	openFrames(&s.domains, DomainsName, 0)
	openFrames(&s.parts, PartsName, partsFence)
	for i := range s.shards {
		openFrames(&s.shards[i].idx, PostingsName(i), postingsFence)
		openFrames(&s.shards[i].dat, PayloadsName(i), 0)
	}
	if err := g.Wait(); err != nil {
		return s, err
	}

	defer guard(debug.SetPanicOnFault(true), &err, s.mphf, s.roar)
	if err := s.mphf.checkEnds(); err != nil {
		return s, err
	}
	domains := info.File(DomainsName)
	if err := checkDomainFrames(int64(s.domains.Len()), info.Domains, s.domains.key); err != nil {
		return s, err
	}
	expect := mph.Expect{Domains: uint64(info.Domains), DomainsXXH64: domains.frame.XXH64}
	if s.table, err = mph.Open(s.mphf.data, s.mphf.name, expect, s.mphf.check); err != nil {
		return s, err
	}
	if s.member, err = openMembership(s.roar, info.Domains); err != nil {
		return s, err
	}
	for i := range s.shards {
		s.shards[i].want = expectation{shard: i, shardBits: info.ShardBits, files: s.files, datBytes: s.shards[i].dat.RawBytes()}
	}
	return s, nil
}

// readFiles reads all of files.tsv.zst in one read.
func readFiles(ctx context.Context, store blob.Store, key string, info *Info) (*Files, error) {
	f := info.File(FilesName)
	data, err := store.ReadRange(ctx, key, 0, f.Bytes)
	if err != nil {
		return nil, err
	}
	if got := xxhash.Sum64(data); got != f.frame.XXH64 {
		return nil, codec.Corrupt(key, "file", -1, "xxh64 "+f.XXH64, formatSum(got))
	}
	frames, err := seekable.Open(data[f.Bytes-f.TailBytes:], f.Bytes, key, 0)
	if err != nil {
		return nil, err
	}
	var text []byte
	for i := range frames.Len() {
		off, n := frames.Range(i, i+1)
		frame, err := frames.Decode(i, data[off:off+n])
		if err != nil {
			return nil, err
		}
		text = append(text, frame...)
	}
	return parseFiles(text, key, info.Parts)
}

// Close unmaps the segment's files. No call may be under way or follow. What lookups returned
// stays valid.
func (s *Segment) Close() error {
	err := s.mphf.close()
	if rerr := s.roar.close(); err == nil {
		err = rerr
	}
	return err
}

// Info is the segment's segment.json. It must not be changed.
func (s *Segment) Info() *Info { return s.info }

// Files is the segment's file registry.
func (s *Segment) Files() *Files { return s.files }

// File returns the part with that id.
func (s *Segment) File(id uint32) (FileInfo, error) {
	if int64(id) >= int64(s.files.Len()) {
		return FileInfo{}, codec.Corrupt(s.files.name, "lines", -1, fmt.Sprintf("a file_id below %d", s.files.Len()), id)
	}
	return s.files.info[id], nil
}

// MemoryBytes is about what the open segment holds in memory, besides mapped files and the cache.
func (s *Segment) MemoryBytes() int64 {
	n := s.domains.MemoryBytes() + s.parts.MemoryBytes() + int64(s.files.Len())*200
	for i := range s.shards {
		n += s.shards[i].idx.MemoryBytes() + s.shards[i].dat.MemoryBytes()
	}
	return n
}

// Ordinal returns the ordinal of a domain, or false if the segment does not have it.
func (s *Segment) Ordinal(k Key) (ordinal uint32, ok bool, err error) {
	defer guard(debug.SetPanicOnFault(true), &err, s.mphf)
	s.mphf.resident.touch()
	return s.table.Lookup(k.ID, k.Check)
}

// Ordinals is Ordinal for many domains, faster: ordinals[i] becomes keys[i]'s, or mph.Absent.
func (s *Segment) Ordinals(keys []Key, ordinals []uint32) (err error) {
	defer guard(debug.SetPanicOnFault(true), &err, s.mphf)
	return s.table.LookupBatch(keys, ordinals)
}

// frames is a frame file in a store.
type frames struct {
	*seekable.Frames
	key  string
	read seekable.RangeReader
}

func newFrames(ctx context.Context, store blob.Store, key string, f *File, width int) (*frames, error) {
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, key, off, n) }
	opened, err := seekable.OpenAt(ctx, read, f.frame, key, width)
	if err != nil {
		return nil, err
	}
	if opened.Len() != f.Frames || opened.RawBytes() != f.RawBytes {
		return nil, codec.Corrupt(key, "seek table", -1, fmt.Sprintf("%d frames of %d bytes", f.Frames, f.RawBytes), fmt.Sprintf("%d of %d", opened.Len(), opened.RawBytes()))
	}
	return &frames{opened, key, read}, nil
}

// frame reads one frame through the cache.
func (f *frames) frame(ctx context.Context, cache Cache, i int) ([]byte, error) {
	return load(ctx, f, cache, i, func(data []byte) ([]byte, int64, error) { return data, int64(cap(data)), nil })
}

// load gets the decoded form of frame i from the cache, or reads it and puts it there.
func load[T any](ctx context.Context, f *frames, cache Cache, i int, decode func([]byte) (T, int64, error)) (T, error) {
	var none T
	key := CacheKey{f.key, i}
	if cache != nil {
		if v, ok := cache.Get(key); ok {
			return v.(T), nil
		}
	}
	data, err := f.Read(ctx, f.read, i, i+1)
	if err != nil {
		return none, err
	}
	v, size, err := decode(data[0])
	if err != nil {
		return none, err
	}
	if cache != nil {
		cache.Add(key, v, size)
	}
	return v, nil
}

// loadRange is load for frames [lo, hi): what the cache does not have is read in one range,
// from the first frame that is missing to the last.
func loadRange[T any](ctx context.Context, f *frames, cache Cache, lo, hi int, decode func(frame int, data []byte) (T, int64, error)) ([]T, error) {
	values := make([]T, hi-lo)
	have := make([]bool, hi-lo)
	first, last := hi, lo
	for i := lo; i < hi; i++ {
		if cache != nil {
			if v, ok := cache.Get(CacheKey{f.key, i}); ok {
				values[i-lo], have[i-lo] = v.(T), true
				continue
			}
		}
		first, last = min(first, i), i+1
	}
	if first >= last {
		return values, nil
	}
	data, err := f.Read(ctx, f.read, first, last)
	if err != nil {
		return nil, err
	}
	for i := first; i < last; i++ {
		if have[i-lo] {
			continue
		}
		v, size, err := decode(i, data[i-first])
		if err != nil {
			return nil, err
		}
		values[i-lo] = v
		if cache != nil {
			cache.Add(CacheKey{f.key, i}, v, size)
		}
	}
	return values, nil
}

// scanned is one frame of a scan.
type scanned struct {
	number int
	data   []byte
}

func (s scanned) section() string { return frameSection(s.number) }

func frameSection(i int) string { return fmt.Sprintf("frame %d", i) }

// scan reads the frames from first to below end in large reads, past the cache. An error is the last thing yielded. A frame is valid until the next is yielded.
func (f *frames) scan(ctx context.Context, first, end int) iter.Seq2[scanned, error] {
	return func(yield func(scanned, error) bool) {
		var buf []byte
		for lo := first; lo < end; {
			hi := f.reach(lo, end, scanBytes)
			off, n := f.Range(lo, hi)
			raw, err := f.read(ctx, off, n)
			if err != nil {
				yield(scanned{}, fmt.Errorf("read frames %d to %d of %s: %w", lo, hi, f.key, err))
				return
			}
			for ; lo < hi; lo++ {
				at, n := f.Range(lo, lo+1)
				buf = slices.Grow(buf[:0], int(f.RawSize(lo)))
				data, err := f.DecodeInto(lo, raw[at-off:][:n], buf)
				if err != nil {
					yield(scanned{}, err)
					return
				}
				if !yield(scanned{lo, data}, nil) {
					return
				}
			}
		}
	}
}

// reach is the end of the frames from lo on, at most end, that have at most size compressed bytes, or are one.
func (f *frames) reach(lo, end int, size int64) int {
	hi := lo + 1
	for hi < end {
		if _, n := f.Range(lo, hi+1); n > size {
			break
		}
		hi++
	}
	return hi
}

// Writer writes the files of one segment. Several may be written at once, each by one goroutine.
type Writer struct {
	ctx   context.Context
	store blob.Store
	id    string

	mu    sync.Mutex
	files []File
}

// NewWriter writes the segment over batches, which have to be sorted.
func NewWriter(ctx context.Context, store blob.Store, batches []BatchRef) *Writer {
	return &Writer{ctx: ctx, store: store, id: ID(batches)}
}

// FileWriter writes one file. It ends in FinishFrames, FinishMapped or Abort.
type FileWriter struct {
	w    *Writer
	name string
	out  blob.Writer
	hash *blockHash
}

// Create starts a file.
func (w *Writer) Create(name string) (*FileWriter, error) {
	out, err := w.store.Create(w.ctx, Prefix(w.id)+name)
	if err != nil {
		return nil, err
	}
	f := &FileWriter{w: w, name: name, out: out}
	if name == MPHFName || name == MembershipName {
		f.hash = newBlockHash()
	}
	return f, nil
}

func (f *FileWriter) Write(p []byte) (int, error) {
	if f.hash != nil {
		f.hash.Write(p)
	}
	return f.out.Write(p)
}

// FinishFrames ends a frame file.
func (f *FileWriter) FinishFrames(ff seekable.File) error { return f.finish(frameFile(f.name, ff)) }

// FinishMapped ends a file that is mapped.
func (f *FileWriter) FinishMapped() error { return f.finish(f.hash.file(f.name)) }

func (f *FileWriter) finish(file File) error {
	got, err := f.out.Finish()
	if err != nil {
		return err
	}
	if got.Size != file.Bytes {
		return fmt.Errorf("write %s: %d bytes arrived of %d", got.Key, got.Size, file.Bytes)
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.files = append(f.w.files, file)
	return nil
}

// Abort drops the file unless it is finished.
func (f *FileWriter) Abort() { f.out.Abort() }

// Finish writes segment.json, with which the segment exists. Of info it takes everything but
// format, id and files.
func (w *Writer) Finish(info Info) (Ref, error) {
	info.Format, info.Formats, info.Segment, info.Files = Format, formats, w.id, w.files
	slices.SortFunc(info.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	key := Prefix(w.id) + InfoName
	if err := info.check(key, w.id); err != nil {
		return Ref{}, fmt.Errorf("finish segment: %w", err)
	}
	data, err := codec.Seal(&info)
	if err != nil {
		return Ref{}, err
	}
	if _, err := w.store.Put(w.ctx, key, data, blob.Condition{}); err != nil {
		return Ref{}, err
	}
	return info.ref(data), nil
}

var _ io.Writer = (*FileWriter)(nil)
