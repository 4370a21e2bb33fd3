package mph

import (
	"encoding/binary"
	"math"
	"math/bits"
	"os"
	"slices"
)

// bucketBuild is the result of building a bucket. Its memory is reused for the next one.
type bucketBuild struct {
	dir      bucket
	records  []byte  // of the keys placed, in slot order
	lines    []byte  // of all levels
	unplaced []entry // keys that no level placed

	keys, values []uint64 // of the bucket, if it is spread over several runs
	collisions   []byte   // bits of a level that two or more keys hash to
	left         []uint64 // keys for the next level
	tags         []uint64 // indexes of these in the bucket
	bytes        []byte   // from the file
	batch        batch
	open         [1]openBucket
	done         chan error
}

// buildBucket builds bucket i of 1<<nbits from all runs.
func (b *Builder) buildBucket(k *bucketBuild, i int, nbits uint32) error {
	if r := b.runs[0]; len(b.runs) == 1 && !r.spilled && r.bits >= nbits {
		from, to := r.slice(i, nbits)
		k.build(r.keys[from:to], r.values[from:to], b.opt.Seed, nbits)
		return nil
	}
	n := 0
	for _, r := range b.runs {
		from, to := r.slice(i, nbits)
		n += to - from
	}
	k.keys = slices.Grow(k.keys[:0], n)
	k.values = slices.Grow(k.values[:0], n)
	for _, r := range b.runs {
		from, to := r.slice(i, nbits)
		start := len(k.keys)
		if !r.spilled {
			k.keys = append(k.keys, r.keys[from:to]...)
			k.values = append(k.values, r.values[from:to]...)
		} else {
			n := int64(r.ends[len(r.ends)-1])
			var err error
			if k.keys, err = k.read(k.keys, b.file, r.off+int64(from)*8, to-from); err != nil {
				return err
			}
			if k.values, err = k.read(k.values, b.file, r.off+(n+int64(from))*8, to-from); err != nil {
				return err
			}
		}
		if r.bits < nbits {
			k.filterBucket(start, b.opt.Seed, uint64(i), nbits)
		}
	}
	k.build(k.keys, k.values, b.opt.Seed, nbits)
	return nil
}

// read appends n numbers of the file to p.
func (k *bucketBuild) read(p []uint64, file *os.File, off int64, n int) ([]uint64, error) {
	k.bytes = grow(k.bytes, n*8)
	if _, err := file.ReadAt(k.bytes, off); err != nil {
		return nil, err
	}
	p = slices.Grow(p, n)
	for b := k.bytes; len(b) >= 8; b = b[8:] {
		p = append(p, binary.LittleEndian.Uint64(b))
	}
	return p, nil
}

// filterBucket drops the keys of other buckets, from index start on.
func (k *bucketBuild) filterBucket(start int, seed, bucket uint64, nbits uint32) {
	n := start
	for i, key := range k.keys[start:] {
		if bucketOf(key, seed, nbits) == bucket {
			k.keys[n] = key
			k.values[n] = k.values[start+i]
			n++
		}
	}
	k.keys, k.values = k.keys[:n], k.values[:n]
}

// grow returns a slice of length n with undefined contents, in p's memory if that suffices.
func grow[T any](p []T, n int) []T { return slices.Grow(p[:0], n)[:n] }

// build places the keys level by level and writes their records.
func (k *bucketBuild) build(keys, values []uint64, seed uint64, bucketBits uint32) {
	k.dir = bucket{}
	k.open[0] = openBucket{keys: math.MaxUint32}
	// All levels of most buckets need less than twice the first level.
	k.lines = slices.Grow(k.lines[:0], 2*levelLines(len(keys))*lineSize)
	k.records = grow(k.records, len(keys)*recordSize)
	in := levels{dir: k.open[:]}
	l := level{seed: seed, drop: uint64(bucketBits), mul: hashMul}
	rest := keys
	tags := k.tags[:0]
	total := uint64(0)
	for k.dir.levels < maxLevels && len(rest) > 0 {
		n := levelLines(len(rest))
		l.lines = uint64(n)
		start := len(k.lines)
		k.lines = slices.Grow(k.lines, n*lineSize)[:start+n*lineSize]
		clear(k.lines[start:])
		k.collisions = grow(k.collisions, n*lineSize)
		clear(k.collisions)
		in.lines = k.lines[start:]
		l.mark(rest, in.lines, k.collisions)
		placed := sample(in.lines, k.collisions, total)
		if placed == 0 {
			// All keys collide, because they are equal or few.
			k.lines = k.lines[:start]
			break
		}
		total += placed

		if len(rest) == len(keys) {
			n := len(rest) - int(placed) + 1 // partition writes one more
			k.left, k.tags = grow(k.left, n), grow(k.tags, n)
		}
		left := 0
		for from := 0; from < len(rest); from += batchSize {
			to, base := min(from+batchSize, len(rest)), uint64(0)
			chunk := indexes[:to-from]
			if k.dir.levels == 0 {
				base = uint64(from)
			} else {
				chunk = tags[from:to]
			}
			m := l.partition(rest[from:to], chunk, base, in.lines, k.left[left:], k.tags[left:], &k.batch)
			in.rank(&k.batch, to-from-m, nil)
			k.writeRecords(to-from-m, keys, values)
			left += m
		}
		rest, tags = k.left[:left], k.tags[:left]
		k.dir.lineEnd[k.dir.levels] = uint32(len(k.lines) / lineSize)
		k.dir.levels++
		l.drop = 0
		l.mul += hashStep
	}
	k.dir.keys = uint32(total)
	k.unplaced = k.unplaced[:0]
	for i, key := range rest {
		tag := uint64(i)
		if k.dir.levels > 0 {
			tag = tags[i]
		}
		v := values[tag]
		k.unplaced = append(k.unplaced, entry{key, uint32(v), uint32(v >> 32)})
	}
	k.records = k.records[:total*recordSize]
}

// writeRecords writes the records of the batch's n found keys to their slots.
func (k *bucketBuild) writeRecords(n int, keys, values []uint64) {
	values = values[:len(keys)]
	slots := k.batch.foundPos[:n]
	for i, tag := range k.batch.foundTag[:n] {
		p := k.records[slots[i]*recordSize:][:recordSize]
		binary.LittleEndian.PutUint64(p, keys[tag])
		binary.LittleEndian.PutUint64(p[8:], values[tag])
	}
}

// indexes holds 0, 1, 2 and so on: the tags of a batch of keys on the first level.
var indexes = func() (v [batchSize]uint64) {
	for i := range v {
		v[i] = uint64(i)
	}
	return v
}()

// level is a level of a bucket under construction.
type level struct {
	seed, mul uint64
	drop      uint64 // top bits of the hash that chose the bucket, on the first level
	lines     uint64
}

// bit returns the bit offset of the key in the level's lines.
func (l *level) bit(key uint64) uint64 {
	line, bit := locate(mum(key^l.seed, l.mul)<<l.drop, l.lines)
	return line*(8*lineSize) + bit
}

// mark sets the keys' bits in the level's lines, and in collisions the bits that were set before.
func (l *level) mark(keys []uint64, lines, collisions []byte) {
	le := binary.LittleEndian
	collisions = collisions[:len(lines)]
	for _, key := range keys {
		p := l.bit(key)
		off := p / 64 * 8
		bit := uint64(1) << (p & 63)
		a, b := lines[off:][:8], collisions[off:][:8]
		w := le.Uint64(a)
		le.PutUint64(b, le.Uint64(b)|w&bit)
		le.PutUint64(a, w|bit)
	}
}

// partition divides up to batchSize keys by their bits in lines. It moves keys with a zero bit to
// left and their tags plus base to leftTags, and returns their number. Tags plus base and bit
// offsets of the others become the batch's found keys. left may overlap keys from its beginning,
// and leftTags tags. Both need one element more than they get, since each key is written before its
// bit is known.
func (l *level) partition(
	keys, tags []uint64, base uint64, lines []byte, left, leftTags []uint64, b *batch,
) (nleft int) {
	found := 0
	for i, key := range keys {
		p := l.bit(key)
		hit := int(binary.LittleEndian.Uint64(lines[p/64*8:]) >> (p & 63) & 1)
		left[nleft] = key
		leftTags[nleft] = tags[i] + base
		b.foundPos[found], b.foundTag[found] = p, tags[i]+base
		found += hit
		nleft += 1 - hit
	}
	return nleft
}

// sample clears the bits on which keys collided and writes to each line the number of ones before
// it, counted from before. It returns the number of ones in lines.
func sample(lines, collisions []byte, before uint64) (ones uint64) {
	le := binary.LittleEndian
	for off := 0; off < len(lines); off += lineSize {
		at := before + ones
		line, t := (*[lineSize]byte)(lines[off:]), (*[lineSize]byte)(collisions[off:])
		for i := 0; i < lineSize; i += 8 {
			w := le.Uint64(line[i:]) &^ le.Uint64(t[i:])
			le.PutUint64(line[i:], w)
			ones += uint64(bits.OnesCount64(w))
		}
		le.PutUint32(line[lineSize-4:], uint32(at))
	}
	return ones
}
