package lake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// oracle is what merging rows of the partitions first to last has to give: sorted, one row of each record.
func oracle(rows []lake.Row, first, last byte) []lake.Row {
	var out []lake.Row
	for _, r := range rows {
		if p := lake.PartitionOf(r.Domain); p >= first && p <= last {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compareRows)
	return slices.CompactFunc(out, func(a, b lake.Row) bool { return record(a) == record(b) })
}

// writeRuns puts rows through buffers of that budget and returns the runs.
func writeRuns(tb testing.TB, store blob.Store, rows []lake.Row, budget int64) []lake.Run {
	tb.Helper()
	var runs []lake.Run
	b := lake.NewRowBuffer(budget)
	write := func() {
		run, err := b.WriteRun(context.Background(), store, fmt.Sprintf("staging/r/runs/%06d", len(runs)))
		if err != nil {
			tb.Fatal(err)
		}
		runs = append(runs, run)
	}
	for _, r := range rows {
		if _, _, err := b.Add(&r); err != nil {
			tb.Fatal(err)
		}
		if b.Full() {
			write()
		}
	}
	if b.Len() > 0 {
		write()
	}
	return runs
}

// merged is what MergeRuns yields.
func merged(tb testing.TB, store blob.Store, runs []lake.Run, first, last byte) []lake.Row {
	tb.Helper()
	var out []lake.Row
	spill := func(pass, n int) string { return fmt.Sprintf("staging/r/merging/%d-%d", pass, n) }
	err := lake.MergeRuns(context.Background(), store, runs, first, last, spill, func(key *lake.Key) error {
		out = append(out, clone(key.Row()))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// clone is a row that does not depend on a key.
func clone(r lake.Row) lake.Row {
	r, err := parse(r.AppendKey(nil))
	if err != nil {
		panic(err) // what was parsed parses
	}
	return r
}

// manyRows has every partition, long shared beginnings and equal records.
func manyRows(seed uint64, n int) []lake.Row {
	m := newRowMaker(seed)
	rows := make([]lake.Row, n)
	for i := range rows {
		r := m.row()
		if i%3 == 0 {
			r.Domain = fmt.Sprintf("d%d.example", m.rng.IntN(n/2+1))
			r.Host = r.Domain
		}
		if i%7 == 0 && i > 0 {
			raw := r.RawURL
			r = rows[m.rng.IntN(i)]
			r.RawURL = raw
		}
		rows[i] = r
	}
	return rows
}

func TestMergedRunsAreTheSortedDistinctRows(t *testing.T) {
	rows := manyRows(1, 6000)
	for _, budget := range []int64{1, 20_000, 1 << 30} {
		rows := rows
		if budget == 1 {
			rows = rows[:300] // one row a run
		}
		t.Run(fmt.Sprintf("budget %d", budget), func(t *testing.T) {
			store := blob.NewMemory()
			runs := writeRuns(t, store, rows, budget)
			for _, width := range []int{0, 1, 2} {
				n := 256 >> (4 * width)
				if budget == 1 && width == 2 {
					continue
				}
				for first := 0; first < 256; first += n {
					want := oracle(rows, byte(first), byte(first+n-1))
					if diff := cmp.Diff(want, merged(t, store, runs, byte(first), byte(first+n-1))); diff != "" {
						t.Fatalf("partitions %02x to %02x differ: %s", first, first+n-1, diff)
					}
				}
			}
		})
	}
}

func TestMergeInSeveralPasses(t *testing.T) {
	// More sections than are merged at once, and with one row a run also more runs.
	rows := manyRows(2, 2500)
	store := blob.NewMemory()
	runs := writeRuns(t, store, rows, 1)
	if len(runs) < 2100 {
		t.Fatalf("%d runs", len(runs))
	}
	want := oracle(rows, 0, 255)
	if diff := cmp.Diff(want, merged(t, store, runs, 0, 255)); diff != "" {
		t.Errorf("one pass too many for runs: %s", diff)
	}
	store = blob.NewMemory()
	runs = writeRuns(t, store, rows, 5000)
	if len(runs) >= 2048 || len(runs) < 20 {
		t.Fatalf("%d runs", len(runs))
	}
	if diff := cmp.Diff(want, merged(t, store, runs, 0, 255)); diff != "" {
		t.Errorf("too many sections: %s", diff)
	}
}

// The sort looks at eight bytes at a time, so keys that end near a multiple of eight, hold zeros there or agree over
// thousands of bytes are its corner cases.
func TestRunIsSortedWhateverTheKeys(t *testing.T) {
	m := newRowMaker(3)
	var rows []lake.Row
	for i := range 3000 {
		raw := strings.Repeat("\x00", m.rng.IntN(20))
		if i%2 == 0 {
			raw += strings.Repeat("a", m.rng.IntN(20))
		}
		path := "/" + strings.Repeat("x", pick(m, 0, 1, 7, 8, 9, 5000))
		rows = append(rows, lake.Row{Domain: "a.b", Host: "a.b", PathQuery: path, Scheme: "http", Port: -1, TS: int64(i % 500), HasTS: true, RawURL: raw})
	}
	store := blob.NewMemory()
	runs := writeRuns(t, store, rows, 1<<30)
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	want := oracle(rows, 0, 255)
	slices.SortFunc(rows, compareRows)
	if distinct := len(slices.Compact(rows)); runs[0].Rows != int64(distinct) {
		t.Errorf("run of %d rows, want %d", runs[0].Rows, distinct)
	}
	if diff := cmp.Diff(want, merged(t, store, runs, 0, 255)); diff != "" {
		t.Errorf("differs: %s", diff)
	}
}

// Rows of a domain lie in one partition, those of up to some KiB together. A buffer is used again for the next run.
func TestRowsOfAllSizesInOneBuffer(t *testing.T) {
	m := newRowMaker(11)
	var rows []lake.Row
	for i := range 3000 {
		n := m.rng.IntN(200)
		switch i % 10 {
		case 3:
			n = 1500 + m.rng.IntN(1000)
		case 6:
			n = 15_000 + m.rng.IntN(3000)
		}
		rows = append(rows, lake.Row{Domain: "example.com", Host: "example.com", Scheme: "https", Port: -1,
			PathQuery: fmt.Sprintf("/%d/%s", m.rng.IntN(1000), strings.Repeat("x", n))})
	}
	buffer := lake.NewRowBuffer(1 << 30)
	for round := range 3 {
		store := blob.NewMemory()
		for i := range rows {
			if _, _, err := buffer.Add(&rows[i]); err != nil {
				t.Fatal(err)
			}
		}
		if buffer.Len() != len(rows) {
			t.Fatalf("%d rows of %d", buffer.Len(), len(rows))
		}
		run, err := buffer.WriteRun(context.Background(), store, "staging/r/runs/0")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(oracle(rows, 0, 255), merged(t, store, []lake.Run{run}, 0, 255)); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
		rows = rows[:len(rows)/2]
	}
}

func TestRunWithoutRows(t *testing.T) {
	store := blob.NewMemory()
	run, err := lake.NewRowBuffer(1).WriteRun(context.Background(), store, "staging/r/empty")
	if err != nil {
		t.Fatal(err)
	}
	if got := merged(t, store, []lake.Run{run}, 0, 255); len(got) != 0 {
		t.Errorf("%d rows", len(got))
	}
	if got := merged(t, store, nil, 0, 255); len(got) != 0 {
		t.Errorf("no runs: %d rows", len(got))
	}
}

func TestRowBufferRefusesRowsItCannotKeep(t *testing.T) {
	b := lake.NewRowBuffer(1 << 20)
	if _, _, err := b.Add(&lake.Row{Domain: "a.b", Extras: strings.Repeat("x", lake.MaxKey)}); !errors.Is(err, lake.ErrRowTooLarge) {
		t.Errorf("too large: %v", err)
	}
	for _, r := range []lake.Row{{Domain: "a\x00"}, {Host: "a\x00"}, {PathQuery: "a\x00"}, {Scheme: "a\x00"}, {Extras: "a\x00"}} {
		if _, _, err := b.Add(&r); err == nil {
			t.Errorf("%+v: no error", r)
		}
	}
	if b.Len() != 0 || b.Full() {
		t.Error("a refused row is in the buffer")
	}
	// The largest row goes through all the same.
	large := lake.Row{Domain: "a.b", Host: "a.b", PathQuery: "/", Scheme: "http", Port: -1, Extras: strings.Repeat("x", lake.MaxKey-1000)}
	store := blob.NewMemory()
	runs := writeRuns(t, store, []lake.Row{large, large, {Domain: "a.c", Port: -1}}, 1)
	if got := merged(t, store, runs, 0, 255); len(got) != 2 || got[0] != large {
		t.Errorf("%d rows", len(got))
	}
}

func TestRowBufferKeepsItsRowsWhenWritingFails(t *testing.T) {
	rows := manyRows(4, 500)
	b := lake.NewRowBuffer(1 << 30)
	for _, r := range rows {
		part, n, err := b.Add(&r)
		if err != nil {
			t.Fatal(err)
		}
		if want := len(r.AppendKey(nil)); n != want || part != lake.PartitionOf(r.Domain) {
			t.Fatalf("key of %d bytes in partition %d, want %d in %d", n, part, want, lake.PartitionOf(r.Domain))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	store := blob.NewMemory()
	if _, err := b.WriteRun(ctx, store, "staging/r/run"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	run, err := b.WriteRun(context.Background(), store, "staging/r/run")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(oracle(rows, 0, 255), merged(t, store, []lake.Run{run}, 0, 255)); diff != "" {
		t.Errorf("differs: %s", diff)
	}
}

// mergeError merges a run and returns the error and what was yielded until then.
func mergeError(store blob.Store, run lake.Run) (rows []lake.Row, err error) {
	err = lake.MergeRuns(context.Background(), store, []lake.Run{run}, 0, 255, nil, func(key *lake.Key) error {
		rows = append(rows, clone(key.Row()))
		return nil
	})
	return rows, err
}

func TestDamagedRunIsCorrupt(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	rows := manyRows(5, 60)
	run := writeRuns(t, store, rows, 1<<30)[0]
	data, _, err := store.Get(ctx, run.Key)
	if err != nil {
		t.Fatal(err)
	}
	want := oracle(rows, 0, 255)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if _, err := store.Put(ctx, run.Key, bad, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		got, err := mergeError(store, run)
		if err == nil && !cmp.Equal(want, got) || err != nil && !isCorrupt(err) {
			t.Fatalf("byte %d of %d flipped: %d rows, %v", i, len(data), len(got), err)
		}
	}
	for n := range data {
		if _, err := store.Put(ctx, run.Key, data[:n], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if got, err := mergeError(store, run); err == nil {
			t.Fatalf("cut to %d of %d bytes: %d rows", n, len(data), len(got))
		}
	}
}

func TestMergeEndsWhenYieldOrTheStoreFails(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	runs := writeRuns(t, store, manyRows(6, 2000), 20_000)
	enough := errors.New("enough")
	n := 0
	err := lake.MergeRuns(ctx, store, runs, 0, 255, nil, func(*lake.Key) error {
		if n++; n == 10 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 10 {
		t.Errorf("%v after %d rows", err, n)
	}
	if err := store.Delete(ctx, runs[1].Key); err != nil {
		t.Fatal(err)
	}
	err = lake.MergeRuns(ctx, store, runs, 0, 255, nil, func(*lake.Key) error { return nil })
	if !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("with a run gone: %v", err)
	}
}

// runOf is a run with one frame of keys and a directory, whatever they are: every checksum is right.
func runOf(tb testing.TB, store blob.Store, keys, directory []byte, rows int64) lake.Run {
	tb.Helper()
	var buf bytes.Buffer
	w := codec.NewFrameWriter(&buf, 0)
	if _, _, err := w.Frame(nil, keys); err != nil {
		tb.Fatal(err)
	}
	before := w.Bytes()
	if _, _, err := w.Frame(nil, directory); err != nil {
		tb.Fatal(err)
	}
	size := w.Bytes() - before
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	const key = "staging/r/run"
	if _, err := store.Put(context.Background(), key, buf.Bytes(), blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
	return lake.Run{FrameObject: lake.NewFrameObject(key, ff), DirectoryBytes: size, Rows: rows}
}

// directory describes one partition.
func directory(rows, frames uint64) []byte {
	b := append(codec.AppendMagic(nil, "RUND", 3), 1, 7)
	b = codec.AppendUvarint(b, rows)
	return codec.AppendUvarint(b, frames)
}

// key is a key as a frame holds it.
type key struct {
	shared, length uint64
	suffix         string
}

func keyFrame(keys ...key) []byte {
	var lengths, text []byte
	for _, k := range keys {
		lengths = codec.AppendUvarint(codec.AppendUvarint(lengths, k.shared), k.length)
		text = append(text, k.suffix...)
	}
	return append(append(codec.AppendUvarint(nil, uint64(len(lengths))), lengths...), text...)
}

func TestRunOfBadKeysIsCorrupt(t *testing.T) {
	row := func(path string) string {
		return string((&lake.Row{Domain: "a.b", Host: "a.b", PathQuery: path, Scheme: "http", Port: -1}).AppendKey(nil))
	}
	record := func(shared uint64, suffix string) key {
		return key{shared, uint64(len(suffix)), suffix}
	}
	frame := func(keys ...key) string { return string(keyFrame(keys...)) }
	a, b := row("/a"), row("/b")
	const same = uint64(len("a.b\x00a.b\x00/")) // of a and b
	for name, c := range map[string]struct {
		keys      string
		directory []byte
		rows      int64
		ok        bool
	}{
		"good":                     {frame(record(0, a), record(same, b[same:])), directory(2, 1), 2, true},
		"no key":                   {frame(record(0, "nonsense")), directory(1, 1), 1, false},
		"no lengths":               {"\x00" + a, directory(1, 1), 1, false},
		"lengths of all":           {"\x7f" + a, directory(1, 1), 1, false},
		"lengths without an end":   {"\xff", directory(1, 1), 1, false},
		"cut in shared":            {"\x01\x80" + a, directory(1, 1), 1, false},
		"cut in length":            {"\x01\x00" + a, directory(1, 1), 1, false},
		"cut in bytes":             {frame(key{0, uint64(len(a)), a[:10]}), directory(1, 1), 1, false},
		"bytes after the last":     {frame(record(0, a)) + "a", directory(1, 1), 1, false},
		"nothing new":              {frame(record(0, a), record(uint64(len(a)), "")), directory(2, 1), 2, false},
		"shares with none":         {frame(record(1, a)), directory(1, 1), 1, false},
		"shares too much":          {frame(record(0, a), record(uint64(len(a))+1, "x")), directory(2, 1), 2, false},
		"descending":               {frame(record(0, b), record(same, a[same:])), directory(2, 1), 2, false},
		"shares too little":        {frame(record(0, a), record(same-1, b[same-1:])), directory(2, 1), 2, false},
		"more rows than said":      {frame(record(0, a), record(same, b[same:])), directory(1, 1), 1, false},
		"fewer rows than said":     {frame(record(0, a)), directory(2, 1), 2, false},
		"more frames than there":   {frame(record(0, a)), directory(1, 2), 1, false},
		"fewer frames than there":  {frame(record(0, a)), directory(1, 0), 1, false},
		"another number of rows":   {frame(record(0, a)), directory(1, 1), 2, false},
		"another magic":            {frame(record(0, a)), []byte("RUNE\x03\x00\x00\x00\x00"), 1, false},
		"a directory of nothing":   {frame(record(0, a)), codec.AppendMagic(nil, "RUND", 3), 1, false},
		"a directory with a rest":  {frame(record(0, a)), append(directory(1, 1), 0), 1, false},
		"partitions out of order":  {frame(record(0, a)), append(codec.AppendMagic(nil, "RUND", 3), 2, 7, 1, 1, 7, 1, 0), 2, false},
		"more partitions than are": {frame(record(0, a)), append(codec.AppendMagic(nil, "RUND", 3), 0xff, 0x7f), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := blob.NewMemory()
			got, err := mergeError(store, runOf(t, store, []byte(c.keys), c.directory, c.rows))
			if c.ok && (err != nil || len(got) != 2) || !c.ok && !isCorrupt(err) {
				t.Errorf("%d rows, %v", len(got), err)
			}
		})
	}
}

// FuzzRun gives the decoder frames that pass every checksum.
func FuzzRun(f *testing.F) {
	f.Add([]byte("\x02\x00\x05a\x00b\x00c"), codec.AppendMagic(nil, "RUND", 3))
	m := newRowMaker(7)
	row := m.row()
	text := string(row.AppendKey(nil))
	f.Add(keyFrame(key{0, uint64(len(text)), text}), directory(1, 1))
	f.Fuzz(func(t *testing.T, keys, directory []byte) {
		if len(keys) == 0 || len(directory) == 0 {
			return
		}
		store := blob.NewMemory()
		for rows := range int64(4) {
			got, err := mergeError(store, runOf(t, store, keys, directory, rows))
			if err != nil && !isCorrupt(err) {
				t.Fatalf("%v is not a corruption", err)
			}
			if err == nil && !slices.IsSortedFunc(got, compareRows) {
				t.Fatal("rows in another order without an error")
			}
		}
	})
}

func BenchmarkRunAndMerge(b *testing.B) {
	rows := benchmarkRows(500_000)
	store, err := blob.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		runs := writeRuns(b, store, rows, 16<<20)
		n := 0
		for p := range 256 {
			err := lake.MergeRuns(context.Background(), store, runs, byte(p), byte(p), nil, func(*lake.Key) error {
				n++
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n), "rows")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
}

func BenchmarkWriteRun(b *testing.B) {
	rows := benchmarkRows(500_000)
	store := blob.NewMemory()
	for b.Loop() {
		if runs := writeRuns(b, store, rows, 1<<30); len(runs) != 1 {
			b.Fatal(len(runs))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
}

// benchmarkRows are shaped like a crawl: few large sites, many small ones, deep paths.
func benchmarkRows(n int) []lake.Row {
	m := newRowMaker(8)
	rows := make([]lake.Row, n)
	for i := range rows {
		d := m.rng.IntN(1 + m.rng.IntN(1+m.rng.IntN(20_000)))
		domain := fmt.Sprintf("site%d.example", d)
		rows[i] = lake.Row{Domain: domain, Host: "www." + domain, Scheme: "https", Port: -1,
			PathQuery: fmt.Sprintf("/archive/%d/%02d/articles/%x.html", 2000+m.rng.IntN(24), m.rng.IntN(12), m.rng.Uint64()),
			TS:        m.rng.Int64N(1e12), HasTS: true}
	}
	return rows
}

func isCorrupt(err error) bool { return errors.Is(err, codec.ErrCorrupt) }
