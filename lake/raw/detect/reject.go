package detect

import (
	"bytes"
	"encoding/binary"
	"path"
	"regexp"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// rejectedFormats are formats that urlake does not read, by their magic. If a magic is printable,
// more of the object has to be binary, since a text may begin with such letters. Formats with text
// set are themselves text.
var rejectedFormats = []struct {
	offset         int
	magic          string
	reason, advice string
	text           bool
}{
	// Package reader reads these before it calls Detect, but not inside an archive.
	{0, "PAR1", "a Parquet file cannot be planned from its first bytes", "open the whole object", true},
	{257, "ustar", "an archive inside an archive is not read", "unpack it first: tar -xf FILE", true},
	{0, "PK\x03\x04", "a zip inside an archive is not read, nor are office documents there",
		"unpack it first: 7z x FILE", false},
	{0, "PK\x05\x06", "a zip inside an archive is not read", "unpack it first: 7z x FILE", false},
	{0, "PK\x07\x08", "parts of a split zip are not read", "join them: zip -s 0 FILE --out whole.zip", false},

	{0, "7z\xbc\xaf\x27\x1c", "7z archives are not read", "unpack it first: 7z x FILE", false},
	{0, "Rar!\x1a", "rar archives are not read", "unpack it first: 7z x FILE", false},
	{0, "MSCF\x00", "cabinet archives are not read", "unpack it first: 7z x FILE", false},
	{0, "!<arch>\n", "ar archives and Debian packages are not read", "unpack it first: ar x FILE", true},
	{0, "\xed\xab\xee\xdb", "RPM packages are not read", "unpack it first: rpm2archive FILE", false},
	{0, "070701", "cpio archives are not read", "unpack it first: cpio -id < FILE", false},
	{0, "\x04\x22\x4d\x18", "lz4 is not read", "unpack it first: lz4 -d FILE", false},
	{0, "\x02\x21\x4c\x18", "lz4 is not read", "unpack it first: lz4 -d FILE", false},
	{0, "\x89LZO\x00", "lzop is not read", "unpack it first: lzop -d FILE", false},
	{0, "LZIP\x01", "lzip is not read", "unpack it first: lzip -d FILE", false},
	{0, "\x1f\x9d", "compress (.Z) is not read", "unpack it first: gzip -d FILE", false},
	{0, "\xff\x06\x00\x00sNaPpY", "snappy is not read", "unpack it first: snzip -d FILE", false},

	{0, "\xd0\xcf\x11\xe0", "documents of Microsoft Office (xls, doc, msg) are not read", csvOf, false},
	{0, "{\\rtf", "RTF is not read", "write its links as lines: pandoc -f rtf -t html FILE" + grepLinks, true},
	{0, "%PDF-", "PDF is not read", "write its links as lines: pdftotext FILE -" + grepLinks, true},
	{0, "%!PS", "PostScript is not read", "write its links as lines: ps2ascii FILE" + grepLinks, true},
	{0, "bplist00", "property lists are not read", "write it as JSON: plutil -convert json FILE", false},

	{0, "ORC", "ORC files are not read", parquetBy("import pyarrow.orc as r, pyarrow.parquet as p; " +
		"p.write_table(r.read_table('FILE'), 'urls.parquet')"), false},
	{0, "Obj\x01", "Avro files are not read", "write its rows as JSON Lines: avro-tools tojson FILE > urls.jsonl", false},
	{0, "ARROW1", "Arrow files (Feather) are not read", featherToParquet, false},
	{0, "FEA1", "Feather files are not read", featherToParquet, false},
	{0, "\xff\xff\xff\xff", "Arrow streams are not read", parquetBy("import pyarrow as a, pyarrow.parquet as p; " +
		"p.write_table(a.ipc.open_stream('FILE').read_all(), 'urls.parquet')"), false},
	{0, "\x89HDF\r\n\x1a\n", "HDF5 files are not read",
		parquetBy("import pandas; pandas.read_hdf('FILE').to_parquet('urls.parquet')"), false},
	{0, "CDF\x01", "netCDF files are not read", "write its columns as text: ncdump FILE" + grepLinks, false},
	{0, "\x93NUMPY", "NumPy arrays are not read",
		`write its values as lines: python3 -c "import numpy; print(*numpy.load('FILE').flat, sep='\n')" > urls.txt`, false},
	{0, "\x80\x02", "pickles are not read", pickleToParquet, false},
	{0, "\x80\x03", "pickles are not read", pickleToParquet, false},
	{0, "\x80\x04\x95", "pickles are not read", pickleToParquet, false},
	{0, "\x80\x05\x95", "pickles are not read", pickleToParquet, false},
	{0, "RDX", "data of R is not read", rToCSV, false},
	{0, "X\n\x00\x00\x00", "data of R is not read", rToCSV, false},
	{0, "PGDMP", "dumps of PostgreSQL are not read", "write its URLs as lines: pg_restore -f - FILE" + grepLinks, false},
	{0, "d8:announce", "torrents are not read", "leave it out (--exclude)", true},
	{0, "\xd4\xc3\xb2\xa1", captured, tshark, false},
	{0, "\xa1\xb2\xc3\xd4", captured, tshark, false},
	{0, "\x0a\x0d\x0d\x0a", captured, tshark, false},

	{0, "\x89PNG\r\n", "images are not read", "leave it out (--exclude)", false},
	{0, "\xff\xd8\xff", "images are not read", "leave it out (--exclude)", false},
	{0, "GIF8", "images are not read", "leave it out (--exclude)", false},
	{8, "WEBP", "images are not read", "leave it out (--exclude)", false},
	{0, "II*\x00", "images are not read", "leave it out (--exclude)", false},
	{0, "MM\x00*", "images are not read", "leave it out (--exclude)", false},
	{4, "ftyp", "videos are not read", "leave it out (--exclude)", false},
	{0, "OggS", "sounds and videos are not read", "leave it out (--exclude)", false},
	{0, "ID3", "sounds are not read", "leave it out (--exclude)", false},
	{0, "\x7fELF", "programs are not read", stringsOf, false},
	{0, "MZ", "programs are not read", stringsOf, false},
	{0, "\xcf\xfa\xed\xfe", "programs are not read", stringsOf, false},
	{0, "\xca\xfe\xba\xbe", "programs are not read", stringsOf, false},
	{0, "\x00asm", "programs are not read", stringsOf, false},

	{0, "-----BEGIN PGP MESSAGE", encrypted, decryptPGP, true},
	{0, "\x85\x01", encrypted, decryptPGP, false},
	{0, "\x85\x02", encrypted, decryptPGP, false},
	{0, "\x8c\x0d\x04", encrypted, decryptPGP, false},
	{0, "age-encryption.org/", encrypted, "decrypt it first: age -d FILE", true},
	{0, "Salted__", encrypted, "decrypt it first: openssl enc -d -in FILE", false},

	{0, "\xff\xfe\x00\x00", "UTF-32 text is not read", "convert it first: iconv -f UTF-32 -t UTF-8 FILE", false},
	{0, "\x00\x00\xfe\xff", "UTF-32 text is not read", "convert it first: iconv -f UTF-32 -t UTF-8 FILE", false},
}

const (
	grepLinks  = ` | grep -oE 'https?://[^"<> )]+' > urls.txt`
	csvOf      = "save its table as CSV: soffice --headless --convert-to csv FILE"
	stringsOf  = "write its URLs as lines: strings FILE" + grepLinks
	captured   = "captures of a network are not read"
	tshark     = "write its URLs as lines: tshark -r FILE -Y http.request -T fields -e http.request.full_uri > urls.txt"
	encrypted  = "it is encrypted"
	decryptPGP = "decrypt it first: gpg -d FILE > urls"
	rToCSV     = `write its table as CSV: Rscript -e 'write.csv(readRDS("FILE"), "urls.csv")'`
)

var (
	featherToParquet = parquetBy("import pyarrow.feather as f, pyarrow.parquet as p; " +
		"p.write_table(f.read_table('FILE'), 'urls.parquet')")
	pickleToParquet = parquetBy("import pandas; pandas.read_pickle('FILE').to_parquet('urls.parquet')")
)

// parquetBy is the advice to write a table as Parquet by a line of Python.
func parquetBy(python string) string { return `write it as Parquet: python3 -c "` + python + `"` }

// sqliteFormats are databases, recognised by one of their tables, and the query for their URLs.
var sqliteFormats = []struct{ table, reason, query string }{
	{"moz_places", "databases of Firefox (places.sqlite) are not read",
		"SELECT url, last_visit_date / 1000000 AS ts FROM moz_places"},
	{"CREATE TABLE urls(", "databases of Chrome (History) are not read",
		"SELECT url, last_visit_time / 1000000 - 11644473600 AS ts FROM urls"},
	{"history_items", "databases of Safari (History.db) are not read", "SELECT url FROM history_items"},
	{"", "SQLite databases are not read", "SELECT url FROM TABLE"},
}

// rejectedExtensions are binary formats without a magic, by the extension of their names.
var rejectedExtensions = map[string]struct{ reason, advice string }{
	".br":      {"brotli is not read", "unpack it first: brotli -d FILE"},
	".lzma":    {"lzma is not read", "unpack it first: xz -d FILE"},
	".snappy":  {"snappy is not read", "unpack it first: snzip -d FILE"},
	".sz":      {"snappy is not read", "unpack it first: snzip -d FILE"},
	".lz4":     {"lz4 is not read", "unpack it first: lz4 -d FILE"},
	".msgpack": {"MessagePack is not read", "write it as JSON Lines: msgpack2json -i FILE > urls.jsonl"},
	".bson":    {"BSON is not read", "write it as JSON Lines: bsondump FILE > urls.jsonl"},
	".pb":      {"Protocol Buffers are not read", "write its URLs as lines: strings FILE" + grepLinks},
	".pbf":     {"Protocol Buffers are not read", "write its URLs as lines: strings FILE" + grepLinks},
	".pkl":     {"pickles are not read", pickleToParquet},
	".pickle":  {"pickles are not read", pickleToParquet},
	".gpg":     {encrypted, decryptPGP},
	".pgp":     {encrypted, decryptPGP},
	".dmg":     {"disk images are not read", "unpack it first: 7z x FILE"},
}

// dumps are statements and remarks at the beginning of lines in dumps of databases.
var dumps = regexp.MustCompile(`(?m)^(-- (MySQL|MariaDB|PostgreSQL database) dump|/\*!40\d{3} SET|` +
	`INSERT (IGNORE )?INTO|REPLACE INTO|CREATE TABLE|COPY \S+ (\([^)]*\) )?FROM stdin;|PRAGMA foreign_keys)`)

// isDump reports whether text is SQL that fills tables. The first byte rules out most text.
func isDump(head []byte) bool {
	start := text.TrimSpace(head)
	return len(start) > 0 && bytes.IndexByte([]byte("-/IRCPSBD"), start[0]) >= 0 && dumps.Match(head)
}

// checkReadable returns nil if head is text, else the error that rejects the object.
func checkReadable(name string, head []byte) error {
	for _, f := range rejectedFormats {
		if len(head) < f.offset || !bytes.HasPrefix(head[f.offset:], []byte(f.magic)) || !f.text && isPrintable(f.magic) && !isBinary(head) {
			continue
		}
		return &raw.FormatError{Name: name, Reason: f.reason, Advice: f.advice}
	}
	if bytes.HasPrefix(head, []byte("SQLite format 3\x00")) {
		for _, f := range sqliteFormats {
			if bytes.Contains(head, []byte(f.table)) {
				return &raw.FormatError{Name: name, Reason: f.reason,
					Advice: `write its URLs as CSV: sqlite3 -csv -header FILE "` + f.query + `" > urls.csv`}
			}
		}
	}
	if c := unpack.CompressionOf(head); c != raw.NoCompression {
		return &raw.FormatError{
			Name:   name,
			Reason: "it is compressed twice (" + c + " inside)",
			Advice: "unpack it once first",
		}
	}
	if len(head) > 0 && len(bytes.Trim(head, "\x00")) == 0 {
		return &raw.FormatError{Name: name, Reason: "it holds nothing but zero bytes, as an archive without members or a file that was never written",
			Advice: "leave it out (--exclude), or get it again"}
	}
	if isBinary(head) {
		if f, ok := rejectedExtensions[strings.ToLower(path.Ext(name))]; ok {
			return &raw.FormatError{Name: name, Reason: f.reason, Advice: f.advice}
		}
		return &raw.FormatError{Name: name, Reason: "it is binary data of no format urlake reads",
			Advice: "see what it is (file FILE), and write its URLs as lines, CSV or Parquet"}
	}
	if isDump(head[:min(len(head), 4096)]) {
		return &raw.FormatError{Name: name, Reason: "dumps of databases (SQL) are not read",
			Advice: `write its URLs as lines: grep -oE "https?://[^'\", )]+" FILE > urls.txt; or load it, and write the table as CSV`}
	}
	return nil
}

// isPrintable reports whether s has only printable characters of ASCII.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isBinary reports whether more than one byte in 32, and more than three, is a control character
// that text does not have. Of random bytes one in ten is. A list with a stray NUL is still text.
func isBinary(head []byte) bool {
	const ones = ^uint64(0) / 255
	n, b := 0, head
	for ; len(b) >= 8; b = b[8:] {
		// Most eight bytes have none below a space.
		if v := binary.LittleEndian.Uint64(b); (v-ones*' ')&^v&(ones<<7) != 0 {
			n += countControls(b[:8])
		}
	}
	n += countControls(b)
	return n > 3 && n*32 > len(head)
}

// countControls returns how many bytes are control characters that text does not have.
func countControls(b []byte) (n int) {
	for _, c := range b {
		if c < ' ' && c != '\n' && !text.IsSpace(c) && c != 0x1b && c != 0x1e {
			n++
		}
	}
	return n
}
