package mph

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"os"
)

// chunk holds keys until they are sorted. A value is the rest of a key's record: check bits and, in
// the upper half, the ordinal.
type chunk struct {
	keys, values []uint64
	buckets      []uint16 // of the keys, scratch memory of a sort
}

// run is a share of the keys with their values, sorted by the top bits of the keys' hash. It is in
// memory, or spilled to the builder's file.
type run struct {
	bits         uint32
	ends         []uint32 // of the keys with each value of the bits
	keys, values []uint64
	spilled      bool
	off          int64 // in the file, of all keys; all values follow
}

// slice returns the range of the keys of bucket i of 1<<bits. It includes keys of other buckets if
// the run is sorted by fewer bits.
func (r *run) slice(i int, bits uint32) (from, to int) {
	if bits > r.bits {
		i, bits = i>>(bits-r.bits), r.bits
	}
	per := 1 << (r.bits - bits)
	if i > 0 {
		from = int(r.ends[i*per-1])
	}
	return from, int(r.ends[(i+1)*per-1])
}

// bucketOf returns the bucket of a key among 1<<n.
func bucketOf(key, seed uint64, n uint32) uint64 {
	i, _ := bits.Mul64(mum(key^seed, hashMul), 1<<n)
	return i
}

// sort makes r a run of the chunk's keys and values, sorted by the top n bits of the keys' hash. It
// reuses r's memory.
func (r *run) sort(c *chunk, seed uint64, n uint32) {
	keys, values := c.keys, c.values
	r.bits, r.ends = n, make([]uint32, 1<<n)
	r.keys, r.values = grow(r.keys, len(keys)), grow(r.values, len(values))
	if n == 0 {
		r.ends[0] = uint32(copy(r.keys, keys))
		copy(r.values, values)
		return
	}
	c.buckets = grow(c.buckets, len(keys))
	for i, key := range keys {
		c.buckets[i] = uint16(bucketOf(key, seed, n))
	}
	var ends [1 << maxBucketBits]uint32
	const mask = 1<<maxBucketBits - 1 // spares bounds checks
	for _, t := range c.buckets {
		ends[t&mask]++
	}
	sum := uint32(0)
	for i, n := range ends[:1<<n] {
		ends[i] = sum
		sum += n
	}
	to := r.values[:len(r.keys)]
	for i, t := range c.buckets {
		end := ends[t&mask]
		ends[t&mask] = end + 1
		r.keys[end] = keys[i]
		to[end] = values[i]
	}
	copy(r.ends, ends[:])
}

// write merges runs that are sorted by the same bits and have n keys in total, and writes them to
// the file as r. buf is the write buffer.
func (r *run) write(file *os.File, runs []*run, n int64, buf []byte) error {
	r.ends = make([]uint32, 1<<r.bits)
	for i := range r.ends {
		for _, old := range runs {
			r.ends[i] += old.ends[i]
		}
	}
	column := func(off int64, of func(*run) []uint64) error {
		buf := buf[:0]
		flush := func() error {
			_, err := file.WriteAt(buf, off)
			off += int64(len(buf))
			buf = buf[:0]
			return err
		}
		for i := range r.ends {
			for _, old := range runs {
				from, to := old.slice(i, r.bits)
				for _, v := range of(old)[from:to] {
					buf = binary.LittleEndian.AppendUint64(buf, v)
				}
				if len(buf) >= writeSize {
					if err := flush(); err != nil {
						return err
					}
				}
			}
		}
		return flush()
	}
	return cmp.Or(
		column(r.off, func(r *run) []uint64 { return r.keys }),
		column(r.off+n*8, func(r *run) []uint64 { return r.values }),
	)
}
