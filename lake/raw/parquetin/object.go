package parquetin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// Magic is what every Parquet file begins and ends with.
const Magic = "PAR1"

// encryptedMagic ends a file whose footer is encrypted.
const encryptedMagic = "PARE"

const (
	// MaxColumns is how many columns of one object are read. Each holds a page in memory.
	MaxColumns = 256

	// MaxBuffered is the largest Parquet file that is held in memory, as it must be in a stream:
	// compressed as a whole, or in an archive.
	MaxBuffered = 64 << 20

	// maxPage is the size of the largest page. The pages of every common writer have about 1 MiB.
	maxPage = 128 << 20

	// Beyond minPage bytes, a page has at most maxPageRatio times the bytes of the file. Pages of
	// gzip cannot have more, and those of other codecs have it only if they repeat one value.
	minPage      = 8 << 20
	maxPageRatio = 2000

	// maxSample replaces raw.PageMemory for the one column that Sample reads.
	maxSample = 256 << 20

	// lowMemoryPages, lowMemoryPage and lowMemoryFooter replace these limits and those of footers
	// with raw.Options.LowMemory.
	lowMemoryPages  = 16 << 20
	lowMemoryPage   = 8 << 20
	lowMemoryFooter = 1 << 20

	// readBuffers is the size of the read buffers of all columns together, and also of the longest
	// page headers of all columns. Headers hold the page's least and greatest value.
	readBuffers = 32 << 20
)

// RandomAccess is an object that can be read at any offset, counted from its first byte.
type RandomAccess interface {
	io.ReaderAt
	Size() int64
}

// objectFile is a Parquet object as arrow-go reads it. It keeps errors of the store in source.Err:
// what is read outside of the object is the file's fault, and not kept.
type objectFile struct {
	at     io.ReaderAt
	size   int64
	source *unpack.Source
}

func (f objectFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > f.size {
		return 0, errors.New("a column begins outside of the file")
	}
	n, err := f.at.ReadAt(p[:min(int64(len(p)), f.size-off)], off)
	if err != nil && err != io.EOF {
		f.source.Err = err
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Seek is part of arrow-go's interface. Only the search for a footer calls it, and arrow-go gets
// the footer from Open.
func (f objectFile) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// guard calls decode, which decodes a part of the file with arrow-go, and returns an error where
// arrow-go panics, as it does on some damaged files. The error names the part: the panic's own text
// speaks of arrow-go's code and not of the file.
func guard(part string, decode func() error) (err error) {
	damaged := fmt.Errorf("the Parquet file is damaged: its %s cannot be decoded", part)
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case *budgetError:
			err = fault
		default:
			err = damaged
		}
	}()
	err = decode()
	// arrow-go recovers from some panics itself.
	var fault runtime.Error
	if errors.As(err, &fault) {
		return damaged
	}
	return err
}

// Object is a Parquet file whose footer has been read.
type Object struct {
	file    objectFile
	meta    *metadata.FileMetaData
	root    *Field
	columns []*Field // in the file's order
	// byPath are the fields by full and by short, made for the first Find.
	byPath *[2]map[string]*Field
	// elements counts the calls of add, one for each element of the schema. later has the elements
	// whose type this build does not know.
	elements int
	later    map[int]bool
}

// Open reads and checks the footer of an object. name is its key or path, for errors. Errors of at
// are kept in source.Err.
func Open(name string, at RandomAccess, source *unpack.Source) (*Object, error) {
	f := objectFile{at: at, size: at.Size(), source: source}
	end := make([]byte, 8) // the footer's length and the magic
	if f.size < 12 {
		return nil, io.ErrUnexpectedEOF
	}
	if _, err := f.ReadAt(end, f.size-8); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(end))
	switch {
	case string(end[4:]) == encryptedMagic:
		return nil, &raw.FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	case string(end[4:]) != Magic:
		// The object begins as Parquet, so its end is missing.
		return nil, io.ErrUnexpectedEOF
	case size > f.size-12:
		return nil, fmt.Errorf("the footer is said to have %d bytes, in a file of %d", size, f.size)
	case size > lowMemoryFooter && source.LowMemory:
		return nil, raw.ErrLowMemory
	case size > maxFooter:
		return nil, &raw.FormatError{
			Name:   name,
			Reason: fmt.Sprintf("its footer has %d MiB, more than %d", size>>20, maxFooter>>20),
			Advice: "write it as several files",
		}
	}
	footer := make([]byte, size)
	if _, err := f.ReadAt(footer, f.size-8-size); err != nil {
		return nil, err
	}
	later, err := checkFooter(footer, source.Limit(maxFooterMemory, lowFooterMemory))
	switch {
	case errors.Is(err, errFooterMemory) && source.LowMemory:
		return nil, raw.ErrLowMemory
	case errors.Is(err, errFooterMemory):
		return nil, &raw.FormatError{Name: name, Reason: err.Error(), Advice: "write it as several files"}
	case err != nil:
		return nil, err
	}
	o := &Object{file: f}
	err = guard("footer", func() (err error) {
		if o.meta, err = metadata.NewFileMetaData(footer, nil); err != nil {
			return err
		}
		o.meta.SetSourceFileSize(f.size)
		o.root = &Field{column: -1}
		o.elements, o.later = 1, later // the first element is the root
		for i := range o.meta.Schema.Root().NumFields() {
			o.add(o.root, o.meta.Schema.Root().Field(i), false)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if o.meta.IsSetEncryptionAlgorithm() {
		return nil, &raw.FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	}
	if len(o.columns) != o.meta.Schema.NumColumns() {
		return nil, errFooter
	}
	return o, nil
}

// NumRows returns the number of rows that the footer states.
func (o *Object) NumRows() int64 { return o.meta.NumRows }

// NumRowGroups returns the number of row groups.
func (o *Object) NumRowGroups() int { return o.meta.NumRowGroups() }

// RowGroups returns the number of each row group and the offset at which it begins in the file. It
// leaves out a row group that does not begin after the one before. It returns nil if the footer
// does not state where every row group begins.
func (o *Object) RowGroups() []raw.Boundary {
	var out []raw.Boundary
	last := int64(0)
	for i, g := range o.meta.RowGroups {
		at := o.file.size
		for _, c := range g.Columns {
			if c == nil || c.MetaData == nil {
				return nil
			}
			at = min(at, c.MetaData.DataPageOffset)
			if d := c.MetaData.DictionaryPageOffset; d != nil && *d > 0 { // some writers have 0 for none
				at = min(at, *d)
			}
		}
		if g.NumRows < 0 {
			return nil
		}
		if at > last && at < o.file.size {
			out = append(out, raw.Boundary{Offset: int64(i), Stored: at})
			last = at
		}
	}
	return out
}

// fileReader is an arrow-go reader and the limits of its memory.
type fileReader struct {
	*file.Reader
	budget *budget
	header int // the longest page header
}

// reader returns a reader of the given number of columns, whose pages take up to limit bytes.
func (o *Object) reader(columns int, limit int64) (*fileReader, error) {
	share := readBuffers / max(columns, 1)
	limit = o.file.source.Limit(limit, lowMemoryPages)
	more := o.file.source.PageMemory > 0 && o.file.source.PageMemory < limit
	if more {
		limit = o.file.source.PageMemory
	}
	r := &fileReader{
		budget: &budget{heap: memory.NewGoAllocator(), limit: limit, more: more},
		header: int(min(int64(share), 4<<20, max(o.file.size, 64<<10))),
	}
	props := parquet.NewReaderProperties(r.budget)
	props.BufferedStreamEnabled = true
	props.BufferSize = int64(min(max(share, 64<<10), 1<<20))
	// A page header can claim any size, and its buffer is allocated before the page is read.
	props.MaxUncompressedPageSize = min(o.file.source.Limit(maxPage, lowMemoryPage), minPage+maxPageRatio*o.file.size)
	props.MaxCompressedPageSize = min(props.MaxUncompressedPageSize, o.file.size)
	err := guard("footer", func() (err error) {
		r.Reader, err = file.NewParquetReader(o.file, file.WithMetadata(o.meta), file.WithReadProps(props))
		return err
	})
	return r, err
}

// A Value is a value of a column that is neither null nor blank.
type Value struct {
	// Text is the value as a table would have it, without white space around it. It is nil where
	// IsTime.
	Text []byte
	// Time is milliseconds since the Unix epoch. IsTime says that the column's type is a time.
	Time   int64
	IsTime bool
}

// Sample calls visit for the values among the first n entries of a column, nulls and blanks
// counted. It reads one row group: the first that has values among these entries. It calls visit
// for no value of a column whose type a record cannot hold.
func (o *Object) Sample(f *Field, n int, visit func(Value)) error {
	r, err := o.reader(1, maxSample)
	if err != nil {
		return err
	}
	c, _ := newColumn(f)
	if c == nil {
		return nil // no record can be read from the column
	}
	found := false
	for group := 0; group < o.NumRowGroups() && !found; group++ {
		if err := c.open(r, group); err != nil {
			return err
		}
		for range n {
			ok, err := c.peek()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !c.null() {
				var v Value
				if v.Time, v.IsTime = c.time(); !v.IsTime {
					v.Text = text.TrimSpace(c.text(nil))
				}
				if v.IsTime || len(v.Text) > 0 {
					visit(v)
					found = true
				}
			}
			c.advance()
		}
	}
	return nil
}

// IsLakePart reports whether the file is a part of a lake (docs/formats/part.md): urlake wrote it,
// and it has a part's columns.
func (o *Object) IsLakePart() bool {
	if !strings.HasPrefix(o.meta.GetCreatedBy(), "urlake ") {
		return false
	}
	for _, c := range lakePartColumns {
		f := o.Find(c.name)
		if f == nil || !f.IsColumn() || !f.IsTopLevel() || kindOf(f.desc) != c.kind {
			return false
		}
	}
	return true
}
