package lake

import (
	"fmt"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// BatchFormat is the version of batch records.
const BatchFormat = 1

// Object is an immutable object and what its bytes have to be.
type Object struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"` // 16 hex digits
}

// FrameObject is an Object that is a frame file, with the place of its tail.
type FrameObject struct {
	Object
	TailBytes int64  `json:"tail_bytes"`
	TailXXH64 string `json:"tail_xxh64"`
}

// NewFrameObject describes a finished frame file stored under key.
func NewFrameObject(key string, ff seekable.File) FrameObject {
	return FrameObject{
		Object:    Object{Key: key, Bytes: ff.Bytes, XXH64: fmt.Sprintf("%016x", ff.XXH64)},
		TailBytes: ff.TailBytes,
		TailXXH64: fmt.Sprintf("%016x", ff.TailXXH64),
	}
}

// FrameFile is what codec.OpenFramesAt needs to open the object.
func (o FrameObject) FrameFile() (seekable.File, error) {
	ff := seekable.File{Bytes: o.Bytes, TailBytes: o.TailBytes}
	var err error
	if ff.XXH64, err = o.hash("xxh64", o.XXH64); err == nil {
		ff.TailXXH64, err = o.hash("tail_xxh64", o.TailXXH64)
	}
	return ff, err
}

func (o FrameObject) hash(field, text string) (uint64, error) {
	h, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, codec.Corrupt(o.Key, field, -1, "16 hex digits", fmt.Sprintf("%q", text))
	}
	return h, nil
}

// Part is one Parquet file.
type Part struct {
	Object
	DomainPrefix string `json:"domain_prefix"`
	Rows         int64  `json:"rows"`
	RowGroups    int    `json:"row_groups"`
}

// Input is one object that was read.
type Input struct {
	Name    string `json:"name"` // URL of the object, without credentials
	Bytes   int64  `json:"bytes"`
	Format  string `json:"format"` // as raw.Plan prints it
	Records int64  `json:"records"`
	Rejects int64  `json:"rejects"`
	// BadTS are records that were kept without their timestamp: nobody named the column, and it was not understood.
	BadTS int64 `json:"bad_ts,omitempty"`
}

// Batch is the record of one finished ingest: what publish takes, what a rebuild starts
// from, what garbage collection treats as in use. It holds no clock and no run, so that the
// same content has the same record.
type Batch struct {
	Format        int    `json:"format"`
	DatasetID     uint32 `json:"dataset_id"`
	Batch         string `json:"batch"`
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`

	Inputs []Input `json:"inputs"`
	// Records were read; Rows are kept; Merged are records equal to a kept row; Rejected are the rest, by reason.
	// Records = Rows + Merged + the sum of Rejected.
	Records  int64            `json:"records"`
	Rows     int64            `json:"rows"`
	Merged   int64            `json:"merged"`
	Rejected map[string]int64 `json:"rejected"`
	Domains  int64            `json:"domains"`

	Parts    []Part        `json:"parts"`
	Postings []FrameObject `json:"postings"`
	Rejects  *Object       `json:"rejects,omitempty"`
}

// Encode is the record's bytes and their digest.
func (b *Batch) Encode() (data []byte, digest string, err error) {
	data, err = codec.Seal(b)
	if err != nil {
		return nil, "", fmt.Errorf("batch record: %w", err)
	}
	return data, Digest(data), nil
}

// DecodeBatch checks and decodes a record read from key.
func DecodeBatch(data []byte, key string) (*Batch, error) {
	var b Batch
	if err := codec.Unseal(data, key, &b); err != nil {
		return nil, err
	}
	if b.Format != BatchFormat {
		return nil, codec.Corrupt(key, "format", -1, BatchFormat, b.Format)
	}
	if want := BatchKey(b.DatasetID, b.Batch, Digest(data)); want != key {
		return nil, codec.Corrupt(key, "key", -1, want, key)
	}
	return &b, nil
}
