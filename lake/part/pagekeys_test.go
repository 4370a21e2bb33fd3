package part

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/lake/row"
)

// readKeys reads the page keys of a part, and checks that each read is within it.
func readKeys(t testing.TB, data []byte) []PageKeyBlock {
	t.Helper()
	keys, err := ReadPageKeys(func(off, n int64) ([]byte, error) {
		return bytes.Clone(data[off : off+n]), nil
	}, int64(len(data)), 1, "part")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Every page that begins within a domain has a key between the row before and its first row, and no
// other page has one. The rows are read back, so that nothing of how keys are made is used.
func TestPageKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for round := range 30 {
		var rows []row.Row
		for range 200 + rng.IntN(200) {
			domain := fmt.Sprintf("d%d.test", rng.IntN(6))
			r := row.Row{
				Domain: domain, Host: []string{"", "www.", "a."}[rng.IntN(3)] + domain,
				Scheme: []string{"http", "https"}[rng.IntN(2)], Port: int32(rng.IntN(3) - 1),
				PathQuery: fmt.Sprintf("/%d/%d", rng.IntN(3), rng.IntN(20)),
			}
			if rng.IntN(2) == 0 {
				r.TS, r.HasTS = rng.Int64N(5), true
			}
			rows = append(rows, r)
		}
		lim := Limits{PageRows: 1 + rng.IntN(12), RowGroupBytes: int64(2000 + 8000*(round%3))}
		store, parts := writeParts(t, sortedRows(rows), lim)
		found := 0
		for _, p := range parts {
			data := partBytes(t, store, p)
			keys := map[string]*PageKey{}
			for _, b := range readKeys(t, data) {
				for i := range b.Keys {
					if k := &b.Keys[i]; !k.None() {
						keys[fmt.Sprint(b.RowGroup, b.FirstRow, i)] = k
					}
				}
			}
			found += len(keys)
			var last PageKey
			domain, group := "", -1
			for _, b := range p.Blocks {
				c, err := ReadColumns(context.Background(), store, p.Part.Key, &b, b.FirstRow, b.Rows(), allColumns...)
				if err != nil {
					t.Fatal(err)
				}
				page := 0
				for i := range c.Rows {
					at := PageKey{Host: c.Host[i], Path: c.PathQuery[i], Scheme: c.Scheme[i], Port: c.Port[i]}
					if page < b.Pages() && int64(i) == b.PageStart(page) {
						k := keys[fmt.Sprint(b.RowGroup, b.FirstRow, page)]
						within := group == b.RowGroup && domain == c.Domain[i]
						if within != (k != nil) {
							t.Fatalf("page %d within a domain: %v, key %+v", page, within, k)
						}
						if within && (last.Compare(k) > 0 || k.Compare(&at) > 0) {
							t.Fatalf("key %+v between %+v and %+v", k, last, at)
						}
						page++
					}
					last, domain, group = at, c.Domain[i], b.RowGroup
				}
			}
		}
		if found == 0 {
			t.Error("no keys")
		}
	}
}

// BenchmarkPageKeys writes a domain of a million URLs and reports what its keys take in the part.
func BenchmarkPageKeys(b *testing.B) {
	rows := make([]row.Row, 1_000_000)
	for i := range rows {
		rows[i] = row.Row{
			Domain: "site.test", Host: "www.site.test", Scheme: "https", Port: NoPort,
			PathQuery: fmt.Sprintf("/catalogue/section-%03d/item-%07d.html", i/5000, i),
		}
	}
	for b.Loop() {
		store, parts := writeWith(b, rows, Options{Dataset: 1, Batch: "b", Prefix: "any", TempDir: b.TempDir()})
		var keys, pages, size int64
		for _, p := range parts {
			data := partBytes(b, store, p)
			blocks := readKeys(b, data)
			keys += int64(len(AppendPageKeys(nil, blocks)))
			size += int64(len(data))
			for i := range p.Blocks {
				pages += int64(p.Blocks[i].Pages())
			}
		}
		b.ReportMetric(float64(keys)/float64(pages), "key-bytes/page")
		b.ReportMetric(float64(keys)/float64(len(rows)), "key-bytes/row")
		b.ReportMetric(float64(size)/float64(len(rows)), "part-bytes/row")
	}
}
