package reader

import (
	"archive/zip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
)

// isWACZ reports whether a zip is a WACZ: it has an index or WARC files, and says that it is a
// package or has nothing else. A zip of lists may have a folder of that name, too.
func isWACZ(z *zip.Reader) bool {
	if files, _ := waczMembers(z); len(files) == 0 {
		return false
	}
	foreign := false
	for _, f := range z.File {
		if f.Name == "datapackage.json" {
			return true
		}
		folder, _, _ := strings.Cut(f.Name, "/")
		foreign = foreign || !slices.Contains([]string{"archive", "indexes", "pages"}, folder) && !isLeftOut(f.Name)
	}
	return !foreign
}

// zipFormats are office documents, books and programs that are zips: one of their members, and how
// to get their URLs. The first match counts.
var zipFormats = []struct{ member, reason, advice string }{
	{"xl/", "Excel workbooks (xlsx) are not read", toCSV},
	{"word/document.xml", "Word documents (docx) are not read", "write its links as lines: pandoc -t html FILE" + grepLinks},
	{"ppt/presentation.xml", "presentations (pptx) are not read",
		"write its links as lines: unzip -p FILE 'ppt/slides/_rels/*.rels'" + grepLinks},
	{"META-INF/container.xml", "EPUB books are not read", "write its links as lines: pandoc -t html FILE" + grepLinks},
	{"META-INF/manifest.xml", "OpenDocument files are not read; a spreadsheet (ods) has a table", toCSV},
	{"Index/Document.iwa", "documents of Numbers and Pages are not read", "export it as CSV (File, Export To)"},
	{"Index.zip", "documents of Numbers and Pages are not read", "export it as CSV (File, Export To)"},
	{"AndroidManifest.xml", "Android packages (apk) are not read", "write its URLs as lines: unzip -p FILE | strings" + grepLinks},
	{"META-INF/MANIFEST.MF", "Java archives (jar) are not read", "write its URLs as lines: unzip -p FILE | strings" + grepLinks},
	{"mimetype", "OpenDocument files, books and other documents in a zip are not read", "write its links as lines: pandoc -t html FILE" + grepLinks},
	{"[Content_Types].xml", "documents of Office and other packages (OPC) are not read", "write its links as lines: unzip -p FILE" + grepLinks},
	{"doc.kml", "KMZ is not read", "write its links as lines: unzip -p FILE doc.kml" + grepLinks},
}

const (
	toCSV     = "save its table as CSV: soffice --headless --convert-to csv FILE"
	grepLinks = ` | grep -oE 'https?://[^"<> ]+' > urls.txt`
)

// membersOverlap reports whether the members of a zip have more bytes than the zip. They would be
// read as often as they are named.
func membersOverlap(z *zip.Reader, size int64) bool {
	stored := uint64(0)
	for _, f := range z.File {
		stored += min(f.CompressedSize64, uint64(size)+1)
	}
	return stored > uint64(size)
}

// checkZip returns the error of a zip that is no archive of lists.
func checkZip(name string, z *zip.Reader) error {
	for _, f := range z.File {
		if err := checkTable(name, f.Name); err != nil {
			return err
		}
	}
	for _, is := range zipFormats {
		if slices.ContainsFunc(z.File, func(f *zip.File) bool {
			return f.Name == is.member || strings.HasSuffix(is.member, "/") && strings.HasPrefix(f.Name, is.member)
		}) {
			return &raw.FormatError{Name: name, Reason: is.reason, Advice: is.advice}
		}
	}
	return nil
}

// zipMethods are the names of methods that are not read, by their number in the specification
// (APPNOTE.TXT 4.4.5).
var zipMethods = map[uint16]string{1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz",
	98: "PPMd", 99: "AES encryption"}

// openZipMember opens a member, or returns the error if it cannot be read.
func openZipMember(name string, f *zip.File) (io.Reader, error) {
	switch {
	case f.Flags&1 != 0:
		return nil, &raw.FormatError{Name: name, Reason: "it is encrypted", Advice: "unpack the archive first: 7z x FILE"}
	case f.Method != zip.Store && f.Method != zip.Deflate:
		method := zipMethods[f.Method]
		if method == "" {
			method = fmt.Sprint("method ", f.Method)
		}
		return nil, &raw.FormatError{Name: name, Reason: "it is compressed with " + method + ", which is not read in a zip",
			Advice: "unpack the archive first: 7z x FILE"}
	}
	return f.Open()
}

// advance opens the next member that is not left out. It returns io.EOF at the end of the archive.
func (p *zipParser) advance() error {
	if c := p.outer.counts; len(p.files) == 0 && len(p.archived) > 0 && c.Records+c.Rejects == 0 && p.unreadAll == 0 {
		p.files, p.archived, p.noIndex = p.archived, nil, true
	}
	for len(p.files) > 0 {
		f := p.files[0]
		p.files = p.files[1:]
		p.outer.in.SetLine(0)                        // an archive has no lines
		name := strings.ReplaceAll(f.Name, `\`, "/") // programs of Windows write these
		p.member = strings.ToValidUTF8(path.Clean(name), "\ufffd")
		if p.outer.plan.Format == raw.Zip {
			if strings.HasSuffix(name, "/") {
				continue
			}
			if !f.Mode().IsRegular() || isLeftOut(p.member) {
				p.leaveOut()
				continue
			}
		}
		r, err := openZipMember(p.outer.name+"/"+p.member, f)
		if err == nil {
			return p.open(r)
		}
		if p.outer.counts.Members++; !p.skip(err) {
			return p.fault(fmt.Errorf("%s: %w", p.member, err))
		}
	}
	return p.end()
}

// readAhead is how much of a member is read at once. Its decompressor asks for a few KiB, and every
// read may be a request to a store.
const readAhead, lowReadAhead = 1 << 20, 64 << 10

// aheadAt reads ahead of reads in order: each time twice as much, from firstAhead to size bytes.
type aheadAt struct {
	at   io.ReaderAt
	buf  []byte
	from int64 // the offset of buf
	size int
	next int // how many bytes are read at once next
}

const firstAhead = 16 << 10

func (a *aheadAt) ReadAt(p []byte, off int64) (int, error) {
	if len(p) >= a.size {
		return a.at.ReadAt(p, off)
	}
	if off < a.from || off+int64(len(p)) > a.from+int64(len(a.buf)) {
		// Small members may be passed.
		if gap := off - a.from - int64(len(a.buf)); gap < 0 || gap > int64(len(a.buf)) {
			a.next = 0
		}
		n := min(max(a.next, firstAhead, len(p)), a.size)
		a.next = 2 * n
		buf := slices.Grow(a.buf[:0], n)[:n]
		a.buf = buf[:0]
		n, err := a.at.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return 0, err
		}
		a.buf, a.from = buf[:n], off
	}
	n := copy(p, a.buf[off-a.from:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
