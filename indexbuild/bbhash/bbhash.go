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
	words []byte  // of 8 bytes each, as the file has them
	lines []line  // the same with ranks, for lookups
	bits  divisor // the number of bits
}

func newLevel(words []byte) level {
	return level{words: words, bits: newDivisor(8 * uint64(len(words)))}
}

// line is a cache line: seven words of a level after the number of ones before them, so that a
// lookup that found its bit needs no other memory for the slot. The lower half of the first element
// is the number of ones in earlier lines of the hash. The upper half has 10 bits each for the ones
// of this line before its words 2, 4 and 6.
type line [1 + lineWords]uint64

const lineWords = 7

// newLine returns the line of at most lineWords words, after that many ones in earlier lines, and
// the number of ones including its own.
func newLine(words []byte, before uint64) (l line, ones uint64) {
	l[0], ones = before, before
	for i := 0; len(words) > 0; i, words = i+1, words[8:] {
		if i > 0 && i%2 == 0 {
			l[0] |= (ones - before) << (32 + 5*(i-2))
		}
		l[1+i] = binary.LittleEndian.Uint64(words)
		ones += uint64(bits.OnesCount64(l[1+i]))
	}
	return l, ones
}

// place is the place of a key in a level.
type place struct {
	line      *line
	word, bit uint8
}

func (l *level) place(hash uint64) place {
	at := l.bits.mod(hash)
	return place{&l.lines[at/64/lineWords], uint8(at / 64 % lineWords), uint8(at % 64)}
}

// get returns the bit, as 0 or 1.
func (p *place) get() uint64 { return p.line[1+p.word] >> (p.bit % 64) & 1 }

// slot returns the number of ones before the bit.
func (p *place) slot() uint64 {
	pair := p.word &^ 1
	// The first word of a pair is before the second. A branch would be mispredicted often.
	first := p.line[1+pair] & -uint64(p.word&1)
	own := p.line[1+p.word] & (1<<(p.bit%64) - 1)
	within := p.line[0] >> 32 << 10 >> (5 * pair) & (1<<10 - 1)
	return p.line[0]&math.MaxUint32 + within + uint64(bits.OnesCount64(first)+bits.OnesCount64(own))
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
	_, err := p.rank(make([]line, p.lineCount()), 0)
	return p, err
}

// lineCount is the number of lines of all levels.
func (p *Part) lineCount() (n int) {
	for _, l := range p.levels {
		n += l.lineCount()
	}
	return n
}

func (l *level) lineCount() int { return (len(l.words) + 8*lineWords - 1) / (8 * lineWords) }

// rank fills the lines of all levels from the first ones of lines, and returns the others. Before
// is the number of slots of earlier parts.
func (p *Part) rank(lines []line, before uint64) ([]line, error) {
	sum := before
	for i := range p.levels {
		l := &p.levels[i]
		n := l.lineCount()
		l.lines, lines = lines[:n:n], lines[n:]
		words := l.words
		for i := range l.lines {
			n := min(len(words), 8*lineWords)
			l.lines[i], sum = newLine(words[:n], sum)
			if words = words[n:]; sum > MaxKeys {
				return nil, errTooMany
			}
		}
	}
	p.keys = sum - before
	return lines, nil
}

var errTooMany = fmt.Errorf("perfect hash: more than %d keys", uint64(MaxKeys))

// Slot returns a number below Keys, another one for each key of the part. A key that the part does
// not have gets any slot or none.
func (p *Part) Slot(key uint64) (slot uint64, ok bool) {
	mixed := mix(key)
	// The first two levels place five keys in six, so the memory of both is fetched at once.
	for i := 0; i < len(p.levels); i += 2 {
		j := min(i+1, len(p.levels)-1)
		at, next := p.levels[i].place(hash(i, mixed)), p.levels[j].place(hash(j, mixed))
		bit, nextBit := at.get(), next.get()
		if bit == 0 {
			at = next
		}
		if bit|nextBit != 0 {
			return at.slot(), true
		}
	}
	return 0, false
}

// divisor divides by a number without the instruction for it, which takes tens of cycles on some
// processors.
type divisor struct{ d, inverse uint64 }

func newDivisor(d uint64) divisor { return divisor{d, math.MaxUint64 / d} }

// mod returns the remainder of h. The quotient by the inverse is at most one too small.
func (v divisor) mod(h uint64) uint64 {
	q, _ := bits.Mul64(h, v.inverse)
	r := h - q*v.d
	if r >= v.d {
		r -= v.d
	}
	return r
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
	count divisor
	keys  uint64
}

// Open decodes a hash. It counts the ones of all levels, about half a byte a key, and keeps them in
// memory with their ranks, which takes an eighth more. Errors are *codec.CorruptErrors that have
// the name.
func Open(data []byte, name string) (*Hash, error) {
	d := codec.NewDecoder(data, name, "perfect hash")
	h := &Hash{parts: make([]Part, d.U8())}
	if len(h.parts) == 0 {
		d.Fail("1 to 255 parts", 0)
		return nil, d.Err()
	}
	h.count = newDivisor(uint64(len(h.parts)))
	total := 0
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
		total += p.lineCount()
	}
	lines := make([]line, total)
	for i := range h.parts {
		if i > 0 {
			if got := uint64(d.U32()); d.Err() == nil && got != h.keys {
				d.Fail(fmt.Sprintf("part %d at slot %d", i, h.keys), got)
			}
		}
		p := &h.parts[i]
		var err error
		if lines, err = p.rank(lines, h.keys); err != nil {
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
	return h.parts[h.count.mod(key)].Slot(key)
}

// NoSlot is the slot of a key that has none.
const NoSlot = math.MaxUint64

// Together is the most keys of a call of Slots.
const Together = 256

// Slots sets slots[i] to what Slot returns for keys[i], or to NoSlot. The keys are at most
// Together. The memory that a key needs at a level is known before any of it is read, so the
// processor fetches that of many keys at once.
func (h *Hash) Slots(keys, slots []uint64) {
	var (
		left   [Together]uint8 // keys that no level so far has placed
		mixed  [Together]uint64
		parts  [Together]*Part
		places [Together]place // in the last level that was looked at
	)
	for i, key := range keys {
		left[i], mixed[i], slots[i] = uint8(i), mix(key), 0
		parts[i] = &h.parts[h.count.mod(key)]
	}
	n := len(keys)
	for depth := 0; n > 0; depth++ {
		looked := 0
		for _, i := range left[:n] {
			levels := parts[i].levels
			if depth == len(levels) {
				slots[i] = NoSlot
				continue
			}
			places[i] = levels[depth].place(hash(depth, mixed[i]))
			left[looked] = i
			looked++
		}
		n = 0
		for _, i := range left[:looked] {
			left[n] = i
			n += int(1 - places[i].get()) // a branch would be mispredicted often
		}
	}
	for i := range keys {
		if slots[i] != NoSlot {
			slots[i] = places[i].slot()
		}
	}
}
