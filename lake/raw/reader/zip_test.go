package reader

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

func TestMembersOfAZipAreReadEachInItsFormat(t *testing.T) {
	gz := string(compressed(t, "gzip", []byte("url,n\nhttp://c/,1\n,2\n")))
	data := zipOf(t,
		"top-1m.csv", "1,a.com\n2,b.com\n",
		"d/", "",
		`d\a.txt`, "# c\nhttp://a/\n\nhttp://b/\n",
		"README.md", "http://no/\n",
		"__MACOSX/._a.txt", "http://no/\n",
		"b.csv.gz", gz,
		"empty.txt", "",
		"s.xml", "<urlset><url><loc>http://s/</loc></url></urlset>",
		"table.parquet", string(tinyParquet(t)),
		"indexes/x.cdx", "com,a)/ 20040511211249 http://a.com/ text/html 200 - 100\n",
	)
	want := []string{"top-1m.csv:1 a.com", "top-1m.csv:2 b.com", "d/a.txt:2 http://a/", "d/a.txt:4 http://b/",
		"b.csv.gz:2 http://c/", "b.csv.gz:3 !no_url", "s.xml:1 http://s/", "table.parquet:1 http://p/", "table.parquet:2 http://q/",
		`indexes/x.cdx:1 http://a.com/ ts=1084309969000 {"length":"100","mime":"text/html","status":"200"}`}
	counts := raw.Counts{Records: 9, Rejects: 1, Blank: 1, Comments: 1, Members: 7, LeftOut: 2}
	for _, how := range []string{"none", "gzip", "zstd"} {
		object := data
		if how != "none" {
			object = compressed(t, how, data)
		}
		r, err := New(bytes.NewReader(object), "a.zip", raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r.Plan())
		if err != nil {
			t.Fatal(err)
		}
		var plan raw.Plan
		if err := json.Unmarshal(b, &plan); err != nil {
			t.Fatal(err)
		}
		if plan.Format != raw.Zip || plan.Compression != how {
			t.Errorf("plan %s", b)
		}
		again, err := Open(bytes.NewReader(object), "a.zip", plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*Reader{r, again} {
			g, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, g.Rows); diff != "" {
				t.Errorf("%s: -want +got:\n%s", how, diff)
			}
			if diff := cmp.Diff(counts, g.Counts); diff != "" {
				t.Errorf("%s: counts (-want +got):\n%s", how, diff)
			}
			if notes := r.Notes(); len(notes) != 2 || !strings.Contains(notes[1], "README.md") {
				t.Errorf("notes %q, want one on what was left out", notes)
			}
		}
		checkReader(t, "a.zip", object, raw.Options{})
	}
	if g, plan := read(t, "a.zip", string(zipOf(t)), raw.Options{}); len(g.Rows) > 0 || plan.Format != raw.Zip {
		t.Errorf("an empty zip is %s with %q", plan.Format, g.Rows)
	}
}

// rawZip returns a zip of one member that is stored by a method, and with flags.
func rawZip(t *testing.T, name string, method, flags uint16, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	m, err := w.CreateRaw(&zip.FileHeader{Name: name, Method: method, Flags: flags, CompressedSize64: uint64(len(text)), UncompressedSize64: uint64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestZipsThatAreNotReadSayWhatToDo(t *testing.T) {
	overlap := zipOf(t, "a.txt", strings.Repeat("http://a/\n", 100), "b.txt", strings.Repeat("http://a/\n", 100))
	if i := bytes.LastIndex(overlap, []byte("PK\x01\x02")); i > 0 { // the size of the second
		binary.LittleEndian.PutUint32(overlap[i+20:], uint32(len(overlap)))
	}
	for _, tc := range []struct {
		name           string
		data           []byte
		reason, advice string
	}{
		{"encrypted", rawZip(t, "a.txt", zip.Store, 1, "x"), "encrypted", "7z x"},
		{"zstd", rawZip(t, "a.txt", 93, 0, "x"), "zstd", "7z x"},
		{"deflate64", rawZip(t, "a.txt", 9, 0, "x"), "deflate64", "7z x"},
		{"xlsx", zipOf(t, "[Content_Types].xml", "<a/>", "xl/workbook.xml", "<a/>"), "xlsx", "soffice"},
		{"docx", zipOf(t, "[Content_Types].xml", "<a/>", "word/document.xml", "<a/>"), "docx", "pandoc"},
		{"ods", zipOf(t, "mimetype", "application/vnd.oasis.opendocument.spreadsheet", "META-INF/manifest.xml", ""), "OpenDocument", "soffice"},
		{"epub", zipOf(t, "mimetype", "application/epub+zip", "META-INF/container.xml", ""), "EPUB", "pandoc"},
		{"ods, without a manifest", zipOf(t, "mimetype", "application/vnd.oasis.opendocument.spreadsheet", "content.xml", "<a/>"), "OpenDocument", "pandoc"},
		{"vsdx", zipOf(t, "[Content_Types].xml", "<a/>", "visio/document.xml", "<a/>"), "Office", "unzip"},
		{"Delta", zipOf(t, "t/part-0.txt", "http://a/\n", "t/part-1.txt", "http://b/\n", "t/_delta_log/0.json", "{}"), "a Delta table", "delta_scan('./t/')"},
		{"Iceberg", zipOf(t, "data/0.txt", "http://a/\n", `metadata\v1.metadata.json`, "{}"), "an Iceberg table", "iceberg_scan('./')"},
		{"Hudi", zipOf(t, "0.txt", "http://a/\n", ".hoodie/hoodie.properties", ""), "a Hudi table", "spark"},
		{"jar", zipOf(t, "META-INF/MANIFEST.MF", "x", "a.class", ""), "jar", "strings"},
		{"documents", zipOf(t, "a.pdf", "x", "b.png", "y"), "none of the 2 members", "one"},
		{"overlapping", overlap, "overlap", ""},
		{"a zip in it", zipOf(t, "b.zip", string(zipOf(t, "a.txt", "http://a/\n"))), "inside an archive", "7z x"},
		{"cut", zipOf(t, "a.txt", "http://a/\n")[:60], "truncated", ""},
	} {
		r, err := New(bytes.NewReader(tc.data), "a.zip", raw.Options{})
		if err == nil {
			_, err = readAll(r)
		}
		var fe *raw.FormatError
		if !errors.As(err, &fe) || !strings.Contains(fe.Reason, tc.reason) || !strings.Contains(fe.Advice, tc.advice) {
			t.Errorf("%s: got %v, want %q and %q", tc.name, err, tc.reason, tc.advice)
		}
		checkReader(t, "a.zip", tc.data, raw.Options{})
	}
	some := zipOf(t, "a.txt", "http://a/\n", "b.zip", string(zipOf(t)), "c.txt", "http://c/\n")
	r, err := New(bytes.NewReader(some), "a.zip", raw.Options{SkipUnreadable: true})
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if unread, n := r.Unread(); err != nil || n != 1 || unread[0].Member != "b.zip" || len(g.Rows) != 2 {
		t.Errorf("with a member left out: %q, %v, %v", g.Rows, unread, err)
	}
}

// TestDamagedZipsAreErrors flips single bytes.
func TestDamagedZipsAreErrors(t *testing.T) {
	list := strings.Repeat("http://a.example/\nhttp://b.example/\n", 5)
	data := zipOf(t, "a.txt", list, "b.csv", "url,n\nhttp://c/,1\nhttp://d/,2\n")
	whole, err := readBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(g got) string {
		var s []string
		for _, row := range g.Rows {
			s = append(s, row[strings.IndexByte(row, ':'):])
		}
		return strings.Join(s, "\n")
	}
	for _, i := range testenv.Places(0, len(data), 3) {
		flipped := bytes.Clone(data)
		flipped[i] ^= 1 << (i % 8)
		g, err := readBytes(flipped)
		if err != nil && !errors.Is(err, raw.ErrInput) {
			t.Errorf("byte %d flipped: %v is no ErrInput", i, err)
		}
		// The name of a member may hide it, as .md does; and its format follows from its content.
		if err == nil && rows(g) != rows(whole) {
			t.Errorf("byte %d flipped: other records and no error", i)
		}
	}
	for _, n := range testenv.Places(len(zipMagic), len(data), 5) {
		if _, err := readBytes(data[:n]); !errors.Is(err, raw.ErrInput) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
		}
	}
}

// directory returns a zip with other entries in its directory.
func directory(data []byte, change func(entries [][]byte) [][]byte) []byte {
	end := bytes.LastIndex(data, []byte("PK\x05\x06"))
	begin := int(binary.LittleEndian.Uint32(data[end+16:]))
	var entries [][]byte
	for b := data[begin:end]; len(b) > 0; {
		n := zipEntry + int(binary.LittleEndian.Uint16(b[28:])) + int(binary.LittleEndian.Uint16(b[30:]))
		entries, b = append(entries, b[:n]), b[n:]
	}
	entries = change(entries)
	tail := bytes.Clone(data[end:])
	binary.LittleEndian.PutUint16(tail[8:], uint16(len(entries)))
	binary.LittleEndian.PutUint16(tail[10:], uint16(len(entries)))
	all := bytes.Join(entries, nil)
	binary.LittleEndian.PutUint32(tail[12:], uint32(len(all)))
	return slices.Concat(data[:begin], all, tail)
}

// bytesRead counts how many bytes are read at offsets.
type bytesRead struct {
	*bytes.Reader
	n *int64
}

func (b bytesRead) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Reader.ReadAt(p, off)
	*b.n += int64(n)
	return n, err
}

// TestZipOutOfOrder reads a zip whose directory has the members in another order than the file.
func TestZipOutOfOrder(t *testing.T) {
	var members []string
	for i := range 1000 {
		members = append(members, fmt.Sprintf("%04d.txt", i), fmt.Sprintf("http://a/%s\n", strings.Repeat(fmt.Sprint(i), 1000)))
	}
	sound := zipOf(t, members...)
	for name, data := range map[string][]byte{"in order": sound, "reversed": directory(sound, func(entries [][]byte) [][]byte {
		slices.Reverse(entries)
		return entries
	})} {
		var n int64
		r, err := New(bytesRead{bytes.NewReader(data), &n}, "a.zip", raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := readAll(r)
		if err != nil || g.Counts.Records != 1000 || n > 1000*64<<10 {
			t.Errorf("%s: %d records, %d bytes read of %d, %v", name, g.Counts.Records, n, len(data), err)
		}
	}
}
