package text

import (
	"bytes"
	"encoding/csv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/urlake/urlake/lake/raw"
)

// checkCSV compares the cells with those of encoding/csv, if that accepts data. columns is how many
// columns the table has, 0 if that is unknown.
func checkCSV(t *testing.T, data []byte, comma byte, columns int) {
	t.Helper()
	cr := csv.NewReader(bytes.NewReader(data))
	cr.Comma = rune(comma)
	cr.FieldsPerRecord = -1
	want, err := cr.ReadAll()
	if err != nil {
		return
	}
	plan := raw.Plan{Format: raw.CSV, Separator: string(comma), Columns: make([]string, columns), URL: raw.Column{Number: 1}}
	p := newCSVParser(NewInput(iotest.OneByteReader(bytes.NewReader(data)), raw.DefaultMaxLine), plan, Fields{Counts: &raw.Counts{}})
	p.width = len(data) + 1
	var got [][]string
	for {
		var rec raw.Record
		var rej raw.Reject
		err := p.Next(&rec, &rej)
		if err == io.EOF {
			break
		}
		if rej.Reason != "" && rej.Reason != raw.NoURL || err != nil {
			t.Fatalf("%q: %s, %v", data, rej.Reason, err)
		}
		var row []string
		for i := range p.cells {
			// encoding/csv replaces CRLF inside quotes by LF.
			row = append(row, strings.ReplaceAll(string(p.cell(i)), "\r\n", "\n"))
		}
		got = append(got, row)
	}
	// Next leaves out rows of nothing but white space, quotes and separators.
	blank := func(row []string) bool {
		return strings.Trim(strings.Join(row, ""), "\" \t\n\v\f\r"+string(comma)) == ""
	}
	if diff := cmp.Diff(slices.DeleteFunc(want, blank), slices.DeleteFunc(got, blank), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q (-encoding/csv +got):\n%s", data, diff)
	}
}

// TestTablesAgreeWithEncodingCSV reads tables that encoding/csv wrote. Their rows are as wide as
// the table; fields have quotes, separators and line breaks. No field has a line break and a URL:
// it may be taken for several rows.
func TestTablesAgreeWithEncodingCSV(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	texts := []string{"a", "b", ",", "\t", "\"", "\n", " ", "\\"}
	urls := []string{"a", "b.c", ",", "\t", "\"", "http://a", " ", "\\"}
	for range 5_000 {
		columns := 2 + r.IntN(3)
		var data bytes.Buffer
		w := csv.NewWriter(&data)
		w.Comma = rune(",\t"[r.IntN(2)])
		for range 1 + r.IntN(4) {
			row := make([]string, columns)
			for i := range row {
				alphabet := texts
				if r.IntN(2) == 0 {
					alphabet = urls
				}
				for range r.IntN(6) {
					row[i] += alphabet[r.IntN(len(alphabet))]
				}
			}
			row[0] = "x" + row[0]
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		checkCSV(t, data.Bytes(), byte(w.Comma), columns)
	}
}

func TestCSVAgreesWithEncodingCSV(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	alphabet := []string{"a", "b", ",", ",", "\t", "\"", "\"", "\"\"", "\n", "\r\n", "\r", " "}
	for range 50_000 {
		var text []byte
		for range r.IntN(20) {
			text = append(text, alphabet[r.IntN(len(alphabet))]...)
		}
		checkCSV(t, text, ',', 0)
	}
}

func FuzzCells(f *testing.F) {
	f.Add([]byte("a,b\n\"c\n,\"\"d\",e\r\n\r\n\"\"\n"))
	f.Add([]byte("\"a\"\r\n\"b\"\r"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkCSV(t, data, ',', 0)
		checkCSV(t, data, '\t', 0)
	})
}
