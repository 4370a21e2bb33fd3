package reader

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/raw"
)

// recordFormats are the formats that TestADamagedRecordCostsOneRecord damages. Each entry makes an
// object of n records with the URLs of damageURL.
var recordFormats = []struct {
	name string
	opt  raw.Options
	make func(n int) string
	// flips are the bytes that a byte of the object becomes.
	flips string
}{
	{"a.jsonl", raw.Options{}, eachRecord("", "\n", "", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1.5,"t":"x y"}}`), "\"{}[],:\n\\ x"},
	{"glued.jsonl", raw.Options{}, eachRecord("", "", "", `{"id":%d,"url":"%s","t":"a\"b"}`), "\"{}[],:\n\\ x"},
	{"a.json", raw.Options{}, eachRecord("[\n", ",\n", "\n]\n", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1,"t":"x, y"}}`), "\"{}[],:\n\\ x"},
	{"line.json", raw.Options{}, eachRecord("[", ",", "]", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1,"t":"x, y"}}`), "\"{}[],:\n\\ x"},
	{"pretty.json", raw.Options{}, eachRecord("[\n", ",\n", "\n]\n", "  {\n    \"id\": %d,\n    \"url\": \"%s\",\n    \"in\": [\n      {\n        \"t\": \"x\"\n      }\n    ]\n  }"), "\"{}[],:\n\\ x"},
	{"strings.json", raw.Options{}, eachRecord("[", ",", "]", `"%[2]s"`), "\"{}[],:\n\\ x"},
	{"rows.jsonl", raw.Options{}, eachRecord(`["id","url","t"]`+"\n", "\n", "\n", `[%d,"%s","x"]`), "\"{}[],:\n\\ x"},
	{"rows.json", raw.Options{}, eachRecord(`[["timestamp","original","mimetype"],`+"\n", ",\n", "]", `["202001020304%02d","%s","text/html"]`), "\"{}[],:\n\\ x"},
	{"a.csv", raw.Options{}, eachRecord("id,url,title\n", "\n", "\n", "%d,%s,a title"), "\",;\n\t\\ x"},
	{"quoted.csv", raw.Options{}, eachRecord("id,url,title\n", "\n", "\n", `"%d","%s","a ""title"", or two"`), "\",;\n\t\\ x"},
	{"mixed.csv", raw.Options{}, eachRecord("url,title,n\r\n", "\r\n", "\r\n", "%[2]s,\"a title,\nover lines\",%[1]d"), "\",;\n\t\\ x"},
	{"empty.csv", raw.Options{}, eachRecord("id,title,url\n", "\n", "\n", `%d,"",%s`), "\",;\n\t\\ x"},
	{"backslash.csv", raw.Options{}, eachRecord("id,title,url\n", "\n", "\n", `%d,"a \"title\", or two",%s`), "\",;\n\t\\ x"},
	{"a.tsv", raw.Options{}, eachRecord("id\turl\ttitle\n", "\n", "\n", "%d\t%s\ta title"), "\"\t,\n\\ x"},
	{"null.tsv", raw.Options{}, eachRecord("", "\n", "\n", "%d\t%s\t\\N"), "\"\t,\n\\ x"},
	{"spaced.txt", raw.Options{Format: raw.Spaced}, eachRecord("", "\n", "\n", "%d   %s   2020-01-02"), "\"\t,\n\\ x"},
	{"found.txt", raw.Options{}, eachRecord("", "\n", "\n", "%d   %s   2020-01-02"), "\"\t,\n\\ x"},
	{"hits", raw.Options{}, eachRecord("hits url\n", "\n", "\n", "%d %s"), "\"\t,\n\\ x"},
	{"header", raw.Options{}, eachRecord("id,url,title\n", "\n", "\n", "%d,%s,a title"), "\",;\n\t\\ x"},
	{"typed", raw.Options{}, eachRecord("", "\n", "\n", "%d,%s,2020-01-02"), "\",;\n\t\\ x"},
	{"quoted", raw.Options{}, eachRecord("", "\r\n", "\r\n", `"%d";"%s";"2020-01-02"`), "\",;\n\t\\ x"},
	{"tabs", raw.Options{}, eachRecord("", "\n", "\n", "%d\t%s\ta title"), "\"\t,\n\\ x"},
	{"list", raw.Options{}, eachRecord("", "\n", "\n", "%[2]s"), "\"\t,\n\\ x"},
	{"cdx11", raw.Options{}, eachRecord("", "\n", "\n", "org,example,h%[1]d)/p 202001020304%02[1]d %[2]s text/html 200 AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH - - 99 %[1]d7 a.warc.gz"), "\"\t,\n\\ x"},
	{"legend.cdx", raw.Options{}, eachRecord(" CDX N b a m s k r V g\n", "\n", "\n", "org,example,h%[1]d)/p 202001020304%02[1]d %[2]s text/html 200 AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH - %[1]d7 a.warc.gz"), "\"\t,\n\\ x"},
	{"cdxj", raw.Options{}, eachRecord("", "\n", "\n", `org,example,h%[1]d)/p 202001020304%02[1]d {"url": "%[2]s", "status": "200", "offset": "%[1]d7"}`), "\"\t,\n{}\\ x"},
	{"objects", raw.Options{}, eachRecord("", "\n", "\n", `{"id":%d,"url":"%s","in":{"n":1.5,"t":"x y"}}`), "\"{}[],:\n\\ x"},
}

// eachRecord returns a maker of objects: a beginning, records made by format of their number and
// URL with separators between them, and an end.
func eachRecord(begin, separator, end, format string) func(n int) string {
	return func(n int) string {
		var records []string
		for i := range n {
			records = append(records, fmt.Sprintf(format, i, damageURL(i)))
		}
		return begin + strings.Join(records, separator) + end
	}
}

func damageURL(i int) string { return fmt.Sprintf("https://h%d.example.org/p", i) }

// TestADamagedRecordCostsOneRecord damages every byte of every record. It damages the last records
// in more ways; the records before them show the format. Of n records, n-1 must be read, or the
// object is refused with a position; a record that is not read must be rejected, and no other
// record may become a wrong row.
func TestADamagedRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	const n = 12
	for _, f := range recordFormats {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			whole := []byte(f.make(n))
			want := map[string]bool{}
			for i := range n {
				want[damageURL(i)] = true
			}
			if g, _ := damagedRead(t, f.name, whole, f.opt, want, "whole"); g != n {
				t.Fatalf("%d records of %d in the whole object", g, n)
			}
			inputs, refused := 0, 0
			check := func(damaged []byte, how string) {
				inputs++
				got, err := damagedRead(t, f.name, damaged, f.opt, want, how)
				if err != nil {
					refused++
				} else if got < n-1 {
					t.Errorf("%s: %d records of %d:\n%s", how, got, n, damaged)
				}
			}
			for i := max(0, len(f.make(1))-len(f.make(2))+len(f.make(1))); i < len(whole); i++ {
				check(slices.Delete(bytes.Clone(whole), i, i+1), fmt.Sprintf("byte %d deleted", i))
				flips := f.flips
				if i < len(f.make(n-4)) {
					flips = "\"{\n" + f.flips[1:2]
				}
				for _, c := range []byte(flips) {
					if c == whole[i] {
						continue
					}
					damaged := bytes.Clone(whole)
					damaged[i] = c
					check(damaged, fmt.Sprintf("byte %d is %q", i, c))
				}
			}
			for i := len(f.make(n - 1)); i < len(whole); i++ {
				check(whole[:i], fmt.Sprintf("cut at %d", i))
			}
			t.Logf("%d damaged objects, %d of them refused", inputs, refused)
		})
	}
}

// damagedRead returns how many of the wanted URLs are read. If the object is refused, it returns
// the error, which must name a place.
func damagedRead(t *testing.T, name string, data []byte, opt raw.Options, want map[string]bool, how string) (int, error) {
	t.Helper()
	r, err := New(bytes.NewReader(data), name, opt)
	if err != nil {
		var fe *raw.FormatError
		if !errors.As(err, &fe) {
			t.Errorf("%s: %v", how, err)
		}
		return 0, err
	}
	found, others := map[string]bool{}, 0
	for {
		rec, rej, err := r.Next()
		if rec != nil && !want[string(rec.URL)] {
			if others++; others == 3 {
				t.Errorf("%s: wrong rows such as %q, by %+v:\n%s", how, rec.URL, r.Plan(), data)
			}
		}
		switch {
		case rec != nil && want[string(rec.URL)]:
			found[string(rec.URL)] = true
		case rej != nil && (rej.Line < 1 || rej.Offset < 0):
			t.Errorf("%s: the reject %+v has no place", how, rej)
		}
		if rec != nil || rej != nil {
			continue
		}
		counts := r.Counts()
		if err.Error() == "EOF" {
			if got := int64(len(want)); counts.Records+counts.Rejects < got-1 {
				t.Errorf("%s: %+v of %d records", how, counts, got)
			}
			return len(found), nil
		}
		var de *raw.DataError
		if !errors.As(err, &de) || de.Line < 1 || de.Offset < 0 {
			t.Errorf("%s: %v has no place", how, err)
		}
		return len(found), err
	}
}
