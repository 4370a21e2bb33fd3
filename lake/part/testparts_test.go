package part

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
)

// The dataset and the batch of fileRows.
const (
	testDataset = 7
	testBatch   = "2024-05-01"
)

// allColumns are all columns of a part.
var allColumns = func() []Column {
	var all []Column
	for c := range Column(NumColumns) {
		all = append(all, c)
	}
	return all
}()

// writeRows passes rows to w one by one and returns the parts.
func writeRows(tb testing.TB, w *Writer, rows []row.Row) []Written {
	tb.Helper()
	var key row.Key
	var buf []byte
	for i := range rows {
		buf = rows[i].AppendKey(buf[:0])
		if err := key.Next(buf); err != nil {
			tb.Fatal(err)
		}
		if err := key.Pass(w); err != nil {
			tb.Fatal(err)
		}
	}
	parts, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return parts
}

// partBytes reads a part from the store.
func partBytes(tb testing.TB, store blob.Store, p Written) []byte {
	tb.Helper()
	data, _, err := store.Get(context.Background(), p.Part.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// fileRow is a row with the columns that the writer adds.
type fileRow struct {
	row.Row
	DatasetID        uint32
	Batch            string
	DomainID, URLID  uint64
	NullRaw, NullExt bool
}

// fileRows returns what a part of rows has to hold.
func fileRows(rows []row.Row) []fileRow {
	out := make([]fileRow, len(rows))
	for i, r := range rows {
		url := r.Scheme + "://" + r.Host
		if r.Port >= 0 {
			url += fmt.Sprintf(":%d", r.Port)
		}
		url += r.PathQuery
		out[i] = fileRow{
			Row: r, DatasetID: testDataset, Batch: testBatch,
			DomainID: xxh3.HashString(r.Domain), URLID: xxh3.HashString(url),
			NullRaw: r.RawURL == "", NullExt: r.Extras == "",
		}
	}
	return out
}

// columnRows turns all columns back into rows.
func columnRows(c *Columns) []fileRow {
	out := make([]fileRow, c.Rows)
	for i := range out {
		out[i] = fileRow{
			Row: row.Row{
				Domain: c.Domain[i], Host: c.Host[i], PathQuery: c.PathQuery[i], Scheme: c.Scheme[i], Port: c.Port[i],
				TS: c.TS[i], HasTS: c.HasTS[i], Size: c.Size[i], HasSize: c.HasSize[i],
				Extras: c.Extras[i], RawURL: c.RawURL[i],
			},
			DatasetID: c.DatasetID[i], Batch: c.Batch[i], DomainID: c.DomainID[i], URLID: c.URLID[i],
			NullRaw: c.RawURL[i] == "", NullExt: c.Extras[i] == "",
		}
	}
	return out
}

// parquetGoRow is the schema as parquet-go sees it.
type parquetGoRow struct {
	DatasetID int32   `parquet:"dataset_id"`
	Batch     string  `parquet:"batch"`
	Scheme    string  `parquet:"scheme"`
	Port      *int32  `parquet:"port,optional"`
	DomainID  int64   `parquet:"domain_id"`
	Domain    string  `parquet:"domain"`
	Host      string  `parquet:"host"`
	TS        *int64  `parquet:"ts,optional,timestamp(microsecond)"`
	Size      *int64  `parquet:"size,optional"`
	PathQuery string  `parquet:"path_query"`
	URLID     int64   `parquet:"url_id"`
	RawURL    *string `parquet:"raw_url,optional"`
	Extras    *string `parquet:"extras,optional,json"`
}

// readParquetGo reads all rows of a part with parquet-go.
func readParquetGo(tb testing.TB, data []byte) []fileRow {
	tb.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	r := parquet.NewGenericReader[parquetGoRow](f)
	defer r.Close()
	rows := make([]parquetGoRow, f.NumRows()+1)
	n, err := r.Read(rows)
	if err != io.EOF || int64(n) != f.NumRows() {
		tb.Fatalf("parquet-go read %d of %d rows: %v", n, f.NumRows(), err)
	}
	out := make([]fileRow, n)
	for i, p := range rows[:n] {
		o := &out[i]
		o.DatasetID, o.Batch = uint32(p.DatasetID), p.Batch
		o.DomainID, o.URLID = uint64(p.DomainID), uint64(p.URLID)
		o.Scheme, o.Domain, o.Host, o.PathQuery = p.Scheme, p.Domain, p.Host, p.PathQuery
		o.Port = -1
		if p.Port != nil {
			o.Port = *p.Port
		}
		if o.HasTS = p.TS != nil; o.HasTS {
			o.TS = *p.TS / 1000
		}
		if o.HasSize = p.Size != nil; o.HasSize {
			o.Size = *p.Size
		}
		if o.NullRaw = p.RawURL == nil; !o.NullRaw {
			o.RawURL = *p.RawURL
		}
		if o.NullExt = p.Extras == nil; !o.NullExt {
			o.Extras = *p.Extras
		}
	}
	return out
}

// testPage encodes a page of body, with a correct Parquet checksum.
func testPage(h PageHeader, rows, encoding int, body []byte) []byte {
	h.Compressed, h.CRC = len(body), crc32.ChecksumIEEE(body)
	return append(AppendPageHeader(nil, h, rows, encoding), body...)
}
