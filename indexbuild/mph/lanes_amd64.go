package mph

import "golang.org/x/sys/cpu"

// The routines of lanes_amd64.s work on eight keys at a time. They use AVX-512 F, BW and VPOPCNTDQ,
// BMI2 and POPCNT, which hasLanes checks; without them, and on other processors, the Go code of the
// method that each replaces runs. GODEBUG=cpu.avx512f=off selects the Go code.
//
// Loops run to the next multiple of eight keys. The arrays key, tag, pos, foundTag and foundPos of
// a batch have lanesPast elements of slack, so that reading and writing the lanes behind the last
// key stays inside the array. The elements there are of an earlier step, of an earlier use of the
// batch, or zero; each routine says why they do no harm.
//
// TestBatchesOfEveryLength, TestSameBytesWithoutLanes and checkAnswers, and the targets FuzzOpen
// and FuzzBuild, compare the routines with the Go code.

// hasLanes tells whether the processor has all instructions of lanes_amd64.s.
var hasLanes = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VPOPCNTDQ &&
	cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

// locateFirstAVX512 computes the buckets of the batch's n keys and their bits on the first level,
// and prefetches the lines of these. Go: levels.locateFirst. bucketBits is the logarithm of the
// number of buckets; dir and lines are those of the levels.
//
// It reads key and writes tag and pos of up to seven keys behind the n. Any key has a bucket in
// dir, so that what it gathers is inside dir, and a prefetch does not fault.
//
//go:noescape
func locateFirstAVX512(b *batch, n int, seed, bucketBits uint64, dir *openBucket, lines *byte)

// locateNextAVX512 computes the bits of the batch's n keys on a further level and prefetches their
// lines. Go: levels.locateNext. mul is the level's factor, and levels the level of the first
// bucket.
//
// It reads key and tag and writes pos of up to seven keys behind the n. locateFirst or partition
// wrote their tags in this lookup, so that what it gathers is inside dir.
//
//go:noescape
func locateNextAVX512(b *batch, n int, seed, mul uint64, levels *openLevel, lines *byte)

// partitionAVX512 divides the batch's n > 0 keys by their bits and returns the number of those with
// a zero. Go: levels.partition.
//
// It writes up to eight elements behind the keys that it moves, with zeros in those it does not
// need: in key and tag at indexes that it has read, in foundTag and foundPos within the slack. A
// mask keeps it from gathering words for the lanes behind the n.
//
//go:noescape
func partitionAVX512(b *batch, n, found int, lines *byte) (left int)

// rankAVX512 replaces foundPos of the batch's n > 0 found keys by their slots and stores these in
// slots unless slots is nil. It returns -1 or the number of a key whose rank is too large. Go:
// levels.rank.
//
// It loads the lines of up to seven keys behind the n: the caller sets their foundPos to 0, and
// lines has at least one line if a key was found. Masks keep them out of the result and of slots.
//
//go:noescape
func rankAVX512(b *batch, n int, dir *openBucket, lines *byte, slots *uint64) (bad int)

// ordinalsAVX512 sets ordinals, as long as keys, from the records at the batch's slots. Keys are
// not empty, slots is the number of records. It returns how many records have the key looked up but
// other check bits or no ordinal below domains: if not 0, the caller looks up all keys again with
// the Go code of Table.ordinals, which it replaces. TestOrdinalsOfRecords compares both, with guard
// pages.
//
// Masks keep it from reading and writing behind keys and ordinals, and from loading records for
// slots that have none.
//
//go:noescape
func ordinalsAVX512(
	b *batch, keys []Key, records *byte, slots, domains uint64, ordinals *uint32,
) (odd int)
