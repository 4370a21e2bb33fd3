// Package inventory reads reports of S3 Inventory: a manifest.json that names data files, and data
// files that list the objects of a bucket, as CSV compressed with gzip or as Parquet.
package inventory

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the checksum that manifests have
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
)

// Object is one object that a report lists.
type Object struct {
	Bucket, Key string
	// Size is -1 and ETag is empty if the report does not have them. ETag has no quotes.
	Size int64
	ETag string
}

// Manifest is what manifest.json says.
type Manifest struct {
	// SourceBucket is the bucket that is listed, Bucket the one that has the data files.
	SourceBucket, Bucket string
	Files                []File

	parquet bool
	columns []string // of CSV
}

// File is a data file of a report.
type File struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	MD5  string `json:"MD5checksum"`
}

// Is reports whether data may be a manifest.json: it is a JSON object.
func Is(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }

// Parse decodes a manifest.json. The error says why the report cannot be read.
func Parse(data []byte) (*Manifest, error) {
	var doc struct {
		SourceBucket      string `json:"sourceBucket"`
		DestinationBucket string `json:"destinationBucket"`
		FileFormat        string `json:"fileFormat"`
		FileSchema        string `json:"fileSchema"`
		Files             []File `json:"files"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("it is no manifest.json of S3 Inventory: %w", err)
	}
	m := &Manifest{SourceBucket: doc.SourceBucket, Files: doc.Files}
	m.Bucket = doc.DestinationBucket[strings.LastIndexByte(doc.DestinationBucket, ':')+1:] // arn:aws:s3:::bucket
	switch {
	case doc.FileSchema == "" || doc.SourceBucket == "" || doc.FileFormat == "":
		return nil, errors.New("it is no manifest.json of S3 Inventory: it lacks sourceBucket, fileFormat or fileSchema")
	case strings.EqualFold(doc.FileFormat, "ORC"):
		return nil, errors.New("its data files are ORC, which is not read; " +
			"have the inventory written as CSV or Parquet, or write its keys as a list of s3:// lines")
	case strings.EqualFold(doc.FileFormat, "Parquet"):
		m.parquet = true
		return m, nil
	case !strings.EqualFold(doc.FileFormat, "CSV"):
		return nil, fmt.Errorf("its data files are %q; want CSV or Parquet", doc.FileFormat)
	}
	for name := range strings.SplitSeq(doc.FileSchema, ",") {
		m.columns = append(m.columns, column(name))
	}
	for _, name := range []string{"bucket", "key"} {
		if !slices.Contains(m.columns, name) {
			return nil, fmt.Errorf("its fileSchema has no column %s", name)
		}
	}
	return m, nil
}

// column returns a column's name in the form that CSV and Parquet share: IsLatest and is_latest are
// islatest.
func column(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), "_", ""))
}

// Source is an open data file. For Parquet it must also be read at offsets, as package reader wants
// it.
type Source = io.ReadCloser

// Read reads a data file and calls yield for each object that still exists: older versions and
// delete markers are left out. open is called once or twice. Errors of yield are returned as they
// are; others say what is wrong with the file.
func (m *Manifest) Read(file File, open func() (Source, error), yield func(Object) error) error {
	if m.parquet {
		return m.readParquet(file, open, yield)
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
	rows := csv.NewReader(&shortLines{r: z})
	rows.FieldsPerRecord = len(m.columns)
	rows.ReuseRecord = true
	fields := make(map[string]string, len(m.columns))
	for {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		for i, name := range m.columns {
			fields[name] = row[i]
		}
		// Keys in CSV are escaped as in the query of a URL.
		key, err := url.QueryUnescape(fields["key"])
		if err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("line %d: the key is not URL-encoded: %w", line, err)
		}
		fields["key"] = key
		if err := give(fields, yield); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, io.TeeReader(r, sum)); err != nil {
		return err
	}
	return file.check(sum.Sum(nil))
}

// maxLine is the longest line of CSV in bytes. A key has at most 1,024, or three times as many if
// it is escaped.
const maxLine = 64 << 10

// shortLines fails at a line that is longer than maxLine, which a parser would hold in memory.
type shortLines struct {
	r io.Reader
	n int // bytes of the current line
}

func (s *shortLines) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), maxLine/2)])
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		s.n = n - i - 1
	} else if s.n += n; s.n > maxLine {
		return 0, errors.New("a line is too long for a list of objects")
	}
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
	// The bucket is in every row, and the extras hold the key as it is.
	rd, err := reader.New(r, file.Key, raw.Options{Format: raw.Parquet, URLColumn: "bucket", Extras: []string{"*"}})
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
		fields := map[string]string{"bucket": string(rec.URL)}
		for name, v := range extras {
			switch v := v.(type) {
			case string:
				fields[column(name)] = v
			case bool:
				fields[column(name)] = strconv.FormatBool(v)
			case float64:
				fields[column(name)] = strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		if err := give(fields, yield); err != nil {
			return err
		}
	}
}

// give makes an object of a row. Columns that the report does not have are absent or empty.
func give(fields map[string]string, yield func(Object) error) error {
	if fields["islatest"] == "false" || fields["isdeletemarker"] == "true" {
		return nil
	}
	o := Object{Bucket: fields["bucket"], Key: fields["key"], Size: -1, ETag: strings.Trim(fields["etag"], `"`)}
	if o.Bucket == "" || o.Key == "" {
		return errors.New("a row has no bucket or no key")
	}
	if text := fields["size"]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("the size of %s is %q", o.Key, text)
		}
		o.Size = n
	}
	return yield(o)
}
