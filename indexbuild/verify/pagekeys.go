package verify

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// keyReader reads the segment's page keys along with its page index.
type keyReader struct {
	next func() (segment.PartKeys, error, bool)
	segment.PartKeys
	err error
	ok  bool
}

func (k *keyReader) advance() { k.PartKeys, k.err, k.ok = k.next() }

// of returns the blocks of a file.
func (k *keyReader) of(file uint32) (blocks []part.PageKeyBlock, err error) {
	for k.ok && k.err == nil && k.File <= file {
		if k.File == file {
			blocks = append(blocks, *k.PageKeyBlock)
		}
		k.advance()
	}
	return blocks, k.err
}

// checkKeys reads all page keys of the segment.
func (v *verifier) checkKeys() error {
	for _, err := range v.seg.AllPageKeys(v.ctx) {
		if err != nil && !v.reportedByFiles(err) {
			return v.problem(v.key(segment.PageKeysName), err)
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// pageKeys returns the page keys that a part of size bytes has itself, and compares got with them,
// which the segment has. Those that could not be read, which pages has reported, are not compared.
func (v *verifier) pageKeys(
	id uint32, r io.ReaderAt, size int64, blocks []*part.PageIndexBlock, got []part.PageKeyBlock, readable bool,
) ([]part.PageKeyBlock, error) {
	name := v.parts[id].Key
	pages := int64(0)
	for _, b := range blocks {
		pages += int64(b.Pages())
	}
	keys, err := part.ReadPageKeys(func(off, n int64) ([]byte, error) {
		data := make([]byte, n)
		_, err := r.ReadAt(data, off)
		if errors.Is(err, io.EOF) { // a full read that reaches the end of the file
			err = nil
		}
		return data, err
	}, size, pages, name)
	if err != nil || !readable {
		return keys, err
	}
	if len(keys)+len(got) > 0 && !reflect.DeepEqual(keys, got) {
		v.wrong(v.key(segment.PageKeysName), "keys of "+name, fmt.Sprintf("those %d blocks of the part", len(keys)),
			fmt.Sprintf("%d blocks", len(got)))
	}
	return keys, nil
}

// keyChecker compares page keys with the rows of a part. It knows nothing of how keys are made.
type keyChecker struct {
	part string
	keys []keyAt // that are left
	// The row before.
	domain string
	last   part.PageKey
}

// keyAt is the key of the page that begins with a row.
type keyAt struct {
	group uint32
	row   int64
	key   *part.PageKey
}

// newKeyChecker returns a checker of the keys of a part, which has these pages.
func newKeyChecker(name string, keys []part.PageKeyBlock, blocks []*part.PageIndexBlock) (*keyChecker, error) {
	c := &keyChecker{part: name}
	for _, b := range blocks {
		if len(keys) == 0 || keys[0].RowGroup != b.RowGroup || keys[0].FirstRow != b.FirstRow {
			continue
		}
		if len(keys[0].Keys) != b.Pages() {
			return nil, codec.Corrupt(name, "page keys", -1, fmt.Sprintf("%d pages", b.Pages()), len(keys[0].Keys))
		}
		for i := range keys[0].Keys {
			if k := &keys[0].Keys[i]; !k.None() {
				c.keys = append(c.keys, keyAt{uint32(b.RowGroup), b.FirstRow + b.PageStart(i), k})
			}
		}
		keys = keys[1:]
	}
	if len(keys) > 0 {
		return nil, codec.Corrupt(name, "page keys", -1, "blocks of the page index",
			fmt.Sprintf("row %d of row group %d", keys[0].FirstRow, keys[0].RowGroup))
	}
	return c, nil
}

// add checks the keys of the pages that begin with one of the next rows of the part.
func (c *keyChecker) add(r postings.Rows) error {
	if r.Rows == 0 {
		return nil
	}
	at := func(i int) part.PageKey {
		return part.PageKey{Host: r.Host[i], Path: r.PathQuery[i], Scheme: r.Scheme[i], Port: r.Port[i]}
	}
	for len(c.keys) > 0 && c.keys[0].group == r.Group && c.keys[0].row < r.FirstRow+int64(r.Rows) {
		k := c.keys[0]
		i := int(k.row - r.FirstRow)
		domain, last := c.domain, c.last
		if i > 0 {
			domain, last = r.Domain[i-1], at(i-1)
		}
		first := at(i)
		// The texts are not in the error, since URLs can be secrets.
		if k.row == 0 || domain != r.Domain[i] || last.Compare(k.key) > 0 || k.key.Compare(&first) > 0 {
			return codec.Corrupt(c.part, fmt.Sprintf("page key of row %d of row group %d", k.row, k.group), -1,
				"one between the row before and the row, of one domain", "another")
		}
		c.keys = c.keys[1:]
	}
	c.domain = strings.Clone(r.Domain[r.Rows-1])
	c.last = at(r.Rows - 1)
	c.last.Host, c.last.Path = strings.Clone(c.last.Host), strings.Clone(c.last.Path)
	c.last.Scheme = strings.Clone(c.last.Scheme)
	return nil
}
