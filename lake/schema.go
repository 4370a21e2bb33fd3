package lake

import (
	"fmt"
	"strconv"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Column is one of a part's columns. Every part has all of them in this order.
type Column int

// The columns of a part; docs/formats/part.md says what each holds.
const (
	ColDatasetID Column = iota // INT32
	ColBatch                   // STRING
	ColScheme                  // STRING
	ColPort                    // INT32, null: the scheme's default
	ColDomainID                // INT64, two's complement of urlnorm.DomainID
	ColDomain                  // STRING
	ColHost                    // STRING
	ColTS                      // TIMESTAMP(ms, UTC), null: none
	ColSize                    // INT64, null: none
	ColPathQuery               // STRING
	ColURLID                   // INT64, two's complement of urlnorm.URLID
	ColRawURL                  // STRING, null: none or not kept
	ColExtras                  // JSON, null: none

	// NumColumns is the number of columns of a part.
	NumColumns = int(iota)
)

// CreatedBy is created_by of every part, in the form the Parquet format asks for. It names the
// version of the part format, not the build: same rows, same bytes.
const CreatedBy = "urlake version 1"

// columnDef is what the reader and the writer have to know of a column.
type columnDef struct {
	name     string
	kind     format.Type
	optional bool
	codec    format.CompressionCodec
	logical  format.LogicalTypeValue
	legacy   deprecated.ConvertedType // what readers older than logical types look at; -1 none
}

const noLegacy = deprecated.ConvertedType(-1)

var columnDefs = [NumColumns]columnDef{
	ColDatasetID: {name: "dataset_id", kind: format.Int32, codec: format.Zstd, legacy: noLegacy},
	ColBatch:     stringColumn("batch", false),
	ColScheme:    stringColumn("scheme", false),
	ColPort:      {name: "port", kind: format.Int32, codec: format.Zstd, optional: true, legacy: noLegacy},
	ColDomainID:  {name: "domain_id", kind: format.Int64, codec: format.Zstd, legacy: noLegacy},
	ColDomain:    stringColumn("domain", false),
	ColHost:      stringColumn("host", false),
	ColTS: {name: "ts", kind: format.Int64, codec: format.Zstd, optional: true, legacy: deprecated.TimestampMillis,
		logical: &format.TimestampType{IsAdjustedToUTC: true, Unit: format.TimeUnit{Value: &format.MilliSeconds{}}}},
	ColSize:      {name: "size", kind: format.Int64, codec: format.Zstd, optional: true, legacy: noLegacy},
	ColPathQuery: stringColumn("path_query", false),
	ColURLID:     {name: "url_id", kind: format.Int64, codec: format.Uncompressed, legacy: noLegacy},
	ColRawURL:    stringColumn("raw_url", true),
	ColExtras: {name: "extras", kind: format.ByteArray, codec: format.Zstd, optional: true, legacy: deprecated.Json,
		logical: &format.JsonType{}},
}

func stringColumn(name string, optional bool) columnDef {
	return columnDef{name: name, kind: format.ByteArray, codec: format.Zstd, optional: optional,
		logical: &format.StringType{}, legacy: deprecated.UTF8}
}

// encoding is how values are written.
func (d *columnDef) encoding() int {
	if d.kind == format.ByteArray {
		return encodingDeltaByteArray
	}
	return encodingPlain
}

// sortOrder is the order of a part's rows, nulls first: the order of Row.AppendKey.
var sortOrder = [...]Column{ColDomain, ColHost, ColPathQuery, ColScheme, ColPort, ColTS, ColSize, ColExtras, ColRawURL}

// String is the column's name in the file.
func (c Column) String() string {
	if c < 0 || int(c) >= NumColumns {
		return "column " + strconv.Itoa(int(c))
	}
	return columnDefs[c].name
}

// schemaElements is the schema as it stands in a part's footer.
func schemaElements() thrift.Slice[format.SchemaElement] {
	out := thrift.Slice[format.SchemaElement]{{
		Name:           "urlake",
		RepetitionType: thrift.New(format.Required),
		NumChildren:    thrift.New(int32(NumColumns)),
	}}
	for _, d := range columnDefs {
		e := format.SchemaElement{
			Name:           d.name,
			Type:           thrift.New(d.kind),
			RepetitionType: thrift.New(format.Required),
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

// schemaBytes is the encoded schema. All parts share it byte for byte, so a reader compares instead of
// interpreting.
var schemaBytes = marshalThrift(schemaElements())

// marshalThrift encodes a structure of Parquet's metadata.
func marshalThrift(v any) []byte {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // writing to memory: only a wrong type can fail
	}
	return b
}
