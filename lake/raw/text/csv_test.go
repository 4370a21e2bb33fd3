package text

import (
	"bytes"
	"encoding/csv"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/lake/raw"
)

// checkCSV compares the cells with those of encoding/csv, if that accepts data.
func checkCSV(t *testing.T, data []byte, comma byte) {
	t.Helper()
	cr := csv.NewReader(bytes.NewReader(data))
	cr.Comma = rune(comma)
	cr.FieldsPerRecord = -1
	want, err := cr.ReadAll()
	if err != nil {
		return
	}
	plan := raw.Plan{Format: raw.CSV, Separator: string(comma)}
	p := newCSVParser(NewInput(iotest.OneByteReader(bytes.NewReader(data)), raw.DefaultMaxLine), plan, Fields{})
	p.width = len(data) + 1
	var got [][]string
	for {
		reason, err := p.read()
		if err == io.EOF {
			break
		}
		if reason != "" || err != nil {
			t.Fatalf("%q: %s, %v", data, reason, err)
		}
		if len(p.row) == 0 {
			continue // encoding/csv skips empty lines
		}
		var row []string
		for i := range p.cells {
			// encoding/csv replaces CRLF inside quotes by LF.
			row = append(row, strings.ReplaceAll(string(p.cell(i)), "\r\n", "\n"))
		}
		got = append(got, row)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q (-encoding/csv +got):\n%s", data, diff)
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
		checkCSV(t, text, ',')
	}
}

func FuzzCells(f *testing.F) {
	f.Add([]byte("a,b\n\"c\n,\"\"d\",e\r\n\r\n\"\"\n"))
	f.Add([]byte("\"a\"\r\n\"b\"\r"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkCSV(t, data, ',')
		checkCSV(t, data, '\t')
	})
}
