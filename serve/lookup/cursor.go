package lookup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// ErrBadCursor says that the cursor was not made by this service for this query.
var ErrBadCursor = errors.New("bad cursor")

// A cursor is where the next page starts in one version's list. It is opaque to clients:
//
//	u8 kind | u64 fingerprint | varint length, version id | varints of the position | u32 CRC-32C
//
// in unpadded base64url. The fingerprint is the xxh3_64 of kind, domain and dataset: a
// cursor of one query is refused by another. Nothing in it is trusted: positions are
// looked up in the index and refused when the query has no row there.
type cursor struct {
	kind        byte
	fingerprint uint64
	version     string
	at          position
}

// position is a row for kind URLs; for kind datasets only dataset is used.
type position struct {
	segment        uint64 // index in the version's list
	file, rowGroup uint64
	row            uint64 // within the row group: the first row of the next page
	dataset        uint64 // the last dataset of the page before
}

const (
	cursorURLs        = 'u'
	cursorDatasets    = 'd' // the datasets that contain a domain
	cursorAllDatasets = 'a' // all datasets of a version

	// maxCursor is the longest text of a cursor: what is longer is refused undecoded.
	maxCursor = 160
)

var cursorKinds = []byte{cursorURLs, cursorDatasets, cursorAllDatasets}

var cursorText = base64.RawURLEncoding.Strict()

func fingerprint(kind byte, domain string, dataset uint32) uint64 {
	b := codec.AppendU32([]byte{kind}, dataset)
	return xxh3.Hash(append(b, domain...))
}

func (c *cursor) String() string {
	b := codec.AppendU64([]byte{c.kind}, c.fingerprint)
	b = codec.AppendString(b, c.version)
	for _, p := range c.at.fields(c.kind) {
		b = codec.AppendUvarint(b, *p)
	}
	return cursorText.EncodeToString(codec.AppendCRC32C(b))
}

// fields are the numbers that a cursor of that kind carries.
func (p *position) fields(kind byte) []*uint64 {
	if kind == cursorURLs {
		return []*uint64{&p.segment, &p.file, &p.rowGroup, &p.row}
	}
	return []*uint64{&p.dataset}
}

// parseCursor decodes a cursor of that kind. Every failure is ErrBadCursor.
func parseCursor(text string, kind byte) (*cursor, error) {
	if len(text) > maxCursor {
		return nil, fmt.Errorf("%w: %d characters", ErrBadCursor, len(text))
	}
	raw, err := cursorText.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which the decoder passes over
		return nil, fmt.Errorf("%w: not base64url", ErrBadCursor)
	}
	body, err := codec.CheckCRC32C(raw, "cursor", "checksum")
	if err != nil {
		return nil, fmt.Errorf("%w: checksum", ErrBadCursor)
	}
	d := codec.NewDecoder(body, "cursor", "fields")
	c := &cursor{kind: d.U8()}
	if c.kind != kind {
		return nil, fmt.Errorf("%w: of another kind of query", ErrBadCursor)
	}
	c.fingerprint = d.U64()
	c.version = d.String()
	for _, p := range c.at.fields(kind) {
		*p = d.Uvarint()
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: fields", ErrBadCursor)
	}
	return c, nil
}

// check makes sure that the cursor belongs to a query.
func (c *cursor) check(domain string, dataset uint32) error {
	if c.fingerprint != fingerprint(c.kind, domain, dataset) {
		return fmt.Errorf("%w: of another query", ErrBadCursor)
	}
	return nil
}
