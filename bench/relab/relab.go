// Package relab is a perfect hash by the published method of github.com/relab/bbhash, for
// comparisons in bench/compare only. It follows that library's construction in partitions (parts
// here), its encoding and its lookup: a level has no samples of ranks, so that a lookup counts the
// ones from the level's beginning.
package relab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sync/errgroup"
)

const (
	// gamma is the library's default number of a level's bits per key.
	gamma = 2.0
	// maxLevels is the number of levels after which the library gives up.
	maxLevels = 200
)

// Hash maps n keys to the numbers from 1 to n.
type Hash struct {
	parts []part
	// before is the number of keys in earlier parts.
	before []uint64
}

type part struct {
	levels [][]uint64
	ranks  []uint64 // ones in earlier levels
}

// Build makes the hash of distinct keys in 1 to 255 parts, which it builds concurrently.
func Build(keys []uint64, parts int) (*Hash, error) {
	if parts < 1 || parts > 255 {
		return nil, fmt.Errorf("relab: %d parts: want 1 to 255", parts)
	}
	split := make([][]uint64, parts)
	for i := range split {
		split[i] = make([]uint64, 0, len(keys)/parts+len(keys)/64+64)
	}
	for _, k := range keys {
		i := k % uint64(parts)
		split[i] = append(split[i], k)
	}
	h := &Hash{parts: make([]part, parts), before: make([]uint64, parts)}
	var g errgroup.Group
	at := uint64(0)
	for i := range h.parts {
		h.before[i] = at
		at += uint64(len(split[i]))
		g.Go(func() error { return h.parts[i].build(split[i]) })
	}
	return h, g.Wait()
}

func (p *part) build(keys []uint64) error {
	var collided []uint64 // reused by all levels, as in the library
	for level := uint64(0); level == 0 || len(keys) > 0; level++ {
		if level == maxLevels {
			return errors.New("relab: too many levels; some keys are equal")
		}
		n := max(1, (uint64(float64(len(keys))*gamma)+63)/64)
		taken := make([]uint64, n)
		if level == 0 {
			collided = make([]uint64, n)
		}
		collided = collided[:n]
		clear(collided)
		seed := levelSeed(level)
		for _, k := range keys {
			at := hash(seed, k) % (64 * n)
			mask := uint64(1) << (at % 64)
			if taken[at/64]&mask != 0 {
				collided[at/64] |= mask
			}
			taken[at/64] |= mask
		}
		again := keys[:0]
		for _, k := range keys {
			at := hash(seed, k) % (64 * n)
			if mask := uint64(1) << (at % 64); collided[at/64]&mask != 0 {
				taken[at/64] &^= mask
				again = append(again, k)
			}
		}
		p.levels = append(p.levels, taken)
		keys = again
	}
	p.count()
	return nil
}

// count computes the ones before each level.
func (p *part) count() {
	p.ranks = make([]uint64, len(p.levels))
	sum := uint64(0)
	for i, words := range p.levels {
		p.ranks[i] = sum
		for _, w := range words {
			sum += uint64(bits.OnesCount64(w))
		}
	}
}

func mix(h uint64) uint64 {
	h ^= h >> 23
	h *= 0x2127599bf4325c37
	return h ^ h>>47
}

const multiplier = 0x880355f21e6d1965

func levelSeed(level uint64) uint64 { return mix(level) * multiplier }

func hash(seed, key uint64) uint64 { return mix((seed ^ mix(key)) * multiplier) }

// Find returns a key's number. For a key that is not in the hash it returns any number or 0.
func (h *Hash) Find(key uint64) uint64 {
	i := key % uint64(len(h.parts))
	p := &h.parts[i]
	for level, words := range p.levels {
		at := hash(levelSeed(uint64(level)), key) % (64 * uint64(len(words)))
		if words[at/64]>>(at%64)&1 == 0 {
			continue
		}
		rank := p.ranks[level]
		for _, w := range words[:at/64] {
			rank += uint64(bits.OnesCount64(w))
		}
		return h.before[i] + rank + uint64(bits.OnesCount64(words[at/64]&(1<<(at%64)-1))) + 1
	}
	return 0
}

// Bits returns the size of all levels in bits.
func (h *Hash) Bits() (n int64) {
	for _, p := range h.parts {
		for _, words := range p.levels {
			n += 64 * int64(len(words))
		}
	}
	return n
}

// Encode returns the hash in the library's encoding.
func (h *Hash) Encode() []byte {
	b := []byte{byte(len(h.parts))}
	for _, p := range h.parts {
		b = append(b, byte(len(p.levels)))
		for _, words := range p.levels {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(words)))
			for _, w := range words {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
		}
	}
	for _, n := range h.before[1:] {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// Load reads what Encode wrote. It does not check the bytes, as the library does not.
func Load(b []byte) *Hash {
	h := &Hash{parts: make([]part, b[0]), before: make([]uint64, b[0])}
	b = b[1:]
	for i := range h.parts {
		p := &h.parts[i]
		p.levels = make([][]uint64, b[0])
		b = b[1:]
		for l := range p.levels {
			words := make([]uint64, binary.LittleEndian.Uint32(b))
			b = b[4:]
			for w := range words {
				words[w] = binary.LittleEndian.Uint64(b[8*w:])
			}
			p.levels[l], b = words, b[8*len(words):]
		}
		p.count()
	}
	for i := range h.before[1:] {
		h.before[i+1], b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
	}
	return h
}
