// Package mph builds and reads a segment's minimal perfect hash file, domains.mphf. The file maps a
// domain, given as a 64-bit key and 32 further check bits, to its ordinal: its line in
// domains.txt.zst. It tells that any other domain is absent, without reading that file. Package
// indexbuild builds the file, package segment opens it.
//
// The hash is BBHash (Limasset, Rizk, Chikhi, Peterlongo: "Fast and scalable minimal perfect
// hashing for massive key sets", SEA 2017) over the 64-bit keys. Keys are divided into buckets, and
// each bucket is built in bounded memory. A bucket's keys are hashed into a bit vector slightly
// larger than their number. Keys that are alone on their bit are placed; the others go to the next
// level. A key's slot is the number of ones before its bit. A line of 64 bytes has bits and the
// number of ones before them: a level costs one cache line, and opening a file computes no ranks.
// Since a perfect hash gives slots to other keys too, each slot has a record {key, check, ordinal}.
// docs/formats/domains-mphf.md describes every byte.
//
// The package promises: the same domains and seed give the same bytes, whatever the parallelism and
// however much was spilled to disk; building ends on any keys; reading works on mapped bytes,
// allocates nothing, is safe for concurrent use and stays within its bytes, whatever they are.
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

	// sectionAlign is the size of a cache line: no line and no record spans two.
	sectionAlign = 64

	lineSize = 64
	// lineBits is the number of bits in a line. The other 32 are the sample: the ones before the
	// line.
	lineBits = 8*lineSize - 32

	// gammaPercent is the number of a level's bits per hundred keys. At 1.7 bits a key all levels
	// take 1.7·e^(1/1.7) = 3.06 bits a key, 3.27 with the samples, and a lookup reads e^(1/1.7) =
	// 1.8 levels. A smaller gamma makes a smaller file and more levels.
	gammaPercent = 170

	// maxLevels is the most levels of a bucket, so that building ends whatever the keys. A
	// directory entry of three cache lines has 42. Two million keys need about twenty.
	maxLevels = 42

	// maxBucketBits limits the buckets: half a billion keys make buckets of bucketKeys, MaxDomains
	// make buckets eight times as large. Runs are sorted by as many bits if the number of keys is
	// unknown.
	maxBucketBits = 12

	// sideFlag takes the place of the ordinal in the record of a key that several domains share,
	// and in the first entry of their group in the side table.
	sideFlag = math.MaxUint32
)

// MaxDomains is the most domains in a file. Ordinals have 32 bits. 2^32-1 is Absent and sideFlag,
// and the number of domains must not equal it either.
const MaxDomains = math.MaxUint32 - 1

// BlockSize is the size of the blocks that Open's verify checks.
const BlockSize = 1 << 20

// The hash of a key on level l is mum(key^seed, hashMul+l*hashStep). hashMul is odd and hashStep
// even, so that all factors are odd.
const (
	hashMul  = 0x9e3779b97f4a7c15
	hashStep = 0xd1b54a32d192ed02
)

// mum returns the XOR of both halves of the 128-bit product of a and c. Every bit of a affects the
// whole result.
func mum(a, c uint64) uint64 {
	hi, lo := bits.Mul64(a, c)
	return hi ^ lo
}

// locate returns the line of a hash on a level, and the bit in that line. It multiplies, since a
// division costs more than the cache line.
func locate(h, lines uint64) (line, bit uint64) {
	line, h = bits.Mul64(h, lines)
	bit, _ = bits.Mul64(h, lineBits)
	return line, bit
}

// levelLines returns the number of lines of a level for n keys.
func levelLines(n int) int {
	const perLine = 100 * lineBits
	return (n*gammaPercent + perLine - 1) / perLine
}

// before[i] masks the words of a line before word i.
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

// rank returns the number of ones in the bucket before a bit of this line. It counts all words
// under masks: the end of a loop up to the bit's word would be mispredicted.
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

// lines returns the number of lines of all levels.
func (b *bucket) lines() uint64 {
	if b.levels == 0 {
		return 0
	}
	return uint64(b.lineEnd[b.levels-1])
}

// openBucket is a bucket in memory. One cache line has everything that lookups on the first six
// levels need. Assembly loads slot and keys as one word of eight bytes, and a level too.
type openBucket struct {
	slot   uint32
	keys   uint32
	levels [openLevels]openLevel // ended by one without lines
}

// openLevels is more than maxLevels, and makes a bucket fill whole cache lines.
const openLevels = 47

type openLevel struct {
	line  uint32 // its first, in the lines section
	lines uint32
}

// open returns the bucket's form in memory.
func (b *bucket) open() (o openBucket) {
	o.slot, o.keys = uint32(b.slot), b.keys
	from := uint32(0)
	for l, end := range b.lineEnd[:b.levels] {
		o.levels[l] = openLevel{line: uint32(b.line) + from, lines: end - from}
		from = end
	}
	return o
}

// decodeDirectory decodes and checks the directory, so that no lookup can leave its sections. It
// copies, since a mapped page may change when it is read again.
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

// layout has the offset of each section. It follows from the counts; a file that stores another
// layout is corrupt.
type layout struct {
	records, lines, fallback, side, directory, trailer, size uint64
}

// trailer ends the file, since its contents are known last.
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

// append encodes the trailer. Its checksum covers the header, the directory and the trailer.
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

// sealCRC returns the checksum of everything that Open reads: header, directory, and the trailer up
// to the checksum.
func sealCRC(header, directory, trailer []byte) uint32 {
	crc := codec.CRC32C(header)
	crc = codec.UpdateCRC32C(crc, directory)
	return codec.UpdateCRC32C(crc, trailer)
}

// decodeTrailer decodes and checks header and trailer, and the checksum of these and the directory.
func decodeTrailer(data []byte, name string) (*trailer, error) {
	size := uint64(len(data))
	if size < headerSize+trailerSize {
		want := fmt.Sprintf("at least %d bytes", headerSize+trailerSize)
		return nil, codec.Corrupt(name, "file", int64(size), want, size)
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
	d.U32() // gamma, for information
	var stored layout
	for _, v := range []*uint64{
		&stored.records, &stored.lines, &stored.fallback, &stored.side, &stored.directory, &stored.size,
	} {
		*v = d.U64()
	}
	crc := d.U32()
	if err := d.Close(); err != nil {
		return nil, err
	}

	// Each count is compared with the file's size before anything is computed from it.
	if t.domains > MaxDomains {
		return bad(16, fmt.Sprintf("at most %d domains", uint64(MaxDomains)), t.domains)
	}
	if t.keys > t.domains {
		return bad(24, fmt.Sprintf("at most %d keys", t.domains), t.keys)
	}
	// All levels of MaxDomains keys have fewer than 2^32 lines.
	if t.lines > min(size/lineSize, math.MaxUint32) {
		return bad(32, fmt.Sprintf("at most %d lines in %d bytes", uint32(math.MaxUint32), size), t.lines)
	}
	if t.fallback > t.keys {
		return bad(40, fmt.Sprintf("at most %d fallback keys", t.keys), t.fallback)
	}
	if t.side > size/sideSize {
		return bad(48, fmt.Sprintf("side entries for %d bytes", size), t.side)
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
