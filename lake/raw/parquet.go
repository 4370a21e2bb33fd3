package raw

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/urlake/urlake/lake/codec"
)

const (
	// maxParquetColumns is how many columns of one object are read; each holds a page.
	maxParquetColumns = 256
	// parquetPages is what the pages of all columns may have, decompressed; one column has at least minParquetPage
	// and at most maxParquetPage. Pages have about 1 MiB with every common writer.
	parquetPages   = 512 << 20
	minParquetPage = 4 << 20
	maxParquetPage = 128 << 20
	// parquetReads is what is read ahead of all columns together.
	parquetReads = 32 << 20

	// maxBufferedParquet is the largest Parquet file held in memory where it stands in a stream: compressed as a
	// whole, or in an archive.
	maxBufferedParquet = 64 << 20

	parquetBatch = 1024
)

var (
	parquetMagic     = []byte("PAR1")
	encryptedParquet = []byte("PARE")
)

// randomAccess is what a reader may have beside Read, counted from its object's first byte.
type randomAccess interface {
	io.ReaderAt
	Size() int64
}

// parquetBytes is a Parquet object as arrow-go wants it. Errors of the reader below are told
// apart from places that lie outside of the object.
type parquetBytes struct {
	at   io.ReaderAt
	size int64
	src  *source
}

func (b parquetBytes) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.size {
		return 0, errors.New("a column begins outside of the file")
	}
	n, err := b.at.ReadAt(p[:min(int64(len(p)), b.size-off)], off)
	if err != nil && err != io.EOF {
		b.src.err = err
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Seek is only asked where a footer has to be found, which is found already.
func (b parquetBytes) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// guarded runs code of the Parquet library that decodes what, the footer or pages. It panics on some damaged files; what
// it panics with speaks of the library's code, not of the file.
func guarded(what string, f func() error) (err error) {
	damaged := fmt.Errorf("the Parquet file is damaged: its %s cannot be decoded", what)
	defer func() {
		if recover() != nil {
			err = damaged
		}
	}()
	err = f()
	// Some panics the library catches itself.
	var fault runtime.Error
	if errors.As(err, &fault) {
		return damaged
	}
	return err
}

// parquetObject is an opened Parquet file.
type parquetObject struct {
	bytes parquetBytes
	meta  *metadata.FileMetaData
	root  *parquetNode
	// leaves are the columns in the file's order.
	leaves []*parquetNode
}

// parquetNode is a group or column of the schema.
type parquetNode struct {
	name   string
	parent *parquetNode
	// full is the path in the schema, short the one without what only makes a list or map
	// (https://github.com/apache/parquet-format/blob/master/LogicalTypes.md).
	full, short        []string
	optional, repeated bool
	list, mapped       bool  // the logical type
	wrapper            bool  // the repeated group of a three-level list, or of a map
	def, rep           int16 // the levels at which it is there
	children           []*parquetNode
	leaf               int // number of the column, -1 of a group
	desc               *schema.Column
}

// openParquet reads the footer.
func openParquet(name string, b parquetBytes) (*parquetObject, error) {
	tail := make([]byte, 8)
	if b.size < 12 {
		return nil, io.ErrUnexpectedEOF
	}
	if _, err := b.ReadAt(tail, b.size-8); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(tail))
	switch {
	case bytes.Equal(tail[4:], encryptedParquet):
		return nil, &FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	case !bytes.Equal(tail[4:], parquetMagic):
		// It begins as one: the end is missing.
		return nil, io.ErrUnexpectedEOF
	case size > b.size-12:
		return nil, fmt.Errorf("the footer is said to have %d bytes, of a file of %d", size, b.size)
	case size > littleFooter && b.src.little:
		return nil, errLittleMemory
	case size > maxFooter:
		return nil, &FormatError{Name: name, Reason: fmt.Sprintf("its footer has %d MiB, more than %d", size>>20, maxFooter>>20), Advice: "write it as several files"}
	}
	footer := make([]byte, size)
	if _, err := b.ReadAt(footer, b.size-8-size); err != nil {
		return nil, err
	}
	if err := checkFooter(footer); err != nil {
		return nil, err
	}
	o := &parquetObject{bytes: b}
	err := guarded("footer", func() (err error) {
		if o.meta, err = metadata.NewFileMetaData(footer, nil); err != nil {
			return err
		}
		o.meta.SetSourceFileSize(b.size)
		o.root = &parquetNode{leaf: -1}
		for i := range o.meta.Schema.Root().NumFields() {
			o.add(o.root, o.meta.Schema.Root().Field(i), false)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if o.meta.IsSetEncryptionAlgorithm() {
		return nil, &FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	}
	if len(o.leaves) != o.meta.Schema.NumColumns() {
		return nil, errFooter
	}
	return o, nil
}

// add takes a node of the schema over. Hidden nodes, the element of a three-level list, have no name of their own.
func (o *parquetObject) add(parent *parquetNode, n schema.Node, hidden bool) {
	p := &parquetNode{name: n.Name(), parent: parent, def: parent.def, rep: parent.rep, leaf: -1,
		full: append(slices.Clip(parent.full), n.Name()), short: parent.short}
	switch n.RepetitionType() {
	case parquet.Repetitions.Optional:
		p.optional = true
		p.def++
	case parquet.Repetitions.Repeated:
		p.repeated = true
		p.def++
		p.rep++
	}
	hideChildren := false
	switch {
	case hidden:
	case p.repeated && parent.list && len(parent.full) > 0:
		// The element itself in lists of two levels: no group, of several members, or of a name that says so.
		g, ok := n.(*schema.GroupNode)
		p.wrapper = ok && g.NumFields() == 1 && n.Name() != "array" && n.Name() != parent.name+"_tuple"
		hideChildren = p.wrapper
	case p.repeated && parent.mapped:
		g, ok := n.(*schema.GroupNode)
		p.wrapper = ok && g.NumFields() == 2
	default:
		p.short = append(slices.Clip(parent.short), n.Name())
	}
	parent.children = append(parent.children, p)
	switch n := n.(type) {
	case *schema.GroupNode:
		if n.NumFields() == 1 && n.Field(0).RepetitionType() == parquet.Repetitions.Repeated {
			switch n.LogicalType().(type) {
			case schema.ListLogicalType:
				p.list = true
			case schema.MapLogicalType:
				p.mapped = true
			}
		}
		for i := range n.NumFields() {
			o.add(p, n.Field(i), hideChildren)
		}
	case *schema.PrimitiveNode:
		p.leaf = len(o.leaves)
		p.desc = o.meta.Schema.Column(p.leaf)
		o.leaves = append(o.leaves, p)
	}
}

// name is how a column is called: by its short path, if no other goes by it.
func (o *parquetObject) name(n *parquetNode) string {
	short := joinPath(n.short)
	if o.find(short) == n {
		return short
	}
	return joinPath(n.full)
}

// names are those of all columns.
func (o *parquetObject) names() []string {
	var s []string
	for _, l := range o.leaves {
		s = append(s, o.name(l))
	}
	return s
}

// find returns the node a path means, nil for none: by its path in the schema, then by its short path, then without
// regard to case; else by a column's number.
func (o *parquetObject) find(path string) *parquetNode {
	want := splitPath(path)
	for _, equal := range []func(n *parquetNode) bool{
		func(n *parquetNode) bool { return slices.Equal(n.full, want) },
		func(n *parquetNode) bool { return slices.Equal(n.short, want) },
		func(n *parquetNode) bool { return slices.EqualFunc(n.short, want, strings.EqualFold) },
	} {
		if n := findNode(o.root, equal); n != nil {
			return n
		}
	}
	if i, ok := columnNumber(path); ok && i <= len(o.leaves) {
		return o.leaves[i-1]
	}
	return nil
}

// findNode prefers columns to groups and upper nodes to lower ones of the same path.
func findNode(n *parquetNode, equal func(*parquetNode) bool) *parquetNode {
	var group *parquetNode
	var walk func(n *parquetNode) *parquetNode
	walk = func(n *parquetNode) *parquetNode {
		for _, c := range n.children {
			if equal(c) {
				if c.leaf >= 0 {
					return c
				}
				if group == nil {
					group = c
				}
			}
			if found := walk(c); found != nil {
				return found
			}
		}
		return nil
	}
	if leaf := walk(n); leaf != nil {
		return leaf
	}
	return group
}

// groups returns where the row groups begin, as far as each lies behind the one before; none where the footer
// does not say so of all.
func (o *parquetObject) groups() []border {
	var out []border
	last := int64(0)
	for i, g := range o.meta.RowGroups {
		at := o.bytes.size
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
		if at > last && at < o.bytes.size {
			out = append(out, border{int64(i), at})
			last = at
		}
	}
	return out
}

// reader returns arrow-go's reader, with limits for so many columns.
func (o *parquetObject) reader(columns int) (*file.Reader, error) {
	columns = max(columns, 1)
	props := parquet.NewReaderProperties(memory.NewGoAllocator())
	props.BufferedStreamEnabled = true
	props.BufferSize = int64(min(max(parquetReads/columns, 64<<10), 1<<20))
	props.MaxUncompressedPageSize = min(int64(max(parquetPages/columns, minParquetPage)), o.bytes.src.atMost(maxParquetPage, littlePage))
	props.MaxCompressedPageSize = props.MaxUncompressedPageSize
	var r *file.Reader
	err := guarded("footer", func() (err error) {
		r, err = file.NewParquetReader(o.bytes, file.WithMetadata(o.meta), file.WithReadProps(props))
		return err
	})
	return r, err
}

// planParquet is Detect for Parquet: columns are named by their path, the URL column is chosen as among the
// members of JSON.
func (d *detector) planParquet(o *parquetObject) error {
	d.plan.Format = Parquet
	err := d.nameColumns(func(want string) (Column, error) {
		n := o.find(want)
		if n == nil || n.leaf < 0 {
			return Column{}, d.noColumn(want, o.names(), "")
		}
		return Column{Name: o.name(n), Number: n.leaf + 1}, nil
	}, func(want string) (Column, error) {
		if o.find(want) == nil {
			return Column{}, d.noColumn(want, o.names(), "")
		}
		return Column{Name: want}, nil // perhaps a group
	})
	if err != nil {
		return err
	}
	if d.opt.URLColumn == "" && o.isLakePart() {
		d.planLakePart(o)
		return nil
	}
	if d.opt.URLColumn == "" {
		if err := d.chooseParquetURL(o); err != nil {
			return err
		}
	}
	if d.opt.TSColumn == "" {
		return d.chooseParquetTS(o)
	}
	return nil
}

// lakePartColumns are the columns of a lake's part (docs/formats/part.md) that its records are read from.
var lakePartColumns = []struct {
	name string
	kind valueKind
}{{"scheme", textKind}, {"host", textKind}, {"port", intKind}, {"path_query", textKind}, {"ts", timestampKind}, {"size", intKind}, {"extras", textKind}}

// isLakePart knows a part by who wrote it and by its columns.
func (o *parquetObject) isLakePart() bool {
	if !strings.HasPrefix(o.meta.GetCreatedBy(), "urlake ") {
		return false
	}
	for _, c := range lakePartColumns {
		n := o.find(c.name)
		if n == nil || n.leaf < 0 || len(n.full) != 1 || n.repeated || kindOf(n.desc) != c.kind {
			return false
		}
	}
	return true
}

// planLakePart plans a part of a lake.
func (d *detector) planLakePart(o *parquetObject) {
	column := func(name string) Column { return Column{Name: name, Number: o.find(name).leaf + 1} }
	d.plan.LakePart, d.plan.URL = true, column("path_query")
	if d.plan.TS == nil {
		c := column("ts")
		d.plan.TS = &c
	}
	if d.plan.Size == nil {
		c := column("size")
		d.plan.Size = &c
	}
	d.note("it is a part of a lake: its URLs are put together from scheme, host, port and path_query (--url-column chooses)")
}

// chooseParquetURL reads the first values of the columns with a name for URLs and, if those do not do, of all others of text.
func (d *detector) chooseParquetURL(o *parquetObject) error {
	var leaves []*leaf
	var nodes []*parquetNode
	collect := func(named bool) error {
		for _, n := range o.leaves {
			l := &leaf{path: n.short, class: nameClass(n.short[len(n.short)-1])}
			if kindOf(n.desc) != textKind || (l.class > 0) != named || len(leaves) == maxParquetColumns {
				continue
			}
			if err := d.sampleParquet(o, n, l); err != nil {
				return err
			}
			leaves, nodes = append(leaves, l), append(nodes, n)
		}
		return nil
	}
	if err := collect(true); err != nil {
		return err
	}
	best, also := chooseLeaf(leaves, sampleRows)
	if best == nil || best.urls+best.hosts == 0 {
		if err := collect(false); err != nil {
			return err
		}
		rows := 0
		for _, l := range leaves {
			rows = max(rows, l.values)
		}
		best, also = chooseLeaf(leaves, rows)
	}
	if best == nil && o.meta.NumRows == 0 {
		return nil // no records, whatever they would have been
	}
	if best == nil {
		return d.refuse("no column of this Parquet file looks like URLs; its columns are "+quoteNames(o.names()), "name one by its path (--url-column urls.url)")
	}
	n := nodes[slices.Index(leaves, best)]
	d.plan.URL = Column{Name: o.name(n), Number: n.leaf + 1}
	d.noteURL(best, also)
	return nil
}

func (d *detector) chooseParquetTS(o *parquetObject) error {
	for _, n := range o.leaves {
		if len(n.full) != 1 || !isTSName(n.name) || n.repeated || n.leaf+1 == d.plan.URL.Number {
			continue
		}
		l := &leaf{}
		if err := d.sampleParquet(o, n, l); err != nil {
			return err
		}
		if l.values > 0 && l.times == l.values {
			d.plan.TS, d.plan.TSChosen = &Column{Name: o.name(n), Number: n.leaf + 1}, true
		}
		return nil
	}
	return nil
}

// sampleParquet looks at the first values of a column.
func (d *detector) sampleParquet(o *parquetObject, n *parquetNode, l *leaf) error {
	r, err := o.reader(1)
	if err != nil {
		return err
	}
	c, err := newParquetColumn(n)
	if err != nil {
		return nil // no column that a record can be read from
	}
	for g := range o.meta.NumRowGroups() {
		if err := c.open(r, g); err != nil {
			return err
		}
		for seen := 0; seen < sampleRows; seen++ {
			ok, err := c.peek()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !c.null() {
				var text []byte
				ms, isTime := c.time()
				if !isTime {
					text = trimSpace(c.text(nil))
				}
				if isTime || len(text) > 0 {
					l.values++
				}
				if isTime && plausibleTime(ms) || !isTime && d.isTime(string(text)) {
					l.times++
				}
				if v := string(text); looksURL(v) {
					l.urls++
				} else if looksHost(v) {
					l.hosts++
				}
			}
			c.pass()
		}
		if l.values > 0 {
			break
		}
	}
	return nil
}

// Columns.

// valueKind is what the values of a column stand for.
type valueKind int

const (
	textKind valueKind = iota
	bytesKind
	boolKind
	intKind
	uintKind
	floatKind
	float16Kind
	decimalKind
	dateKind
	clockKind
	timestampKind
	uuidKind
)

func kindOf(c *schema.Column) valueKind {
	switch c.PhysicalType() {
	case parquet.Types.Boolean:
		return boolKind
	case parquet.Types.Float, parquet.Types.Double:
		return floatKind
	case parquet.Types.Int96:
		return timestampKind
	case parquet.Types.Int32, parquet.Types.Int64:
		switch t := c.LogicalType().(type) {
		case schema.DecimalLogicalType:
			return decimalKind
		case schema.DateLogicalType:
			return dateKind
		case schema.TimeLogicalType:
			return clockKind
		case schema.TimestampLogicalType:
			return timestampKind
		case schema.IntLogicalType:
			if !t.IsSigned() {
				return uintKind
			}
		}
		return intKind
	}
	switch c.LogicalType().(type) {
	case schema.DecimalLogicalType:
		return decimalKind
	case schema.UUIDLogicalType:
		return uuidKind
	case schema.Float16LogicalType:
		return float16Kind
	case schema.BSONLogicalType, schema.IntervalLogicalType:
		return bytesKind
	}
	return textKind
}

// parquetColumn is a column being read: levels and values of one batch, of which one entry is the
// next (Dremel, https://research.google/pubs/pub36632/, section 4).
type parquetColumn struct {
	node   *parquetNode
	desc   *schema.Column
	kind   valueKind
	unit   schema.TimeUnitType
	utc    bool
	scale  int32
	maxDef int16
	maxRep int16
	chunk  file.ColumnChunkReader
	pages  *checkedPages

	def, rep []int16
	i, n     int // the next entry and how many there are
	v        int // its value, where it has one

	bools  []bool
	i32    []int32
	i64    []int64
	i96    []parquet.Int96
	f32    []float32
	f64    []float64
	arrays []parquet.ByteArray
	fixed  []parquet.FixedLenByteArray

	// readBatch reads up to batch levels, and their values, from one page of chunk.
	readBatch func(batch int64) (levels int64, values int, err error)
}

// batchOf allocates the values of a column and returns the function that reads a batch of them.
func batchOf[T any](c *parquetColumn, values *[]T) func(batch int64) (int64, int, error) {
	*values = make([]T, parquetBatch)
	return func(batch int64) (int64, int, error) {
		r, ok := c.chunk.(interface {
			ReadBatchInPage(batch int64, values []T, def, rep []int16) (int64, int, error)
		})
		if !ok {
			return 0, 0, errFooter
		}
		return r.ReadBatchInPage(batch, *values, c.def, c.rep)
	}
}

func newParquetColumn(n *parquetNode) (*parquetColumn, error) {
	c := &parquetColumn{node: n, desc: n.desc, kind: kindOf(n.desc), maxDef: n.def, maxRep: n.rep,
		def: make([]int16, parquetBatch), rep: make([]int16, parquetBatch)}
	switch t := n.desc.LogicalType().(type) {
	case schema.DecimalLogicalType:
		c.scale = t.Scale()
	case schema.TimestampLogicalType:
		c.unit, c.utc = t.TimeUnit(), t.IsAdjustedToUTC()
	case schema.TimeLogicalType:
		c.unit = t.TimeUnit()
	}
	if c.desc.MaxDefinitionLevel() != n.def || c.desc.MaxRepetitionLevel() != n.rep {
		return nil, errFooter
	}
	const widest = 64 << 10
	switch n.desc.PhysicalType() {
	case parquet.Types.Boolean:
		c.readBatch = batchOf(c, &c.bools)
	case parquet.Types.Int32:
		c.readBatch = batchOf(c, &c.i32)
	case parquet.Types.Int64:
		c.readBatch = batchOf(c, &c.i64)
	case parquet.Types.Int96:
		c.readBatch = batchOf(c, &c.i96)
	case parquet.Types.Float:
		c.readBatch = batchOf(c, &c.f32)
	case parquet.Types.Double:
		c.readBatch = batchOf(c, &c.f64)
	case parquet.Types.ByteArray:
		c.readBatch = batchOf(c, &c.arrays)
	case parquet.Types.FixedLenByteArray:
		if l := n.desc.TypeLength(); l < 1 || l > widest {
			return nil, fmt.Errorf("values of %d bytes, want 1 to %d", l, widest)
		}
		c.readBatch = batchOf(c, &c.fixed)
	default:
		return nil, errFooter
	}
	return c, nil
}

// wrong names the column in an error.
func (c *parquetColumn) wrong(err error) error {
	return fmt.Errorf("column %q: %w", joinPath(c.node.full), err)
}

// open goes to the column's chunk in a row group.
func (c *parquetColumn) open(r *file.Reader, group int) error {
	c.close()
	c.i, c.n, c.v = 0, 0, 0
	err := guarded("pages", func() error {
		g := r.RowGroup(group)
		if g.NumColumns() != r.MetaData().Schema.NumColumns() {
			return fmt.Errorf("row group %d has %d columns, the schema has %d", group, g.NumColumns(), r.MetaData().Schema.NumColumns())
		}
		pages, err := g.GetColumnPageReader(c.node.leaf)
		if err != nil {
			return err
		}
		c.pages = &checkedPages{PageReader: pages, desc: c.desc}
		//lint:ignore SA1019 RowGroupReader.Column leaves no place to check pages before they are decoded
		c.chunk = file.NewColumnReader(c.desc, c.pages, memory.DefaultAllocator, r.BufferPool())
		return nil
	})
	if err != nil {
		return c.wrong(err)
	}
	return nil
}

// close gives buffers back. What the library says of it changes nothing that was read.
func (c *parquetColumn) close() {
	if c.chunk != nil {
		_ = guarded("pages", c.chunk.Close)
		c.chunk = nil
	}
}

// peek makes the next entry stand; false at the end of the chunk. Values of the entries before are void where it read.
func (c *parquetColumn) peek() (bool, error) {
	if c.i < c.n {
		return true, nil
	}
	if err := guarded("pages", c.fill); err != nil {
		return false, c.wrong(err)
	}
	return c.n > 0, nil
}

func (c *parquetColumn) fill() error {
	c.i, c.n, c.v = 0, 0, 0
	if !c.chunk.HasNext() {
		return c.chunk.Err()
	}
	batch := int64(parquetBatch)
	if c.pages.prefixed {
		batch = prefixedBatch
	}
	n, values, err := c.readBatch(batch)
	if err != nil {
		return err
	}
	if n <= 0 || n > batch {
		return errors.New("a page ends before its values do")
	}
	want := int(n)
	if c.maxDef > 0 {
		want = 0
		for _, d := range c.def[:n] {
			if d == c.maxDef {
				want++
			}
			if d < 0 || d > c.maxDef {
				return fmt.Errorf("definition level %d, want at most %d", d, c.maxDef)
			}
		}
	}
	if c.maxRep > 0 {
		for _, r := range c.rep[:n] {
			if r < 0 || r > c.maxRep {
				return fmt.Errorf("repetition level %d, want at most %d", r, c.maxRep)
			}
		}
	}
	if values != want {
		return errors.New("a page ends before its values do")
	}
	c.n = int(n)
	return nil
}

// level is the repetition level of the entry that stands, defined its definition level.
func (c *parquetColumn) level() int16 {
	if c.maxRep == 0 {
		return 0
	}
	return c.rep[c.i]
}

func (c *parquetColumn) defined() int16 {
	if c.maxDef == 0 {
		return 0
	}
	return c.def[c.i]
}

func (c *parquetColumn) null() bool { return c.defined() < c.maxDef }

// pass consumes the entry.
func (c *parquetColumn) pass() {
	if !c.null() {
		c.v++
	}
	c.i++
}

// raw is the entry's value where it is bytes; valid until the next peek that reads.
func (c *parquetColumn) raw() []byte {
	if c.fixed != nil {
		return c.fixed[c.v]
	}
	return c.arrays[c.v]
}

func (c *parquetColumn) integer() int64 {
	if c.i32 != nil {
		return int64(c.i32[c.v])
	}
	return c.i64[c.v]
}

// time is the value in milliseconds, where the column's type says that it is a time.
func (c *parquetColumn) time() (ms int64, ok bool) {
	switch {
	case c.kind == dateKind:
		return c.integer() * 86_400_000, true
	case c.kind != timestampKind:
		return 0, false
	case c.i96 != nil:
		// Nanoseconds of a Julian day (Parquet's deprecated INT96 timestamps).
		b := c.i96[c.v]
		day := int64(binary.LittleEndian.Uint32(b[8:])) - 2_440_588
		return day*86_400_000 + int64(binary.LittleEndian.Uint64(b[:])/1e6), true
	}
	unit := int64(1)
	switch c.unit {
	case schema.TimeUnitMicros:
		unit = 1e3
	case schema.TimeUnitNanos:
		unit = 1e6
	}
	v := c.integer()
	ms = v / unit
	if v%unit < 0 {
		ms--
	}
	return ms, true
}

// text appends the value as it would stand in a table.
func (c *parquetColumn) text(dst []byte) []byte {
	switch c.kind {
	case boolKind:
		return strconv.AppendBool(dst, c.bools[c.v])
	case intKind:
		return strconv.AppendInt(dst, c.integer(), 10)
	case uintKind:
		if c.i32 != nil {
			return strconv.AppendUint(dst, uint64(uint32(c.i32[c.v])), 10)
		}
		return strconv.AppendUint(dst, uint64(c.i64[c.v]), 10)
	case floatKind:
		if c.f32 != nil {
			return strconv.AppendFloat(dst, float64(c.f32[c.v]), 'g', -1, 32)
		}
		return appendDecimal(dst, c.f64[c.v])
	case float16Kind:
		if b := c.raw(); len(b) == 2 {
			return strconv.AppendFloat(dst, float64(float16.FromLEBytes(b).Float32()), 'g', -1, 32)
		}
	case decimalKind:
		return c.decimal(dst)
	case dateKind:
		return time.Unix(c.integer()*86_400, 0).UTC().AppendFormat(dst, time.DateOnly)
	case clockKind:
		return c.clock(dst)
	case timestampKind:
		return c.timestamp(dst)
	case uuidKind:
		if b := c.raw(); len(b) == 16 {
			return fmt.Appendf(dst, "%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		}
	case bytesKind:
		return fmt.Appendf(dst, "%x", c.raw())
	}
	return append(dst, c.raw()...)
}

// appendDecimal prints whole numbers without an exponent, so that they are sizes and timestamps.
func appendDecimal(dst []byte, f float64) []byte {
	if math.Abs(f) < 1<<63 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

func (c *parquetColumn) decimal(dst []byte) []byte {
	n := new(big.Int)
	switch {
	case c.i32 != nil, c.i64 != nil:
		n.SetInt64(c.integer())
	default:
		b := c.raw()
		n.SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 { // two's complement, big-endian
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
		}
	}
	const mostDigits = 1000 // decimals have at most 76 digits; longer arrays are none
	if c.scale <= 0 || c.scale > mostDigits || n.BitLen() > 4*mostDigits {
		return n.Append(dst, 10)
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
		n.Neg(n)
	}
	digits := n.Append(nil, 10)
	for len(digits) <= int(c.scale) {
		digits = append([]byte{'0'}, digits...)
	}
	point := len(digits) - int(c.scale)
	dst = append(append(dst, digits[:point]...), '.')
	return append(dst, digits[point:]...)
}

func (c *parquetColumn) clock(dst []byte) []byte {
	v := c.integer()
	switch c.unit {
	case schema.TimeUnitMillis:
		v *= 1e6
	case schema.TimeUnitMicros:
		v *= 1e3
	}
	return time.Unix(0, v).UTC().AppendFormat(dst, "15:04:05.999999999")
}

func (c *parquetColumn) timestamp(dst []byte) []byte {
	var t time.Time
	switch {
	case c.i96 != nil:
		b := c.i96[c.v]
		t = time.Unix((int64(binary.LittleEndian.Uint32(b[8:]))-2_440_588)*86_400, 0)
		t = t.Add(time.Duration(binary.LittleEndian.Uint64(b[:]) % 86_400e9))
	case c.unit == schema.TimeUnitMicros:
		t = time.UnixMicro(c.integer())
	case c.unit == schema.TimeUnitNanos:
		t = time.Unix(0, c.integer())
	default:
		t = time.UnixMilli(c.integer())
	}
	layout := "2006-01-02T15:04:05.999999999"
	if c.utc {
		layout += "Z"
	}
	return t.UTC().AppendFormat(dst, layout)
}

// json appends the value in canonical form. Numbers keep their digits or are strings.
func (c *parquetColumn) json(dst []byte, scratch *[]byte) []byte {
	*scratch = c.text((*scratch)[:0])
	switch c.kind {
	case boolKind:
		return append(dst, *scratch...)
	case intKind, uintKind, floatKind, float16Kind:
		if b := *scratch; isDigit(b[len(b)-1]) { // neither NaN nor Inf
			return appendJSONNumber(dst, b)
		}
	}
	return codec.AppendJSONString(dst, *scratch)
}

// Records.

// parquetParser yields a record for every value of the URL column. Other columns follow it: one that is
// repeated no more than what it has in common with the URL column has one value a record, or one for several.
type parquetParser struct {
	fields
	in     *input // only for places: line is the row
	object *parquetObject
	r      *file.Reader
	max    int

	url      *parquetColumn
	urlBlank int16 // definition level below which the row's list has no element
	ts, size *parquetSide
	sides    []*parquetSide
	all      []*parquetColumn
	out      []parquetExtra
	buf      []byte
	scratch  []byte
	part     *lakePart // nil for other files

	group   int // the next row group
	end     int // behind the last one
	open    bool
	rows    int64 // of the open row group
	row     int64 // begun in it
	total   int64 // of those before
	fetched func(rows int64)
}

// parquetSide is a column beside the URL column, or a group of columns that makes one extra.
type parquetSide struct {
	tree *parquetTree
	// rep is the repetition level of what it has in common with the URL column: a new value comes with every
	// entry there of at most this level.
	rep int16

	// Of a timestamp or size: the value for the current record, and whether it stands.
	rec Record
	ok  bool
	// Of an extra: its JSON, or its text where plain is set, nil for null; long if it was longer than a record may be.
	json  []byte
	long  bool
	plain bool
}

// lakePart is what the records of a lake's part are made of beside path_query.
type lakePart struct {
	scheme, host, port *parquetSide
	extras             *parquetSide // nil where others were asked for
	url, out           []byte
	doc                jsonDoc
}

// record fills in the URL, and the extras in canonical form, or returns the reason why not.
func (l *lakePart) record(rec *Record, pathQuery []byte, longest int) string {
	l.url = append(l.url[:0], l.scheme.json...)
	l.url = append(append(l.url, "://"...), l.host.json...)
	if l.port.json != nil {
		l.url = append(append(l.url, ':'), l.port.json...)
	}
	l.url = append(l.url, pathQuery...)
	switch {
	case l.scheme.json == nil || l.host.json == nil:
		return NoURL
	case len(l.url) > longest || l.scheme.long || l.host.long || l.extras != nil && l.extras.long:
		return TooLong
	}
	rec.URL = l.url
	if l.extras == nil || l.extras.json == nil {
		return ""
	}
	if !l.doc.parse(l.extras.json) || l.doc.nodes[0].kind != '{' {
		return BadJSON
	}
	l.doc.arena = l.doc.arena[:0]
	l.out = l.doc.appendCanonical(l.out[:0], 0, nil)
	rec.Extras = l.out
	return ""
}

// parquetTree is the part of the schema that one extra is made of, with columns of its own.
type parquetTree struct {
	node     *parquetNode
	column   *parquetColumn // of a leaf
	children []*parquetTree
	columns  []*parquetColumn // of all leaves
	through  bool             // only stands around its one child: what it stands for is the child's
}

// parquetExtra is a member of the extras: a value, or an object of further members.
type parquetExtra struct {
	key     []byte // `"name":`
	name    string
	side    *parquetSide
	members []parquetExtra
}

func newParquetParser(name string, o *parquetObject, in *input, plan Plan, f fields) (*parquetParser, error) {
	p := &parquetParser{fields: f, in: in, object: o, max: plan.MaxLine}
	refuse := func(c Column, reason, advice string) error {
		return &FormatError{Name: name, Reason: fmt.Sprintf("column %q %s", c.Name, reason), Advice: advice}
	}
	find := func(c Column) (*parquetNode, error) {
		n := o.find(c.Name)
		if n == nil || n.leaf < 0 {
			return nil, refuse(c, "is not there", "name one of "+quoteNames(o.names()))
		}
		return n, nil
	}
	if plan.URL.Name == "" && o.meta.NumRows == 0 {
		return p, nil // p.url is nil, and there is nothing to read
	}
	urlNode, err := find(plan.URL)
	if err != nil {
		return nil, err
	}
	if p.url, err = newParquetColumn(urlNode); err != nil {
		return nil, refuse(plan.URL, err.Error(), "")
	}
	if p.url.kind != textKind {
		return nil, refuse(plan.URL, "holds no text", "name a column that does (--url-column)")
	}
	p.all = append(p.all, p.url)
	for n := urlNode; n != nil; n = n.parent {
		if n.repeated {
			p.urlBlank = n.def
			break
		}
	}
	skip := map[*parquetNode]bool{urlNode: true}
	value := func(c *Column) (*parquetSide, error) {
		if c == nil {
			return nil, nil
		}
		n, err := find(*c)
		if err != nil {
			return nil, err
		}
		s, err := p.side(n, urlNode, nil)
		if err != nil {
			return nil, refuse(*c, err.Error(), "")
		}
		if n.rep != s.rep {
			return nil, refuse(*c, fmt.Sprintf("is a list beside %q", plan.URL.Name), "name one with a value for every record")
		}
		skip[n] = true
		return s, nil
	}
	if p.ts, err = value(plan.TS); err != nil {
		return nil, err
	}
	if p.size, err = value(plan.Size); err != nil {
		return nil, err
	}
	if plan.LakePart {
		if !o.isLakePart() {
			return nil, &FormatError{Name: name, Reason: "it is no part of a lake, as its plan says"}
		}
		p.part = &lakePart{doc: jsonDoc{deep: true}}
		for _, c := range []struct {
			name string
			to   **parquetSide
		}{{"scheme", &p.part.scheme}, {"host", &p.part.host}, {"port", &p.part.port}, {"extras", &p.part.extras}} {
			if c.name == "extras" && len(plan.Extras) > 0 {
				continue
			}
			s, err := p.side(o.find(c.name), urlNode, nil)
			if err != nil {
				return nil, refuse(Column{Name: c.name}, err.Error(), "")
			}
			s.plain = true
			*c.to = s
		}
	}
	if plan.AllExtras && !plan.LakePart {
		if p.out, err = p.extrasBeside(urlNode, skip); err != nil {
			return nil, refuse(plan.URL, "has others beside it that cannot be read: "+err.Error(), "name those to keep (--extras)")
		}
	} else {
		for _, c := range sortColumns(plan.Extras) {
			n := o.find(c.Name)
			if n == nil {
				return nil, refuse(c, "is not there", "name one of "+quoteNames(o.names()))
			}
			s, err := p.side(n, urlNode, nil)
			if err != nil {
				return nil, refuse(c, err.Error(), "")
			}
			p.out = append(p.out, newParquetExtra(c.Name, s, nil))
		}
	}
	if len(p.all) > maxParquetColumns {
		return nil, refuse(plan.URL, fmt.Sprintf("and the extras make %d columns, more than %d", len(p.all), maxParquetColumns), "name the extras to keep (--extras)")
	}
	p.r, err = o.reader(len(p.all))
	return p, err
}

func newParquetExtra(name string, side *parquetSide, members []parquetExtra) parquetExtra {
	return parquetExtra{key: append(codec.AppendJSONString(nil, name), ':'), name: name, side: side, members: members}
}

// within makes p read the row groups of a range, and returns how many rows they are said to have.
func (p *parquetParser) within(rg Range) (rows int64, err error) {
	groups := p.object.meta.RowGroups
	if rg.To > int64(len(groups)) {
		return 0, fmt.Errorf("it has %d row groups, want %d", len(groups), rg.To)
	}
	p.group, p.end = int(rg.From), int(rg.To)
	for _, g := range groups[:p.group] {
		if g.NumRows < 0 {
			return 0, errFooter
		}
		p.total += g.NumRows
	}
	for _, g := range groups[p.group:p.end] {
		rows += g.NumRows
	}
	return rows, nil
}

// extrasBeside makes extras of everything but the URL and what is in skip: the record of a URL inside groups
// and lists is the row with one element of each list.
func (p *parquetParser) extrasBeside(url *parquetNode, skip map[*parquetNode]bool) ([]parquetExtra, error) {
	onPath := map[*parquetNode]bool{}
	for n := url; n != nil; n = n.parent {
		onPath[n] = true
	}
	var walk func(n *parquetNode) ([]parquetExtra, error)
	walk = func(n *parquetNode) ([]parquetExtra, error) {
		var out []parquetExtra
		for _, c := range n.children {
			switch {
			case onPath[c]:
				members, err := walk(c)
				if err != nil {
					return nil, err
				}
				if len(members) == 0 {
					continue
				}
				if len(c.short) == len(n.short) {
					out = append(out, members...) // what only makes a list has no name
					continue
				}
				out = append(out, newParquetExtra(c.name, nil, members))
			case !skip[c]:
				s, err := p.side(c, url, skip)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", joinPath(c.full), err)
				}
				if s != nil {
					out = append(out, newParquetExtra(c.name, s, nil))
				}
			}
		}
		slices.SortStableFunc(out, func(a, b parquetExtra) int { return compareUTF16([]byte(a.name), []byte(b.name)) })
		return slices.CompactFunc(out, func(a, b parquetExtra) bool { return a.name == b.name }), nil
	}
	return walk(p.object.root)
}

// side makes columns for what is at and below n; nil where skip leaves nothing of it.
func (p *parquetParser) side(n, url *parquetNode, skip map[*parquetNode]bool) (*parquetSide, error) {
	tree, err := newParquetTree(n, skip)
	if err != nil || tree == nil {
		return nil, err
	}
	common := n.parent
	for !common.holds(url) {
		if common.repeated {
			// Of a list beside that of the URLs: its values are a list too.
			for t := tree.node.parent; t != common.parent; t = t.parent {
				tree = &parquetTree{node: t, children: []*parquetTree{tree}, columns: tree.columns, through: true}
			}
		}
		common = common.parent
	}
	s := &parquetSide{tree: tree, rep: common.rep}
	p.sides = append(p.sides, s)
	p.all = append(p.all, tree.columns...)
	return s, nil
}

// holds reports whether n is in the part of the schema below node.
func (node *parquetNode) holds(n *parquetNode) bool {
	for n = n.parent; n != nil; n = n.parent {
		if n == node {
			return true
		}
	}
	return false
}

func newParquetTree(n *parquetNode, skip map[*parquetNode]bool) (*parquetTree, error) {
	if skip[n] {
		return nil, nil
	}
	t := &parquetTree{node: n}
	if n.leaf >= 0 {
		c, err := newParquetColumn(n)
		if err != nil {
			return nil, err
		}
		t.column, t.columns = c, []*parquetColumn{c}
		return t, nil
	}
	for _, child := range n.children {
		c, err := newParquetTree(child, skip)
		if err != nil {
			return nil, err
		}
		if c != nil {
			t.children = append(t.children, c)
			t.columns = append(t.columns, c.columns...)
		}
	}
	if len(t.columns) == 0 {
		return nil, nil
	}
	if n.mapped || n.wrapper || n.list {
		return t, nil
	}
	slices.SortStableFunc(t.children, func(a, b *parquetTree) int { return compareUTF16([]byte(a.node.name), []byte(b.node.name)) })
	return t, nil
}

func (p *parquetParser) next(rec *Record, rej *Reject) error {
	if p.url == nil {
		return io.EOF
	}
	for {
		if !p.open {
			if err := p.openGroup(); err != nil {
				return err
			}
		}
		c := p.url
		p.in.line = p.total + p.row + 1
		ok, err := c.peek()
		if err != nil {
			return err
		}
		if !ok {
			if err := p.closeGroup(); err != nil {
				return err
			}
			continue
		}
		level := c.level()
		if level == 0 {
			if p.row == p.rows {
				return c.wrong(fmt.Errorf("more than the %d rows of row group %d", p.rows, p.group-1))
			}
			p.row++
			if p.row%parquetBatch == 0 {
				p.fetched(p.total + p.row)
			}
		} else if p.row == 0 {
			return c.wrong(errRows)
		}
		p.in.line = p.total + p.row
		p.in.at = p.in.here()
		for _, s := range p.sides {
			if level <= s.rep {
				if err := p.load(s, level); err != nil {
					return err
				}
			}
		}
		if c.defined() < p.urlBlank {
			p.counts.Blank++
			c.pass()
			continue
		}
		rej.Reason = p.record(rec)
		c.pass()
		return nil
	}
}

var errRows = errors.New("its rows do not begin where those of other columns do")

// record fills rec from the entry that stands and what is loaded, or returns the reason why not.
func (p *parquetParser) record(rec *Record) string {
	if p.url.null() {
		return NoURL
	}
	url := p.url.raw()
	if len(url) > p.max {
		return TooLong
	}
	if url = trimSpace(url); len(url) == 0 {
		return NoURL
	}
	if p.ts != nil && !p.ts.ok {
		return BadTS
	}
	if p.size != nil && !p.size.ok {
		return BadSize
	}
	if len(p.out) > 0 {
		for _, s := range p.sides {
			if s.long {
				return TooLong
			}
		}
		p.buf = appendExtras(p.buf[:0], p.out)
		if len(p.buf) > 2 {
			rec.Extras = p.buf
		}
	}
	rec.URL = url
	if p.part != nil {
		if reason := p.part.record(rec, url, p.max); reason != "" {
			return reason
		}
	}
	if p.ts != nil {
		rec.TS, rec.HasTS = p.ts.rec.TS, p.ts.rec.HasTS
	}
	if p.size != nil {
		rec.Size, rec.HasSize = p.size.rec.Size, p.size.rec.HasSize
	}
	return ""
}

// appendExtras appends the object of those members that are not null.
func appendExtras(dst []byte, members []parquetExtra) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for i := range members {
		m := &members[i]
		before := len(dst)
		if before > start {
			dst = append(dst, ',')
		}
		dst = append(dst, m.key...)
		if m.side == nil {
			from := len(dst)
			if dst = appendExtras(dst, m.members); len(dst) > from+2 {
				continue
			}
		} else if m.side.json != nil {
			dst = append(dst, m.side.json...)
			continue
		}
		dst = dst[:before]
	}
	return append(dst, '}')
}

// openGroup goes to the next row group, io.EOF behind the last.
func (p *parquetParser) openGroup() error {
	if p.group == p.end {
		if p.end == p.object.meta.NumRowGroups() && p.total != p.object.meta.NumRows {
			return fmt.Errorf("the row groups have %d rows, the footer says %d", p.total, p.object.meta.NumRows)
		}
		return io.EOF
	}
	p.in.line = p.total + 1
	for _, c := range p.all {
		if err := c.open(p.r, p.group); err != nil {
			return err
		}
	}
	if p.rows = p.object.meta.RowGroups[p.group].NumRows; p.rows < 0 {
		return errFooter
	}
	p.group++
	p.open, p.row = true, 0
	return nil
}

// closeGroup checks that all columns end together.
func (p *parquetParser) closeGroup() error {
	if p.row != p.rows {
		return p.url.wrong(fmt.Errorf("it ends behind %d of the %d rows of row group %d", p.row, p.rows, p.group-1))
	}
	for _, c := range p.all {
		ok, err := c.peek()
		if err != nil {
			return err
		}
		if ok {
			return c.wrong(fmt.Errorf("it has more than the %d rows of row group %d", p.rows, p.group-1))
		}
		c.close()
	}
	p.total += p.rows
	p.fetched(p.total)
	p.open = false
	return nil
}

// load reads the side's values that belong to the entry of the URL column that has this repetition level.
func (p *parquetParser) load(s *parquetSide, level int16) error {
	for _, c := range s.tree.columns {
		if err := c.stands(level); err != nil {
			return err
		}
	}
	switch s {
	case p.ts:
		s.rec, s.ok = Record{}, true
		c := s.tree.column
		if c.null() {
		} else if ms, ok := c.time(); ok {
			s.rec.TS, s.rec.HasTS = ms, true
		} else {
			p.scratch = c.text(p.scratch[:0])
			s.ok = p.setTS(&s.rec, p.scratch)
		}
		c.pass()
		return nil
	case p.size:
		s.rec, s.ok = Record{}, true
		c := s.tree.column
		if !c.null() {
			p.scratch = c.text(p.scratch[:0])
			s.ok = setSize(&s.rec, p.scratch)
		}
		c.pass()
		return nil
	}
	s.long = false
	if s.plain {
		c := s.tree.column
		if c.null() {
			s.json = nil
		} else {
			s.json = c.text(s.json[:0])
			s.long = len(s.json) > p.max
		}
		c.pass()
		return nil
	}
	json, err := p.value(s.json[:0], s, s.tree)
	if err != nil {
		return err
	}
	if s.json = json; string(json) == "null" {
		s.json = nil
	}
	return nil
}

// stands makes the entry stand that has to have this repetition level.
func (c *parquetColumn) stands(level int16) error {
	ok, err := c.peek()
	if err != nil {
		return err
	}
	if !ok {
		return c.wrong(errors.New("it ends before other columns"))
	}
	if c.level() != level {
		return c.wrong(errRows)
	}
	return nil
}

// value appends the value of a node, the first entries of whose columns stand. What is longer than a record
// may be is passed without being held, and makes the side long.
func (p *parquetParser) value(dst []byte, s *parquetSide, t *parquetTree) ([]byte, error) {
	s.long = s.long || len(dst) > p.max
	put := func(text string) {
		if !s.long {
			dst = append(dst, text...)
		}
	}
	if (t.node.repeated || t.node.optional) && t.columns[0].defined() < t.node.def {
		for _, c := range t.columns {
			if c.defined() >= t.node.def {
				return nil, c.wrong(errRows)
			}
			c.pass()
		}
		if t.node.repeated {
			put("[]")
		} else {
			put("null")
		}
		return dst, nil
	}
	if !t.node.repeated {
		return p.body(dst, s, t)
	}
	put("[")
	for n := 0; ; n++ {
		if n > 0 {
			put(",")
		}
		var err error
		if dst, err = p.body(dst, s, t); err != nil {
			return nil, err
		}
		more := false
		for i, c := range t.columns {
			ok, err := c.peek()
			if err != nil {
				return nil, err
			}
			again := ok && c.level() == t.node.rep
			if i > 0 && again != more || ok && c.level() > t.node.rep {
				return nil, c.wrong(errRows)
			}
			more = again
		}
		if !more {
			put("]")
			return dst, nil
		}
	}
}

// body appends a value that is there.
func (p *parquetParser) body(dst []byte, s *parquetSide, t *parquetTree) ([]byte, error) {
	switch {
	case t.column != nil:
		if s.long = s.long || len(dst) > p.max; !s.long {
			dst = t.column.json(dst, &p.scratch)
		}
		t.column.pass()
		return dst, nil
	case t.through, t.node.wrapper && len(t.children) == 1, t.node.list:
		return p.value(dst, s, t.children[0])
	case t.node.mapped && t.children[0].node.wrapper && len(t.children[0].children) == 2:
		from := len(dst)
		dst, err := p.value(dst, s, t.children[0])
		if err != nil || s.long {
			return dst, err
		}
		return appendMap(dst[:from], dst[from:]), nil
	}
	var err error
	start := len(dst) + 1
	if !s.long {
		dst = append(dst, '{')
	}
	for i, m := range t.children {
		before := len(dst)
		if !s.long {
			if before > start {
				dst = append(dst, ',')
			}
			dst = append(codec.AppendJSONString(dst, m.node.name), ':')
		}
		from := len(dst)
		if dst, err = p.value(dst, s, m); err != nil {
			return nil, err
		}
		// Nulls are left out; of two members with one name the first stays.
		if !s.long && (string(dst[from:]) == "null" || i > 0 && t.children[i-1].node.name == m.node.name) {
			dst = dst[:before]
		}
	}
	if !s.long {
		dst = append(dst, '}')
	}
	return dst, nil
}

// appendMap appends the object that an array of {"key":…,"value":…} stands for. Of keys that are no strings the
// JSON is the name; of equal ones the last stays.
func appendMap(dst, array []byte) []byte {
	doc := jsonDoc{deep: true}
	if !doc.parse(bytes.Clone(array)) || doc.nodes[0].kind != '[' {
		return append(dst, array...)
	}
	var members []member
	for i, e := int32(0), int32(1); i < doc.nodes[0].children; i, e = i+1, doc.nodes[e].next {
		key, value := doc.find(int(e), []string{"key"}), doc.find(int(e), []string{"value"})
		if key == 0 {
			continue
		}
		n := &doc.nodes[key]
		name := doc.text(n)
		if n.escaped {
			name = appendUnescaped(nil, name)
		}
		members = append(members, member{name: name, node: int32(value)})
	}
	slices.SortStableFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	dst = append(dst, '{')
	first := true
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(m.name, members[i+1].name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(codec.AppendJSONString(dst, m.name), ':')
		if m.node == 0 {
			dst = append(dst, "null"...)
		} else {
			dst = doc.appendCanonical(dst, int(m.node), nil)
		}
	}
	return append(dst, '}')
}

// Pages.

const (
	// maxDeltaValues is the most values of a delta-encoded page: their lengths are decoded at once.
	maxDeltaValues = 1 << 24
	// maxDeltaBlock is the most values of a delta block; all writers use 128 or some hundreds.
	maxDeltaBlock = 1 << 16
	// Values of DELTA_BYTE_ARRAY repeat the one before, so that a small page can stand for far more; pages of it are
	// kept small and read in small batches.
	maxPrefixedPage = 8 << 20
	prefixedBatch   = 64
)

// checkedPages looks at pages before they are decoded: decoders allocate what their heads say.
type checkedPages struct {
	file.PageReader
	desc     *schema.Column
	prefixed bool
	err      error
}

func (c *checkedPages) Next() bool {
	if c.err != nil || !c.PageReader.Next() {
		return false
	}
	c.err = c.check(c.Page())
	return c.err == nil
}

func (c *checkedPages) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.PageReader.Err()
}

func (c *checkedPages) GetDictionaryPage() (*file.DictionaryPage, error) {
	p, err := c.PageReader.GetDictionaryPage()
	if err == nil && p != nil {
		err = c.check(p)
	}
	return p, err
}

var errPage = errors.New("a page says it has more values than its bytes can hold")

func (c *checkedPages) check(page file.Page) error {
	data := page.Data()
	switch p := page.(type) {
	case *file.DictionaryPage:
		bits := int64(8)
		switch c.desc.PhysicalType() {
		case parquet.Types.Boolean:
			bits = 1
		case parquet.Types.Int32, parquet.Types.Float, parquet.Types.ByteArray:
			bits = 32
		case parquet.Types.Int64, parquet.Types.Double:
			bits = 64
		case parquet.Types.Int96:
			bits = 96
		case parquet.Types.FixedLenByteArray:
			bits = 8 * int64(max(c.desc.TypeLength(), 1))
		}
		if p.NumValues() < 0 || int64(p.NumValues())*bits > int64(len(data))*8 {
			return errPage
		}
		return nil
	case *file.DataPageV1:
		for _, l := range []struct {
			max      int16
			encoding parquet.Encoding
		}{
			{c.desc.MaxRepetitionLevel(), parquet.Encoding(p.RepetitionLevelEncoding())},
			{c.desc.MaxDefinitionLevel(), parquet.Encoding(p.DefinitionLevelEncoding())},
		} {
			if l.max == 0 || l.encoding != parquet.Encodings.RLE {
				continue
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errPage
			}
			data = data[4+binary.LittleEndian.Uint32(data):]
		}
	case *file.DataPageV2:
		levels := int64(p.RepetitionLevelByteLen()) + int64(p.DefinitionLevelByteLen())
		if levels < 0 || levels > int64(len(data)) {
			return errPage
		}
		data = data[levels:]
	default:
		return nil
	}
	c.prefixed = false
	var err error
	switch parquet.Encoding(page.Encoding()) {
	case parquet.Encodings.DeltaBinaryPacked, parquet.Encodings.DeltaLengthByteArray:
		_, err = passDelta(data)
	case parquet.Encodings.DeltaByteArray:
		c.prefixed = true
		if len(data) > maxPrefixedPage {
			return fmt.Errorf("a page of DELTA_BYTE_ARRAY has %d bytes, more than %d", len(data), maxPrefixedPage)
		}
		if data, err = passDelta(data); err == nil {
			_, err = passDelta(data)
		}
	}
	return err
}

// passDelta walks over a DELTA_BINARY_PACKED sequence and returns what is behind it
// (https://github.com/apache/parquet-format/blob/master/Encodings.md#delta-encoding-delta_binary_packed--5).
func passDelta(data []byte) ([]byte, error) {
	bad := errors.New("a page's delta encoding is damaged")
	if len(data) == 0 {
		return nil, nil // of a page without values
	}
	varint := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			data = nil
			return math.MaxUint64
		}
		data = data[n:]
		return v
	}
	block, minis, total := varint(), varint(), varint()
	if len(data) == 0 || block == 0 || block%128 != 0 || block > maxDeltaBlock || minis == 0 || minis > block/32 || block%minis != 0 || total > maxDeltaValues {
		return nil, bad
	}
	varint() // the first value
	for left := int64(total) - 1; left > 0; {
		varint() // the block's smallest delta
		if uint64(len(data)) < minis {
			return nil, bad
		}
		widths := data[:minis]
		data = data[minis:]
		for _, w := range widths {
			if left <= 0 {
				break
			}
			n := int(block/minis) / 8 * int(w)
			if w > 64 || n > len(data) {
				return nil, bad
			}
			data = data[n:]
			left -= int64(block / minis)
		}
	}
	return data, nil
}
