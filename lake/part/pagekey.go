package part

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/urlake/urlake/internal/thrift"
	"github.com/urlake/urlake/lake/codec"
)

// The rows of a domain are sorted by host, path and query, scheme and port. Page keys say where in
// this order the pages of a large domain begin, so that a search finds the page of a host, a path
// or a URL without reading others.

const (
	// maxPageKey is the length of the longest key, in bytes of host and path. A page that would
	// need a longer one has none; whoever searches reads pages there.
	maxPageKey = 1 << 10

	// pageKeysName is the name of the footer's metadata that say where the page keys are.
	pageKeysName = "urlake.page_keys"

	// NoPort is the port of a row whose scheme has its default port.
	NoPort = -1
)

// PageKey separates two pages of one row group in the order of rows within a domain: by host, path
// and query, scheme, and port. No row of the domain before the page is greater than the key, and
// none from the page on is less. Host is that of the page's first row. Path is as long as it has to
// be. Scheme is "" unless the page begins with the host and the path of the row before.
//
// The zero PageKey is no key. A page has a key if it begins within a domain: its first row has the
// domain of the row before, in the same row group.
type PageKey struct {
	Host, Path, Scheme string
	Port               int32 // NoPort if there is none
}

// None reports whether k is no key.
func (k *PageKey) None() bool { return k.Host == "" }

// Compare orders keys like rows.
func (k *PageKey) Compare(o *PageKey) int {
	return cmp.Or(strings.Compare(k.Host, o.Host), strings.Compare(k.Path, o.Path),
		strings.Compare(k.Scheme, o.Scheme), cmp.Compare(k.Port, o.Port))
}

// KeyBetween returns the key of a page that begins with the row first, after the row last of the
// same domain. Both are whole keys of rows. If the key would be too long, it is none.
func KeyBetween(last, first *PageKey) PageKey {
	k := PageKey{Host: first.Host, Port: NoPort}
	if last.Host == first.Host {
		n := codec.CommonPrefix([]byte(last.Path), []byte(first.Path))
		if n < len(first.Path) {
			n++
		}
		k.Path = first.Path[:n]
		if last.Path == first.Path {
			k.Scheme, k.Port = first.Scheme, first.Port
		}
	}
	if len(k.Host)+len(k.Path) > maxPageKey {
		return PageKey{}
	}
	return k
}

// PageKeyBlock has the keys of the pages of a PageIndexBlock: those of row group RowGroup from row
// FirstRow on.
type PageKeyBlock struct {
	RowGroup int
	FirstRow int64
	Keys     []PageKey
}

// NewPageKeys returns the blocks of the pages of a row group, as far as these have keys. Pages and
// starts are as those of NewPageIndex.
func NewPageKeys(rowGroup int, starts []int64, keys []PageKey) []PageKeyBlock {
	var blocks []PageKeyBlock
	for from := 0; from < len(keys); from += PageIndexPages {
		b := PageKeyBlock{rowGroup, starts[from], keys[from:min(from+PageIndexPages, len(keys))]}
		for i := range b.Keys {
			if !b.Keys[i].None() {
				blocks = append(blocks, b)
				break
			}
		}
	}
	return blocks
}

// MemoryBytes is the approximate size of the block in memory.
func (b *PageKeyBlock) MemoryBytes() int64 {
	n := 64 + 64*len(b.Keys)
	for i := range b.Keys {
		k := &b.Keys[i]
		n += len(k.Host) + len(k.Path) + len(k.Scheme)
	}
	return int64(n)
}

// How a page's key is encoded.
const (
	noKey     = iota
	pathKey   // host and path
	originKey // host, path, scheme and port
)

// Append appends the encoded block to dst, as described in docs/formats/page-keys.md.
func (b *PageKeyBlock) Append(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(b.RowGroup))
	dst = codec.AppendUvarint(dst, uint64(b.FirstRow))
	dst = codec.AppendUvarint(dst, uint64(len(b.Keys)))
	var last PageKey
	for i := range b.Keys {
		k := &b.Keys[i]
		switch {
		case k.None():
			dst = append(dst, noKey)
			continue
		case k.Scheme == "":
			dst = append(dst, pathKey)
		default:
			dst = append(dst, originKey)
		}
		dst = appendShared(dst, last.Host, k.Host)
		dst = appendShared(dst, last.Path, k.Path)
		if k.Scheme != "" {
			dst = codec.AppendString(dst, k.Scheme)
			dst = codec.AppendUvarint(dst, uint64(k.Port+1))
		}
		last = *k
	}
	return dst
}

// appendShared appends the number of bytes that text shares with last, and the others.
func appendShared(dst []byte, last, text string) []byte {
	n := codec.CommonPrefix([]byte(last), []byte(text))
	return codec.AppendString(codec.AppendUvarint(dst, uint64(n)), text[n:])
}

// DecodePageKeyBlock decodes a block that takes up all of data. Errors name file as the source. The
// block does not keep data.
func DecodePageKeyBlock(data []byte, file string) (*PageKeyBlock, error) {
	d := codec.NewDecoder(data, file, "page key block")
	b := &PageKeyBlock{RowGroup: int(d.Uint(maxRowGroups)), FirstRow: int64(d.Uint(maxRows))}
	n := int(d.Uint(PageIndexPages))
	if d.Err() == nil && n == 0 {
		d.Fail("at least one page", 0)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	b.Keys = make([]PageKey, n)
	var last PageKey
	for i := range b.Keys {
		k := &b.Keys[i]
		kind := d.Uint(originKey)
		if d.Err() == nil && kind == noKey {
			continue
		}
		k.Host = decodeShared(d, last.Host)
		k.Path = decodeShared(d, last.Path)
		k.Port = NoPort
		if kind == originKey {
			k.Scheme = d.String()
			k.Port = int32(d.Uint(math.MaxUint16+1)) - 1
		}
		switch {
		case d.Err() != nil:
			return nil, d.Close()
		case k.None() || len(k.Host)+len(k.Path) > maxPageKey:
			d.Fail(fmt.Sprintf("a host, and at most %d bytes with its path", maxPageKey), len(k.Host)+len(k.Path))
		case (kind == originKey) != (k.Scheme != ""):
			d.Fail("a scheme", "none")
		}
		last = *k
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return b, nil
}

func decodeShared(d *codec.Decoder, last string) string {
	n := d.Uint(uint64(len(last)))
	rest := d.Bytes(int(d.Uint(min(maxPageKey, uint64(d.Len())))))
	if d.Err() != nil {
		return ""
	}
	return last[:n] + string(rest)
}

// appendPageKeys appends the page keys of a part, as they are between its offset indexes and its
// footer: each block with its size.
func appendPageKeys(dst []byte, blocks []PageKeyBlock) []byte {
	for i := range blocks {
		dst = codec.AppendString(dst, string(blocks[i].Append(nil)))
	}
	return dst
}

// pageKeysMetadata returns the name and the value of the footer's metadata for page keys that start
// at byte off.
func pageKeysMetadata(keys []byte, off int64) (name, value string) {
	return pageKeysName, fmt.Sprintf("%d %d %08x", off, len(keys), codec.CRC32C(keys))
}

// ReadPageKeys reads the page keys of a part of size bytes. There are none if no page begins within
// a domain. Pages is about how many pages the part has. Usually one read suffices.
func ReadPageKeys(read func(off, n int64) ([]byte, error), size, pages int64, part string) ([]PageKeyBlock, error) {
	// A key takes some 20 bytes, and the footer some kilobytes a row group.
	tail, err := readTail(read, size, min(footerGuess, 8<<10+32*pages), part)
	if err != nil {
		return nil, err
	}
	value, ok, err := footerValue(tail.footer(), part)
	if err != nil || !ok {
		return nil, rebase(err, tail.footerOff)
	}
	var off, bytes int64
	var sum uint32
	if _, err := fmt.Sscanf(value, "%d %d %08x", &off, &bytes, &sum); err != nil ||
		value != fmt.Sprintf("%d %d %08x", off, bytes, sum) || off < int64(len(parquetMagic)) || bytes <= 0 ||
		bytes > maxIndexBytes || off+bytes != tail.footerOff {
		return nil, codec.Corrupt(part, "footer", tail.footerOff, pageKeysName+" of at most 64 MiB before the footer", fmt.Sprintf("%.60q", value))
	}
	if err := tail.from(off); err != nil {
		return nil, err
	}
	keys := tail.data[off-tail.off:][:bytes]
	if got := codec.CRC32C(keys); got != sum {
		return nil, codec.Corrupt(part, "page keys", off, fmt.Sprintf("CRC-32C %08x", sum), fmt.Sprintf("%08x", got))
	}
	return decodePageKeys(keys, part)
}

// footerValue returns the value of the metadata pageKeysName in a FileMetaData.
func footerValue(footer []byte, part string) (value string, ok bool, err error) {
	r := thrift.NewReader(footer, part, "footer")
	text := func(f thrift.Field) (s string) {
		if r.Want(f, thrift.Binary) {
			s = string(r.Bytes(int(r.Uint(uint64(r.Len())))))
		}
		return s
	}
	r.Struct(func(f thrift.Field) {
		if f.ID != 5 {
			r.Skip(f)
			return
		}
		for range r.List(f, thrift.Struct) {
			var name, v string
			r.Struct(func(f thrift.Field) {
				switch f.ID {
				case 1:
					name = text(f)
				case 2:
					v = text(f)
				default:
					r.Skip(f)
				}
			})
			if r.Err() != nil {
				return
			}
			if name == pageKeysName {
				value, ok = v, true
			}
		}
	})
	return value, ok, r.Close()
}

// decodePageKeys decodes what appendPageKeys appended.
func decodePageKeys(data []byte, part string) (blocks []PageKeyBlock, err error) {
	d := codec.NewDecoder(data, part, "page keys")
	for d.Err() == nil && d.Len() > 0 {
		block := d.Bytes(int(d.Uint(uint64(d.Len()))))
		if d.Err() != nil {
			break
		}
		b, err := DecodePageKeyBlock(block, part)
		if err != nil {
			return nil, err
		}
		if n := len(blocks); n > 0 {
			if last := &blocks[n-1]; cmp.Or(cmp.Compare(last.RowGroup, b.RowGroup), cmp.Compare(last.FirstRow, b.FirstRow)) >= 0 {
				return nil, codec.Corrupt(part, "page keys", -1, "ascending row groups and rows",
					fmt.Sprintf("row %d of row group %d", b.FirstRow, b.RowGroup))
			}
		}
		blocks = append(blocks, *b)
	}
	return blocks, d.Close()
}
