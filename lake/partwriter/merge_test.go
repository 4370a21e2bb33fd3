package partwriter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowsort"
	"github.com/urlake/urlake/lake/urlnorm"
)

// tangledRows differ in any of their fields, mostly late ones, and agree in long beginnings.
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
				r.TS = []int64{0, -1, 1, -1 << 63, 1<<63 - 1}[rng.IntN(5)]
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

// From rows in any order to what a reader of pages sees, through shuffle files and runs or straight from memory.
func TestRowsReachPartsUnharmed(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(60) {
		rows := tangledRows(seed, 1+int(seed)*20)
		lim := part.Limits{PageRows: 1 + int(seed%7)*5, PageColumnBytes: 500, RowGroupBytes: 20_000, PartBytes: 60_000}
		var keys []string
		for _, budget := range []int64{300, 10_000, 1 << 30} {
			store := blob.NewMemory()
			buffer := rowsort.NewBuffer(budget)
			var files []rowsort.ShuffleFile
			shuffle := func() {
				var count [2][row.Partitions]int64
				f, err := buffer.WriteShuffle(ctx, store, fmt.Sprintf("shuffle/%d", len(files)), &count[0], &count[1])
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			for i := range rows {
				r := &rows[i]
				host, err := buffer.Host(r.Domain, r.Host, urlnorm.DomainID(r.Domain))
				if err == nil {
					err = buffer.Add(host, []byte(r.PathQuery), &row.Suffix{Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize, Extras: r.Extras, RawURL: r.RawURL})
				}
				if err != nil {
					t.Fatal(err)
				}
				if buffer.Full() {
					shuffle()
				}
			}
			w := New(ctx, store, testOptions(t, lim))
			var err error
			if len(files) == 0 {
				err = buffer.Rows(ctx, 0, 255, w)
			} else {
				shuffle()
				var s *rowsort.Shuffle
				if s, err = rowsort.OpenShuffle(ctx, store, files); err != nil {
					t.Fatal(err)
				}
				var runs []rowsort.Run
				spill := func() error {
					run, err := buffer.WriteRun(ctx, store, fmt.Sprintf("runs/%d", len(runs)))
					runs = append(runs, run)
					return err
				}
				if err = buffer.Load(ctx, s, 0, 255, spill); err == nil {
					if err = spill(); err == nil {
						err = rowsort.MergeRuns(ctx, store, runs, func(pass, n int) string { return fmt.Sprintf("spill/%d-%d", pass, n) }, w)
					}
				}
			}
			if err != nil {
				t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
			}
			buffer.Release()
			parts, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			var got []fileRow
			var names []string
			for _, p := range parts {
				got = append(got, readRange(t, store, p, 0, p.Part.Rows)...)
				names = append(names, p.Part.Key)
			}
			if diff := cmp.Diff(wantFileRows(sortedRows(slices.Clone(rows))), got); diff != "" {
				t.Fatalf("seed %d, budget %d (-want +got):\n%s", seed, budget, diff)
			}
			if keys == nil {
				keys = names
			}
			if !slices.Equal(keys, names) {
				t.Fatalf("seed %d, budget %d: parts %q, want %q", seed, budget, names, keys)
			}
		}
	}
}
