package urlnorm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
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

// inputsIn returns the inputs in a file of real data: its lines if it is a list, else whatever
// looks like a URL.
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

// Every input of the real data is checked for what has to hold between the ways of parsing, and a
// sample of them against the reference.
func TestRealData(t *testing.T) {
	n, err := New(BuiltinSuffixes(), Options{})
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
					t.Errorf("%s: %q is %q by parsePlain, %q %v by parse", name, raw, got, long.String(), rej)
				}
			}
			if !n.parsePlain([]byte(got), new(URL)) && !oddHost.MatchString(got) {
				t.Errorf("%s: %q is canonical, but parsePlain refuses it", name, got)
			}
		}
	})
	t.Logf("%d inputs, %d by parsePlain, rejected: %v", inputs, short, reasons)
	if inputs < 1_900_000 || short < inputs/3 {
		t.Errorf("%d inputs, %d of them by parsePlain: want more", inputs, short)
	}
}

// oddHost matches canonical URLs that parsePlain leaves to parse: ftp, A-labels, IPv6, last labels
// that start with a digit, port zero and rare characters.
var oddHost = regexp.MustCompile(`^(ftp|https?://([^/]*xn--|\[|[^/]*\.[0-9][^./]*[/:]|[^/]*:0/|[^/]*[^a-z0-9._/:-]))`)

// benchmarkLists are lists to parse: neighbouring URLs of the real data, the inputs of testdata,
// and URLs of very many hosts in random order.
var benchmarkLists = []struct {
	name   string
	inputs func(b *testing.B) [][]byte
}{
	{"data", func(b *testing.B) (inputs [][]byte) {
		readData(b, func(name string, data []byte) {
			if filepath.Ext(name) == ".txt" && len(inputs) < 1_000_000 {
				for _, line := range bytes.Split(data, []byte("\n")) {
					if len(line) > 0 {
						inputs = append(inputs, line)
					}
				}
			}
		})
		return inputs
	}},
	{"testdata", func(b *testing.B) (inputs [][]byte) {
		for _, l := range readTable(b) {
			inputs = append(inputs, []byte(l.input))
		}
		return inputs
	}},
	{"hosts", func(*testing.B) [][]byte { return manyHosts(500_000, 150_000) }},
}

// manyHosts returns URLs of up to that many domains, the same at each call.
func manyHosts(urls, domains int) (inputs [][]byte) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(b []byte) []byte {
		for range 2 + r.IntN(9) {
			b = append(b, "etaoinshrdlucmfwypvbgkqjxz"[min(r.IntN(26), r.IntN(26))])
		}
		return b
	}
	suffixes := strings.Fields("com com com com com com org org net net de co.uk gov fr com.br it nl io edu github.io blogspot.com co.jp")
	subdomains := strings.Fields("www. www. www. blog. m. en. static1. a.b.")
	names := make([]string, domains)
	for i := range names {
		b := word(nil)
		if r.IntN(3) == 0 {
			b = append(b, '-')
		}
		names[i] = string(word(b)) + "." + suffixes[r.IntN(len(suffixes))]
	}
	text := make([]byte, 0, 100*urls) // one after another, as in a list that is read
	for range urls {
		b := append(text[len(text):], "https://"...)
		if r.IntN(4) == 0 {
			b = append(b[:0], "http://"...)
		}
		if s := r.IntN(2 * len(subdomains)); s < len(subdomains) {
			b = append(b, subdomains[s]...)
		}
		b = append(b, names[r.IntN(domains)]...)
		b = append(b, '/')
		for depth := r.IntN(5); depth > 0; depth-- {
			for b = word(b); r.IntN(2) == 0; {
				b = word(append(b, '-'))
			}
			if depth > 1 {
				b = append(b, '/')
			} else if r.IntN(3) == 0 {
				b = append(b, ".html"...)
			}
		}
		for sep := byte('?'); r.IntN(8) == 0; sep = '&' {
			b = word(append(word(append(b, sep)), '='))
		}
		inputs, text = append(inputs, b[:len(b):len(b)]), b
	}
	return inputs
}

func BenchmarkParse(b *testing.B) {
	for _, list := range benchmarkLists {
		b.Run(list.name, func(b *testing.B) {
			inputs := list.inputs(b)
			size := 0
			for _, in := range inputs {
				size += len(in)
			}
			n, err := New(BuiltinSuffixes(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size / len(inputs)))
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
	for _, one := range [][2]string{
		{"canonical", "https://www.example.com/2024/05/some-article-about-urls.html?id=1234&page=2"},
		{"query", "https://www.example.com/2024/05/some-article-about-urls.html?page=2&id=1234"},
		{"changed", "https://www.Example.com/2024/05//some-article-about-urls.html?page=2&id=1234#top"},
		{"bare", "www.example.com"},
	} {
		b.Run(one[0], func(b *testing.B) {
			raw := []byte(one[1])
			n, err := New(BuiltinSuffixes(), Options{})
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
}

func BenchmarkDomain(b *testing.B) {
	hosts := make([]string, 0, 500_000)
	for _, in := range manyHosts(500_000, 150_000) {
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(string(in), "https://"), "http://"), "/")
		hosts = append(hosts, host)
	}
	for _, f := range []struct {
		name string
		f    func(string) string
	}{{"table", BuiltinSuffixes().Domain}, {"package", packageDomain}} {
		b.Run(f.name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				f.f(hosts[i])
				if i++; i == len(hosts) {
					i = 0
				}
			}
		})
	}
}
