package lookup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// ErrBadCursor means that the cursor was not made for this query, or was altered.
var ErrBadCursor = errors.New("bad cursor")

// A cursor says where the next page of a list starts, in one version. It is opaque to clients:
//
//	u8 kind | u64 fingerprint | varint length, version id | position | u32 CRC-32C
//
// in unpadded base64url. The position is varints, or for lists of domains a varint length and a
// name. The fingerprint is the xxh3_64 of kind, domain and dataset, and of the selection or the URL
// where there is one, so a query rejects the cursors of other queries. Clients can forge cursors:
// the position is looked up in the index and rejected if the query has no row there.
type cursor struct {
	kind        byte
	fingerprint uint64
	version     string
	at          position
}

// position is where a page starts. Lists of URLs use segment, file, rowGroup and row, lists of
// datasets only dataset, differences between versions dataset, domain and check, lists of
// domains name, trees row, value and name, and the list of versions none.
type position struct {
	segment        uint64 // index in the version's list
	file, rowGroup uint64
	row            uint64 // within the row group: the first row of the next page
	dataset        uint64 // id of the last dataset of the page before
	domain, check  uint64 // the last domain of the page before: its id and its check bits
	name           string // what the domains of the next page are not before
	value          uint64 // of the last node of the page before; see TreePosition
}

const (
	cursorURLs        = 'u'
	cursorDatasets    = 'd' // the datasets that contain a domain
	cursorURL         = 'l' // the datasets that hold a URL
	cursorAllDatasets = 'a' // all datasets of a version
	cursorDiff        = 'c' // the changes between two versions
	cursorVersions    = 'v' // the versions, after the cursor's version
	cursorDomains     = 'n' // the domains of a version
	cursorTree        = 't' // the children of a node of the tree of a domain

	// maxCursor is the maximum length of a cursor in characters. Longer text is rejected without
	// decoding it.
	maxCursor = 480
)

// cursorKinds are all kinds of cursors.
var cursorKinds = []byte{cursorURLs, cursorDatasets, cursorURL, cursorAllDatasets, cursorDiff, cursorVersions, cursorDomains, cursorTree}

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
	if c.named() {
		b = codec.AppendString(b, c.at.name)
	}
	return cursorText.EncodeToString(codec.AppendCRC32C(b))
}

// named reports whether the position has a name.
func (c *cursor) named() bool { return c.kind == cursorDomains || c.kind == cursorTree }

// fields returns the fields that a cursor of that kind contains.
func (p *position) fields(kind byte) []*uint64 {
	switch kind {
	case cursorURLs:
		return []*uint64{&p.segment, &p.file, &p.rowGroup, &p.row}
	case cursorDiff:
		return []*uint64{&p.domain, &p.check, &p.dataset}
	case cursorVersions:
		return nil
	case cursorDomains:
		return nil
	case cursorTree:
		return []*uint64{&p.row, &p.value}
	}
	return []*uint64{&p.dataset}
}

// parseCursor decodes a cursor of the given kind. Every failure is ErrBadCursor.
func parseCursor(text string, kind byte) (*cursor, error) {
	if len(text) > maxCursor {
		return nil, fmt.Errorf("%w: %d characters, at most %d are allowed", ErrBadCursor, len(text), maxCursor)
	}
	raw, err := cursorText.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // the decoder ignores these two
		return nil, fmt.Errorf("%w: not base64url", ErrBadCursor)
	}
	body, err := codec.CheckCRC32C(raw, "cursor", "checksum")
	if err != nil {
		return nil, fmt.Errorf("%w: wrong checksum", ErrBadCursor)
	}
	d := codec.NewDecoder(body, "cursor", "fields")
	c := &cursor{kind: d.U8()}
	if c.kind != kind {
		return nil, fmt.Errorf("%w: it belongs to another kind of query", ErrBadCursor)
	}
	c.fingerprint = d.U64()
	c.version = d.String()
	for _, p := range c.at.fields(kind) {
		*p = d.Uvarint()
	}
	if c.named() {
		c.at.name = d.String()
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: malformed fields", ErrBadCursor)
	}
	return c, nil
}

// check returns ErrBadCursor unless the cursor belongs to the query of domain and dataset.
func (c *cursor) check(domain string, dataset uint32) error {
	if c.fingerprint != fingerprint(c.kind, domain, dataset) {
		return fmt.Errorf("%w: it belongs to another query", ErrBadCursor)
	}
	return nil
}

// TreePosition is behind a child of a node of a tree: the last one of a page. Value is what the
// children are sorted by, 0 if that are their names. Name is that of the child, or the beginning of
// a long one. Then Skip is how many children of that value begin so, up to that child.
type TreePosition struct {
	Name        string
	Value, Skip uint64
}

// TreeCursor is the cursor of a page that begins at a position. Query tells its list apart.
func (s *Snapshot) TreeCursor(query string, at TreePosition) string {
	c := cursor{
		kind: cursorTree, fingerprint: fingerprint(cursorTree, query, 0), version: s.version.ID,
		at: position{row: at.Skip, value: at.Value, name: at.Name},
	}
	return c.String()
}

// ParseTreeCursor reads what TreeCursor returned for the query. The error is ErrBadCursor for other
// text.
func (s *Snapshot) ParseTreeCursor(text, query string) (*TreePosition, error) {
	c, err := s.parseCursor(text, cursorTree, query, 0)
	if err != nil {
		return nil, err
	}
	return &TreePosition{Name: c.at.name, Value: c.at.value, Skip: c.at.row}, nil
}
