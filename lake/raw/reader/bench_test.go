package reader

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// benchURLs returns n distinct URLs of about 80 bytes.
func benchURLs(n int) []string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://www%d.example%d.org/section/%d/article-title-words-%d.html?id=%d", i%7, i%1000, i%31, i*2654435761%1000003, i)
	}
	return urls
}

// benchObjects returns objects of n records in several formats.
func benchObjects(n int) (objects map[string][]byte) {
	urls := benchURLs(n)
	join := func(f func(w *bytes.Buffer, i int, url string)) []byte {
		var w bytes.Buffer
		for i, u := range urls {
			f(&w, i, u)
		}
		return w.Bytes()
	}
	lines := join(func(w *bytes.Buffer, _ int, u string) { w.WriteString(u + "\n") })
	csv := append([]byte("id,url,title,ts\n"), join(func(w *bytes.Buffer, i int, u string) {
		fmt.Fprintf(w, "%d,%s,A title of some words,2024-05-06T07:08:%02dZ\n", i, u, i%60)
	})...)
	quoted := append([]byte("id,url,title,ts\n"), join(func(w *bytes.Buffer, i int, u string) {
		fmt.Fprintf(w, "\"%d\",\"%s\",\"A \"\"title\"\",\nof some words\",\"2024-05-06T07:08:%02dZ\"\n", i, u, i%60)
	})...)
	jsonl := join(func(w *bytes.Buffer, i int, u string) {
		fmt.Fprintf(w, `{"id":%d,"url":"%s","meta":{"title":"A title of some words","lang":"en"},"text":"%s","ts":%d}`+"\n", i, u, "Some text stands beside it, as in corpora. Some text stands beside it.", 1_700_000_000+i)
	})
	array := append(append([]byte("["), bytes.ReplaceAll(bytes.TrimSpace(jsonl), []byte("\n"), []byte(",\n"))...), ']')
	cdx := join(func(w *bytes.Buffer, i int, u string) {
		fmt.Fprintf(w, "org,example)/%d 20240506070809 %s text/html 200 OSSAPWJ23L56IYVRW3GFEAR4MCJMGPTB - - 2258 %d a.warc.gz\n", i, u, i)
	})
	return map[string][]byte{"lines": lines, "csv": csv, "csv-quoted": quoted, "jsonl": jsonl, "json": array, "cdx": cdx}
}

func BenchmarkReader(b *testing.B) {
	const records = 500_000
	objects := benchObjects(records)
	for _, bm := range []struct {
		name string
		data []byte
		opt  raw.Options
	}{
		{"lines", objects["lines"], raw.Options{}},
		{"lines.gz", compressed(b, "gzip", objects["lines"]), raw.Options{}},
		{"lines.zst", compressed(b, "zstd", objects["lines"]), raw.Options{}},
		{"csv", objects["csv"], raw.Options{}},
		{"csv-extras", objects["csv"], raw.Options{Extras: []string{"*"}}},
		{"csv-quoted", objects["csv-quoted"], raw.Options{}},
		{"jsonl", objects["jsonl"], raw.Options{}},
		{"jsonl-extras", objects["jsonl"], raw.Options{Extras: []string{"*"}}},
		{"json", objects["json"], raw.Options{}},
		{"cdx", objects["cdx"], raw.Options{}},
	} {
		for _, how := range []struct {
			name string
			read func(r *Reader, b *testing.B) int
		}{{"", readEach}, {"-batches", readInBatches}, {"-urls", readURLs}} {
			if how.name == "-urls" && !strings.HasPrefix(bm.name, "lines") {
				continue
			}
			b.Run(bm.name+how.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r, err := New(bytes.NewReader(bm.data), bm.name, bm.opt)
					if err != nil {
						b.Fatal(err)
					}
					if n := how.read(r, b); n != records {
						b.Fatalf("%d records, want %d", n, records)
					}
					// Throughput counts decompressed bytes.
					b.SetBytes(r.Offset())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
			})
		}
	}
}

// BenchmarkOpen opens objects of 400 KB or more: it decides how they are read.
func BenchmarkOpen(b *testing.B) {
	objects := benchObjects(5000)
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(bytes.NewReader(objects[name]), name, raw.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func readEach(r *Reader, b *testing.B) (records int) {
	for {
		rec, rej, err := r.Next()
		if err == io.EOF {
			return records
		}
		if err != nil || rej != nil {
			b.Fatal(rec, rej, err)
		}
		records++
	}
}

func readInBatches(r *Reader, b *testing.B) (records int) {
	recs := make([]raw.Record, 64)
	for {
		n, rej, err := r.NextBatch(recs)
		if err == io.EOF {
			return records
		}
		if err != nil || rej != nil {
			b.Fatal(n, rej, err)
		}
		records += n
	}
}

func readURLs(r *Reader, b *testing.B) (records int) {
	urls, lines := make([][]byte, 64), make([]text.Position, 64)
	for {
		n, rej, err := r.NextURLs(urls, lines)
		if err == io.EOF {
			return records
		}
		if err != nil || rej != nil {
			b.Fatal(n, rej, err)
		}
		records += n
	}
}

// compressed compresses data with gzip or zstd.
func compressed(tb testing.TB, how string, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	switch how {
	case "gzip":
		w = gzip.NewWriter(&buf)
	case "zstd":
		z, err := zstd.NewWriter(&buf)
		if err != nil {
			tb.Fatal(err)
		}
		w = z
	default:
		tb.Fatalf("no compressor for %s", how)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}
