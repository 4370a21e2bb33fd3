package reader

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/detect"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// A zip begins with the header of a member, or with the end of an empty directory.
const zipMagic, emptyZip = "PK\x03\x04", "PK\x05\x06"

// isZip reports whether head is the beginning of a zip archive.
func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte(zipMagic)) || bytes.HasPrefix(head, []byte(emptyZip))
}

// startZip opens a zip. Its members are read like members of a tar, unless it is a WACZ
// (https://specs.webrecorder.net/wacz/1.1.1/), a zip of WARC files, their CDXJ index and pages. Its
// captures are read from the index, which locates each record and is also used by replay. Without
// an index, or if that lists nothing, they are read from the WARC files.
func (r *Reader) startZip(plan raw.Plan) (*Reader, error) {
	at, stored, err := r.randomAccess("a zip")
	if err != nil {
		return nil, r.fail(err)
	}
	members := *plan.Members
	members.LowMemory = false
	p := &zipParser{memberParser: memberParser{outer: r, opt: *plan.Members}}
	p.memberParser.advance = p.advance
	plan.Members = &members
	r.plan = plan
	r.in = text.NewRowInput()
	r.in.SetRange(0, 0)
	r.in.SetLine(0)
	if stored == 0 {
		r.src.SetSize(at.Size())
	}
	ahead := &aheadAt{at: at, size: int(min(r.src.Limit(readAhead, lowReadAhead), at.Size()))}
	z, err := openZip(&countedAt{at: ahead, src: r.src, size: at.Size()}, at.Size(), r.src.Limit(maxZipDirectory, lowZipDirectory))
	switch {
	case r.src.Err != nil:
		return nil, r.fail(r.src.Err)
	case errors.Is(err, errZipDirectory) && r.src.LowMemory:
		return nil, raw.ErrLowMemory
	case err != nil:
		return nil, &raw.FormatError{Name: r.name, Reason: "it is a zip archive without a readable directory: " + zipReason(err),
			Advice: "write it again, or unpack it first"}
	}
	if membersOverlap(z, at.Size()) {
		return nil, &raw.FormatError{Name: r.name, Reason: "it is a zip archive whose members overlap: a bomb, or damaged",
			Advice: "write it again"}
	}
	if p.files, p.archived = waczMembers(z); !isWACZ(z) {
		if err := checkZip(r.name, z); err != nil {
			return nil, err
		}
		p.files, p.archived, r.plan.Format = z.File, nil, raw.Zip
	}
	if err := p.next(); err != nil && err != io.EOF {
		return nil, r.fail(err)
	}
	r.parse = p
	r.noteMember(&p.memberParser)
	return r, nil
}

func zipReason(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "it is truncated"
	}
	return err.Error()
}

// waczMembers returns the members that hold the captures, in the order of the archive: its index,
// and then the WARC files that are read if that lists nothing.
func waczMembers(z *zip.Reader) (files, archived []*zip.File) {
	below := func(folder string, ext ...string) (files []*zip.File) {
		for _, f := range z.File {
			if dir, name := path.Split(f.Name); dir == folder && slices.Contains(ext, detect.Extension(name)) {
				files = append(files, f)
			}
		}
		return files
	}
	files, archived = below("indexes/", ".cdx", ".cdxj"), below("archive/", ".warc")
	if len(files) == 0 {
		return archived, nil
	}
	return files, archived
}

// zipParser reads members of a zip.
type zipParser struct {
	memberParser
	files    []*zip.File // still to be read
	archived []*zip.File // the WARC files, while the index is read
	noIndex  bool        // the index lists nothing
}

const (
	// maxZipDirectory is the largest directory of a zip in bytes, lowZipDirectory with
	// raw.Options.LowMemory. In memory an entry takes several times its bytes.
	maxZipDirectory, lowZipDirectory = 16 << 20, 1 << 20

	// zipEntry is the least size of an entry in the directory, zipEnd that of the record behind it,
	// and zipTail how far before the end of the archive that record may begin.
	zipEntry, zipEnd, zipTail = 46, 22, 22 + 1<<16
)

var errZipDirectory = fmt.Errorf("its directory has more than %d MiB", maxZipDirectory>>20)

// openZip reads the directory of a zip of size bytes, of at most limit bytes.
func openZip(at *countedAt, size, limit int64) (*zip.Reader, error) {
	// Package zip allocates for as many entries as the archive claims to have.
	tail := make([]byte, min(size, zipTail))
	at.limit = zipTail + 1
	if _, err := at.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if end < 0 || len(tail)-end < zipEnd {
		return nil, io.ErrUnexpectedEOF
	}
	entries := uint64(binary.LittleEndian.Uint16(tail[end+10:]))
	if i := bytes.LastIndex(tail[:end], []byte("PK\x06\x06")); i >= 0 && end-i >= 56 {
		entries = max(entries, binary.LittleEndian.Uint64(tail[i+32:]))
	}
	if entries > uint64(limit/zipEntry) {
		return nil, errZipDirectory
	}
	at.limit = limit + 2*zipTail
	z, err := zip.NewReader(at, size)
	at.limit = 0
	if errors.Is(err, zip.ErrInsecurePath) {
		err = nil // members are read and never written to files
	}
	return z, err
}

// countedAt counts what is read of the object beside its Source, and keeps the store's first error.
type countedAt struct {
	at    io.ReaderAt
	src   *unpack.Source
	size  int64
	limit int64 // how many more bytes may be read, 0 for any number
}

func (c *countedAt) ReadAt(p []byte, off int64) (int, error) {
	if c.limit > 0 {
		if c.limit -= int64(len(p)); c.limit <= 0 {
			return 0, errZipDirectory
		}
	}
	if off < 0 || off > c.size {
		return 0, io.ErrUnexpectedEOF // the directory says so, and not the store
	}
	n, err := c.at.ReadAt(p, off)
	c.src.ReadBelow(int64(n))
	if c.limit == 0 && c.src.Size > 0 {
		c.src.SetFetched(off + int64(n))
	}
	if err != nil && err != io.EOF {
		c.src.Err = err
	}
	return n, err
}
