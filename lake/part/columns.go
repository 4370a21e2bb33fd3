package part

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake/row"
)

// Column is a column of a part. Every part has all columns, in this order.
type Column int

// The columns of a part. docs/formats/part.md describes what each holds.
const (
	ColDatasetID Column = iota // INT32
	ColBatch                   // STRING
	ColScheme                  // STRING
	ColPort                    // INT32, null: the scheme's default
	ColDomainID                // INT64, two's complement of urlnorm.DomainID
	ColDomain                  // STRING
	ColHost                    // STRING
	ColTS                      // TIMESTAMP(µs, UTC) of whole milliseconds, null: no timestamp
	ColSize                    // INT64, null: no size
	ColPathQuery               // STRING
	ColURLID                   // INT64, two's complement of urlnorm.URLID
	ColRawURL                  // STRING, null: none or not kept
	ColExtras                  // JSON, null: none

	// NumColumns is the number of columns of a part.
	NumColumns = int(iota)
)

// createdBy is created_by of every part, in the form that Parquet prescribes. It names the version
// of the part format, not the build, so that the same rows give the same bytes.
const createdBy = "urlake version 1"

// columnDef describes how a column is stored.
type columnDef struct {
	name     string
	kind     format.Type
	optional bool
	codec    format.CompressionCodec
	logical  format.LogicalTypeValue
	legacy   deprecated.ConvertedType // for readers older than logical types; noLegacy is none
}

const noLegacy = deprecated.ConvertedType(-1)

var columnDefs = [NumColumns]columnDef{
	ColDatasetID: numberColumn("dataset_id", format.Int32, false),
	ColBatch:     stringColumn("batch", false),
	ColScheme:    stringColumn("scheme", false),
	ColPort:      numberColumn("port", format.Int32, true),
	ColDomainID:  numberColumn("domain_id", format.Int64, false),
	ColDomain:    stringColumn("domain", false),
	ColHost:      stringColumn("host", false),
	ColTS: {name: "ts", kind: format.Int64, codec: format.Zstd, optional: true, legacy: deprecated.TimestampMicros,
		logical: &format.TimestampType{IsAdjustedToUTC: true, Unit: format.TimeUnit{Value: &format.MicroSeconds{}}}},
	ColSize:      numberColumn("size", format.Int64, true),
	ColPathQuery: stringColumn("path_query", false),
	ColURLID:     {name: "url_id", kind: format.Int64, codec: format.Uncompressed, legacy: noLegacy}, // random bits
	ColRawURL:    stringColumn("raw_url", true),
	ColExtras: {name: "extras", kind: format.ByteArray, codec: format.Zstd, optional: true, legacy: deprecated.Json,
		logical: &format.JsonType{}},
}

func numberColumn(name string, kind format.Type, optional bool) columnDef {
	return columnDef{name: name, kind: kind, codec: format.Zstd, optional: optional, legacy: noLegacy}
}

func stringColumn(name string, optional bool) columnDef {
	return columnDef{name: name, kind: format.ByteArray, codec: format.Zstd, optional: optional,
		logical: &format.StringType{}, legacy: deprecated.UTF8}
}

// maxTS is the latest time that a part can hold, in milliseconds since 1970. The earliest is
// -maxTS.
const maxTS = math.MaxInt64 / 1000

// kind is the physical type of the column's values.
func (c Column) kind() format.Type { return columnDefs[c].kind }

// optional reports whether values of the column may be null.
func (c Column) optional() bool { return columnDefs[c].optional }

// compression is the codec that the metadata names for the column. A page may be uncompressed
// nevertheless and say so in its header.
func (c Column) compression() format.CompressionCodec { return columnDefs[c].codec }

// encoding is the number of the encoding of the column's values.
func (c Column) encoding() int {
	if c.kind() == format.ByteArray {
		return encodingDeltaByteArray
	}
	return encodingPlain
}

// sortOrder is the order of a part's rows, nulls first. It is the order of row.Row.AppendKey.
var sortOrder = [...]Column{ColDomain, ColHost, ColPathQuery, ColScheme, ColPort, ColTS, ColSize, ColExtras, ColRawURL}

// String is the column's name in the file.
func (c Column) String() string {
	if c < 0 || int(c) >= NumColumns {
		return "column " + strconv.Itoa(int(c))
	}
	return columnDefs[c].name
}

// schemaElements is the schema in a part's footer. The columns have field ids from 1 on, by which
// Iceberg knows a column.
func schemaElements() thrift.Slice[format.SchemaElement] {
	out := thrift.Slice[format.SchemaElement]{{
		Name:           "urlake",
		RepetitionType: thrift.New(format.Required),
		NumChildren:    thrift.New(int32(NumColumns)),
	}}
	for i, d := range columnDefs {
		e := format.SchemaElement{
			Name:           d.name,
			Type:           thrift.New(d.kind),
			RepetitionType: thrift.New(format.Required),
			FieldID:        int32(i + 1),
			LogicalType:    format.LogicalType{Value: d.logical},
		}
		if d.optional {
			e.RepetitionType = thrift.New(format.Optional)
		}
		if d.legacy != noLegacy {
			e.ConvertedType = thrift.New(d.legacy)
		}
		out = append(out, e)
	}
	return out
}

// schemaBytes is the encoded schema. It is the same in all parts, so a reader compares bytes and
// does not interpret them.
var schemaBytes = marshalThrift(schemaElements())

// marshalThrift encodes a structure of Parquet's metadata.
func marshalThrift(v any) []byte {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // only a type that thrift cannot encode
	}
	return b
}

// Columns holds rows by column. Only the requested columns are filled; each of those has Rows
// entries. Strings are copies, so they do not keep pages in memory.
type Columns struct {
	Rows      int
	DatasetID []uint32
	Batch     []string
	Scheme    []string
	Port      []int32 // -1: the scheme's default
	DomainID  []uint64
	Domain    []string
	Host      []string
	TS        []int64 // milliseconds since 1970 in UTC, 0 without a timestamp
	HasTS     []bool
	Size      []int64 // 0 without a size
	HasSize   []bool
	PathQuery []string
	URLID     []uint64
	RawURL    []string // "": none
	Extras    []string // "": none
}

// Text returns the field of a column of strings.
func (c *Columns) Text(col Column) *[]string {
	switch col {
	case ColBatch:
		return &c.Batch
	case ColScheme:
		return &c.Scheme
	case ColDomain:
		return &c.Domain
	case ColHost:
		return &c.Host
	case ColPathQuery:
		return &c.PathQuery
	case ColRawURL:
		return &c.RawURL
	case ColExtras:
		return &c.Extras
	}
	panic(col.String() + " holds no strings")
}

// grow allocates capacity for n more rows of a column.
func (c *Columns) grow(col Column, n int) {
	switch col {
	case ColDatasetID:
		c.DatasetID = slices.Grow(c.DatasetID, n)
	case ColPort:
		c.Port = slices.Grow(c.Port, n)
	case ColDomainID:
		c.DomainID = slices.Grow(c.DomainID, n)
	case ColTS:
		c.TS, c.HasTS = slices.Grow(c.TS, n), slices.Grow(c.HasTS, n)
	case ColSize:
		c.Size, c.HasSize = slices.Grow(c.Size, n), slices.Grow(c.HasSize, n)
	case ColURLID:
		c.URLID = slices.Grow(c.URLID, n)
	default:
		s := c.Text(col)
		*s = slices.Grow(*s, n)
	}
}

// Reset removes all rows and keeps their memory.
func (c *Columns) Reset() {
	*c = Columns{
		DatasetID: c.DatasetID[:0], Batch: c.Batch[:0], Scheme: c.Scheme[:0], Port: c.Port[:0],
		DomainID: c.DomainID[:0], Domain: c.Domain[:0], Host: c.Host[:0], TS: c.TS[:0], HasTS: c.HasTS[:0],
		Size: c.Size[:0], HasSize: c.HasSize[:0], PathQuery: c.PathQuery[:0], URLID: c.URLID[:0],
		RawURL: c.RawURL[:0], Extras: c.Extras[:0],
	}
}

// SuffixColumns are the columns that Suffix reads.
var SuffixColumns = []Column{ColScheme, ColPort, ColTS, ColSize, ColRawURL, ColExtras}

// Suffix returns the fields of row i after its path, without the batch. SuffixColumns have been
// read.
func (c *Columns) Suffix(i int) row.Suffix {
	return row.Suffix{
		Scheme: c.Scheme[i], Port: c.Port[i], TS: c.TS[i], HasTS: c.HasTS[i], Size: c.Size[i], HasSize: c.HasSize[i],
		Extras: c.Extras[i], RawURL: c.RawURL[i],
	}
}
