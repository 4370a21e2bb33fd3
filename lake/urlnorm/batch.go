package urlnorm

import (
	"errors"
	"math/bits"
)

// NoOrigin is the origin of an input that was rejected.
const NoOrigin = ^uint32(0)

// OriginKind tells the origins that nearly all URLs have from the others.
type OriginKind uint8

const (
	OtherOrigin OriginKind = iota
	HTTPOrigin             // scheme http, no port
	HTTPSOrigin            // scheme https, no port
)

// Parsed is the result for one input of ParseBatch.
type Parsed struct {
	// PathQuery is as in URL. It is a part of the input or of the Normalizer.
	PathQuery []byte
	// Reject says why the input has no canonical form, nil if it has one.
	Reject *RejectError
	// Origin is the number of the origin, NoOrigin if the input was rejected.
	Origin uint32
	// Kind is the kind of the origin, OtherOrigin if the input was rejected.
	Kind OriginKind
}

func (p *Parsed) setOrigin(header uint64) {
	p.Origin, p.Kind = uint32(header), OriginKind(header>>headerKind)
}

const (
	// batchSize is how many inputs are looked up at a time. So many cache misses overlap, and what
	// is kept of the inputs meanwhile stays in the L1 cache.
	batchSize = 64

	// maxPlain is the longest input that is looked up. Its canonical form is not too long, even if
	// every byte becomes an escape.
	maxPlain = maxCanonical / 4
)

// batch is the state of up to batchSize inputs that are being parsed.
type batch struct {
	hash [batchSize]uint32
	// at is the address of the header that may be the text's, from probeVectors to matchVectors.
	// Chunks never move.
	//lint:ignore U1000 batch_amd64.s uses it
	at     [batchSize]uintptr
	header [batchSize]uint64 // of the text
	start  [batchSize]uint16 // of the text in the input
	end    [batchSize]uint16 // of the text; 0 if the input is for parseWhole, or it is done
	stop   [batchSize]uint16 // result of scanPath for the path after the text; end if there is no path
	length [batchSize]uint16 // of the input without white space at its end
	scheme [batchSize]uint8
	paths  []byte // canonical paths and queries that are no part of their inputs
}

// ParseBatch parses inputs as Parse does, one after another, and returns how many it has parsed.
// That is fewer than len(urls) only if o has no room for the next origin. The caller then does what
// it has to do with origins by number, resets o, and goes on with the rest; numbers start at 0
// again. An empty cache always has room for the first origin.
//
// out is at least as long as urls. What is set in it is valid until the next use of the Normalizer
// and as long as the bytes of the inputs do not change; numbers of origins are valid until o is
// reset. A Normalizer may be used with several Origins, and an Origins with several Normalizers of
// one public suffix list; with another list ParseBatch panics.
func (n *Normalizer) ParseBatch(o *Origins, urls [][]byte, out []Parsed) (parsed int) {
	if n.batch == nil {
		n.batch = new(batch)
	}
	if o.suffixes != n.suffixes {
		if o.suffixes != nil {
			panic("urlnorm: Origins of another public suffix list")
		}
		o.suffixes = n.suffixes
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

// parseSome is ParseBatch for batchSize inputs at most.
func (n *Normalizer) parseSome(o *Origins, urls [][]byte, out []Parsed) int {
	b := n.batch
	b.locateAll(o, urls)
	known := b.lookUp(o, urls)
	for rest := ^known; rest != 0; rest &= rest - 1 {
		i := firstBit(rest)
		if i >= len(urls) {
			break
		}
		if !n.resolve(o, i, urls[i], &out[i]) {
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
	// No load of these loops depends on another, but for the rare text that is not in its first
	// slot, so that their cache misses overlap.
	slots := o.slots
	mask := uint32(len(slots) - 1)
	var found [batchSize]uint32
	for i := range urls {
		found[i&(batchSize-1)] = slots[b.hash[i&(batchSize-1)]&mask]
	}
	for i := range urls {
		i &= batchSize - 1
		hash, slot := b.hash[i], found[i]
		offset, other := untag(slot, hash)
		for at := hash & mask; other && slot != 0; offset, other = untag(slot, hash) {
			at = nextSlot(at, hash, mask)
			slot = slots[at]
		}
		found[i], b.header[i] = offset, o.header(offset)
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

// locate finds the text of input i, which ends at the first slash, and where the plain part of its
// path ends. locateVectors does the same for usual inputs.
func (b *batch) locate(o *Origins, i int, raw []byte) {
	raw = trimRight(raw)
	if len(raw) < wordSize || len(raw) > maxPlain {
		b.hash[i], b.start[i], b.end[i] = 0, 0, 0
		return
	}
	scheme, start := plainScheme(raw)
	end, hash := o.scan(raw, start, scheme)
	if o.vectors && end-start <= vectorText {
		hash = o.hashShort(raw[start:end], scheme)
	}
	stop := end
	if end < len(raw) {
		stop = scanPath(raw, end+1)
	}
	b.hash[i] = hash
	b.scheme[i], b.start[i], b.end[i] = uint8(scheme), uint16(start), uint16(end)
	b.stop[i], b.length[i] = uint16(stop), uint16(len(raw))
}

// resolve sets the origin of an input whose text is not known. It sets the header in the batch; or,
// if Parse has to see the whole input, all of p, and marks the input as done. It returns false if
// there is no room for the origin.
func (n *Normalizer) resolve(o *Origins, i int, raw []byte, p *Parsed) bool {
	b := n.batch
	if b.end[i] != 0 {
		start, stop, scheme := int(b.start[i]), int(b.end[i]), int(b.scheme[i])
		// An earlier input of this batch may have added it.
		header, slot := o.find(raw[start:stop], scheme, b.hash[i])
		if header != 0 {
			b.header[i] = header
			return true
		}
		if scheme != textBare {
			// Most texts are canonical.
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
			header, ok := n.resolveText(o, raw[:end], start, scheme, hash)
			if !ok {
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
	return n.parseWhole(o, raw, p)
}

// resolveText returns the header of the origin in raw, whose text starts at start, or 0 if raw is
// no URL. It returns false if there is no room for the origin.
func (n *Normalizer) resolveText(o *Origins, raw []byte, start, scheme int, hash uint32) (header uint64, ok bool) {
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
	if (scheme == textBare || string(o.text) != string(text)) && o.fits(len(text)) {
		o.insert(text, scheme, hash, o.free(hash), header)
	}
	return header, true
}

// parseWhole sets p for an input that Parse has to see as a whole. It returns false if there is no
// room for its origin.
func (n *Normalizer) parseWhole(o *Origins, raw []byte, p *Parsed) bool {
	u, err := n.Parse(raw)
	if err != nil {
		var reject *RejectError // Parse has no other error
		errors.As(err, &reject)
		*p = Parsed{Origin: NoOrigin, Reject: reject}
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

// textEnd returns where the text that starts at s[start] ends: at a question mark, a hash or the
// end of s, which the caller has cut at the first slash. It returns false for a text that does not
// alone determine the origin, or is too long or too rare to be cached.
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
	// Not if it ends in a colon, which with the slashes of a path after it looks like a scheme's.
	return end, 0 < end-start && end-start <= maxText && s[end-1] != ':'
}

// parsePathQuery sets the rest of p, whose origin is known to end at raw[start]. If there is a
// path, scanPath has read up to raw[stop].
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
			b.paths = n.appendSortedPath(b.paths, raw, start)
			p.PathQuery = b.paths[from:len(b.paths):len(b.paths)]
			return
		}
	}
	var u URL
	if !n.changePathQuery(raw, start, &u) {
		// There is a tab or a line break. The origin is known, so there is room for it.
		n.parseWhole(o, raw, p)
		return
	}
	b := n.batch
	from := len(b.paths)
	b.paths = append(b.paths, u.PathQuery...)
	p.PathQuery = b.paths[from:len(b.paths):len(b.paths)]
}

var rootPath = []byte("/")
