package mph

import "golang.org/x/sys/cpu"

// hasLanes tells whether this processor can work on eight keys at once.
var hasLanes = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VPOPCNTDQ && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

// placeFirstAVX512 is batch.placeFirst. bucketBits is the logarithm of the number of buckets.
//
//go:noescape
func placeFirstAVX512(b *batch, n int, seed, bucketBits uint64, dir *openBucket, lines *byte)

// placeNextAVX512 is batch.placeNext. levels is the level's openLevel of the first bucket.
//
//go:noescape
func placeNextAVX512(b *batch, n int, seed, mul uint64, levels *openLevel, lines *byte)

// partAVX512 is batch.part of n keys, more than none.
//
//go:noescape
func partAVX512(b *batch, n, found int, lines *byte) (left int)

// rankAVX512 is batch.rank of n keys, more than none.
//
//go:noescape
func rankAVX512(b *batch, n int, dir *openBucket, lines *byte, slots *uint64) (bad int)

// ordinalsAVX512 gives keys, as many as there are slots of in b and more than none, the ordinals of their records, or Absent. It returns how many records of the keys asked for do not say
// what the ordinal is: all are to be asked for one by one then.
//
//go:noescape
func ordinalsAVX512(b *batch, keys []Key, records *byte, slots, domains uint64, ordinals *uint32) (odd int)
