package pieces

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"sort"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// A piece, integers as varints unless stated otherwise:
//
//	magic "UPCE", version u32 LE, level u8
//	entries: bytes of the key shared with the key before, length and bytes of the rest;
//	  in a leaf: length and bytes of the value
//	  otherwise: digest of the piece below (16 bytes), number of entries in it and below
//
// A piece that is not a leaf holds the last key of each piece below it.
const (
	pieceMagic   = "UPCE"
	pieceVersion = 1
	digestBytes  = 16
)

// A piece ends after a key whose hash says so, one in 128, but holds at least minEntries, and at
// most maxEntries and some targetBytes: what one change writes stays small.
const (
	endMask     = 1<<7 - 1
	minEntries  = 32
	maxEntries  = 1 << 9
	targetBytes = 24 << 10
	// usualBytes is what most pieces take.
	usualBytes = 4 << 10
)

// piece is a decoded piece. Entries of a piece that is not a leaf have no values, but children.
type piece struct {
	name     string
	entries  []Entry
	children []child
	total    int64 // entries in the leaves below
	bytes    int   // memory
}

// search returns the index of the first entry whose key is not before key.
func (p *piece) search(key []byte) int {
	return sort.Search(len(p.entries), func(i int) bool { return bytes.Compare(p.entries[i].Key, key) >= 0 })
}

func (p *piece) lastKey() []byte { return p.entries[len(p.entries)-1].Key }

// decode reads a piece.
func decode(data []byte, file string, level int) (*piece, error) {
	d := codec.NewDecoder(data, file, "piece")
	d.Magic(pieceMagic, pieceVersion)
	if got := d.U8(); d.Err() == nil && int(got) != level {
		d.Fail(fmt.Sprintf("level %d", level), got)
	}
	p := &piece{bytes: len(data)}
	keys := make([]byte, 0, 2*len(data)) // all of them
	var last []byte
	for d.Err() == nil && d.Len() > 0 {
		shared := d.Uint(uint64(len(last)))
		rest := d.Bytes(int(d.Uint(MaxKey - shared)))
		if d.Err() != nil {
			break
		}
		from := len(keys)
		keys = append(append(keys, last[:shared]...), rest...)
		key := keys[from:len(keys):len(keys)]
		if bytes.Compare(key, last) <= 0 {
			d.Fail("keys in ascending order", fmt.Sprintf("%q after %q", key, last))
			break
		}
		e := Entry{Key: key}
		if level == 0 {
			e.Value = d.Bytes(int(d.Uint(MaxValue)))
			p.total++
		} else {
			c := child{last: key, name: hex.EncodeToString(d.Bytes(digestBytes)), level: level - 1}
			c.entries = int64(d.Uint(math.MaxInt64 - uint64(p.total)))
			p.total += c.entries
			p.children = append(p.children, c)
		}
		p.entries = append(p.entries, e)
		p.bytes += len(key) + entryMemory
		last = key
	}
	if d.Err() == nil && len(p.entries) == 0 {
		d.Fail("an entry", "none")
	}
	return p, d.Close()
}

// entryMemory is about what an entry takes besides its bytes.
const entryMemory = 96

// cutter divides the entries of one level into pieces.
type cutter struct {
	level int
	buf   []byte
	last  []byte
	n     int
	total int64
	done  []encoded
}

// encoded is a piece to be written.
type encoded struct {
	child
	data []byte
}

// add appends an entry: of a leaf, or the piece below that c is.
func (w *cutter) add(e Entry, c child) {
	if w.n == 0 {
		w.buf = append(codec.AppendMagic(make([]byte, 0, usualBytes), pieceMagic, pieceVersion), byte(w.level))
		w.last = nil
	}
	shared := codec.CommonPrefix(w.last, e.Key)
	w.buf = codec.AppendUvarint(w.buf, uint64(shared))
	w.buf = codec.AppendUvarint(w.buf, uint64(len(e.Key)-shared))
	w.buf = append(w.buf, e.Key[shared:]...)
	if w.level == 0 {
		w.buf = codec.AppendUvarint(w.buf, uint64(len(e.Value)))
		w.buf = append(w.buf, e.Value...)
		w.total++
	} else {
		name, _ := hex.DecodeString(c.name) // decode and digest made it
		w.buf = append(w.buf, name...)
		w.buf = codec.AppendUvarint(w.buf, uint64(c.entries))
		w.total += c.entries
	}
	w.last = e.Key
	w.n++
	ends := w.n >= minEntries && xxh3.HashSeed(e.Key, uint64(w.level))&endMask == 0
	if ends || w.n == maxEntries || w.n > 1 && len(w.buf) >= targetBytes {
		w.cut()
	}
}

// cut ends the piece.
func (w *cutter) cut() {
	if w.n == 0 {
		return
	}
	c := child{last: bytes.Clone(w.last), name: digest(w.buf), level: w.level, entries: w.total}
	w.done = append(w.done, encoded{c, w.buf})
	w.buf, w.n, w.total = nil, 0, 0
}
