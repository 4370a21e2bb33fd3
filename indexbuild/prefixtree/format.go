// Package prefixtree holds the path-tree index of a set of keys: for every folder, which is a
// prefix that ends in a slash, how many objects are below it and how many bytes they have. The root
// is the empty prefix. An index is a folder of files that are mapped, in one of two encodings of
// the same arrays, Seed and S3Inv; docs/formats/prefixtree.md describes both. Package treebuild
// makes the nodes that a Writer writes.
//
// Open takes about a millisecond; ten with a thousand depths, for their manifest. Lookups read a
// handful of places; children are listed in the order of their names, and descendants of one depth
// are found by two binary searches.
package prefixtree

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// MaxKey is the longest key in bytes. S3's limit is 1,024.
	MaxKey = 8192
	// MaxNodes is the largest number of nodes of an index.
	MaxNodes = bbhash.MaxKeys
)

// Format is an encoding of an index.
type Format string

const (
	// Seed is the encoding of the document "Index Format Specification" of s3-inv-db.
	Seed Format = "seed"
	// S3Inv is the encoding that the programs of s3-inv-db read and write.
	S3Inv Format = "s3inv"
)

// Formats are all encodings.
func Formats() []Format { return []Format{Seed, S3Inv} }

// Node is a folder with everything below it.
type Node struct {
	// Position is the node's number in pre-order, which is also the byte order of the prefixes. End
	// is the position of the last node below it, or its own.
	Position, End uint64
	// Depth is the number of slashes of the prefix. MaxDepth is the largest depth of the node and
	// those below it.
	Depth, MaxDepth uint32
	// Objects is the number of objects below the node, Bytes the sum of their sizes.
	Objects, Bytes uint64
}

// Names of files. Those of the arrays are the same in both formats.
const (
	manifestName = "manifest.json"

	endName      = "subtree_end.u64"
	depthName    = "depth.u32"
	objectsName  = "object_count.u64"
	bytesName    = "total_bytes.u64"
	maxDepthName = "max_depth_in_subtree.u32"
)

// layout is what differs between the formats.
type layout struct {
	// header is the size of the header of arrays.
	header int64
	// lengths is set if each prefix follows its length, as u32. Otherwise there is one more offset,
	// the blob's size.
	lengths bool
	// blob has the prefixes and offsets their offsets, hash the perfect hash of the prefixes,
	// positions the position of each slot, and prints its fingerprint, "" if there is none.
	blob, offsets, hash, positions, prints string
	// depthOffsets and depthPositions are the depth index, "" if each depth has a file.
	depthOffsets, depthPositions string
	// sha256 is set if the manifest has the SHA-256 of files instead of their xxh64.
	sha256 bool
}

var layouts = map[Format]*layout{
	Seed: {
		lengths: true,
		blob:    "prefixes.blob", offsets: "prefixes.offsets", hash: "mphf.bin", positions: "mphf_pos.u64",
	},
	S3Inv: {
		header: headerSize,
		blob:   "prefix_blob.bin", offsets: "prefix_offsets.u64", hash: "mph.bin", positions: "mph_pos.u64", prints: "mph_fp.u64",
		depthOffsets: "depth_offsets.u64", depthPositions: "depth_positions.u64",
		sha256: true,
	},
}

// depthFile is the name of the file with the positions of a depth, from 1.
func depthFile(depth uint32) string { return fmt.Sprintf("depth_index/depth_%d.bin", depth) }

const (
	headerSize    = 20
	headerMagic   = 0x53334944 // "S3ID"; the file has the last letter first
	headerVersion = 1

	// lengthBytes is the size of the length of a prefix in a layout with lengths.
	lengthBytes = 4
	// countBytes is the size of the count at the beginning of a depth's file.
	countBytes = 8
)

// appendHeader appends the header of an array of count elements, if the format has one.
func (l *layout) appendHeader(p []byte, count uint64, width int) []byte {
	if l.header == 0 {
		return p
	}
	p = codec.AppendU32(codec.AppendU32(p, headerMagic), headerVersion)
	return codec.AppendU32(codec.AppendU64(p, count), uint32(width))
}

// version is the version of manifests.
const version = 1

// maxManifest is the largest manifest that is read, in bytes. The hashes of the blocks of a hundred
// gigabytes take 2 MiB.
const maxManifest = 64 << 20

// manifest is manifest.json. It is sealed: one more member, which readers of the format do not
// know, is the hash of the others.
type manifest struct {
	Version   int             `json:"version"`
	CreatedAt *time.Time      `json:"created_at,omitempty"` // of S3Inv
	NodeCount uint64          `json:"node_count"`
	MaxDepth  uint32          `json:"max_depth"`
	Files     map[string]file `json:"files"`
}

// file is what a manifest says of a file.
type file struct {
	Size     int64  `json:"size"`
	XXHash64 string `json:"xxhash64,omitempty"` // of Seed
	Checksum string `json:"checksum,omitempty"` // SHA-256, of S3Inv
	// Blocks has 16 hex digits for each MiB, which other programs do not write or read.
	Blocks string `json:"block_xxh64,omitempty"`
}

func hex64(sums ...uint64) string {
	var s strings.Builder
	for _, sum := range sums {
		fmt.Fprintf(&s, "%016x", sum)
	}
	return s.String()
}

// sums returns what the manifest says of a file. The blocks are nil if it has no hashes of them.
func (m *manifest) sums(name string) (s mapped.Sums, err error) {
	f, ok := m.Files[name]
	bad := func(want string, got any) error { return codec.Corrupt(manifestName, "document", -1, want, got) }
	if !ok || f.Size < 0 {
		return s, bad("the file "+name, f)
	}
	s.Bytes = f.Size
	if f.XXHash64 != "" {
		if s.XXH64, err = strconv.ParseUint(f.XXHash64, 16, 64); err != nil {
			return s, bad("the xxh64 of "+name, f.XXHash64)
		}
	}
	if f.Blocks == "" {
		return s, nil
	}
	blocks := (f.Size + mapped.BlockSize - 1) / mapped.BlockSize
	if int64(len(f.Blocks)) != 16*blocks {
		return s, bad(fmt.Sprintf("%d blocks of %s", blocks, name), len(f.Blocks)/16)
	}
	s.Blocks = make([]uint64, blocks)
	for i := range s.Blocks {
		if s.Blocks[i], err = strconv.ParseUint(f.Blocks[16*i:16*i+16], 16, 64); err != nil {
			return s, bad("hashes of the blocks of "+name, f.Blocks[16*i:16*i+16])
		}
	}
	return s, nil
}

// DecodeManifest decodes a manifest, which is sealed unless another program wrote it.
func DecodeManifest(data []byte) (m manifest, f Format, err error) {
	bad := func(want string, got any) error { return codec.Corrupt(manifestName, "document", -1, want, got) }
	if len(data) > maxManifest {
		return m, "", bad(fmt.Sprintf("at most %d bytes", maxManifest), len(data))
	}
	err = codec.Unseal(data, manifestName, 0, &m)
	if codec.IsUnsealed(err) && !strings.Contains(string(data), `xxh64"`) {
		if err = json.Unmarshal(data, &m); err != nil {
			err = bad("JSON", err)
		}
	}
	if err != nil {
		return m, "", err
	}
	for _, known := range Formats() {
		if _, ok := m.Files[layouts[known].blob]; ok {
			f = known
		}
	}
	switch {
	case f == "":
		return m, f, fmt.Errorf("%w: %s is that of something else", ErrNoIndex, manifestName)
	case m.Version > version:
		return m, f, &codec.FormatError{Key: manifestName, Found: m.Version, Known: version}
	case m.Version < version:
		return m, f, bad(fmt.Sprintf("version %d", version), m.Version)
	case m.NodeCount < 1 || m.NodeCount > MaxNodes:
		return m, f, bad(fmt.Sprintf("1 to %d nodes", uint64(MaxNodes)), m.NodeCount)
	case m.MaxDepth > MaxKey:
		return m, f, bad(fmt.Sprintf("a depth of at most %d", MaxKey), m.MaxDepth)
	}
	return m, f, nil
}
