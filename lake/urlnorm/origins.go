package urlnorm

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

// A list has far fewer origins than lines. Origins caches what parsing found of each origin, by the
// text in which it was found. Of a line with a known origin only the path and query are parsed, and
// callers tell origins apart by number.

// Origin is what URLs of one scheme, host and port have in common; see URL.
type Origin struct {
	Scheme, Host, Domain string
	Port                 int32
	// DomainID is DomainID(Domain).
	DomainID uint64
}

// Origins is a cache of origins for [Normalizer.ParseBatch], which numbers them. All Normalizers
// that use it between two calls of Reset have the same public suffix list. Its memory is bounded.
// It is not safe for concurrent use.
//
// It is an open-addressed table of texts. Their hash has a random seed, so that no list can be made
// whose origins all collide. No answer depends on the seed.
type Origins struct {
	suffixes *SuffixList // of the domains in it; nil if it is empty
	limit    int
	vectors  bool // texts of up to vectorText bytes are hashed as one vector
	keys     vectorKeys
	seeds    [textSchemes]uint64
	key      uint64
	// A slot is 0 if free, else the offset of a text and, from bit slotTag on, the top bits of its
	// hash. Slots are small so that as many as possible stay in the L2 cache. A text is in the line
	// of slots that its hash selects, or in a later one if that is full. All slots of a line are
	// compared in one step.
	slots []uint32
	used  int
	// texts holds what is looked up: a header word and the text, padded to a whole word. An offset
	// counts words over all chunks; at the first one there is no text.
	texts   []*[textChunk]byte
	end     int // offset of the next text
	origins []*[originChunk]originRecord
	len     int
	text    []byte // scratch space of canonical
}

// originRecord is an origin. Its canonical text is a text of the table.
type originRecord struct {
	domainID     uint64
	offset       uint32 // of the text
	port         int32
	host, domain uint8 // where in the text the host ends and the domain starts
	scheme       uint8
}

// vectorKeys has the keys of hashVector: one for each scheme, and one for the rounds.
type vectorKeys [textSchemes + 1][64]byte

// Schemes of texts. A text is what follows "http://" and so on.
const (
	textHTTP = iota
	textHTTPS
	textFTP
	textBare // a host at the start of the input
	textSchemes
)

var textSchemeNames = [...]string{textHTTP: "http", textHTTPS: "https", textFTP: "ftp"}

// A header has the number of the text's origin in the low bits, the text's length from headerLength
// on, its scheme from headerScheme on, and the OriginKind from headerKind on.
const (
	headerLength = 32
	headerScheme = 48
	headerKind   = 56

	// vectorText is the longest text that is hashed and compared as one vector. Each header has as
	// many bytes after it in its chunk, since a short text may be compared with a longer one.
	vectorText = 64

	// maxText is the longest text that is cached. Canonical hosts with a port are shorter.
	maxText = 511

	originOf = 1<<headerLength - 1 | 0xff<<headerKind // the bits that all texts of an origin share
)

const (
	// defaultOriginsLimit is enough for about 800,000 origins.
	defaultOriginsLimit = 64 << 20

	maxOriginsLimit = wordSize << slotTag // what offsets can address, in bytes

	minSlots = 1 << 10
	slotTag  = 24
	slotLine = 16 // slots in a cache line

	// Memory grows by chunks: nothing is copied, and only what is used is touched.
	textChunk   = chunkWords * wordSize
	chunkWords  = 1 << chunkShift
	chunkShift  = 15
	originChunk = 4 << 10
)

// NewOrigins returns an empty cache that takes up to limit bytes of memory: 64 MiB if limit is 0,
// and never more than 128 MiB. It starts small.
func NewOrigins(limit int) *Origins {
	return newOrigins(limit, hasVectors)
}

func newOrigins(limit int, vectors bool) *Origins {
	if limit == 0 {
		limit = defaultOriginsLimit
	}
	o := &Origins{limit: min(limit, maxOriginsLimit), vectors: vectors, key: rand.Uint64(), slots: make([]uint32, minSlots)}
	for i := range o.seeds {
		o.seeds[i] = rand.Uint64()
	}
	for i := range o.keys {
		for k := range o.keys[i] {
			o.keys[i][k] = byte(rand.Uint32())
		}
	}
	o.Reset()
	return o
}

// Len returns the number of origins. They are 0 to Len()-1, in the order in which they were first
// seen.
func (o *Origins) Len() int { return o.len }

// At returns the origin with that number. Its strings are valid until Reset.
func (o *Origins) At(i uint32) Origin {
	r := &o.origins[i/originChunk][i%originChunk]
	host := view(o.textAt(r.offset, int(r.host)))
	return Origin{
		Scheme: textSchemeNames[r.scheme], Host: host, Domain: host[r.domain:], Port: r.port, DomainID: r.domainID,
	}
}

// slotsNeeded is how many slots keep the table at most half full with one more text.
func (o *Origins) slotsNeeded() int { return max(minSlots, 1<<bits.Len(uint(2*o.used+1))) }

// Reset removes all origins. Numbers start at 0 again, and the memory of strings that At returned
// is reused.
func (o *Origins) Reset() {
	// What comes next is likely to have as many texts.
	o.slots = o.slots[:min(o.slotsNeeded(), cap(o.slots))]
	clear(o.slots)
	o.suffixes = nil
	o.used, o.len, o.end = 0, 0, 1
	o.texts = o.texts[:0]
	o.addTexts()
	// The word at offset 0 equals no text's header.
	binary.LittleEndian.PutUint64(o.texts[0][:], math.MaxUint64)
}

// addTexts adds a chunk of texts.
func (o *Origins) addTexts() {
	if n := len(o.texts); n < cap(o.texts) && o.texts[:n+1][n] != nil {
		o.texts = o.texts[:n+1]
		return
	}
	o.texts = append(o.texts, new([textChunk]byte))
}

// fits reports whether one more text of that length, and an origin, are within the limit. The first
// ones always are.
func (o *Origins) fits(text int) bool {
	const slotSize, recordSize = 4, 24
	return o.used < 2 || o.slotsNeeded()*slotSize+o.end*wordSize+text+2*wordSize+(o.len+1)*recordSize <= o.limit
}

const slashes = '/' * ones

// scan reads a text from s[start] to the first slash, or to the end of s, and returns where it ends
// and its hash. s has eight bytes or more.
func (o *Origins) scan(s []byte, start int, scheme int) (end int, hash uint32) {
	h := o.seeds[scheme]
	for i := start; ; i += 2 * wordSize {
		var w0, w1 uint64
		if i+2*wordSize <= len(s) {
			w0, w1 = binary.LittleEndian.Uint64(s[i:]), binary.LittleEndian.Uint64(s[i+wordSize:])
		} else {
			w0, w1 = wordAt(s, i), wordAt(s, i+wordSize)
		}
		z0, z1 := zeroBytes(w0^slashes), zeroBytes(w1^slashes)
		if z0|z1 == 0 {
			h = o.mix(h, w0, w1)
			if i+2*wordSize > len(s) {
				return len(s), fold(h)
			}
			continue
		}
		// Keep the bytes before the slash, without a branch on which word has it.
		n0, n1 := bits.TrailingZeros64(z0)/8, bits.TrailingZeros64(z1)/8
		second := -uint64(n0 / wordSize) // all ones if the slash is in the second word
		w0 &= z0&-z0>>7 - 1
		w1 &= (z1&-z1>>7 - 1) & second
		return i + n0 + n1&int(second), fold(o.mix(h, w0, w1))
	}
}

// mix adds two words to a hash, as wyhash does.
func (o *Origins) mix(h, w0, w1 uint64) uint64 {
	hi, lo := bits.Mul64(w0^h, w1^o.key)
	return hi ^ lo
}

func fold(h uint64) uint32 { return uint32(h ^ h>>32) }

// zeroBytes marks the first zero byte in its top bit. Higher bits mean nothing.
func zeroBytes(w uint64) uint64 { return (w - ones) &^ w & tops }

// find returns the header of a text, whose hash is given. If there is none, it returns 0, which is
// no header as texts are not empty, and the slot for the text.
func (o *Origins) find(text []byte, scheme int, hash uint32) (header uint64, slot uint32) {
	mask := uint32(len(o.slots) - 1)
	i := hash & mask
	for ; o.slots[i] != 0; i = nextSlot(i, hash, mask) {
		offset, other := untag(o.slots[i], hash)
		if other {
			continue
		}
		if header = o.header(offset); o.is(offset, header, text, scheme) {
			return header, 0
		}
	}
	return 0, i
}

// nextSlot is the slot to try after i for a text of that hash: first the other slots of its line,
// from the selected one on, then the next line.
func nextSlot(i, hash, mask uint32) uint32 {
	line := i &^ (slotLine - 1)
	i = line | (i+1)&(slotLine-1)
	if (i^hash)&(slotLine-1) == 0 {
		i = (i + slotLine) & mask
	}
	return i
}

// untag returns the offset in a slot, and whether the text there has another hash.
func untag(slot, hash uint32) (offset uint32, other bool) {
	return slot & (1<<slotTag - 1), (slot^hash)>>slotTag != 0
}

func (o *Origins) header(offset uint32) uint64 {
	return binary.LittleEndian.Uint64(o.texts[offset/chunkWords][offset%chunkWords*wordSize:])
}

// textAt is the text of size bytes at an offset.
func (o *Origins) textAt(offset uint32, size int) []byte {
	return o.texts[offset/chunkWords][(offset%chunkWords+1)*wordSize:][:size:size]
}

// is reports whether the text at an offset, whose header is given, equals text.
func (o *Origins) is(offset uint32, header uint64, text []byte, scheme int) bool {
	return header&(1<<headerKind-1)>>headerLength == uint64(len(text)|scheme<<(headerScheme-headerLength)) &&
		string(o.textAt(offset, len(text))) == string(text)
}

// insert adds a text that is not in the table, for the origin of the header like, and returns its
// offset and header. slot is what find returned.
func (o *Origins) insert(text []byte, scheme int, hash, slot uint32, like uint64) (offset uint32, header uint64) {
	if o.used++; 2*o.used > len(o.slots) {
		o.grow()
		slot = o.free(hash)
	}
	at := o.end
	if left := chunkWords - at%chunkWords; words(max(len(text), vectorText)) > left {
		binary.LittleEndian.PutUint64(o.texts[at/chunkWords][at%chunkWords*wordSize:], 0)
		at += left
	}
	if at/chunkWords == len(o.texts) {
		o.addTexts()
	}
	offset, o.end = uint32(at), at+words(len(text))
	header = like&originOf | uint64(len(text))<<headerLength | uint64(scheme)<<headerScheme
	binary.LittleEndian.PutUint64(o.texts[at/chunkWords][at%chunkWords*wordSize:], header)
	copy(o.textAt(offset, len(text)), text)
	o.slots[slot] = hash>>slotTag<<slotTag | offset
	return offset, header
}

func (o *Origins) grow() {
	if n := 2 * len(o.slots); n <= cap(o.slots) {
		o.slots = o.slots[:n]
	} else {
		o.slots = make([]uint32, n)
	}
	// New memory is cleared too: a page that is read before it is written is mapped twice, the
	// second time with a TLB shootdown.
	clear(o.slots)
	var hashes, offsets [batchSize]uint32
	n := 0
	for offset := 1; offset < o.end; {
		header := o.header(uint32(offset))
		size := int(uint16(header >> headerLength))
		if size == 0 { // the chunk ends before its end
			offset = (offset/chunkWords + 1) * chunkWords
			continue
		}
		hashes[n], offsets[n] = o.hash(o.textAt(uint32(offset), size), int(uint8(header>>headerScheme))), uint32(offset)
		if n++; n == batchSize {
			o.putAll(hashes[:], offsets[:])
			n = 0
		}
		offset += words(size)
	}
	o.putAll(hashes[:n], offsets[:n])
}

// putAll puts texts, batchSize at most, into slots. None of them is in the table.
func (o *Origins) putAll(hashes, offsets []uint32) {
	mask := uint32(len(o.slots) - 1)
	// As in lookUpWords, no load depends on another.
	var found [batchSize]uint32
	for i, hash := range hashes {
		found[i&(batchSize-1)] = o.slots[hash&mask]
	}
	for i, hash := range hashes {
		slot := hash & mask
		if found[i&(batchSize-1)] != 0 || o.slots[slot] != 0 {
			slot = o.free(hash)
		}
		o.slots[slot] = hash>>slotTag<<slotTag | offsets[i]
	}
}

// words is how many words a text takes with its header.
func words(text int) int { return 1 + (text+wordSize-1)/wordSize }

// free is the slot for a text of that hash that is not in the table.
func (o *Origins) free(hash uint32) uint32 {
	mask := uint32(len(o.slots) - 1)
	i := hash & mask
	for o.slots[i] != 0 {
		i = nextSlot(i, hash, mask)
	}
	return i
}

// canonical returns the header of u's origin, which it adds if it is new, or 0 if the limit leaves
// no room for it.
func (o *Origins) canonical(u *URL) (header uint64) {
	scheme := textHTTP
	for u.Scheme != textSchemeNames[scheme] {
		scheme++
	}
	text := append(o.text[:0], u.Host...)
	if u.Port >= 0 {
		text = strconv.AppendInt(append(text, ':'), int64(u.Port), 10)
	}
	o.text = text
	hash := o.hash(text, scheme)
	header, slot := o.find(text, scheme, hash)
	if header != 0 {
		return header
	}
	return o.add(text, scheme, hash, slot, len(u.Host), len(u.Host)-len(u.Domain), u.Port)
}

// add adds the origin of a canonical text that is not in the table. slot is what find returned. In
// the text the host ends at host and its domain starts at domain. It returns the text's header, or
// 0 if the limit leaves no room.
func (o *Origins) add(text []byte, scheme int, hash, slot uint32, host, domain int, port int32) (header uint64) {
	if !o.fits(len(text)) {
		return 0
	}
	if o.len == len(o.origins)*originChunk {
		o.origins = append(o.origins, new([originChunk]originRecord))
	}
	origin, kind := uint32(o.len), OtherOrigin
	o.len++
	if port < 0 {
		switch scheme {
		case textHTTP:
			kind = HTTPOrigin
		case textHTTPS:
			kind = HTTPSOrigin
		}
	}
	offset, header := o.insert(text, scheme, hash, slot, uint64(origin)|uint64(kind)<<headerKind)
	// Fields are set one by one: a record that is copied is loaded before its stores are complete.
	r := &o.origins[origin/originChunk][origin%originChunk]
	r.domainID = DomainID(view(text[domain:host]))
	r.offset, r.port = offset, port
	r.host, r.domain, r.scheme = uint8(host), uint8(domain), uint8(scheme)
	return header
}

// hash is the hash of a whole text.
func (o *Origins) hash(text []byte, scheme int) uint32 {
	if o.vectors && len(text) <= vectorText {
		return o.hashShort(text, scheme)
	}
	return o.hashWords(text, scheme)
}

// hashWords is the hash of scan for a whole text.
func (o *Origins) hashWords(text []byte, scheme int) uint32 {
	if len(text) < wordSize {
		var short [2 * wordSize]byte
		short[copy(short[:], text)] = '/'
		_, h := o.scan(short[:], 0, scheme)
		return h
	}
	_, h := o.scan(text, 0, scheme)
	return h
}
