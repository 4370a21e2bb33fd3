// Package bbhash is a minimal perfect hash of 64-bit keys in the serialisation that
// github.com/relab/bbhash reads and writes, so that files of the path-tree index can be exchanged
// with programs that use that library. docs/formats/prefixtree.md describes the bytes.
//
// It is not the hash of package indexbuild/mph, whose file also has records that tell absent keys
// from present ones and is faster to build. Here a key that was not hashed gets any slot or none.
//
// A hash is built part by part, so only the keys of one part need to be in memory: see Parts,
// PartOf, Build and Writer.
package bbhash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

const (
	// maxParts is the largest number of parts: the file has one byte for it.
	maxParts = 255
	// partKeys is how many keys a part has until there are maxParts of them. The first level of
	// such a part, which every lookup reads, has 32 KiB.
	partKeys = 1 << 17
	// gamma is the number of a level's bits per key that is left: the library's default.
	gamma = 2
	// maxLevels is the largest number of levels of a part: the file has one byte for it.
	maxLevels = 255
	// distinctLevel is the level before which equal keys are looked for. They are never placed, and
	// few other keys are left by then.
	distinctLevel = 4
	// MaxKeys is the most keys that a hash has: offsets of parts have 32 bits.
	MaxKeys = math.MaxUint32

	multiplier = 0x880355f21e6d1965
)

func mix(h uint64) uint64 {
	h ^= h >> 23
	h *= 0x2127599bf4325c37
	return h ^ h>>47
}

// seeds has the level's share of the hash.
var seeds = func() (s [maxLevels]uint64) {
	for level := range s {
		s[level] = mix(uint64(level)) * multiplier
	}
	return s
}()

// hash hashes a key, of which mixed is the mix, for a level.
func hash(level int, mixed uint64) uint64 { return mix((seeds[level] ^ mixed) * multiplier) }

// Parts returns the number of parts of a hash of n keys, which follows from n alone.
func Parts(n uint64) int { return int(min(max(1, (n+partKeys-1)/partKeys), maxParts)) }

// PartOf returns the part that a key belongs to.
func PartOf(key uint64, parts int) int { return int(key % uint64(parts)) }

// Part is the hash of the keys of one part.
type Part struct {
	levels []level
	keys   uint64
}

// level is a bit vector: the set bits are those of the keys that the level places.
type level struct {
	words []byte // of 8 bytes each, as the file has them
	bits  uint64
	// ranks has for each rankWords words the number of ones before them in the hash.
	ranks []uint32
}

// rankWords is how many words have a rank: a cache line.
const rankWords = 8

func newLevel(words []byte) level { return level{words: words, bits: 8 * uint64(len(words))} }

func (l *level) word(i uint64) uint64 { return binary.LittleEndian.Uint64(l.words[8*i:]) }

// slot returns the number of ones before the bit of a key, if that bit is set.
func (l *level) slot(hash uint64) (slot uint64, ok bool) {
	at := hash % l.bits
	i := at / 64
	own := l.word(i)
	if own>>(at%64)&1 == 0 {
		return 0, false
	}
	slot = uint64(l.ranks[i/rankWords])
	for j := i - i%rankWords; j < i; j++ {
		slot += uint64(bits.OnesCount64(l.word(j)))
	}
	return slot + uint64(bits.OnesCount64(own&(1<<(at%64)-1))), true
}

// Keys is the number of distinct keys, and so of slots.
func (p *Part) Keys() uint64 { return p.keys }

// Build returns the hash of the keys of one part. It reorders keys; of equal ones it takes one. An
// error means that the keys were chosen so that they collide on every level.
func Build(keys []uint64) (*Part, error) {
	p := &Part{}
	var collided []uint64
	for len(keys) > 0 || len(p.levels) == 0 {
		l := len(p.levels)
		if l == maxLevels {
			return nil, fmt.Errorf("perfect hash: %d keys collide on each of %d levels", len(keys), maxLevels)
		}
		if l == distinctLevel {
			slices.Sort(keys)
			keys = slices.Compact(keys)
		}
		count := max(1, (uint64(len(keys))*gamma+63)/64)
		if count > math.MaxUint32 {
			return nil, fmt.Errorf("perfect hash: %d keys in one part", len(keys))
		}
		taken := make([]uint64, count)
		if collided == nil {
			collided = make([]uint64, count)
		}
		collided = collided[:count]
		clear(collided)
		for _, k := range keys {
			at := hash(l, mix(k)) % (64 * count)
			mask := uint64(1) << (at % 64)
			collided[at/64] |= taken[at/64] & mask
			taken[at/64] |= mask
		}
		left := keys[:0]
		for _, k := range keys {
			at := hash(l, mix(k)) % (64 * count)
			if collided[at/64]>>(at%64)&1 != 0 {
				left = append(left, k)
			}
		}
		words := make([]byte, 0, 8*count)
		for i, w := range taken {
			words = binary.LittleEndian.AppendUint64(words, w&^collided[i])
		}
		p.levels = append(p.levels, newLevel(words))
		keys = left
	}
	return p, p.rank(0)
}

// rank counts the ones of all levels. Before is the number of slots of earlier parts.
func (p *Part) rank(before uint64) error {
	sum := before
	for n := range p.levels {
		l := &p.levels[n]
		count := uint64(len(l.words) / 8)
		l.ranks = make([]uint32, 0, (count+rankWords-1)/rankWords)
		for i := range count {
			if i%rankWords == 0 {
				l.ranks = append(l.ranks, uint32(sum))
			}
			if sum += uint64(bits.OnesCount64(l.word(i))); sum > MaxKeys {
				return errTooMany
			}
		}
	}
	p.keys = sum - before
	return nil
}

var errTooMany = fmt.Errorf("perfect hash: more than %d keys", uint64(MaxKeys))

// Slot returns a number below Keys, another one for each key of the part. A key that the part does
// not have gets any slot or none.
func (p *Part) Slot(key uint64) (slot uint64, ok bool) {
	mixed := mix(key)
	for i := range p.levels {
		if slot, ok = p.levels[i].slot(hash(i, mixed)); ok {
			return slot, true
		}
	}
	return 0, false
}

// Writer writes a hash part by part.
type Writer struct {
	w       io.Writer
	parts   int
	offsets []uint64 // of the parts that were written, and of the next
}

// NewWriter returns a Writer of a hash with that many parts.
func NewWriter(w io.Writer, parts int) (*Writer, error) {
	if parts < 1 || parts > maxParts {
		return nil, fmt.Errorf("perfect hash: %d parts, want 1 to %d", parts, maxParts)
	}
	_, err := w.Write([]byte{byte(parts)})
	return &Writer{w: w, parts: parts, offsets: []uint64{0}}, err
}

// Add writes the next part and returns the first of its slots in the whole hash.
func (w *Writer) Add(p *Part) (first uint64, err error) {
	if len(w.offsets) > w.parts {
		return 0, errors.New("perfect hash: a part too many")
	}
	first = w.offsets[len(w.offsets)-1]
	if first+p.keys > MaxKeys {
		return 0, errTooMany
	}
	w.offsets = append(w.offsets, first+p.keys)
	if _, err := w.w.Write([]byte{byte(len(p.levels))}); err != nil {
		return 0, err
	}
	for _, l := range p.levels {
		var count [4]byte
		binary.LittleEndian.PutUint32(count[:], uint32(len(l.words)/8))
		if _, err := w.w.Write(count[:]); err != nil {
			return 0, err
		}
		if _, err := w.w.Write(l.words); err != nil {
			return 0, err
		}
	}
	return first, nil
}

// Finish writes the end of the hash, after all parts.
func (w *Writer) Finish() error {
	if len(w.offsets) != w.parts+1 {
		return fmt.Errorf("perfect hash: %d parts, want %d", len(w.offsets)-1, w.parts)
	}
	var b []byte
	for _, first := range w.offsets[1:w.parts] {
		b = binary.LittleEndian.AppendUint32(b, uint32(first))
	}
	_, err := w.w.Write(b)
	return err
}

// Hash is an open hash. It is safe for concurrent use, and refers to the bytes that it was opened
// on.
type Hash struct {
	parts []Part // whose slots are those of the whole hash
	keys  uint64
}

// Open decodes a hash. It counts the ones of all levels, which have about half a byte a key. Errors
// are *codec.CorruptErrors that have the name.
func Open(data []byte, name string) (*Hash, error) {
	d := codec.NewDecoder(data, name, "perfect hash")
	h := &Hash{parts: make([]Part, d.U8())}
	if len(h.parts) == 0 {
		d.Fail("1 to 255 parts", 0)
		return nil, d.Err()
	}
	for i := range h.parts {
		p := &h.parts[i]
		p.levels = make([]level, d.U8()) // none if the part has no keys
		for n := range p.levels {
			count := uint64(d.U32())
			if d.Err() == nil && (count == 0 || count > uint64(d.Len())/8) {
				d.Fail(fmt.Sprintf("a level of 1 to %d words", d.Len()/8), count)
			}
			if d.Err() != nil {
				return nil, d.Err()
			}
			p.levels[n] = newLevel(d.Bytes(int(8 * count)))
		}
	}
	for i := range h.parts {
		if i > 0 {
			if got := uint64(d.U32()); d.Err() == nil && got != h.keys {
				d.Fail(fmt.Sprintf("part %d at slot %d", i, h.keys), got)
			}
		}
		p := &h.parts[i]
		if err := p.rank(h.keys); err != nil {
			d.Fail("fewer keys", err)
			break
		}
		h.keys += p.keys
	}
	return h, d.Close()
}

// Keys is the number of keys, and so of slots.
func (h *Hash) Keys() uint64 { return h.keys }

// Slot returns a number below Keys, another one for each key of the hash. A key that the hash does
// not have gets any slot or none.
func (h *Hash) Slot(key uint64) (slot uint64, ok bool) {
	return h.parts[PartOf(key, len(h.parts))].Slot(key)
}
