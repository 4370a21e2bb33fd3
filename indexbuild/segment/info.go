package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

const root = "index/segments/"

// Prefix is what the keys of a segment's files start with.
func Prefix(id string) string { return root + id + "/" }

// idDigits is the length of a segment id.
const idDigits = 32

// Ref names a segment and vouches for its bytes.
type Ref struct {
	ID string `json:"id"`
	// XXH64 is the hash of segment.json, which holds those of all other files. 16 hex digits.
	XXH64 string `json:"xxh64"`
	// Bytes is the size of all files, segment.json included. Domains and Rows count what the
	// segment indexes.
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

// SortBatches sorts batches as a segment lists them, by dataset and name. Two batches of one
// dataset and name are an error.
func SortBatches(batches []BatchRef) error {
	slices.SortFunc(batches, compareBatches)
	for i := 1; i < len(batches); i++ {
		if a, b := batches[i-1], batches[i]; compareBatches(a, b) == 0 {
			return fmt.Errorf("batch %q of dataset %d twice, as %s and %s", b.Batch, b.DatasetID, a.Digest, b.Digest)
		}
	}
	return nil
}

// File is what segment.json says of one file.
type File struct {
	Name string `json:"name"` // below the segment's prefix
	// Format is the version of the file's format: see fileFormats.
	Format int `json:"format"`
	// Optional lets readers that do not know the file, or its version, ignore it.
	Optional bool   `json:"optional,omitempty"`
	Bytes    int64  `json:"bytes"`
	XXH64    string `json:"xxh64"` // of the whole file
	// TailBytes and TailXXH64 describe the footer of a frame file. Frames is how many frames the
	// file has, RawBytes what they decompress to.
	TailBytes int64  `json:"tail_bytes,omitempty"`
	TailXXH64 string `json:"tail_xxh64,omitempty"`
	Frames    int    `json:"frames,omitempty"`
	RawBytes  int64  `json:"raw_bytes,omitempty"`
	// BlockXXH64 has 16 hex digits for each MiB of a mapped file.
	BlockXXH64 string `json:"block_xxh64,omitempty"`

	sums  mapped.Sums   // Blocks are those of a mapped file
	frame seekable.File // of a frame file
}

// frameFile describes a frame file in segment.json's terms.
func frameFile(name string, f seekable.File) File {
	return File{
		Name: name, Bytes: f.Bytes, XXH64: formatSum(f.XXH64),
		TailBytes: f.FooterBytes, TailXXH64: formatSum(f.FooterXXH64), Frames: f.Frames, RawBytes: f.RawBytes, frame: f,
	}
}

// mappedFile describes a mapped file in segment.json's terms.
func mappedFile(name string, s mapped.Sums) File {
	var blocks strings.Builder
	for _, sum := range s.Blocks {
		blocks.WriteString(formatSum(sum))
	}
	return File{Name: name, Bytes: s.Bytes, XXH64: formatSum(s.XXH64), BlockXXH64: blocks.String(), sums: s}
}

// Info is segment.json.
type Info struct {
	Format        int    `json:"format"`
	Segment       string `json:"segment"` // the id
	CanonicalForm string `json:"canonical_form"`
	// PublicSuffix is the public suffix list that the record of the first batch names.
	PublicSuffix string `json:"public_suffix_list"`

	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"` // pairs of domain and dataset
	Inline  int64 `json:"inline"`  // entries with a single tuple, which need no payload
	Rows    int64 `json:"rows"`
	Parts   int64 `json:"parts"`
	// ShardBits: postings have 1 << ShardBits shards.
	ShardBits int `json:"shard_bits"`

	// BatchCount and BatchDigest are of the batches in batches.tsv: their number, and the digest of
	// the text of the file.
	BatchCount  int64  `json:"batch_count,omitempty"`
	BatchDigest string `json:"batch_digest"`

	Files []File `json:"files"` // by name
}

// Bytes is the size of all files but segment.json.
func (i *Info) Bytes() int64 {
	var n int64
	for _, f := range i.Files {
		n += f.Bytes
	}
	return n
}

// File returns the file of that name, or nil if the segment has none. A segment that was read has
// all required files.
func (i *Info) File(name string) *File {
	compare := func(f File, name string) int { return strings.Compare(f.Name, name) }
	n, ok := slices.BinarySearchFunc(i.Files, name, compare)
	if !ok {
		return nil
	}
	return &i.Files[n]
}

func formatSum(v uint64) string { return fmt.Sprintf("%016x", v) }

func parseSum(s string) (uint64, bool) {
	if !isHex(s, 16) {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil
}

// isHex tells whether s is n lower-case hex digits.
func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// check checks that the document agrees with itself and parses the hashes of the files that are in
// formats.
func (i *Info) check(key, id string, formats []fileFormat) error {
	bad := func(section string, want, got any) error { return codec.Corrupt(key, section, -1, want, got) }
	if i.Format != Format {
		return &codec.FormatError{Key: key, Found: i.Format, Known: Format}
	}
	if i.BatchCount < 0 || !isHex(i.BatchDigest, idDigits) {
		return bad("batches", "number and digest", i.BatchDigest)
	}
	if i.Segment != id {
		return bad("segment", id, i.Segment)
	}
	for _, n := range []int64{i.Domains, i.Entries, i.Inline, i.Rows, i.Parts} {
		if n < 0 {
			return bad("counts", "none below zero", n)
		}
	}
	if i.Domains > mph.MaxDomains || i.Parts > math.MaxUint32 || i.ShardBits < 0 || i.ShardBits > MaxShardBits {
		got := fmt.Sprintf("%d domains, %d parts, %d shard bits", i.Domains, i.Parts, i.ShardBits)
		return bad("counts", "counts of a segment", got)
	}
	versions, err := i.checkFiles(key, formats)
	if err != nil {
		return err
	}
	if got := idOf(versions, i.BatchCount, i.BatchDigest); got != id {
		return bad("batches and files", "those of segment "+id, "those of "+got)
	}
	return nil
}

// checkFiles checks the list of files and returns the version of each kind of file. It parses the
// hashes of the files that formats has in their version. Other files must be optional.
func (i *Info) checkFiles(key string, formats []fileFormat) (versions map[string]int, err error) {
	bad := func(f *File, want, got any) error { return codec.Corrupt(key, "file "+f.Name, -1, want, got) }
	versions = map[string]int{}
	missing := requiredNames(formats, i.ShardBits)
	for n := range i.Files {
		f := &i.Files[n]
		if n > 0 && f.Name <= i.Files[n-1].Name {
			return nil, bad(f, "a name after "+i.Files[n-1].Name, f.Name)
		}
		if f.Name == InfoName || blob.CheckKey(Prefix(i.Segment)+f.Name) != nil {
			return nil, bad(f, "the name of a file", f.Name)
		}
		kind := kindOf(f.Name)
		if f.Format < 1 {
			return nil, bad(f, "a format of at least 1", f.Format)
		}
		if v, ok := versions[kind]; ok && v != f.Format {
			return nil, bad(f, fmt.Sprintf("format %d as other shards have", v), f.Format)
		}
		versions[kind] = f.Format
		switch known := formatOf(formats, kind); {
		case known != nil && known.version == f.Format:
			if !known.optional {
				if !missing[f.Name] {
					return nil, bad(f, fmt.Sprintf("a file of one of %d shards", 1<<i.ShardBits), f.Name)
				}
				delete(missing, f.Name)
			}
			err = f.check(known.form)
		case f.Optional && known == nil:
			err = f.checkSum()
		case known == nil:
			return nil, &codec.FormatError{Key: key, File: f.Name, Found: f.Format}
		default:
			return nil, &codec.FormatError{Key: key, File: f.Name, Found: f.Format, Known: known.version}
		}
		if err != nil {
			return nil, bad(f, err, "something else")
		}
	}
	if len(missing) > 0 {
		return nil, codec.Corrupt(key, "files", -1, "a file "+slices.Sorted(maps.Keys(missing))[0], "none")
	}
	return versions, nil
}

// checkSum parses the hash of the whole file. An error of checkSum or check says what the file
// should have.
func (f *File) checkSum() error {
	sum, ok := parseSum(f.XXH64)
	if !ok || f.Bytes < 0 {
		return errors.New("a size and an xxh64")
	}
	f.sums = mapped.Sums{Bytes: f.Bytes, XXH64: sum}
	return nil
}

// check parses all hashes of a file of that form.
func (f *File) check(form fileForm) error {
	if err := f.checkSum(); err != nil {
		return err
	}
	if form == mappedForm {
		blocks := (f.Bytes + mapped.BlockSize - 1) / mapped.BlockSize
		isFrameFile := f.TailBytes != 0 || f.Frames != 0 || f.RawBytes != 0 || f.TailXXH64 != ""
		if blocks > math.MaxInt64/16 || int64(len(f.BlockXXH64)) != blocks*16 || isFrameFile {
			return fmt.Errorf("%d hashes of blocks", blocks)
		}
		f.sums.Blocks = make([]uint64, blocks)
		for i := range f.sums.Blocks {
			sum, ok := parseSum(f.BlockXXH64[16*i : 16*i+16])
			if !ok {
				return fmt.Errorf("a hash for block %d", i)
			}
			f.sums.Blocks[i] = sum
		}
		return nil
	}
	tail, ok := parseSum(f.TailXXH64)
	if !ok || f.TailBytes < 0 || f.TailBytes > f.Bytes || f.Frames < 0 || f.RawBytes < 0 || f.BlockXXH64 != "" {
		return errors.New("a frame file")
	}
	f.frame = seekable.File{
		Bytes: f.Bytes, XXH64: f.sums.XXH64,
		FooterBytes: f.TailBytes, FooterXXH64: tail, Frames: f.Frames, RawBytes: f.RawBytes,
	}
	return nil
}

// ReadInfo reads the segment.json of ref. It fails with a *codec.FormatError if this build does not
// read the segment.
func ReadInfo(ctx context.Context, store blob.Store, ref Ref) (*Info, error) {
	key := Prefix(ref.ID) + InfoName
	if !isHex(ref.ID, idDigits) {
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
	if err := codec.Unseal(data, key, Format, &i); err != nil {
		return nil, err
	}
	if err := i.check(key, id, fileFormats); err != nil {
		return nil, err
	}
	return &i, nil
}

// Find returns the reference of the segment that builder has made of batches, which must be sorted,
// or false if there is no finished one. Only segment.json is read.
func Find(ctx context.Context, store blob.Store, batches []BatchRef, builder Builder) (Ref, bool, error) {
	id := ID(batches, builder)
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

// ref returns the reference of the segment whose segment.json is data.
func (i *Info) ref(data []byte) Ref {
	return Ref{
		ID: i.Segment, XXH64: formatSum(xxhash.Sum64(data)),
		Bytes: i.Bytes() + int64(len(data)), Domains: i.Domains, Rows: i.Rows,
	}
}
