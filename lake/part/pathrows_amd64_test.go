package part

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// plainRows makes rows whose suffixes are mostly usual and whose paths share prefixes of all
// lengths.
func plainRows(rng *rand.Rand, n int) []row.Row {
	alphabet := "aab/-\x01\x7f"
	if rng.IntN(3) == 0 {
		alphabet += "é"
	}
	letters := []rune(alphabet)
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	wide := rng.IntN(4) == 0 // some paths are longer than addPaths takes
	length := func() int {
		switch rng.IntN(8) {
		case 0:
			if wide {
				return rng.IntN(maxPathRow + 500)
			}
			return rng.IntN(400)
		case 1:
			return 50 + rng.IntN(90)
		}
		return rng.IntN(1 + rng.IntN(64))
	}
	rows := make([]row.Row, n)
	path := ""
	for i := range rows {
		r := &rows[i]
		if i > 0 && rng.IntN(3) > 0 {
			r.Domain, r.Host = rows[i-1].Domain, rows[i-1].Host
		} else {
			r.Domain = text(1 + length()%100)
			r.Host = text(length()%133) + r.Domain
			if rng.IntN(20) == 0 {
				r.Host = strings.Repeat("h", 50+rng.IntN(20)) + r.Domain
			}
		}
		shared := rng.IntN(300)
		if wide && i%2 > 0 {
			shared = rng.IntN(maxPathRow)
		}
		path = path[:strings.LastIndexFunc(path[:min(shared, len(path))], func(rune) bool { return true })+1]
		path = strings.ToValidUTF8(path, "") + text(length())
		if path == "" && rng.IntN(5) > 0 {
			path = "/"
		}
		r.PathQuery, r.Scheme, r.Port = path, "https", -1
		if rng.IntN(4) == 0 {
			r.Scheme = "http"
		}
		switch rng.IntN(40) {
		case 0:
			r.Port = 80
		case 1:
			r.TS, r.HasTS = 1, true
		case 2:
			r.RawURL = "raw"
		case 3:
			r.Scheme = "ftp"
		}
	}
	return sortedRows(rows)
}

// needPathRows skips a test that compares vectors with Go if there are no vectors.
func needPathRows(tb testing.TB) {
	tb.Helper()
	testenv.NeedsCPU(tb, hasPathRows, "AVX-512 VBMI")
}

// writeBothWays writes rows with vectors and without and compares the parts.
func writeBothWays(t *testing.T, rows []row.Row, lim Limits, most int) {
	t.Helper()
	defer func() { hasPathRows = true }()
	var keys [2][]string
	for i, vectors := range []bool{true, false} {
		hasPathRows = vectors
		parts, records := writeBatches(t, blob.NewMemory(), batchesOf(rows, most, most), testOptions(t, lim))
		for _, p := range parts {
			keys[i] = append(keys[i], p.Part.Key, p.Part.XXH64)
		}
		keys[i] = append(keys[i], fmt.Sprint(records))
	}
	if !slices.Equal(keys[0], keys[1]) {
		t.Errorf("%d rows: parts %q with vectors, %q without", len(rows), keys[0], keys[1])
	}
}

func TestRowsAreWrittenAlikeWithVectors(t *testing.T) {
	needPathRows(t)
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows := plainRows(rng, 1+rng.IntN(400))
		for i := rng.IntN(len(rows)); i < len(rows) && i%5 > 0; i++ {
			rows = slices.Insert(rows, i, rows[i])
		}
		lim := Limits{}
		if seed%2 > 0 {
			lim = Limits{PageRows: 1 + rng.IntN(100), PageBytes: 1 + rng.IntN(4000)}
		}
		writeBothWays(t, rows, lim, 1+rng.IntN(300))
	}
}

func FuzzRowsWithVectors(f *testing.F) {
	needPathRows(f)
	f.Add("a.example", "www.a.example", "/a\n/ab\n/abc?d=e\n/b", "https", 200, 1000)
	long := strings.Repeat("/long", 13)
	f.Add("a", strings.Repeat("h", 56), long+"\n"+long+"a\n"+strings.Repeat("/long", 60), "http", 3, 100)
	f.Fuzz(func(t *testing.T, domain, host, paths, scheme string, pageRows, pageBytes int) {
		var rows []row.Row
		for i, path := range strings.Split(paths, "\n") {
			r := row.Row{Domain: domain, Host: host, PathQuery: path, Scheme: "https", Port: -1}
			if i%4 == 3 {
				r.Scheme = scheme
			}
			if i%16 > 11 {
				r.Host += "x"
			}
			rows = append(rows, r)
		}
		for _, r := range rows {
			for _, s := range []string{r.Domain, r.Host, r.PathQuery, r.Scheme} {
				if strings.IndexByte(s, 0) >= 0 || strings.ToValidUTF8(s, "") != s {
					return
				}
			}
		}
		lim := Limits{PageRows: 1 + pageRows&1023, PageBytes: 1 + pageBytes&0xffff}
		writeBothWays(t, sortedRows(rows), lim, 1+pageRows>>10&255)
	})
}

// No page of memory behind a path is read.
func TestPathsAreReadInTheirMemoryOnly(t *testing.T) {
	needPathRows(t)
	memory := testenv.Guarded(t, maxPathRow+100)
	for i := range memory {
		memory[i] = 'a' + byte(i%7)
	}
	for size := 1; size < len(memory); size += 1 + size/300 {
		w := NewWriter(context.Background(), blob.NewMemory(), testOptions(t, Limits{}))
		path := memory[len(memory)-size:]
		last := append(bytes.Clone(path[:size-1]), path[size-1]-1)
		suffix := &row.UsualSuffixes[row.HTTPSSuffix]
		id := urlnorm.DomainID("a.example")
		hosts := []row.SortedHost{
			{Domain: "a.example", Host: "a.example", DomainID: id, Rows: 2},
			{Domain: "a.example", Host: "b.a.example", DomainID: id, Rows: 1},
		}
		rows := []row.SortedRow{{Path: last, Suffix: suffix}, {Path: path, Suffix: suffix}, {Path: path, Suffix: suffix}}
		if n, err := w.Rows(hosts, rows); n != 3 || err != nil {
			t.Fatalf("path of %d bytes: %d records, %v", size, n, err)
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
	}
}
