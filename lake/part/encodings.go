package part

// Text columns are DELTA_BYTE_ARRAY (Apache Parquet, Encodings.md): the lengths of the prefix that
// each value shares with the previous one, the lengths of the suffixes, both as
// DELTA_BINARY_PACKED, and then all suffixes. In sorted rows most of a path repeats the previous
// one. So the compressor processes half as many bytes, and a repeated value costs a few bits.

// Parquet's numbers of the value encodings used in parts.
const (
	encodingPlain          = 0
	encodingDeltaByteArray = 7
)

// Parts use the block shape of DELTA_BINARY_PACKED that other writers use too: blocks of 128 values
// in four miniblocks.
const (
	deltaBlock      = 128
	deltaMiniblocks = 4
	deltaMiniblock  = deltaBlock / deltaMiniblocks
)
