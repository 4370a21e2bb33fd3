package prefixtree

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Names of files. Those of the arrays are the same in both formats.
const (
	manifestName = "manifest.json"
	// blocksName is a file of ours in both formats: the hashes of the blocks of all other files.
	blocksName = "blocks.xxh64"

	endName      = "subtree_end.u64"
	depthName    = "depth.u32"
	objectsName  = "object_count.u64"
	bytesName    = "total_bytes.u64"
	maxDepthName = "max_depth_in_subtree.u32"

	tierFolder = "tier_stats/"
	tiersName  = "tiers.json" // of S3Inv
)

// layout is what differs between the formats.
type layout struct {
	// header tells whether arrays begin with a header.
	header bool
	// lengths tells whether each prefix follows its length, as u32. Otherwise there is one more
	// offset, the blob's size.
	lengths bool
	// blob has the prefixes and offsets their offsets, hash the perfect hash of the prefixes,
	// positions the position of each slot, and prints its fingerprint, "" if there is none.
	blob, offsets, hash, positions, prints string
	// slots has the position of each slot and the offset of its prefix, so that a lookup need not
	// read offsets; "" if there is none. It takes the place of positions where both numbers fit.
	slots string
	// depthOffsets and depthPositions are the depth index, "" if each depth has a file.
	depthOffsets, depthPositions string
	// sha256 tells whether the manifest has SHA-256 of files instead of xxh64.
	sha256 bool
}

var layouts = map[Format]*layout{
	Seed: {
		lengths: true,
		blob:    "prefixes.blob", offsets: "prefixes.offsets", hash: "mphf.bin", positions: "mphf_pos.u64",
		slots: "mphf_slots.u64",
	},
	S3Inv: {
		header: true,
		blob:   "prefix_blob.bin", offsets: "prefix_offsets.u64", hash: "mph.bin", positions: "mph_pos.u64", prints: "mph_fp.u64",
		depthOffsets: "depth_offsets.u64", depthPositions: "depth_positions.u64",
		sha256: true,
	},
}

// depthFile is the name of the file with the positions of a depth, from 1.
func depthFile(depth uint32) string { return fmt.Sprintf("depth_index/depth_%d.bin", depth) }

// tierFiles are the names of the files with a tier's sums.
func tierFiles(t Tier) (objects, bytes string) {
	return tierFolder + tierNames[t][1] + "_count.u64", tierFolder + tierNames[t][1] + "_bytes.u64"
}

const (
	headerSize    = 20
	headerMagic   = 0x53334944 // "S3ID", of which the file has the last letter first
	headerVersion = 1

	// lengthBytes is the size of the length of a prefix in a layout with lengths.
	lengthBytes = 4
)

// positionBits returns how many bits of an element of the file slots are the position; the offset
// is in those above. It is false if they have no room for both.
func positionBits(nodes, blobSize uint64) (n int, ok bool) {
	n = bits.Len64(nodes - 1)
	return n, n+bits.Len64(blobSize) <= 64
}

// newest is the newest version of manifests.
func (l *layout) newest() int {
	if l.slots != "" {
		return slotsVersion
	}
	return manifestVersion
}

// headerBytes is the size of the header of arrays.
func (l *layout) headerBytes() int64 {
	if l.header {
		return headerSize
	}
	return 0
}

// appendHeader appends the header of an array of count elements, if the format has one.
func (l *layout) appendHeader(p []byte, count uint64, width int) []byte {
	if !l.header {
		return p
	}
	p = binary.LittleEndian.AppendUint32(p, headerMagic)
	p = binary.LittleEndian.AppendUint32(p, headerVersion)
	p = binary.LittleEndian.AppendUint64(p, count)
	return binary.LittleEndian.AppendUint32(p, uint32(width))
}
