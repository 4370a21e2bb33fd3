package urlnorm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/urlake/urlake/internal/testenv"
)

// readData calls f with the bytes of each file of the real data, unpacked, in lexical order.
func readData(tb testing.TB, f func(name string, b []byte)) {
	tb.Helper()
	root := testenv.Shared(tb, "data")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		name := strings.TrimPrefix(path, root+"/")
		var r io.Reader = file
		switch filepath.Ext(name) {
		case ".gz":
			if r, err = gzip.NewReader(file); err != nil {
				return err
			}
			name = strings.TrimSuffix(name, ".gz")
		case ".zst":
			dec, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
			if err != nil {
				return err
			}
			defer dec.Close()
			r, name = dec, strings.TrimSuffix(name, ".zst")
		}
		if filepath.Ext(name) != ".tar" {
			b, err := io.ReadAll(r)
			if err == nil {
				f(name, b)
			}
			return err
		}
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			b, err := io.ReadAll(tr)
			if err != nil {
				return err
			}
			f(name+":"+h.Name, b)
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// inputsIn are the inputs that a file of real data has: its lines where it is a list, and else
// whatever looks like a URL.
func inputsIn(name string, b []byte) [][]byte {
	switch filepath.Ext(name) {
	case ".txt":
		return bytes.Split(b, []byte("\n"))
	case ".parquet":
		return nil
	}
	var out [][]byte
	for {
		i := bytes.Index(b, []byte("://"))
		if i < 0 {
			return out
		}
		start := i
		for start > 0 && ('a' <= b[start-1]|0x20 && b[start-1]|0x20 <= 'z') {
			start--
		}
		end := i + len("://")
		for end < len(b) && b[end] > ' ' && b[end] != '"' && b[end] != '<' && b[end] != '>' {
			end++
		}
		out = append(out, b[start:end])
		b = b[end:]
	}
}

// Every input of the real data is checked for what has to hold between the ways of parsing, a sample
// of them against the reference.
func TestRealData(t *testing.T) {
	n, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	inputs, short := 0, 0
	reasons := map[Reason]int{}
	readData(t, func(name string, b []byte) {
		for i, raw := range inputsIn(name, b) {
			inputs++
			u, err := n.Parse(raw)
			got, reason := canonical(u, err)
			reasons[reason]++
			u = u.Clone()
			if i%128 == 0 {
				checkInvariants(t, string(raw))
			}
			if reason != "" {
				continue
			}
			if domain := packageDomain(u.Host); domain != u.Domain {
				t.Errorf("%s: domain of %q is %q, want %q", name, raw, u.Domain, domain)
			}
			if again, reason := canonical(n.Parse([]byte(got))); again != got {
				t.Errorf("%s: Parse(%q) = %q, and that is %q %q", name, raw, got, again, reason)
			}
			if n.parsePlain(raw, new(URL)) {
				if short++; short%4 != 0 {
					continue
				}
				if long, rej := n.parse(raw); rej != nil || long.String() != got {
					t.Errorf("%s: Parse(%q) = %q on the short way, %q %v on the long one", name, raw, got, long.String(), rej)
				}
			}
			if !n.parsePlain([]byte(got), new(URL)) && !oddHost.MatchString(got) {
				t.Errorf("%s: %q is canonical and takes the long way", name, got)
			}
		}
	})
	t.Logf("%d inputs, %d by the short way, rejected: %v", inputs, short, reasons)
	if inputs < 1_900_000 || short < inputs/3 {
		t.Errorf("%d inputs, %d of them by the short way", inputs, short)
	}
}

// oddHost is what parsePlain leaves to parse in a canonical URL: ftp, A-labels, IPv6, last labels with
// digits first, port zero and rare characters.
var oddHost = regexp.MustCompile(`^(ftp|https?://([^/]*xn--|\[|[^/]*\.[0-9][^./]*[/:]|[^/]*:0/|[^/]*[^a-z0-9._/:-]))`)

// benchmarkInputs are neighbouring URLs of real lists, or those of testdata where there are none.
func benchmarkInputs(b *testing.B, real bool) (inputs [][]byte, size int64) {
	if !real {
		for _, l := range readTable(b) {
			inputs = append(inputs, []byte(l.input))
		}
	} else {
		readData(b, func(name string, data []byte) {
			if filepath.Ext(name) == ".txt" && len(inputs) < 1_000_000 {
				for _, line := range bytes.Split(data, []byte("\n")) {
					if len(line) > 0 {
						inputs = append(inputs, line)
					}
				}
			}
		})
	}
	for _, in := range inputs {
		size += int64(len(in))
	}
	return inputs, size / int64(len(inputs))
}

func BenchmarkParse(b *testing.B) {
	for _, set := range []struct {
		name string
		real bool
	}{{"data", true}, {"testdata", false}} {
		b.Run(set.name, func(b *testing.B) {
			inputs, size := benchmarkInputs(b, set.real)
			n, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				n.Parse(inputs[i])
				if i++; i == len(inputs) {
					i = 0
				}
			}
		})
	}
	b.Run("canonical", func(b *testing.B) {
		raw := []byte("https://www.example.com/2024/05/some-article-about-urls.html?id=1234&page=2")
		n, err := New(Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			n.Parse(raw)
		}
	})
	b.Run("changed", func(b *testing.B) {
		raw := []byte("https://www.Example.com/2024/05//some-article-about-urls.html?page=2&id=1234#top")
		n, err := New(Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			n.Parse(raw)
		}
	})
}
