package part

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Rows in any order reach parts through shuffle files and runs, or directly from memory.
func TestRowsReachPartsUnharmed(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(60) {
		rows := tangledRows(seed, 1+int(seed)*20)
		lim := Limits{PageRows: 1 + int(seed%7)*5, PageColumnBytes: 500, RowGroupBytes: 20_000, PartBytes: 60_000}
		var keys []string
		for _, budget := range []int64{300, 10_000, 1 << 30} {
			store := blob.NewMemory()
			buffer := row.NewBuffer(budget)
			var files []row.ShuffleFile
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
					s := suffixOf(r)
					err = buffer.Add(host, []byte(r.PathQuery), &s)
				}
				if err != nil {
					t.Fatal(err)
				}
				if buffer.Full() {
					shuffle()
				}
			}
			w := NewWriter(ctx, store, testOptions(t, lim))
			var err error
			if len(files) == 0 {
				err = buffer.Rows(ctx, 0, 255, w)
			} else {
				shuffle()
				var s *row.Shuffle
				if s, err = row.OpenShuffle(ctx, store, files); err != nil {
					t.Fatal(err)
				}
				var runs []row.Run
				spill := func() error {
					run, err := buffer.WriteRun(ctx, store, fmt.Sprintf("runs/%d", len(runs)))
					runs = append(runs, run)
					return err
				}
				if err = buffer.Load(ctx, s, 0, 255, spill); err == nil {
					if err = spill(); err == nil {
						name := func(pass, n int) string { return fmt.Sprintf("spill/%d-%d", pass, n) }
						err = row.MergeRuns(ctx, store, runs, name, w)
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
				got = append(got, readParquetGo(t, partBytes(t, store, p))...)
				names = append(names, p.Part.Key)
			}
			if diff := cmp.Diff(fileRows(sortedRows(slices.Clone(rows))), got); diff != "" {
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
