package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake/raw"
)

// withFooter returns a Parquet file with other bytes in its footer.
func withFooter(t *testing.T, data []byte, old, replacement string) []byte {
	t.Helper()
	end := len(data) - 8
	start := end - int(binary.LittleEndian.Uint32(data[end:]))
	footer := data[start:end]
	if bytes.Count(footer, []byte(old)) == 0 {
		t.Fatalf("the footer % x has no % x", footer, old)
	}
	footer = bytes.ReplaceAll(footer, []byte(old), []byte(replacement))
	out := append(bytes.Clone(data[:start]), footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), data[end+4:]...)
}

// TestTypesOfLaterVersionsOfParquet reads files with a column beside the URL whose type is unknown.
func TestTypesOfLaterVersionsOfParquet(t *testing.T) {
	const (
		converted   = "\x25\x26"                     // field 6, an i32: JSON
		annotations = converted + "\x4c\xcc\x00\x00" // and field 10, a union: JSON
		column      = "\x15\x0c\x25\x02\x18\x01j"
	)
	schema := pq.NewSchema("s", pq.Group{"url": pq.String(), "j": pq.Optional(pq.JSON())})
	var buf bytes.Buffer
	w := pq.NewGenericWriter[any](&buf, schema)
	row := pq.Row{pq.ByteArrayValue([]byte("{}")).Level(0, 1, 0), pq.ByteArrayValue([]byte("http://a.com/")).Level(0, 0, 1)}
	if _, err := w.WriteRows([]pq.Row{row}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const text, hex, unknown = `{"j":"{}"}`, `{"j":"7b7d"}`, ""
	for name, change := range map[string]struct{ old, replacement, extras string }{
		"as it is":                            {annotations, annotations, text},
		"an unknown logical type":             {annotations, converted + "\x4c\x0c\x28\x00\x00", unknown},
		"one with a long header":              {annotations, converted + "\x0c\x14\x0c\x28\x00\x00", unknown},
		"one with members":                    {annotations, converted + "\x4c\x0c\x28\x15\x02\x18\x01a\x00\x00", unknown},
		"one and no converted type":           {annotations, "\x6c\x0c\x28\x00\x00", unknown},
		"no member":                           {annotations, converted + "\x4c\x00", unknown},
		"a time of an unknown unit":           {annotations, "\x6c\x8c\x11\x1c\x4c\x00\x00\x00\x00", unknown},
		"an unknown converted type":           {annotations, "\x25\xc6\x01", unknown},
		"one with a long header too":          {annotations, "\x05\x0c\xc6\x01", unknown},
		"an unknown physical type":            {column, "\x15\x28\x25\x02\x18\x01j", unknown},
		"a geometry":                          {annotations, "\x6c\x0c\x22\x18\x01a\x00\x00", hex},
		"a geography":                         {annotations, "\x6c\x0c\x24\x00\x00", hex},
		"an unknown field of the element":     {annotations, annotations + "\xf8\x01x", text},
		"an unknown encoding of the chunk":    {"\x19\x25\x06\x0c\x19\x18\x01j", "\x19\x25\x06\x64\x19\x18\x01j", text},
		"an unknown compression of the chunk": {"\x19\x18\x01j\x15\x00", "\x19\x18\x01j\x15\x50", unknown},
	} {
		data := withFooter(t, buf.Bytes(), change.old, change.replacement)
		g, _ := readParquet(t, data, raw.Options{})
		if diff := cmp.Diff([]string{"1 http://a.com/"}, g.Rows); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", name, diff)
		}
		for _, extra := range []string{"j", "*"} {
			r, err := New(bytes.NewReader(data), "a.parquet", raw.Options{Extras: []string{extra}})
			if err == nil {
				g, err = readAll(r)
			}
			switch {
			case change.extras == unknown && extra == "*" && !strings.HasPrefix(name, "an unknown compression"):
				notes := strings.Join(r.Notes(), "\n")
				if err != nil || len(g.Rows) != 1 || g.Rows[0] != "1 http://a.com/" || !strings.Contains(notes, `no extras: "j"`) {
					t.Errorf("%s, all extras: got %q, notes %q, %v", name, g.Rows, notes, err)
				}
			case change.extras == unknown:
				if !errors.Is(err, raw.ErrInput) || !strings.Contains(err.Error(), `"j"`) {
					t.Errorf("%s, extras %s: got %q, %v; want an error that names the column", name, extra, g.Rows, err)
				}
			case err != nil || len(g.Rows) != 1 || g.Rows[0] != "1 http://a.com/ "+change.extras:
				t.Errorf("%s, extras %s: got %q, %v", name, extra, g.Rows, err)
			}
		}
	}
}

// TestTypesOfLaterVersionsInGroups leaves the map with a column of an unknown type out of all
// extras, and nothing beside it.
func TestTypesOfLaterVersionsInGroups(t *testing.T) {
	schema := pq.NewSchema("s", pq.Group{"url": pq.String(), "g": pq.Group{"m": pq.Map(pq.String(), pq.JSON()), "n": pq.String()}})
	var buf bytes.Buffer
	w := pq.NewGenericWriter[any](&buf, schema)
	row := pq.Row{pq.ByteArrayValue([]byte("k")).Level(0, 1, 0), pq.ByteArrayValue([]byte("{}")).Level(0, 1, 1),
		pq.ByteArrayValue([]byte("n")).Level(0, 0, 2), pq.ByteArrayValue([]byte("http://a.com/")).Level(0, 0, 3)}
	if _, err := w.WriteRows([]pq.Row{row}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := withFooter(t, buf.Bytes(), "\x25\x26\x4c\xcc\x00\x00", "\x6c\x0c\x28\x00\x00")
	g, r := readParquet(t, data, raw.Options{Extras: []string{"*"}})
	if diff := cmp.Diff([]string{`1 http://a.com/ {"g":{"n":"n"}}`}, g.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, `no extras: "g.m.value"`) {
		t.Errorf("notes %q", notes)
	}
}
