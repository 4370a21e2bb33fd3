package part

// Text columns are written as DELTA_BYTE_ARRAY (Apache Parquet, Encodings.md): the lengths of the prefixes that each value
// shares with the one before, the lengths of the suffixes, both as DELTA_BINARY_PACKED, and the suffixes one
// after the other. In sorted rows most of a path stands in the one before, so that the compressor gets
// half of the bytes, and a value that repeats costs some bits.

// Parquet's numbers of the encodings of values that parts have.
const (
	EncodingPlain          = 0
	EncodingDeltaByteArray = 7
)

// The shape of DELTA_BINARY_PACKED that everybody writes: blocks of four miniblocks of 32 values.
const (
	DeltaBlock      = 128
	DeltaMiniblocks = 4
	DeltaMiniblock  = DeltaBlock / DeltaMiniblocks
)
