package urlnorm

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

// A list has far fewer origins than lines. Origins remembers what parsing found of each, by the text it was
// found in, so that of a line with a known origin only the path and query have to be looked at; and callers tell
// origins apart by a number.

// Origin is what URLs of one scheme, host and port have in common, as in URL.
type Origin struct {
	Scheme, Host, Domain string
	Port                 int32
	// DomainID is DomainID(Domain).
	DomainID uint64
}

// Origins is a memo of origins for [Normalizer.ParseBatch], which numbers them. Its memory is bounded. It is not
// safe for concurrent use.
//
// It is an open-addressed table of texts. What they hash to is seeded at random, so that no list
// can be made whose origins all meet in one place; no answer depends on it.
type Origins struct {
	limit   int
	vectors bool // texts of up to vectorText bytes are hashed as one vector
	keys    vectorKeys
	seeds   [textSchemes]uint64
	key     uint64
	// slots are 0 where free; else the place of a text and, from slotTag on, the top bits of its hash. They are small so that
	// as many as can be stay in a core's second cache. A text stands in the line of slots where its hash is, or in one behind if that is full;
	// all of a line are looked at in one step.
	slots []uint32
	used  int
	// texts are what is looked up: a header word and the text, up to a whole word. A
	// place is counted in words over all chunks; the first is nobody's.
	texts   []*[textChunk]byte
	end     int // place of the next text
	origins []*[originChunk]originRecord
	len     int
	// Up to where, in bytes over all chunks, memory for texts and records has been asked for.
	askedTexts, askedRecords int
	text                     []byte // scratch of canonical
}

// originRecord is an origin whose canonical text is a text of the table.
type originRecord struct {
	domainID     uint64
	place        uint32
	port         int32
	host, domain uint8 // where in the text they end and start
	scheme       uint8
}

// vectorKeys are what vectors are hashed with: one for each scheme, and one for the rounds.
type vectorKeys [textSchemes + 1][64]byte

// What a text is the rest of, after "http://" and so on.
const (
	textHTTP = iota
	textHTTPS
	textFTP
	textBare // a host at the start of the input
	textSchemes
)

var textSchemeNames = [...]string{textHTTP: "http", textHTTPS: "https", textFTP: "ftp"}

// A header is the number of a text's origin, its length from headerLength on, what it is the rest of from headerScheme on, and the OriginKind from
// headerKind on.
const (
	headerLength = 32
	headerScheme = 48
	headerKind   = 56

	// vectorText is the longest text that is hashed and compared as one vector. As many bytes behind every header are those of its chunk: one of them
	// is compared with texts of other lengths.
	vectorText = 64

	// maxText is the longest text that is remembered: a canonical one and its port, but for the spelling no more.
	maxText = 511

	originOf = 1<<headerLength - 1 | 0xff<<headerKind // what all texts of an origin have alike
)

const (
	// DefaultOriginsLimit is about 800,000 origins.
	DefaultOriginsLimit = 64 << 20

	maxOriginsLimit = wordSize << slotTag // all of it texts

	minSlots = 1 << 10
	slotTag  = 24
	slotLine = 16 // slots in a line of a cache

	// Memory grows by chunks, so that nothing is copied and nothing but what is used is touched.
	textChunk   = chunkWords * wordSize
	chunkWords  = 1 << chunkShift
	chunkShift  = 15
	originChunk = 4 << 10
)

// NewOrigins returns an empty memo that takes up to limit bytes of memory, DefaultOriginsLimit if that is 0, and 128 MiB at most. It
// starts small.
func NewOrigins(limit int) *Origins {
	return newOrigins(limit, hasVectors)
}

func newOrigins(limit int, vectors bool) *Origins {
	if limit == 0 {
		limit = DefaultOriginsLimit
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

// Len returns the number of origins: they are 0 to Len()-1, in the order in which they were first seen.
func (o *Origins) Len() int { return o.len }

// At returns the origin of a number. Its strings are good until Reset.
func (o *Origins) At(i uint32) Origin {
	r := &o.origins[i/originChunk][i%originChunk]
	host := view(o.textAt(r.place, int(r.host)))
	return Origin{Scheme: textSchemeNames[r.scheme], Host: host, Domain: host[r.domain:], Port: r.port, DomainID: r.domainID}
}

// slotsFor is how many slots the texts need that are there and one more: the table is half full at most.
func (o *Origins) slotsFor() int { return max(minSlots, 1<<bits.Len(uint(2*o.used+1))) }

// Reset forgets all origins. Numbers start again at 0. The memory of strings that At returned is used again.
func (o *Origins) Reset() {
	// What comes next is likely to have as many.
	o.slots = o.slots[:min(o.slotsFor(), cap(o.slots))]
	clear(o.slots)
	o.used, o.len, o.end = 0, 0, 1
	o.askedTexts, o.askedRecords = 0, 0
	o.texts = o.texts[:0]
	o.addTexts()
	// What stands at the place that is nobody's is no header of a text.
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

// room reports whether one more text, and an origin, are within the limit. The first ones always are.
func (o *Origins) room(text int) bool {
	const slotSize, recordSize = 4, 24
	return o.used < 2 || o.slotsFor()*slotSize+o.end*wordSize+text+2*wordSize+(o.len+1)*recordSize <= o.limit
}

const slashes = '/' * ones

// scan reads a text from s[start] to the first slash, or the end of s where there is none, and returns where it ends and what it hashes to.
// s has eight bytes or more.
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
		// What stands before the slash, without asking in which of the words that is.
		n0, n1 := bits.TrailingZeros64(z0)/8, bits.TrailingZeros64(z1)/8
		second := -uint64(n0 / wordSize) // all ones where it is in the second
		w0 &= z0&-z0>>7 - 1
		w1 &= (z1&-z1>>7 - 1) & second
		return i + n0 + n1&int(second), fold(o.mix(h, w0, w1))
	}
}

// mix is a step of a hash of two words a step, as in wyhash.
func (o *Origins) mix(h, w0, w1 uint64) uint64 {
	hi, lo := bits.Mul64(w0^h, w1^o.key)
	return hi ^ lo
}

func fold(h uint64) uint32 { return uint32(h ^ h>>32) }

// zeroBytes tells the first byte that is zero, in its top bit; what is set above that means nothing.
func zeroBytes(w uint64) uint64 { return (w - ones) &^ w & tops }

// find returns the header of a text of the hash given, 0 if there is none: texts are not empty. Then slot is the one for it.
func (o *Origins) find(text []byte, scheme int, hash uint32) (header uint64, slot uint32) {
	mask := uint32(len(o.slots) - 1)
	i := hash & mask
	for ; o.slots[i] != 0; i = nextSlot(i, hash, mask) {
		place, other := untag(o.slots[i], hash)
		if other {
			continue
		}
		if header = o.header(place); o.is(place, header, text, scheme) {
			return header, 0
		}
	}
	return 0, i
}

// nextSlot is the slot behind i in the order in which a text of that hash is put into the first that is free: those of its line, from where it
// should be on, and then the next line.
func nextSlot(i, hash, mask uint32) uint32 {
	line := i &^ (slotLine - 1)
	i = line | (i+1)&(slotLine-1)
	if (i^hash)&(slotLine-1) == 0 {
		i = (i + slotLine) & mask
	}
	return i
}

// untag returns the place in a slot, and whether the text there has another hash.
func untag(slot, hash uint32) (place uint32, other bool) {
	return slot & (1<<slotTag - 1), (slot^hash)>>slotTag != 0
}

func (o *Origins) header(place uint32) uint64 {
	return binary.LittleEndian.Uint64(o.texts[place/chunkWords][place%chunkWords*wordSize:])
}

// textAt is the text at place, which has that many bytes.
func (o *Origins) textAt(place uint32, size int) []byte {
	return o.texts[place/chunkWords][(place%chunkWords+1)*wordSize:][:size:size]
}

// is reports whether the text at place, of the header given, is this one.
func (o *Origins) is(place uint32, header uint64, text []byte, scheme int) bool {
	return header&(1<<headerKind-1)>>headerLength == uint64(len(text)|scheme<<(headerScheme-headerLength)) &&
		string(o.textAt(place, len(text))) == string(text)
}

// insert adds a text that is not there, of the origin that another header tells, and returns its place and header. Slot is what find returned.
func (o *Origins) insert(text []byte, scheme int, hash, slot uint32, like uint64) (place uint32, header uint64) {
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
	place, o.end = uint32(at), at+words(len(text))
	header = like&originOf | uint64(len(text))<<headerLength | uint64(scheme)<<headerScheme
	binary.LittleEndian.PutUint64(o.texts[at/chunkWords][at%chunkWords*wordSize:], header)
	copy(o.textAt(place, len(text)), text)
	o.slots[slot] = hash>>slotTag<<slotTag | place
	return place, header
}

func (o *Origins) grow() {
	if n := 2 * len(o.slots); n <= cap(o.slots) {
		o.slots = o.slots[:n]
	} else {
		o.slots = make([]uint32, n)
	}
	// Also what is new: a page that is read before it is written is mapped twice, and the second time all processors have to forget the first.
	clear(o.slots)
	var hashes, places [batchSize]uint32
	n := 0
	for place := 1; place < o.end; {
		header := o.header(uint32(place))
		size := int(uint16(header >> headerLength))
		if size == 0 { // the chunk ends before its end
			place = (place/chunkWords + 1) * chunkWords
			continue
		}
		hashes[n], places[n] = o.hash(o.textAt(uint32(place), size), int(uint8(header>>headerScheme))), uint32(place)
		if n++; n == batchSize {
			o.putAll(hashes[:], places[:])
			n = 0
		}
		place += words(size)
	}
	o.putAll(hashes[:n], places[:n])
}

// putAll puts texts, batchSize at most, into slots. None is there.
func (o *Origins) putAll(hashes, places []uint32) {
	mask := uint32(len(o.slots) - 1)
	// As in lookUpWords one fetch does not wait for another.
	var found [batchSize]uint32
	for i, hash := range hashes {
		found[i&(batchSize-1)] = o.slots[hash&mask]
	}
	for i, hash := range hashes {
		slot := hash & mask
		if found[i&(batchSize-1)] != 0 || o.slots[slot] != 0 {
			slot = o.free(hash)
		}
		o.slots[slot] = hash>>slotTag<<slotTag | places[i]
	}
}

// words is what a text takes, with its header.
func words(text int) int { return 1 + (text+wordSize-1)/wordSize }

// free is the slot for a text of that hash which is not there.
func (o *Origins) free(hash uint32) uint32 {
	mask := uint32(len(o.slots) - 1)
	i := hash & mask
	for o.slots[i] != 0 {
		i = nextSlot(i, hash, mask)
	}
	return i
}

// canonical returns the header of u's origin, which it adds if need be. It returns 0 where there
// is no room for it.
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

// add adds an origin of a canonical text that is not there, whose slot find returned and in which the host ends at host and its domain starts at domain. It returns 0 where there is no
// room for it, else the text's header.
func (o *Origins) add(text []byte, scheme int, hash, slot uint32, host, domain int, port int32) (header uint64) {
	if !o.room(len(text)) {
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
	place, header := o.insert(text, scheme, hash, slot, uint64(origin)|uint64(kind)<<headerKind)
	// A record that is put together elsewhere is read before it has been written there.
	r := &o.origins[origin/originChunk][origin%originChunk]
	r.domainID = DomainID(view(text[domain:host]))
	r.place, r.port = place, port
	r.host, r.domain, r.scheme = uint8(host), uint8(domain), uint8(scheme)
	return header
}

// hash is what a whole text hashes to.
func (o *Origins) hash(text []byte, scheme int) uint32 {
	if o.vectors && len(text) <= vectorText {
		return o.hashShort(text, scheme)
	}
	return o.hashWords(text, scheme)
}

// hashWords is scan's of a whole text.
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

// NoOrigin is the origin of an input that was rejected.
const NoOrigin = ^uint32(0)

// OriginKind tells the origins of nearly all URLs from the others.
type OriginKind uint8

const (
	OtherOrigin OriginKind = iota
	HTTPOrigin             // of scheme http, without a port
	HTTPSOrigin            // of scheme https, without a port
)

// Parsed is the outcome of one input of ParseBatch.
type Parsed struct {
	// PathQuery is as in URL: a part of the input or of the Normalizer.
	PathQuery []byte
	// Reject says why the input has no canonical form, nil if it has one.
	Reject *RejectError
	// Origin is the number of the origin, NoOrigin if the input was rejected.
	Origin uint32
	// Kind is what the origin is; OtherOrigin if the input was rejected.
	Kind OriginKind
}

func (p *Parsed) setOrigin(header uint64) {
	p.Origin, p.Kind = uint32(header), OriginKind(header>>headerKind)
}

const (
	// batchSize is how many inputs are looked up at a time: memory has that many cache misses at once to fetch, and what is
	// kept of them meanwhile stays in the first cache.
	batchSize = 64

	// maxPlain is the longest input that goes by the memo: its canonical form, in which each byte may be
	// an escape, is not too long.
	maxPlain = maxCanonical / 4
)

// batch is what is known of the inputs of a batch on the way.
type batch struct {
	hash [batchSize]uint32
	//lint:ignore U1000 batch_amd64.s uses it
	at     [batchSize]uintptr // where the header of a text is that may be the one, between probeVectors and matchVectors: a chunk never moves
	header [batchSize]uint64  // of the text
	start  [batchSize]uint16  // of the text in the input
	end    [batchSize]uint16  // of the text; 0 where Parse has to see the input
	stop   [batchSize]uint16  // what scanPath says of the path behind the text, end where none is
	length [batchSize]uint16  // of the input, without what is white at its end
	scheme [batchSize]uint8
	paths  []byte // canonical paths and queries which are no parts of their inputs
}

// ParseBatch parses inputs as Parse does, one after another, and returns how many: fewer than len(urls) only
// where o has no room for the next origin. The caller then does what it has to with all it knows by numbers of
// origins, resets o, and goes on with the rest. The new numbers start at 0 again. A memo that is empty has room for the first.
//
// What is set in out, which is as long as urls or longer, is valid until the next use of the Normalizer and as long as the inputs'
// bytes are left alone; the numbers of origins, until o is reset. A Normalizer may be used with several Origins, and an
// Origins with all Normalizers.
func (n *Normalizer) ParseBatch(o *Origins, urls [][]byte, out []Parsed) (parsed int) {
	if n.batch == nil {
		n.batch = new(batch)
	}
	n.batch.paths = n.batch.paths[:0]
	for parsed < len(urls) {
		some := urls[parsed:min(parsed+batchSize, len(urls))]
		done := n.parseSome(o, some, out[parsed:parsed+len(some)])
		if parsed += done; done < len(some) {
			break
		}
	}
	return parsed
}

func (n *Normalizer) parseSome(o *Origins, urls [][]byte, out []Parsed) int {
	b := n.batch
	b.spotAll(o, urls)
	known := b.lookUp(o, urls)
	for rest := ^known; rest != 0; rest &= rest - 1 {
		i := firstBit(rest)
		if i >= len(urls) {
			break
		}
		if !n.meet(o, i, urls[i], &out[i]) {
			urls = urls[:i]
			break
		}
	}
	for i, raw := range urls {
		p := &out[i]
		i &= batchSize - 1
		end, stop, length := int(b.end[i]), int(b.stop[i]), int(b.length[i])
		if end == 0 {
			continue
		}
		p.setOrigin(b.header[i])
		if end < stop && stop == length {
			p.PathQuery, p.Reject = raw[end:stop:stop], nil
			continue
		}
		n.parsePathQuery(o, raw[:length], end, stop, p)
	}
	return len(urls)
}

func firstBit(w uint64) int { return bits.TrailingZeros64(w) }

// lookUpWords is lookUp without vectors.
func (b *batch) lookUpWords(o *Origins, urls [][]byte) (known uint64) {
	// These loops do nothing that depends on what they fetch, but for the rare text that is not where
	// it should be, so that one fetch does not wait for another.
	slots := o.slots
	mask := uint32(len(slots) - 1)
	var found [batchSize]uint32
	for i := range urls {
		found[i&(batchSize-1)] = slots[b.hash[i&(batchSize-1)]&mask]
	}
	for i := range urls {
		i &= batchSize - 1
		hash, slot := b.hash[i], found[i]
		place, other := untag(slot, hash)
		for at := hash & mask; other && slot != 0; place, other = untag(slot, hash) {
			at = nextSlot(at, hash, mask)
			slot = slots[at]
		}
		found[i], b.header[i] = place, o.header(place)
	}
	for i, raw := range urls {
		i &= batchSize - 1
		start, end := int(b.start[i]), int(b.end[i])
		if end != 0 && found[i] != 0 && o.is(found[i], b.header[i], raw[start:end], int(b.scheme[i])) {
			known |= 1 << i
		}
	}
	return known
}

// spot finds the text of an input that may start with a known origin.
func (b *batch) spot(o *Origins, i int, raw []byte) {
	for len(raw) > 0 && raw[len(raw)-1] <= ' ' {
		raw = raw[:len(raw)-1]
	}
	if len(raw) < wordSize || len(raw) > maxPlain {
		b.hash[i], b.start[i], b.end[i] = 0, 0, 0
		return
	}
	scheme, start := textBare, 0
	switch prefix := binary.LittleEndian.Uint64(raw); {
	case prefix == httpsPrefix:
		scheme, start = textHTTPS, len("https://")
	case prefix<<8 == httpPrefix<<8:
		scheme, start = textHTTP, len("http://")
	}
	end, hash := o.scan(raw, start, scheme)
	if o.vectors && end-start <= vectorText {
		hash = o.hashShort(raw[start:end], scheme)
	}
	stop := end
	if end < len(raw) {
		stop = scanPath(raw, end+1)
	}
	b.hash[i] = hash
	b.start[i], b.end[i], b.stop[i], b.length[i], b.scheme[i] = uint16(start), uint16(end), uint16(stop), uint16(len(raw)), uint8(scheme)
}

// meet sets the origin of an input that has none that is known by its text up to the first slash. It sets its header, or all of p and
// marks the input as done, where it lets Parse see it. It returns false where there is no room for the origin.
func (n *Normalizer) meet(o *Origins, i int, raw []byte, p *Parsed) bool {
	b := n.batch
	if b.end[i] != 0 {
		start, stop, scheme := int(b.start[i]), int(b.end[i]), int(b.scheme[i])
		// It may be that of an input before in this batch.
		header, slot := o.find(raw[start:stop], scheme, b.hash[i])
		if header != 0 {
			b.header[i] = header
			return true
		}
		if scheme != textBare {
			// Most are as Parse returns them.
			if end, domain, ok := n.plainHost(raw, start); ok && end == stop {
				header = o.add(raw[start:end], scheme, b.hash[i], slot, end-start, domain-start, -1)
				b.header[i] = header
				return header != 0
			}
		}
		if end, ok := textEnd(raw[:stop], start, scheme); ok {
			hash := b.hash[i]
			if end != stop {
				hash = o.hash(raw[start:end], scheme)
			}
			header, room := n.meetText(o, raw[:end], start, scheme, hash)
			if !room {
				return false
			}
			if header != 0 {
				b.header[i] = header
				if end != stop {
					b.end[i], b.stop[i] = uint16(end), uint16(end)
				}
				return true
			}
		}
	}
	b.end[i] = 0
	return n.parseOdd(o, raw, p)
}

// meetText returns a header of the origin that raw is, whose text starts at start, and 0 if raw is no URL.
func (n *Normalizer) meetText(o *Origins, raw []byte, start, scheme int, hash uint32) (header uint64, room bool) {
	text := raw[start:]
	if header, _ = o.find(text, scheme, hash); header != 0 {
		return header, true
	}
	u, err := n.Parse(raw)
	if err != nil {
		return 0, true
	}
	if header = o.canonical(&u); header == 0 {
		return 0, false
	}
	if (scheme == textBare || string(o.text) != string(text)) && o.room(len(text)) {
		o.insert(text, scheme, hash, o.free(hash), header)
	}
	return header, true
}

// parseOdd is for an input of which Parse has to see all.
func (n *Normalizer) parseOdd(o *Origins, raw []byte, p *Parsed) bool {
	u, err := n.Parse(raw)
	if err != nil {
		*p = Parsed{Origin: NoOrigin, Reject: err.(*RejectError)}
		return true
	}
	header := o.canonical(&u)
	if header == 0 {
		return false
	}
	b := n.batch
	start := len(b.paths)
	b.paths = append(b.paths, u.PathQuery...)
	*p = Parsed{PathQuery: b.paths[start:len(b.paths):len(b.paths)]}
	p.setOrigin(header)
	return true
}

// textEnd returns where a text really ends that goes up to a slash or the end of s. It returns false for one
// that does not alone decide what the origin is, or is too long or rare to be remembered.
func textEnd(s []byte, start, scheme int) (end int, ok bool) {
	for end = start; end < len(s); end++ {
		c := s[end]
		if c == '?' || c == '#' {
			break
		}
		if c <= ' ' || c == '@' || c == '\\' || scheme == textBare && classes[c]&hostPlain == 0 {
			return 0, false
		}
	}
	// A colon at the end would be seen as one before the slashes of the path.
	return end, 0 < end-start && end-start <= maxText && s[end-1] != ':'
}

// parsePathQuery sets the rest of p, whose origin is known to end at raw[start]. If that is a slash, scanPath has read up to raw[stop].
func (n *Normalizer) parsePathQuery(o *Origins, raw []byte, start, stop int, p *Parsed) {
	p.Reject = nil
	switch {
	case start == len(raw) || raw[start] == '#':
		p.PathQuery = rootPath
		return
	case stop > start:
		end, sorted := n.canonicalPathQuery(raw, stop)
		switch {
		case end > 0 && sorted:
			p.PathQuery = raw[start:end:end]
			return
		case end > 0:
			b := n.batch
			from := len(b.paths)
			b.paths = n.appendPieces(b.paths, raw, start)
			p.PathQuery = b.paths[from:len(b.paths):len(b.paths)]
			return
		}
	}
	var u URL
	if !n.changePathQuery(raw, start, &u) {
		// There is a tab or a line break, and the origin is known: there is room for it.
		n.parseOdd(o, raw, p)
		return
	}
	b := n.batch
	from := len(b.paths)
	b.paths = append(b.paths, u.PathQuery...)
	p.PathQuery = b.paths[from:len(b.paths):len(b.paths)]
}

var rootPath = []byte("/")
