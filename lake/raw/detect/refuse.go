package detect

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// refused are formats told by their magic that this package does not read.
var refused = []struct {
	offset         int
	magic          string
	reason, advice string
}{
	// What NewReader reads, where it can; these are met by Detect alone and in archives.
	{0, "PAR1", "a Parquet file is not planned by its head", "open the whole object"},
	{257, "ustar", "an archive inside an archive is not read", "unpack it first"},
	{0, "PK\x03\x04", "zip archives and office documents are not read", "unpack it, or save the table as CSV"},
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
	{0, "WARC/", "WARC files are not read", "give its CDX or CDXJ index"},
	{0, "\xff\xfe", "UTF-16 text is not read", "convert it first (iconv -f UTF-16 -t UTF-8)"},
	{0, "\xfe\xff", "UTF-16 text is not read", "convert it first (iconv -f UTF-16 -t UTF-8)"},
}

// refuse returns the error for a head that is binary, nil for text.
func Refuse(name string, head []byte) error {
	for _, f := range refused {
		if len(head) < f.offset || !bytes.HasPrefix(head[f.offset:], []byte(f.magic)) {
			continue
		}
		if f.magic == "ORC" && !isBinary(head) {
			continue // three letters that may begin a text
		}
		return &raw.FormatError{Name: name, Reason: f.reason, Advice: f.advice}
	}
	if c := unpack.CompressionOf(head); c != raw.NoCompression {
		return &raw.FormatError{Name: name, Reason: "it is compressed twice (" + c + " inside)", Advice: "unpack it once first"}
	}
	if isBinary(head) {
		return &raw.FormatError{Name: name, Reason: "it is binary data of no format urlake reads"}
	}
	return nil
}

// isBinary reports whether more than a thirtieth of head is control characters that text does
// not have. Random bytes have a tenth; a list with a stray NUL stays a list.
func isBinary(head []byte) bool {
	n := 0
	for _, c := range head {
		if c < ' ' && !text.IsSpace(c) && c != 0x1b && c != 0x1e {
			n++
		}
	}
	return n > 3 && n*32 > len(head)
}
