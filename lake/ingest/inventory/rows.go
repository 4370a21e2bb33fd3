package inventory

import (
	"bufio"
	"bytes"
	"crypto/md5" //nolint:gosec // the checksum that manifests have
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
)

// The columns that are read.
const (
	bucketColumn = iota
	keyColumn
	sizeColumn
	etagColumn
	latestColumn
	deletedColumn
	columnCount
)

// columnNames are the names of the columns in the form that CSV and Parquet share: IsLatest and
// is_latest are islatest.
var columnNames = [columnCount]string{
	"bucket", "key", "size", "etag", "islatest", "isdeletemarker",
}

// columns has for each column its index in a row of CSV, -1 if the rows do not have it.
type columns [columnCount]int

// row has the text of each column, "" if the report does not have it.
type row [columnCount]string

// columnOf returns the column of that name, or -1 if it is not read.
func columnOf(name string) int {
	name = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), "_", ""))
	for i, n := range columnNames {
		if n == name {
			return i
		}
	}
	return -1
}

// columnsOf finds the columns by their names. There must be one for the key.
func columnsOf(names []string) (c columns, err error) {
	for i := range c {
		c[i] = -1
	}
	for i, name := range names {
		col := columnOf(name)
		if col < 0 {
			continue
		}
		if c[col] >= 0 {
			return c, fmt.Errorf("has two columns %s", columnNames[col])
		}
		c[col] = i
	}
	if c[keyColumn] < 0 {
		return c, errors.New("has no column key")
	}
	return c, nil
}

// object makes an object of a row.
func (r *row) object() (Object, error) {
	o := Object{
		Bucket: r[bucketColumn], Key: r[keyColumn], Size: -1, ETag: strings.Trim(r[etagColumn], `"`),
	}
	if o.Key == "" {
		return o, errors.New("a row has no key")
	}
	latest, err := r.flag(latestColumn, true)
	if err != nil {
		return o, err
	}
	deleted, err := r.flag(deletedColumn, false)
	if err != nil {
		return o, err
	}
	o.Old = deleted || !latest
	if text := r[sizeColumn]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return o, fmt.Errorf("the size of %s is %q", o.Key, text)
		}
		o.Size = n
	}
	return o, nil
}

// flag returns the value of a column that is true or false, in the spellings that databases and
// spreadsheets write, and absent for an empty one.
func (r *row) flag(column int, absent bool) (bool, error) {
	switch text := strings.TrimSpace(r[column]); strings.ToLower(text) {
	case "":
		return absent, nil
	case "true", "t", "yes", "y", "on", "1", "1.0":
		return true, nil
	case "false", "f", "no", "n", "off", "0", "0.0":
		return false, nil
	default:
		return false, fmt.Errorf("the column %s of %s is %.40q, want true or false", columnNames[column], r[keyColumn], text)
	}
}

// Source is an open data file. For Parquet it must also be read at offsets, as package reader wants
// it.
type Source = io.ReadCloser

// Read reads a data file and calls yield for each object that still exists: older versions and
// delete markers are left out. open is called once or twice. Errors of yield are returned as they
// are; others say what is wrong with the file.
func (m *Manifest) Read(file File, open func() (Source, error), yield func(Object) error) error {
	return m.ReadVersions(file, open, func(o Object) error {
		if o.Old {
			return nil
		}
		return yield(o)
	})
}

// ReadVersions is Read with older versions and delete markers.
func (m *Manifest) ReadVersions(file File, open func() (Source, error), yield func(Object) error) error {
	inBucket := func(o Object) error {
		if o.Bucket == "" {
			return fmt.Errorf("a row has no bucket: that of %s", o.Key)
		}
		return yield(o)
	}
	if m.parquet {
		return m.readParquet(file, open, inBucket)
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	sum := md5.New() //nolint:gosec // see the import
	z, err := gzip.NewReader(io.TeeReader(r, sum))
	if err != nil {
		return fmt.Errorf("it is not compressed with gzip: %w", err)
	}
	rows := newCSV(z)
	rows.FieldsPerRecord = m.fields
	if err := readCSV(rows, m.columns, false, inBucket); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.TeeReader(r, sum)); err != nil {
		return err
	}
	return file.check(sum.Sum(nil))
}

// CSV says how a file of CSV is read that no manifest describes.
type CSV struct {
	// Schema names the columns as the fileSchema of a manifest does. Without it the first line
	// does.
	Schema string
	// PlainKeys means that keys are not URL-encoded, as they are in reports of S3.
	PlainKeys bool
}

// Read reads CSV, compressed with gzip or not, and calls yield for each object. Errors of yield are
// returned as they are; others say what is wrong with the file.
func (c CSV) Read(r io.Reader, yield func(Object) error) error {
	in := bufio.NewReaderSize(r, maxRow)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("it is not compressed with gzip: %w", err)
		}
		in = bufio.NewReaderSize(z, maxRow)
	}
	rows := newCSV(in)
	names := strings.Split(c.Schema, ",")
	if c.Schema == "" {
		first, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		names = first
	}
	columns, err := columnsOf(names)
	if err != nil && c.Schema == "" {
		return fmt.Errorf("its first line %w; name the columns as the fileSchema of the report does, or read the report's manifest.json", err)
	}
	if err != nil {
		return fmt.Errorf("the schema %w", err)
	}
	rows.FieldsPerRecord = len(names)
	return readCSV(rows, columns, c.PlainKeys, yield)
}

// csvRows reads rows of CSV, and fails at a row that is longer than maxRow.
type csvRows struct {
	*csv.Reader
	in boundedRow
}

func newCSV(r io.Reader) *csvRows {
	rows := &csvRows{in: boundedRow{r: r}}
	rows.Reader = csv.NewReader(&rows.in)
	rows.ReuseRecord = true
	return rows
}

// Read returns the next row, which is valid until the next call.
func (r *csvRows) Read() ([]string, error) {
	fields, err := r.Reader.Read()
	r.in.left = r.in.read - r.InputOffset()
	return fields, err
}

// readCSV reads rows of CSV.
func readCSV(rows *csvRows, columns columns, plainKeys bool, yield func(Object) error) error {
	for {
		fields, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line := func() int {
			n, _ := rows.FieldPos(0)
			return n
		}
		var r row
		for col, i := range columns {
			if i >= 0 {
				r[col] = fields[i]
			}
		}
		if !plainKeys {
			// Keys in CSV are escaped as in the query of a URL.
			if r[keyColumn], err = url.QueryUnescape(r[keyColumn]); err != nil {
				return fmt.Errorf("line %d: the key is not URL-encoded: %w", line(), err)
			}
		}
		o, err := r.object()
		if err != nil {
			return fmt.Errorf("line %d: %w", line(), err)
		}
		if err := yield(o); err != nil {
			return err
		}
	}
}

// maxRow is the longest row of CSV in bytes. A key has at most 1,024, or three times as many if it
// is escaped.
const maxRow = 64 << 10

// boundedRow fails where a parser would hold a row in memory that is longer than maxRow. With a
// quote that is not closed it would hold all that follows.
type boundedRow struct {
	r    io.Reader
	read int64 // bytes
	left int64 // of these, from the beginning of the row that is parsed
}

func (b *boundedRow) Read(p []byte) (int, error) {
	if b.left > maxRow {
		return 0, fmt.Errorf("a row has more than %d bytes, which is too long for a list of objects; is a quote not closed?", maxRow)
	}
	n, err := b.r.Read(p)
	b.read, b.left = b.read+int64(n), b.left+int64(n)
	return n, err
}

func (f *File) check(sum []byte) error {
	if got := hex.EncodeToString(sum); f.MD5 != "" && !strings.EqualFold(got, f.MD5) {
		return fmt.Errorf("its MD5 is %s, and %s in the manifest", got, f.MD5)
	}
	return nil
}

func (m *Manifest) readParquet(file File, open func() (Source, error), yield func(Object) error) error {
	r, err := open()
	if err != nil {
		return err
	}
	sum := md5.New() //nolint:gosec // see the import
	_, err = io.Copy(sum, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if err := file.check(sum.Sum(nil)); err != nil {
		return err
	}
	if r, err = open(); err != nil {
		return err
	}
	defer r.Close()
	return Parquet(r, file.Key, yield)
}

// Parquet reads a file of Parquet and calls yield for each object. The file has the columns of a
// report, bucket and key among them. Errors of yield are returned as they are; others say what is
// wrong with the file.
func Parquet(r Source, name string, yield func(Object) error) error {
	// The bucket is in every row, and the extras hold the key as it is.
	rd, err := reader.New(r, name, raw.Options{Format: raw.Parquet, URLColumn: columnNames[bucketColumn], Extras: []string{"*"}})
	if err != nil {
		return err
	}
	for {
		rec, rej, err := rd.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if rej != nil {
			return fmt.Errorf("row %d: %s", rej.Line, rej.Reason)
		}
		var extras map[string]any
		if err := json.Unmarshal(rec.Extras, &extras); err != nil {
			return fmt.Errorf("row %d: %w", rec.Line, err)
		}
		r := row{bucketColumn: string(rec.URL)}
		for name, v := range extras {
			col := columnOf(name)
			if col < 0 {
				continue
			}
			switch v := v.(type) {
			case string:
				r[col] = v
			case bool:
				r[col] = strconv.FormatBool(v)
			case float64:
				r[col] = strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		o, err := r.object()
		if err != nil {
			return fmt.Errorf("row %d: %w", rec.Line, err)
		}
		if err := yield(o); err != nil {
			return err
		}
	}
}
