// Package inventory reads reports of S3 Inventory: a manifest.json that names data files, and data
// files that list the objects of a bucket, as CSV compressed with gzip or as Parquet. It also reads
// such files without a manifest.
package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Object is one object that a report lists.
type Object struct {
	Bucket, Key string
	// Size is -1 and ETag is empty if the report does not have them. ETag has no quotes.
	Size int64
	ETag string
	// Old means that the object is a delete marker or has a newer version.
	Old bool
}

// Manifest is what manifest.json says.
type Manifest struct {
	// SourceBucket is the bucket that is listed, Bucket the one that has the data files.
	SourceBucket, Bucket string
	Files                []File
	// Created is when the report was begun, the zero time if the manifest does not say.
	Created time.Time

	parquet bool
	fields  int // of a row of CSV
	columns columns
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
		Created           string `json:"creationTimestamp"` // milliseconds since 1970
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("it is no manifest.json of S3 Inventory: %w", err)
	}
	m := &Manifest{SourceBucket: doc.SourceBucket, Files: doc.Files}
	m.Bucket = doc.DestinationBucket[strings.LastIndexByte(doc.DestinationBucket, ':')+1:] // arn:aws:s3:::bucket
	if ms, err := strconv.ParseInt(doc.Created, 10, 64); err == nil {
		m.Created = time.UnixMilli(ms).UTC()
	}
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
	names := strings.Split(doc.FileSchema, ",")
	m.fields = len(names)
	var err error
	if m.columns, err = columnsOf(names); err != nil {
		return nil, fmt.Errorf("its fileSchema %w", err)
	}
	if m.columns[bucketColumn] < 0 {
		return nil, errors.New("its fileSchema has no column bucket")
	}
	return m, nil
}
