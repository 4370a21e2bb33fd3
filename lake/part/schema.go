package part

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
	Name     string
	Kind     format.Type
	Optional bool
	Codec    format.CompressionCodec
	logical  format.LogicalTypeValue
	legacy   deprecated.ConvertedType // what readers older than logical types look at; -1 none
}

const noLegacy = deprecated.ConvertedType(-1)

var ColumnDefs = [NumColumns]columnDef{
	ColDatasetID: {Name: "dataset_id", Kind: format.Int32, Codec: format.Zstd, legacy: noLegacy},
	ColBatch:     stringColumn("batch", false),
	ColScheme:    stringColumn("scheme", false),
	ColPort:      {Name: "port", Kind: format.Int32, Codec: format.Zstd, Optional: true, legacy: noLegacy},
	ColDomainID:  {Name: "domain_id", Kind: format.Int64, Codec: format.Zstd, legacy: noLegacy},
	ColDomain:    stringColumn("domain", false),
	ColHost:      stringColumn("host", false),
	ColTS: {Name: "ts", Kind: format.Int64, Codec: format.Zstd, Optional: true, legacy: deprecated.TimestampMillis,
		logical: &format.TimestampType{IsAdjustedToUTC: true, Unit: format.TimeUnit{Value: &format.MilliSeconds{}}}},
	ColSize:      {Name: "size", Kind: format.Int64, Codec: format.Zstd, Optional: true, legacy: noLegacy},
	ColPathQuery: stringColumn("path_query", false),
	ColURLID:     {Name: "url_id", Kind: format.Int64, Codec: format.Uncompressed, legacy: noLegacy},
	ColRawURL:    stringColumn("raw_url", true),
	ColExtras: {Name: "extras", Kind: format.ByteArray, Codec: format.Zstd, Optional: true, legacy: deprecated.Json,
		logical: &format.JsonType{}},
}

func stringColumn(name string, optional bool) columnDef {
	return columnDef{Name: name, Kind: format.ByteArray, Codec: format.Zstd, Optional: optional,
		logical: &format.StringType{}, legacy: deprecated.UTF8}
}

// encoding is how values are written.
func (d *columnDef) Encoding() int {
	if d.Kind == format.ByteArray {
		return EncodingDeltaByteArray
	}
	return EncodingPlain
}

// sortOrder is the order of a part's rows, nulls first: the order of Row.AppendKey.
var SortOrder = [...]Column{ColDomain, ColHost, ColPathQuery, ColScheme, ColPort, ColTS, ColSize, ColExtras, ColRawURL}

// String is the column's name in the file.
func (c Column) String() string {
	if c < 0 || int(c) >= NumColumns {
		return "column " + strconv.Itoa(int(c))
	}
	return ColumnDefs[c].Name
}

// schemaElements is the schema as it stands in a part's footer.
func SchemaElements() thrift.Slice[format.SchemaElement] {
	out := thrift.Slice[format.SchemaElement]{{
		Name:           "urlake",
		RepetitionType: thrift.New(format.Required),
		NumChildren:    thrift.New(int32(NumColumns)),
	}}
	for _, d := range ColumnDefs {
		e := format.SchemaElement{
			Name:           d.Name,
			Type:           thrift.New(d.Kind),
			RepetitionType: thrift.New(format.Required),
			LogicalType:    format.LogicalType{Value: d.logical},
		}
		if d.Optional {
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
var schemaBytes = MarshalThrift(SchemaElements())

// marshalThrift encodes a structure of Parquet's metadata.
func MarshalThrift(v any) []byte {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // writing to memory: only a wrong type can fail
	}
	return b
}
