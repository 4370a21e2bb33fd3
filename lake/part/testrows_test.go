package part

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// smallLimits make several row groups and parts of a few hundred rows.
var smallLimits = Limits{
	PageRows: 16, PageBytes: 600, PageColumnBytes: 4000, RowGroupBytes: 12_000, PartBytes: 40_000,
}

// nullMode says which rows have optional values.
type nullMode int

const (
	someNull nullMode = iota
	allNull
	allSet
)

// testRows returns at most n rows as a merge yields them: sorted, one for each record.
func testRows(seed uint64, n int, mode nullMode) []row.Row {
	rng := rand.New(rand.NewPCG(seed, 1))
	has := func() bool { return mode == allSet || mode == someNull && rng.IntN(3) == 0 }
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789-_%/=&"[rng.IntN(42)]
		}
		return string(b)
	}
	rows := make([]row.Row, n)
	for i := range rows {
		r := &rows[i]
		r.Domain = fmt.Sprintf("site%d.example", rng.IntN(1+n/20))
		r.Host = r.Domain
		if rng.IntN(2) == 0 {
			r.Host = fmt.Sprintf("www%d.%s", rng.IntN(3), r.Domain)
		}
		r.Scheme = []string{"http", "https", "ftp"}[rng.IntN(3)]
		r.PathQuery = "/" + letters(rng.IntN(60))
		if rng.IntN(50) == 0 {
			r.PathQuery += strings.Repeat("long/", rng.IntN(100))
		}
		r.Port = -1
		if has() {
			r.Port = int32(rng.IntN(math.MaxUint16 + 1))
		}
		if r.HasTS = has(); r.HasTS {
			r.TS = rng.Int64N(4e12) - 2e12
		}
		if r.HasSize = has(); r.HasSize {
			r.Size = int64(rng.Uint64())
		}
		if has() {
			r.Extras = fmt.Sprintf(`{"n":%d,"t":"ö%s"}`, i, letters(rng.IntN(20)))
		}
		if has() {
			r.RawURL = "HTTP://" + r.Host + "/./" + letters(rng.IntN(20)) + "\u00e9"
		}
	}
	return sortedRows(rows)
}

// sameSite returns n rows with short paths, so that only their number ends pages.
func sameSite(n int) []row.Row {
	rows := make([]row.Row, n)
	for i := range rows {
		rows[i] = row.Row{
			Domain: "a.example", Host: "a.example", Scheme: "https", Port: -1, PathQuery: fmt.Sprintf("/%07d", i),
		}
	}
	return rows
}

// tangledRows returns n rows, neither sorted nor distinct, that share long prefixes of their keys
// and differ in any field.
func tangledRows(seed uint64, n int) []row.Row {
	rng := rand.New(rand.NewPCG(seed, 2))
	text := func(most int, letters ...string) string {
		var b strings.Builder
		for range rng.IntN(most + 1) {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	rows := make([]row.Row, n)
	for i := range rows {
		r := &rows[i]
		if i > 0 && rng.IntN(4) > 0 {
			*r = rows[rng.IntN(i)]
		} else {
			r.Domain, r.Port = text(2, "a", "b", "\u00e9"), -1
			r.Host, r.Scheme = r.Domain, "http"
		}
		switch rng.IntN(9) {
		case 0:
			r.Host = text(2, "a", "www.", "\u00e9") + r.Domain
		case 1, 2:
			r.PathQuery += text(3, "/", "a", "\u00e9", "\u00e8", "\U0010ffff", strings.Repeat("x", 100))
		case 3:
			r.Scheme = []string{"http", "https", ""}[rng.IntN(3)]
		case 4:
			r.Port = []int32{-1, 0, 1, 256, 65535}[rng.IntN(5)]
		case 5:
			r.HasTS = rng.IntN(3) > 0
			if r.TS = 0; r.HasTS {
				r.TS = []int64{0, -1, 1, -MaxTS, MaxTS}[rng.IntN(5)]
			}
		case 6:
			r.HasSize = rng.IntN(3) > 0
			if r.Size = 0; r.HasSize {
				r.Size = []int64{0, -1, 1, -1 << 63, 1<<63 - 1}[rng.IntN(5)]
			}
		case 7:
			r.Extras = text(2, "{", "\u00e9", "}")
		case 8:
			r.RawURL = text(3, "\x00", "a", "\u00e9", r.RawURL)
		}
	}
	return rows
}

// sortedRows sorts rows by their keys and drops all but the first of each record.
func sortedRows(rows []row.Row) []row.Row {
	type keyed struct {
		key []byte
		row row.Row
	}
	byKey := make([]keyed, len(rows))
	for i, r := range rows {
		byKey[i] = keyed{r.AppendKey(nil), r}
	}
	slices.SortFunc(byKey, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	for i := range byKey {
		rows[i] = byKey[i].row
	}
	return slices.CompactFunc(rows, func(a, b row.Row) bool {
		a.RawURL, b.RawURL = "", ""
		return a == b
	})
}

// writerCase is some rows and the limits to write them with.
type writerCase struct {
	Name   string
	Rows   []row.Row
	Limits Limits
}

// writerCases returns rows and limits that together reach every form of a page.
func writerCases() []writerCase {
	long := testRows(3, 60, someNull)
	for i := range long {
		if i%7 == 0 {
			long[i].PathQuery = "/" + strings.Repeat(string(rune('a'+i%26)), 16<<10-1)
		}
	}
	empty := []row.Row{
		{Port: -1}, {Port: -1, HasTS: true}, {Port: 0, HasSize: true}, {Port: 0, HasTS: true, Extras: "{}"},
	}
	return []writerCase{
		{"one row", testRows(1, 1, allSet), Limits{}},
		{"some null", testRows(2, 5000, someNull), Limits{}},
		{"all null", testRows(2, 3000, allNull), Limits{}},
		{"all set", testRows(2, 3000, allSet), Limits{}},
		{"exactly one page", sameSite(PageRows), Limits{}},
		{"one more than a page", sameSite(PageRows + 1), Limits{}},
		{"long paths", sortedRows(long), Limits{}},
		{"empty strings", sortedRows(empty), Limits{}},
		{"many row groups and parts", testRows(4, 2000, someNull), smallLimits},
		{"a row a page, a page a row group", testRows(5, 30, someNull),
			Limits{PageRows: 1, RowGroupBytes: 1, PartBytes: 3000}},
		{"a row a part", testRows(5, 5, someNull), Limits{PageRows: 1, PartBytes: 1}},
		{"more pages than a block has", testRows(6, 1200, someNull), Limits{PageRows: 2}},
	}
}

// realRows returns URLs of site maps as a merge yields them: 300,000 rows of 4,000 hosts.
func realRows(tb testing.TB) []row.Row {
	tb.Helper()
	f, err := os.Open(testenv.Shared(tb, "data", "eot2024", "sitemap-url-seeds-a.tar.zst"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	var rows []row.Row
	for files := tar.NewReader(z); ; {
		if _, err := files.Next(); err == io.EOF {
			return sortedRows(rows)
		} else if err != nil {
			tb.Fatal(err)
		}
		from := len(rows)
		rows = parseLines(files, rows)
		for i := range rows[from:] {
			rows[from+i].TS, rows[from+i].HasTS = 1700000000000+int64(from+i)*997%86400000, true
		}
	}
}

// parseLines appends the URLs of a list.
func parseLines(list io.Reader, rows []row.Row) []row.Row {
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), lines.Text()); err == nil {
			rows = append(rows, row.Row{
				Domain: u.Domain, Host: u.Host, Scheme: u.Scheme, Port: u.Port, PathQuery: u.PathQuery,
			})
		}
	}
	return rows
}
