package mph

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/urlake/urlake/lake/codec"
)

const (
	// relabGamma is that library's default: bits of a level per key.
	relabGamma = 2
	// relabMaxLevels is where that library gives up; distinct keys need about twenty.
	relabMaxLevels = 200
	// relabMaxPartitions is what their u8 count can say.
	relabMaxPartitions = math.MaxUint8
	// relabBlock words share a sample of ones.
	relabBlock = 8
)

// Relab is a BBHash as github.com/relab/bbhash writes and reads it: mphf.bin of the path
// tree, for exchange with programs that use that library. It maps each of n distinct keys to
// another number from 1 to n, and other keys to 0 or one of these.
//
// Unlike Table it is not read in place: the format has no samples of ones, so ParseRelab
// counts them, and it has no checksum, so its bytes need one beside them.
type Relab struct {
	partitions []relabPartition
}

type relabPartition struct {
	before uint64 // keys in earlier partitions
	keys   uint64
	levels []relabLevel
}

type relabLevel struct {
	words []uint64
	ranks []uint64 // ones before each relabBlock words, in the partition
}

// relabMix is mix of the format's description.
func relabMix(h uint64) uint64 {
	h ^= h >> 23
	h *= 0x2127599bf4325c37
	h ^= h >> 47
	return h
}

// relabHash is H of the format's description.
func relabHash(level, key uint64) uint64 {
	const m = 0x880355f21e6d1965
	h := relabMix(level) * m
	h ^= relabMix(key)
	h *= m
	return relabMix(h)
}

func (l *relabLevel) bit(level int, key uint64) uint64 {
	return relabHash(uint64(level), key) % (64 * uint64(len(l.words)))
}

func (l *relabLevel) has(bit uint64) bool { return l.words[bit/64]>>(bit%64)&1 != 0 }

// count fills the level's samples, given the ones before it, and returns those up to its end.
func (l *relabLevel) count(before uint64) uint64 {
	l.ranks = make([]uint64, 0, (len(l.words)+relabBlock-1)/relabBlock)
	for i, w := range l.words {
		if i%relabBlock == 0 {
			l.ranks = append(l.ranks, before)
		}
		before += uint64(bits.OnesCount64(w))
	}
	return before
}

// rank is the number of ones in the partition before a bit of this level.
func (l *relabLevel) rank(bit uint64) uint64 {
	w := bit / 64
	n := l.ranks[w/relabBlock]
	for i := w / relabBlock * relabBlock; i < w; i++ {
		n += uint64(bits.OnesCount64(l.words[i]))
	}
	return n + uint64(bits.OnesCount64(l.words[w]&(1<<(bit%64)-1)))
}

// BuildRelab builds the hash of the keys, which must be distinct, in 1 to 255 partitions.
// It is an error if some keys do not part in 200 levels, as equal ones never do.
func BuildRelab(keys []uint64, partitions int) (*Relab, error) {
	if partitions < 1 || partitions > relabMaxPartitions {
		return nil, fmt.Errorf("build relab hash: want 1 to %d partitions, got %d", relabMaxPartitions, partitions)
	}
	if len(keys) > math.MaxUint32 {
		return nil, fmt.Errorf("build relab hash: want at most %d keys, got %d", uint32(math.MaxUint32), len(keys))
	}
	p := uint64(partitions)
	split := make([][]uint64, partitions)
	for _, k := range keys {
		split[k%p] = append(split[k%p], k)
	}
	r := &Relab{partitions: make([]relabPartition, partitions)}
	before := uint64(0)
	for i := range r.partitions {
		part := &r.partitions[i]
		part.before = before
		if err := part.build(split[i]); err != nil {
			return nil, err
		}
		before += part.keys
	}
	return r, nil
}

func (p *relabPartition) build(rest []uint64) error {
	// A partition without keys gets a level too: the library refuses none, and no words.
	for level := 0; level == 0 || len(rest) > 0; level++ {
		if level == relabMaxLevels {
			return fmt.Errorf("build relab hash: %d keys do not part, one of them %016x: equal keys?", len(rest), rest[0])
		}
		l := relabLevel{words: make([]uint64, max(1, (len(rest)*relabGamma+63)/64))}
		twice := make([]uint64, len(l.words))
		for _, k := range rest {
			bit := l.bit(level, k)
			mask := uint64(1) << (bit % 64)
			twice[bit/64] |= l.words[bit/64] & mask
			l.words[bit/64] |= mask
		}
		for i := range l.words {
			l.words[i] &^= twice[i]
		}
		left := rest[:0]
		for _, k := range rest {
			if !l.has(l.bit(level, k)) {
				left = append(left, k)
			}
		}
		rest = left
		p.keys = l.count(p.keys)
		p.levels = append(p.levels, l)
	}
	return nil
}

// Len is the number of keys.
func (r *Relab) Len() int {
	last := r.partitions[len(r.partitions)-1]
	return int(last.before + last.keys)
}

// Find returns a key's number, 1 to Len, or 0 for some of the keys that are not in the hash.
func (r *Relab) Find(key uint64) uint64 {
	p := &r.partitions[key%uint64(len(r.partitions))]
	for level := range p.levels {
		l := &p.levels[level]
		if bit := l.bit(level, key); l.has(bit) {
			return p.before + l.rank(bit) + 1
		}
	}
	return 0
}

// MarshalBinary encodes the hash as that library does; the error is always nil.
func (r *Relab) MarshalBinary() ([]byte, error) {
	le := binary.LittleEndian
	b := []byte{uint8(len(r.partitions))}
	for i := range r.partitions {
		p := &r.partitions[i]
		b = append(b, uint8(len(p.levels)))
		for j := range p.levels {
			words := p.levels[j].words
			b = le.AppendUint32(b, uint32(len(words)))
			for _, w := range words {
				b = le.AppendUint64(b, w)
			}
		}
	}
	for i := range r.partitions[1:] {
		b = le.AppendUint32(b, uint32(r.partitions[i+1].before))
	}
	return b, nil
}

// ParseRelab decodes what MarshalBinary or that library wrote. The name stands in errors,
// which are *codec.CorruptError. It copies data.
func ParseRelab(data []byte, name string) (*Relab, error) {
	d := codec.NewDecoder(data, name, "partitions")
	n := int(d.U8())
	if d.Err() == nil && n == 0 {
		d.Fail("at least 1 partition", 0)
	}
	r := &Relab{partitions: make([]relabPartition, n)}
	before := uint64(0)
	for i := range r.partitions {
		p := &r.partitions[i]
		p.before = before
		p.levels = make([]relabLevel, d.U8())
		for j := range p.levels {
			words := d.U32()
			if d.Err() == nil && words == 0 {
				d.Fail("a level of at least 1 word", 0)
			}
			b := d.Bytes(int(words) * 8)
			if d.Err() != nil {
				return nil, d.Err()
			}
			l := &p.levels[j]
			l.words = make([]uint64, words)
			for k := range l.words {
				l.words[k] = binary.LittleEndian.Uint64(b[k*8:])
			}
			p.keys = l.count(p.keys)
		}
		before += p.keys
	}
	for i := range r.partitions[min(n, 1):] {
		if got, want := uint64(d.U32()), r.partitions[i+1].before; d.Err() == nil && got != want {
			d.Fail(fmt.Sprintf("partition %d after %d keys", i+1, want), got)
		}
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return r, nil
}
