package detect

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// rejectedFormats are formats that urlake does not read, by their magic.
var rejectedFormats = []struct {
	offset         int
	magic          string
	reason, advice string
}{
	// Package reader reads these two before it calls Detect, but not inside an archive.
	{0, "PAR1", "a Parquet file cannot be planned from its first bytes", "open the whole object"},
	{257, "ustar", "an archive inside an archive is not read", "unpack it first"},
	{0, "PK\x03\x04", "zip archives other than WACZ, WACZ inside an archive and office documents are not read",
		"unpack it, or save the table as CSV"},
	{0, "PK\x05\x06", "zip archives and office documents are not read", "unpack it, or save the table as CSV"},
	{0, "\xd0\xcf\x11\xe0", "office documents are not read", "save the table as CSV"},
	{0, "7z\xbc\xaf\x27\x1c", "7z archives are not read", "unpack it first"},
	{0, "Rar!", "rar archives are not read", "unpack it first"},
	{0, "\x04\x22\x4d\x18", "lz4 is not read", "unpack it first (lz4 -d), or compress it with zstd"},
	{0, "\x1f\x9d", "compress (.Z) is not read", "unpack it first (gzip -d)"},
	{0, "\xff\x06\x00\x00sNaPpY", "snappy is not read", "unpack it first"},
	{0, "ORC", "ORC files are not read", "write the URL column as text or JSON Lines first"},
	{0, "Obj\x01", "Avro files are not read", "write the URL column as text or JSON Lines first"},
	{0, "ARROW1", "Arrow files are not read", "write the URL column as text or JSON Lines first"},
	{0, "SQLite format 3\x00", "SQLite databases are not read", "export the table as CSV"},
	{0, "%PDF-", "PDF is not read", "extract its links first"},
	{0, "\xff\xfe\x00\x00", "UTF-32 text is not read", "convert it first (iconv -f UTF-32 -t UTF-8)"},
	{0, "\x00\x00\xfe\xff", "UTF-32 text is not read", "convert it first (iconv -f UTF-32 -t UTF-8)"},
}

// checkReadable returns nil if head is text, else the error that rejects the object.
func checkReadable(name string, head []byte) error {
	for _, f := range rejectedFormats {
		if len(head) < f.offset || !bytes.HasPrefix(head[f.offset:], []byte(f.magic)) {
			continue
		}
		if f.magic == "ORC" && !isBinary(head) {
			continue // a text may begin with these letters
		}
		return &raw.FormatError{Name: name, Reason: f.reason, Advice: f.advice}
	}
	if c := unpack.CompressionOf(head); c != raw.NoCompression {
		return &raw.FormatError{
			Name:   name,
			Reason: "it is compressed twice (" + c + " inside)",
			Advice: "unpack it once first",
		}
	}
	if isBinary(head) {
		return &raw.FormatError{Name: name, Reason: "it is binary data of no format urlake reads"}
	}
	return nil
}

// isBinary reports whether more than one byte in 32, and more than three, is a control character
// that text does not have. Of random bytes one in ten is. A list with a stray NUL is still text.
func isBinary(head []byte) bool {
	n := 0
	for _, c := range head {
		if c < ' ' && !text.IsSpace(c) && c != 0x1b && c != 0x1e {
			n++
		}
	}
	return n > 3 && n*32 > len(head)
}
