// Package mph is urlake's minimal perfect hash file, domains.mphf: it answers which line of
// a segment's domains.txt.zst a domain stands on, given the domain's 64-bit key and 32
// further check bits, and answers "none" for every other domain without reading that file.
//
// The hash is BBHash (Limasset, Rizk, Chikhi, Peterlongo: "Fast and scalable minimal perfect
// hashing for massive key sets", SEA 2017) over the 64-bit keys. Keys are spread over
// buckets, each built by itself in bounded memory; a bucket's keys are hashed into a bit
// vector a little larger than their number, those alone on their bit are placed, and the
// rest goes on to the next level. A key's slot is the number of ones before its bit. Bits
// stand in lines of 64 bytes that also hold the number of ones before them, so that a level
// costs one cache line and opening a file costs nothing. A perfect hash takes strangers
// somewhere too, hence a record {key, check, ordinal} for each slot. docs/formats/domains-mphf.md
// describes every byte.
//
// What the package promises: the same keys and seed give the same bytes, whatever the
// parallelism and whatever was spilled to disk; building ends on any keys; reading works on
// the mapped bytes, allocates nothing, is safe for any number of goroutines and never reads
// outside of what it was given, whatever the bytes are.
package mph

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/urlake/urlake/lake/codec"
)

const (
	magic = "MPHF"

	// version of the format.
	//   1: first.
	version = 1

	headerSize  = 64
	recordSize  = 16
	sideSize    = 8
	entrySize   = 192
	trailerSize = 120

	// sectionAlign is a cache line: then no line of bits and no record lies on two.
	sectionAlign = 64

	lineSize = 64
	// lineBits is what the sample of ones, a uint32, leaves of a line.
	lineBits = 8*lineSize - 32

	// gammaPercent is a level's bits per hundred keys. At 1.7 bits a key all levels together
	// take 1.7·e^(1/1.7) = 3.06 bits a key, 3.27 with the samples, and a key is found after
	// e^(1/1.7) = 1.8 levels; a smaller file would cost more levels.
	gammaPercent = 170

	// maxLevels ends buckets whose keys will not part: 42 levels fill a directory entry of
	// three cache lines. Two million keys need about twenty.
	maxLevels = 42

	// maxBucketBits suffices for half a billion keys at bucketKeys a bucket, of MaxDomains a bucket has eight times as many. It is how
	// finely runs are sorted whose keys' number is not known.
	maxBucketBits = 12

	// sideFlag stands for the ordinal in the record of a key that several domains share, and
	// in the head of their group in the side table.
	sideFlag = math.MaxUint32
)

// MaxDomains is the largest number of domains in one file. Ordinals are 32 bits, and the
// largest two are left out: 2^32-1 is Absent and marks shared keys, and with 2^32-2 domains
// the number of domains is not that mark either.
const MaxDomains = math.MaxUint32 - 1

// BlockSize is the unit in which Open's verify is asked to check bytes.
const BlockSize = 1 << 20

// The hash of a key on level l is mum(key^seed, hashMul+l*hashStep). Both are odd and even
// in this order, so that all factors are odd.
const (
	hashMul  = 0x9e3779b97f4a7c15
	hashStep = 0xd1b54a32d192ed02
)

// mum folds the 128-bit product of a and c: every bit of a reaches every bit of the result.
func mum(a, c uint64) uint64 {
	hi, lo := bits.Mul64(a, c)
	return hi ^ lo
}

// place takes a hash to a line of a level and a bit in it, both by multiplication: a
// remainder would cost more than the cache line.
func place(h, lines uint64) (line, bit uint64) {
	line, h = bits.Mul64(h, lines)
	bit, _ = bits.Mul64(h, lineBits)
	return line, bit
}

// levelLines is the number of lines of a level that n keys enter.
func levelLines(n int) int {
	const perLine = 100 * lineBits
	return (n*gammaPercent + perLine - 1) / perLine
}

// before has ones in the words of a line that lie before word i.
var before = [8][7]uint64{
	{},
	{ones},
	{ones, ones},
	{ones, ones, ones},
	{ones, ones, ones, ones},
	{ones, ones, ones, ones, ones},
	{ones, ones, ones, ones, ones, ones},
	{ones, ones, ones, ones, ones, ones, ones},
}

const ones = math.MaxUint64

// rank is the number of ones in the bucket before a bit of this line. It counts all words
// under a mask: a loop to the bit's word is mispredicted every time.
func rank(line *[lineSize]byte, bit uint64) uint64 {
	le := binary.LittleEndian
	i := bit >> 6 & 7
	m := &before[i]
	n := le.Uint64(line[56:]) >> 32
	n += uint64(bits.OnesCount64(le.Uint64(line[i*8:]) & (1<<(bit&63) - 1)))
	n += uint64(bits.OnesCount64(le.Uint64(line[0:]) & m[0]))
	n += uint64(bits.OnesCount64(le.Uint64(line[8:]) & m[1]))
	n += uint64(bits.OnesCount64(le.Uint64(line[16:]) & m[2]))
	n += uint64(bits.OnesCount64(le.Uint64(line[24:]) & m[3]))
	n += uint64(bits.OnesCount64(le.Uint64(line[32:]) & m[4]))
	n += uint64(bits.OnesCount64(le.Uint64(line[40:]) & m[5]))
	n += uint64(bits.OnesCount64(le.Uint64(line[48:]) & m[6]))
	return n
}

// bucket is one entry of the directory.
type bucket struct {
	slot    uint64 // of its first key
	line    uint64 // its first
	keys    uint32 // placed by its levels
	levels  uint32
	lineEnd [maxLevels]uint32 // of each level, from the bucket's first line; zero past levels
}

func (b *bucket) append(p []byte) []byte {
	le := binary.LittleEndian
	p = le.AppendUint64(p, b.slot)
	p = le.AppendUint64(p, b.line)
	p = le.AppendUint32(p, b.keys)
	p = le.AppendUint32(p, b.levels)
	for _, end := range b.lineEnd {
		p = le.AppendUint32(p, end)
	}
	return p
}

// lines is the number of lines of all levels.
func (b *bucket) lines() uint64 {
	if b.levels == 0 {
		return 0
	}
	return uint64(b.lineEnd[b.levels-1])
}

// openBucket is a bucket as lookups want it: all that the first six levels need stands in one cache line. Eight bytes of slot and keys
// and of a level are loaded at once.
type openBucket struct {
	slot   uint32
	keys   uint32
	levels [openLevels]openLevel // ends with one of no lines
}

// openLevels are one more than maxLevels at least, and so many that buckets fill whole cache lines.
const openLevels = 47

type openLevel struct {
	line  uint32 // its first, in the lines section
	lines uint32
}

// open makes lookups' of it.
func (b *bucket) open() (o openBucket) {
	o.slot, o.keys = uint32(b.slot), b.keys
	from := uint32(0)
	for l, end := range b.lineEnd[:b.levels] {
		o.levels[l] = openLevel{line: uint32(b.line) + from, lines: end - from}
		from = end
	}
	return o
}

// decodeDirectory reads and checks the directory, so that no lookup can leave its sections.
// It copies: what was checked must not change below the reader when a page is read again.
func decodeDirectory(p []byte, name string, t *trailer) ([]openBucket, error) {
	const section = "directory"
	dir := make([]openBucket, 1<<t.bucketBits)
	d := codec.NewDecoder(p, name, section)
	var slot, line uint64
	for i := range dir {
		var b bucket
		bad := func(what string, want, got any) error {
			at := int64(t.layout.directory) + int64(i)*entrySize
			return codec.Corrupt(name, section, at, fmt.Sprintf("%s %v", what, want), got)
		}
		b.slot, b.line, b.keys, b.levels = d.U64(), d.U64(), d.U32(), d.U32()
		if b.slot != slot {
			return nil, bad("first slot", slot, b.slot)
		}
		if b.line != line {
			return nil, bad("first line", line, b.line)
		}
		if b.levels > maxLevels {
			return nil, bad("levels up to", maxLevels, b.levels)
		}
		var prev uint32
		for l := range b.lineEnd {
			end := d.U32()
			if l < int(b.levels) && end <= prev {
				return nil, bad("level end above", prev, end)
			}
			if l >= int(b.levels) && end != 0 {
				return nil, bad("unused level end", 0, end)
			}
			b.lineEnd[l], prev = end, end
		}
		dir[i] = b.open()
		slot += uint64(b.keys)
		line += b.lines()
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	if want := t.keys - t.fallback; slot != want {
		return nil, codec.Corrupt(name, section, -1, fmt.Sprintf("%d keys placed", want), slot)
	}
	if line != t.lines {
		return nil, codec.Corrupt(name, section, -1, fmt.Sprintf("%d lines", t.lines), line)
	}
	return dir, nil
}

// layout holds the offset of each section; it follows from the counts, so a stored one that
// differs is corrupt.
type layout struct {
	records, lines, fallback, side, directory, trailer, size uint64
}

// trailer ends the file, since all of it is known only after everything else was written.
type trailer struct {
	seed         uint64
	domainsXXH64 uint64
	domains      uint64
	keys         uint64
	lines        uint64
	fallback     uint64
	side         uint64
	bucketBits   uint32

	layout layout
}

func align(n uint64) uint64 { return (n + sectionAlign - 1) &^ (sectionAlign - 1) }

// arrange computes the layout from the counts.
func (t *trailer) arrange() {
	l := &t.layout
	l.records = headerSize
	l.lines = align(l.records + t.keys*recordSize)
	l.fallback = l.lines + t.lines*lineSize
	l.side = align(l.fallback + t.fallback*8)
	l.directory = align(l.side + t.side*sideSize)
	l.trailer = l.directory + entrySize<<t.bucketBits
	l.size = l.trailer + trailerSize
}

func appendHeader(p []byte) []byte {
	p = append(p, magic...)
	p = binary.LittleEndian.AppendUint32(p, version)
	return append(p, make([]byte, headerSize-8)...)
}

// append encodes the trailer; directory is what its checksum covers besides the header and itself.
func (t *trailer) append(p, directory []byte) []byte {
	start := len(p)
	le := binary.LittleEndian
	l := &t.layout
	for _, v := range []uint64{t.seed, t.domainsXXH64, t.domains, t.keys, t.lines, t.fallback, t.side} {
		p = le.AppendUint64(p, v)
	}
	p = le.AppendUint32(p, t.bucketBits)
	p = le.AppendUint32(p, gammaPercent)
	for _, v := range []uint64{l.records, l.lines, l.fallback, l.side, l.directory, l.size} {
		p = le.AppendUint64(p, v)
	}
	p = le.AppendUint32(p, sealCRC(appendHeader(nil), directory, p[start:]))
	return append(p, magic...)
}

// sealCRC is the checksum over all that Open reads: header, directory, and the trailer
// before the checksum.
func sealCRC(header, directory, trailer []byte) uint32 {
	crc := codec.CRC32C(header)
	crc = codec.UpdateCRC32C(crc, directory)
	return codec.UpdateCRC32C(crc, trailer)
}

// decodeTrailer reads and checks header and trailer and the checksum over both and the directory.
func decodeTrailer(data []byte, name string) (*trailer, error) {
	size := uint64(len(data))
	if size < headerSize+trailerSize {
		return nil, codec.Corrupt(name, "file", int64(size), fmt.Sprintf("at least %d bytes", headerSize+trailerSize), size)
	}
	if got := string(data[:4]); got != magic {
		return nil, codec.Corrupt(name, "header", 0, fmt.Sprintf("magic %q", magic), fmt.Sprintf("%q", got))
	}
	if got := binary.LittleEndian.Uint32(data[4:]); got != version {
		return nil, codec.Corrupt(name, "header", 4, fmt.Sprintf("version %d", version), got)
	}
	at := size - trailerSize
	bad := func(off uint64, want string, got any) (*trailer, error) {
		return nil, codec.Corrupt(name, "trailer", int64(at+off), want, got)
	}
	p := data[at:]
	if got := string(p[trailerSize-4:]); got != magic {
		return bad(trailerSize-4, fmt.Sprintf("magic %q", magic), fmt.Sprintf("%q", got))
	}

	d := codec.NewDecoder(p[:trailerSize-4], name, "trailer")
	var t trailer
	for _, v := range []*uint64{&t.seed, &t.domainsXXH64, &t.domains, &t.keys, &t.lines, &t.fallback, &t.side} {
		*v = d.U64()
	}
	t.bucketBits = d.U32()
	d.U32() // gamma, which only the builder needs
	var stored layout
	for _, v := range []*uint64{&stored.records, &stored.lines, &stored.fallback, &stored.side, &stored.directory, &stored.size} {
		*v = d.U64()
	}
	crc := d.U32()
	if err := d.Close(); err != nil {
		return nil, err
	}

	// Each count is held against the file's size before anything is computed from it.
	if t.domains > MaxDomains {
		return bad(16, fmt.Sprintf("at most %d domains", uint64(MaxDomains)), t.domains)
	}
	if t.keys > t.domains {
		return bad(24, fmt.Sprintf("at most %d keys", t.domains), t.keys)
	}
	// All levels of all keys that a file can hold have fewer than 2^32 lines.
	if t.lines > min(size/lineSize, math.MaxUint32) {
		return bad(32, fmt.Sprintf("at most %d lines within %d bytes", uint32(math.MaxUint32), size), t.lines)
	}
	if t.fallback > t.keys {
		return bad(40, fmt.Sprintf("at most %d fallback keys", t.keys), t.fallback)
	}
	if t.side > size/sideSize {
		return bad(48, fmt.Sprintf("side entries within %d bytes", size), t.side)
	}
	if t.bucketBits > maxBucketBits {
		return bad(56, fmt.Sprintf("at most %d bucket bits", maxBucketBits), t.bucketBits)
	}
	t.arrange()
	if t.layout.size != size {
		return nil, codec.Corrupt(name, "file", int64(size), fmt.Sprintf("%d bytes", t.layout.size), size)
	}
	directory := data[t.layout.directory:t.layout.trailer]
	if got := sealCRC(data[:headerSize], directory, p[:trailerSize-8]); got != crc {
		return bad(trailerSize-8, fmt.Sprintf("crc32c %08x", crc), fmt.Sprintf("%08x", got))
	}
	stored.trailer = t.layout.trailer
	if stored != t.layout {
		return bad(64, fmt.Sprintf("sections %v", t.layout), stored)
	}
	return &t, nil
}
