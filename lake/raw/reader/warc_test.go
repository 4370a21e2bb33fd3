package reader

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/urlake/urlake/lake/raw"
)

// resource returns a small record.
func resource(url string) string {
	return record("resource", url, "text/plain", "2024-05-06T07:08:09Z", "", "x")
}

// arcRecord returns a record of an ARC file.
func arcRecord(url, block string) string {
	return fmt.Sprintf("%s 10.0.0.1 20240506070809 text/plain %d\n%s\n", url, len(block), block)
}

const arcFile = "filedesc://a.arc 0.0.0.0 20240506070809 text/plain 4\n1 0\n\n"

// noExtras reads URL and time.
var noExtras = raw.Options{Extras: []string{raw.None}}

// urlsAndReasons reads an object without extras, by New.
func urlsAndReasons(t *testing.T, name string, data []byte) []string {
	t.Helper()
	r, err := New(bytes.NewReader(data), name, noExtras)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil {
		t.Error(err)
	}
	for i, row := range g.Rows {
		_, row, _ = strings.Cut(row, " ")
		g.Rows[i] = strings.TrimSuffix(row, " ts=1714979289000")
	}
	return g.Rows
}

// TestWrongLengthInMembers reads files of one record a member; one record claims to go on for
// ever, with more behind it than memory may hold.
func TestWrongLengthInMembers(t *testing.T) {
	const length = "4611686018427387903"
	large := strings.Repeat("0123456789abcde\n", 12<<20/16)
	for name, records := range map[string][]string{
		"a.warc": {resource("http://a/"), strings.Replace(resource("http://b/"), "Content-Length:  1", "Content-Length: "+length, 1),
			record("resource", "http://c/", "text/plain", "2024-05-06T07:08:09Z", "", large), resource("http://d/")},
		"a.arc": {arcFile, arcRecord("http://a/", "x"), strings.Replace(arcRecord("http://b/", "x"), " 1\n", " "+length+"\n", 1),
			arcRecord("http://c/", large), arcRecord("http://d/", "x")},
	} {
		for _, how := range []string{"gzip", "zstd"} {
			var data []byte
			for _, r := range records {
				data = append(data, compressed(t, how, []byte(r))...)
			}
			want := []string{"http://a/", "!bad_warc", "http://c/", "http://d/"}
			if diff := gocmp.Diff(want, urlsAndReasons(t, name, data)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, how, diff)
			}
		}
	}
}

// TestBodiesLikeHeaders reads records whose bodies have what looks like the beginnings of headers.
// Each takes a fraction of a second, unless every beginning is looked at up to its possible end.
func TestBodiesLikeHeaders(t *testing.T) {
	const size = 2 << 20
	for _, line := range []string{"a:WARC/1.0\n", "WARC/1.0\na: b\n", "WARC/1.0\n", "aWARC/1.0\r\nWARC-Type: response\r\n",
		"http://a/ 1 ", "http://a/ 1 20240506070809 a 1 ", "a\n", "http://a/ 10.0.0.1 20240506070809 b\n"} {
		body := strings.Repeat(line, size/len(line))
		for name, data := range map[string]string{
			"a.warc": record("resource", "http://a/", "text/plain", "2024-05-06T07:08:09Z", "", body) + resource("http://b/"),
			"a.arc":  arcFile + arcRecord("http://a/", body) + arcRecord("http://b/", "x"),
		} {
			begun := time.Now()
			rows := urlsAndReasons(t, name, []byte(data))
			if took := time.Since(begun); len(rows) != 2 || took > 20*time.Second {
				t.Errorf("%s of %q: %d rows in %v", name, line, len(rows), took)
			}
		}
	}
}

// TestManyMembers reads a record in many members, most of them empty, within the memory of a
// window.
func TestManyMembers(t *testing.T) {
	empty, byte1 := string(compressed(t, "gzip", nil)), string(compressed(t, "gzip", []byte("a\n")))
	const n = 200_000
	for name, parts := range map[string][2]string{
		"a.warc": {strings.TrimSuffix(record("resource", "http://a/", "text/plain", "2024-05-06T07:08:09Z", "", strings.Repeat("a\n", n)),
			strings.Repeat("a\n", n)+"\r\n\r\n"), "\r\n\r\n" + resource("http://b/")},
		"a.arc": {arcFile + strings.TrimSuffix(arcRecord("http://a/", strings.Repeat("a\n", n)), strings.Repeat("a\n", n)+"\n"),
			"\n" + arcRecord("http://b/", "x")},
	} {
		data := string(compressed(t, "gzip", []byte(parts[0]))) + strings.Repeat(byte1, n) + strings.Repeat(empty, n) +
			string(compressed(t, "gzip", []byte(parts[1])))
		begun := time.Now()
		if diff := gocmp.Diff([]string{"http://a/", "http://b/"}, urlsAndReasons(t, name, []byte(data))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// TestFalseMember reads a file with a damaged member whose bytes hold the beginning of a gzip
// member that is none.
func TestFalseMember(t *testing.T) {
	store := func(text string) []byte {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	false1 := store("this is no record of a web archive")
	false1[len(false1)-5] ^= 1 // its checksum
	damaged := store(record("resource", "http://b/", "text/plain", "2024-05-06T07:08:09Z", "", string(false1)+"\x00"))
	damaged[11] ^= 1 // the size of its block
	data := append(append(compressed(t, "gzip", []byte(resource("http://a/"))), damaged...),
		compressed(t, "gzip", []byte(resource("http://c/")))...)
	if diff := gocmp.Diff([]string{"http://a/", "!bad_warc", "http://c/"}, urlsAndReasons(t, "a.warc.gz", data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	checkReader(t, "a.warc.gz", data, raw.Options{})
}

// TestTruncatedWARC reads files that end within their last record. It is a reject, and a note says
// so: the files may have been longer.
func TestTruncatedWARC(t *testing.T) {
	body := strings.Repeat("0123456789", 100)
	for name, data := range map[string]string{
		"a.warc": resource("http://a/") + record("resource", "http://b/", "text/plain", "2024-05-06T07:08:09Z", "", body),
		"a.arc":  arcFile + arcRecord("http://a/", "x") + arcRecord("http://b/", body),
	} {
		for _, n := range []int{3, 25, len(body) / 2, len(data) - strings.Index(data, "http://b/") - 9} {
			cut := []byte(data[:len(data)-n-len("\r\n\r\n")])
			for how, object := range map[string][]byte{name: cut, name + ".gz": compressed(t, "gzip", cut), "a.tar": tarOf(t, name, string(cut))} {
				r, err := New(bytes.NewReader(object), how, noExtras)
				if err != nil {
					t.Fatal(err)
				}
				_, err = readAll(r)
				c, notes := r.Counts(), strings.Join(r.Notes(), "\n")
				if err != nil || c.Records != 1 || c.Rejects != 1 || !strings.Contains(notes, "1 files end within their last record") {
					t.Errorf("%s without %d bytes: %+v, notes %q, %v", how, n, c, notes, err)
				}
			}
		}
	}
}

// TestHeadersOfOldFiles reads folded lines of WARC headers and both versions of ARC, also in a tar.
func TestHeadersOfOldFiles(t *testing.T) {
	folded := strings.NewReplacer("WARC-Target-URI: http://a/", "WARC-Target-URI: http://a/\r\n b/\r\n\tc",
		"WARC-Type: resource", "WARC-Type:\r\n resource", "Content-Length:  1", "Content-Length:\r\n 1").Replace(resource("http://a/"))
	arc2 := "filedesc://a.arc 0.0.0.0 20240506070809 text/plain 200 - - 0 a.arc 76\n" +
		"2 0 x\nURL IP-address Archive-date Content-type Result-code Checksum Location Offset Filename Archive-length\n"
	arc2 = strings.Replace(arc2, " 76\n", fmt.Sprintf(" %d\n", len(arc2)-strings.Index(arc2, "\n")-1), 1) +
		"\nhttp://a/ 10.0.0.1 20240506070809 text/plain 200 AB - 120 a.arc 1\nx\n" +
		"\nhttp://b/ 10.0.0.1 20240506070809 text/plain 404 - http://c/ 240 a.arc 1\nx\n"
	arc1 := arcFile + arcRecord("http://a/", "x") + arcRecord("http://b/", "x")
	tarred := string(tarOf(t, "a.arc", arc1, "b.arc.gz", string(compressed(t, "gzip", []byte(arc2)))))
	for _, tc := range []struct {
		name, data string
		want       []string
	}{
		{"a.warc", folded + resource("http://b/"), []string{"http://a/b/c", "http://b/"}},
		{"a.arc", arc1, []string{"http://a/", "http://b/"}},
		{"a.arc", arc2, []string{"http://a/", "http://b/"}},
		{"a.tar", tarred, []string{"http://a/", "http://b/", "http://a/", "http://b/"}},
		{"a.arc", arcFile + arcRecord("http://a/x http://b/y", "x"), []string{"http://a/x http://b/y"}},
		{"a.arc", arcFile + arcRecord("http://a/?u=http://b/", "x") + arcRecord("http://a/web/2010/https://b/", "x") +
			arcRecord("http://a/xhttp://b/", "x"), []string{"http://a/?u=http://b/", "http://a/web/2010/https://b/", "http://a/xhttp://b/"}},
		{"a.arc", arcFile + "http://a.examp" + arcRecord("http://b/", "x") + "dns:a.exa" + arcRecord("http://c/", "x"),
			[]string{"!bad_warc", "http://b/", "!bad_warc", "http://c/"}},
		{"a.arc", arcFile + arcRecord("http://a/", "a http://b/ 1.2.3.4 20240506070809 text/plain 1") + arcRecord("http://c/", "x"),
			[]string{"http://a/", "http://c/"}},
	} {
		if diff := gocmp.Diff(tc.want, urlsAndReasons(t, tc.name, []byte(tc.data))); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", tc.name, tc.data, diff)
		}
		checkReader(t, tc.name, []byte(tc.data), raw.Options{})
	}
}

// TestTypesOutsideTheStandard leaves out records of unknown types, unless the type is damaged.
func TestTypesOutsideTheStandard(t *testing.T) {
	typed := func(kind, contentType string) string {
		return record(kind, "http://x/", contentType, "2024-05-06T07:08:09Z", "", "x")
	}
	data := resource("http://a/") + typed("screenshot", "image/png") + typed("thumbnail", "image/png") + typed("respomse", "text/plain") +
		typed("Revisit", "text/plain") + typed("", "text/plain") + typed("screenshot", "application/http") + resource("http://b/")
	want := []string{"http://a/", "!bad_warc", "!bad_warc", "!bad_warc", "!bad_warc", "http://b/"}
	if diff := gocmp.Diff(want, urlsAndReasons(t, "a.warc", []byte(data))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	gz := string(compressed(t, "gzip", []byte(resource("http://c/")+typed("metadata", "text/plain"))))
	for name, object := range map[string][]byte{
		"a.warc": []byte(data), "a.tar": tarOf(t, "a.warc", data, "b.warc.gz", gz, "c.warc", data),
		"a.wacz": zipOf(t, "indexes/index.cdxj", "", "archive/a.warc.gz", gz),
		"b.wacz": zipOf(t, "indexes/index.cdxj", "", "archive/a.warc.gz", string(compressed(t, "gzip", []byte(typed("warcinfo", "text/plain"))))),
	} {
		r, err := New(bytes.NewReader(object), name, noExtras)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(r); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.Notes(), "\n")
		for note, in := range map[string]string{`2 records have types that are not in the standard, and were left out; the first is "screenshot"`: "a.warc",
			"4 records have types": "a.tar", "1 captures have no offset": "a.tar a.wacz", "1 conversion and metadata": "a.tar a.wacz",
			"lists no captures": "a.wacz b.wacz"} {
			if want := strings.Contains(in, name); strings.Contains(got, note) != want {
				t.Errorf("%s has notes %q; with %q: want %t", name, got, note, want)
			}
		}
	}
}

// TestCutARC reads ARC records that were cut off anywhere. The next one begins at once behind them.
func TestCutARC(t *testing.T) {
	block := "some text\nand more"
	cut := arcRecord("http://b/", block)
	for n := len("http://b/ "); n < len(cut)-1; n++ {
		data := arcFile + arcRecord("http://a/", "x") + cut[:n] + arcRecord("http://c/", "x") + arcRecord("http://d/", "x")
		want := []string{"http://a/", "!bad_warc", "http://c/", "http://d/"}
		if n == len("http://b/ ") {
			want = []string{"http://a/", "http://b/ http://c/", "http://d/"} // as crawlers write a blank
		}
		for _, how := range []string{"none", "gzip"} {
			object := []byte(data)
			if how != "none" {
				object = compressed(t, how, object)
			}
			if diff := gocmp.Diff(want, urlsAndReasons(t, "a.arc", object)); diff != "" {
				t.Errorf("%s, cut to %q (-want +got):\n%s", how, cut[:n], diff)
			}
		}
	}
}
