// Long file: runs and shuffle files share one oracle of rows and one set of hostile files.

package row

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

// partitionOf returns the partition of a domain's rows.
func partitionOf(domain string) byte { return byte(urlnorm.DomainID(domain) >> 56) }

// oracle returns the rows of partitions first to last, sorted and one of each record, without any
// code that sorts keys.
func oracle(rows []Row, first, last byte) []Row {
	var out []Row
	for _, r := range rows {
		if p := partitionOf(r.Domain); p >= first && p <= last {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compareRows)
	return slices.CompactFunc(out, func(a, b Row) bool { return recordOf(a) == recordOf(b) })
}

// add adds a row to a buffer, with a new number of its host.
func add(b *Buffer, r *Row) error {
	host, err := b.Host(r.Domain, r.Host, urlnorm.DomainID(r.Domain))
	if err != nil {
		return err
	}
	return addTo(b, host, r)
}

// addTo adds a row of the host with a number: about half of the plain rows with AddPlain.
func addTo(b *Buffer, host uint32, r *Row) error {
	plain := *r == Row{Domain: r.Domain, Host: r.Host, PathQuery: r.PathQuery, Scheme: r.Scheme, Port: -1}
	plain = plain && (r.Scheme == "http" || r.Scheme == "https")
	plain = plain && strings.HasPrefix(r.PathQuery, "/") && strings.IndexByte(r.PathQuery, 0) < 0
	if plain && len(r.PathQuery)%2 == 0 {
		return b.AddPlain(host, []byte(r.PathQuery), r.Scheme == "https")
	}
	return b.Add(host, []byte(r.PathQuery), &Suffix{
		Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize,
		Extras: r.Extras, RawURL: r.RawURL,
	})
}

// collector keeps the rows that it gets and checks them against the contract of row.Sink.
type collector struct {
	tb   testing.TB
	rows []Row
	err  error // returned after row number stop
	stop int
}

func (c *collector) Rows(hosts []SortedHost, rows []SortedRow) (records int, err error) {
	suffixes := map[*Suffix]Suffix{}
	for i, h := range hosts {
		if h.DomainID != urlnorm.DomainID(h.Domain) {
			c.tb.Errorf("domain_id %x of %q", h.DomainID, h.Domain)
		}
		if n := len(c.rows); n > 0 {
			last := c.rows[n-1]
			d := strings.Compare(last.Domain, h.Domain)
			if d == 0 {
				d = strings.Compare(last.Host, h.Host)
			}
			if d > 0 || d == 0 && i > 0 {
				c.tb.Errorf("host %q of %q after %q of %q", h.Host, h.Domain, last.Host, last.Domain)
			}
		}
		for _, sorted := range rows[:h.Rows] {
			s := *sorted.Suffix
			if known, ok := suffixes[sorted.Suffix]; ok && known != s {
				c.tb.Errorf("two suffixes at one address: %+v and %+v", known, s)
			}
			suffixes[sorted.Suffix] = s
			r := Row{
				Domain: strings.Clone(h.Domain), Host: strings.Clone(h.Host), PathQuery: string(sorted.Path),
				Scheme: strings.Clone(s.Scheme), Port: s.Port, TS: s.TS, HasTS: s.HasTS, Size: s.Size, HasSize: s.HasSize,
				Extras: strings.Clone(s.Extras), RawURL: strings.Clone(s.RawURL),
			}
			if n := len(c.rows); n > 0 {
				if bytes.Compare(c.rows[n-1].AppendKey(nil), r.AppendKey(nil)) > 0 {
					c.tb.Errorf("%+v after %+v", r, c.rows[n-1])
				}
				last := c.rows[n-1]
				if last.RawURL = r.RawURL; last == r {
					continue
				}
			}
			c.rows = append(c.rows, r)
			records++
			if c.err != nil && len(c.rows) == c.stop {
				return records, c.err
			}
		}
		rows = rows[h.Rows:]
	}
	if len(rows) > 0 {
		c.tb.Errorf("%d rows without a host", len(rows))
	}
	return records, nil
}

// fill adds rows to a buffer and calls write, which must empty it, when it is full and at the end.
func fill(tb testing.TB, rows []Row, budget int64, write func(b *Buffer) error) {
	tb.Helper()
	b := NewBuffer(budget)
	defer b.Release()
	known := map[[2]string]uint32{}
	for i, r := range rows {
		name := [2]string{r.Domain, r.Host}
		if b.Len() == 0 {
			clear(known)
		}
		// Some hosts have several numbers.
		if _, ok := known[name]; !ok || i%50 == 49 {
			n, err := b.Host(r.Domain, r.Host, urlnorm.DomainID(r.Domain))
			if err != nil {
				tb.Fatal(err)
			}
			known[name] = n
		}
		if err := addTo(b, known[name], &r); err != nil {
			tb.Fatal(err)
		}
		if b.Full() {
			if err := write(b); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if b.Len() > 0 {
		if err := write(b); err != nil {
			tb.Fatal(err)
		}
	}
}

// writeRuns writes rows to runs, through a buffer with a budget.
func writeRuns(tb testing.TB, store blob.Store, rows []Row, budget int64) (runs []Run) {
	tb.Helper()
	fill(tb, rows, budget, func(b *Buffer) error {
		run, err := b.WriteRun(context.Background(), store, fmt.Sprintf("staging/r/runs/%06d", len(runs)))
		runs = append(runs, run)
		return err
	})
	return runs
}

// writeShuffleFile writes a buffer to a shuffle file.
func writeShuffleFile(
	ctx context.Context, b *Buffer, store blob.Store, key string,
) (ShuffleFile, error) {
	var rows, keyBytes [Partitions]int64
	return b.WriteShuffle(ctx, store, key, &rows, &keyBytes)
}

// writeShuffle writes rows to shuffle files, through a buffer with a budget.
func writeShuffle(tb testing.TB, store blob.Store, rows []Row, budget int64) (files []ShuffleFile) {
	tb.Helper()
	fill(tb, rows, budget, func(b *Buffer) error {
		f, err := writeShuffleFile(context.Background(), b, store, fmt.Sprintf("staging/r/shuffle/%06d", len(files)))
		files = append(files, f)
		return err
	})
	return files
}

// merged returns the rows that MergeRuns passes on.
func merged(tb testing.TB, store blob.Store, runs []Run) []Row {
	tb.Helper()
	c := &collector{tb: tb}
	spill := func(pass, n int) string { return fmt.Sprintf("staging/r/merging/%d-%d", pass, n) }
	if err := MergeRuns(context.Background(), store, runs, spill, c); err != nil {
		tb.Fatal(err)
	}
	return c.rows
}

// loaded returns the rows of partitions of shuffle files, through a buffer with a budget and, if
// they do not fit into it, runs.
func loaded(tb testing.TB, store blob.Store, files []ShuffleFile, first, last byte, budget int64) []Row {
	tb.Helper()
	c := &collector{tb: tb}
	if err := load(store, files, first, last, budget, c); err != nil {
		tb.Fatal(err)
	}
	return c.rows
}

func load(store blob.Store, files []ShuffleFile, first, last byte, budget int64, sink Sink) error {
	ctx := context.Background()
	s, err := OpenShuffle(ctx, store, files)
	if err != nil {
		return err
	}
	b := NewBuffer(budget)
	defer b.Release()
	var runs []Run
	spill := func() error {
		run, err := b.WriteRun(ctx, store, fmt.Sprintf("staging/r/spill/%06d", len(runs)))
		runs = append(runs, run)
		return err
	}
	if err := b.Load(ctx, s, first, last, spill); err != nil {
		return err
	}
	if len(runs) == 0 {
		return b.Rows(ctx, first, last, sink)
	}
	if err := spill(); err != nil {
		return err
	}
	key := func(pass, n int) string { return fmt.Sprintf("staging/r/merging/%d-%d", pass, n) }
	return MergeRuns(ctx, store, runs, key, sink)
}

// manyRows returns rows of every partition, with long shared prefixes and equal records.
func manyRows(seed uint64, n int) []Row {
	m := newRowMaker(seed)
	rows := make([]Row, n)
	for i := range rows {
		r := m.Row()
		if i%3 == 0 {
			r.Domain = fmt.Sprintf("d%d.example", m.Rng.IntN(n/2+1))
			r.Host = r.Domain
		}
		if i%7 == 0 && i > 0 {
			raw := r.RawURL
			r = rows[m.Rng.IntN(i)]
			r.RawURL = raw
		}
		rows[i] = r
	}
	return rows
}

func TestShuffledRowsAreTheSortedDistinctRows(t *testing.T) {
	rows := manyRows(1, 6000)
	for _, budget := range []int64{1, 20_000, 1 << 30} {
		rows := rows
		if budget == 1 {
			rows = rows[:300] // one row a file
		}
		t.Run(fmt.Sprintf("budget %d", budget), func(t *testing.T) {
			store := blob.NewMemory()
			files := writeShuffle(t, store, rows, budget)
			for _, width := range []int{0, 1, 2} {
				n := 256 >> (4 * width)
				if budget == 1 && width == 2 {
					continue
				}
				for first := 0; first < 256; first += n {
					want := oracle(rows, byte(first), byte(first+n-1))
					for _, memory := range []int64{1, 50_000, 1 << 30} {
						if memory == 1 && width < 2 {
							continue
						}
						if diff := cmp.Diff(want, loaded(t, store, files, byte(first), byte(first+n-1), memory)); diff != "" {
							t.Fatalf("partitions %02x to %02x in %d bytes differ: %s", first, first+n-1, memory, diff)
						}
					}
				}
			}
		})
	}
}

// Hosts are sorted although domains of many partitions have a common prefix and hosts are in
// several files.
func TestShuffledHostsAreSorted(t *testing.T) {
	var rows []Row
	for i := range 30_000 {
		domain := fmt.Sprintf("all-domains-begin-alike%d.example", i*7919%6000)
		if i%3 == 0 {
			domain = fmt.Sprintf("%x.example", i*7919%5000)
		}
		host := domain
		if i%5 == 0 {
			host = fmt.Sprintf("www%d.%s", i%4, domain)
		}
		rows = append(rows, Row{Domain: domain, Host: host, PathQuery: fmt.Sprintf("/%d", i), Scheme: "https", Port: -1})
	}
	store := blob.NewMemory()
	files := writeShuffle(t, store, rows, 1<<20)
	for _, width := range []int{0, 1} {
		n := 256 >> (4 * width)
		for first := 0; first < 256; first += n {
			last := first + n - 1
			got := loaded(t, store, files, byte(first), byte(last), 1<<30)
			if diff := cmp.Diff(oracle(rows, byte(first), byte(last)), got); diff != "" {
				t.Fatalf("partitions %02x to %02x of %d files differ: %s", first, first+n-1, len(files), diff)
			}
		}
	}
}

func TestMergeInSeveralPasses(t *testing.T) {
	rows := manyRows(2, 2500)
	store := blob.NewMemory()
	runs := writeRuns(t, store, rows, 1) // one row a run: more than are merged at once
	if len(runs) < 2100 {
		t.Fatalf("%d runs", len(runs))
	}
	want := oracle(rows, 0, 255)
	if diff := cmp.Diff(want, merged(t, store, runs)); diff != "" {
		t.Error(diff)
	}
	runs = writeRuns(t, store, rows, 5000)
	if len(runs) >= 1024 || len(runs) < 20 {
		t.Fatalf("%d runs", len(runs))
	}
	if diff := cmp.Diff(want, merged(t, store, runs)); diff != "" {
		t.Error(diff)
	}
}

// The sort compares eight bytes at a time. Its corner cases are keys that end near a multiple of
// eight bytes, have zero bytes there, or agree in thousands of bytes.
func TestRunIsSortedWhateverTheKeys(t *testing.T) {
	m := newRowMaker(3)
	var rows []Row
	for i := range 3000 {
		raw := strings.Repeat("\x00", m.Rng.IntN(20))
		if i%2 == 0 {
			raw += strings.Repeat("a", m.Rng.IntN(20))
		}
		path := "/" + strings.Repeat("x", pick(m, 0, 1, 7, 8, 9, 5000))
		rows = append(rows, Row{
			Domain: "a.b", Host: "a.b", PathQuery: path, Scheme: "http", Port: -1,
			TS: int64(i % 500), HasTS: true, RawURL: raw,
		})
	}
	store := blob.NewMemory()
	runs := writeRuns(t, store, rows, 1<<30)
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	want := oracle(rows, 0, 255)
	if runs[0].Rows != int64(len(want)) {
		t.Errorf("run of %d rows, want %d", runs[0].Rows, len(want))
	}
	if diff := cmp.Diff(want, merged(t, store, runs)); diff != "" {
		t.Errorf("differs: %s", diff)
	}
}

// A buffer sorts rows of all sizes of one host, and can be used again after a run is written.
func TestRowsOfAllSizesInOneBuffer(t *testing.T) {
	m := newRowMaker(11)
	var rows []Row
	for i := range 3000 {
		n := m.Rng.IntN(200)
		switch i % 10 {
		case 3:
			n = 1500 + m.Rng.IntN(1000)
		case 6:
			n = 15_000 + m.Rng.IntN(3000)
		}
		rows = append(rows, Row{Domain: "example.com", Host: "example.com", Scheme: "https", Port: -1,
			PathQuery: fmt.Sprintf("/%d/%s", m.Rng.IntN(1000), strings.Repeat("x", n))})
	}
	buffer := NewBuffer(1 << 30)
	for round := range 3 {
		store := blob.NewMemory()
		for i := range rows {
			if err := add(buffer, &rows[i]); err != nil {
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
		if diff := cmp.Diff(oracle(rows, 0, 255), merged(t, store, []Run{run})); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
		rows = rows[:len(rows)/2]
	}
}

func TestFilesWithoutRows(t *testing.T) {
	store := blob.NewMemory()
	run, err := NewBuffer(1).WriteRun(context.Background(), store, "staging/r/empty")
	if err != nil {
		t.Fatal(err)
	}
	if got := merged(t, store, []Run{run}); len(got) != 0 {
		t.Errorf("%d rows", len(got))
	}
	if got := merged(t, store, nil); len(got) != 0 {
		t.Errorf("no runs: %d rows", len(got))
	}
	f, err := writeShuffleFile(context.Background(), NewBuffer(1), store, "staging/r/none")
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]ShuffleFile{{f}, {f, f}, nil} {
		if got := loaded(t, store, files, 0, 255, 1); len(got) != 0 {
			t.Errorf("%d files: %d rows", len(files), len(got))
		}
	}
}

func TestBufferRejectsRowsItCannotKeep(t *testing.T) {
	b := NewBuffer(1 << 20)
	tooLarge := Row{Domain: "a.b", Extras: strings.Repeat("x", MaxKey)}
	if err := add(b, &tooLarge); !errors.Is(err, ErrRowTooLarge) {
		t.Errorf("too large: %v", err)
	}
	const zero = "a\x00"
	for _, r := range []Row{{Domain: zero}, {Host: zero}, {PathQuery: zero}, {Scheme: zero}, {Extras: zero}} {
		if err := add(b, &r); err == nil {
			t.Errorf("%+v: no error", r)
		}
	}
	if b.Len() != 0 || b.Full() {
		t.Error("a rejected row is in the buffer")
	}
	var rows, bytes [Partitions]int64
	if b.Count(&rows, &bytes); rows != [Partitions]int64{} || bytes != [Partitions]int64{} {
		t.Error("a rejected row is counted")
	}
	// The largest row is accepted.
	large := Row{
		Domain: "a.b", Host: "a.b", PathQuery: "/", Scheme: "http", Port: -1,
		Extras: strings.Repeat("x", MaxKey-2000),
	}
	store := blob.NewMemory()
	files := writeShuffle(t, store, []Row{large, large, {Domain: "a.c", Port: -1}}, 1)
	for _, memory := range []int64{1, 1 << 30} {
		if got := loaded(t, store, files, 0, 255, memory); len(got) != 2 || got[0] != large {
			t.Errorf("%d rows", len(got))
		}
	}
}

// A buffer keeps its rows when WriteRun fails. When WriteShuffle does, it is empty and takes rows
// again.
func TestBufferAfterWritingFails(t *testing.T) {
	rows := manyRows(4, 500)
	b := NewBuffer(1 << 30)
	addAll := func() {
		for _, r := range rows {
			if err := add(b, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	addAll()
	var wantRows, wantBytes, gotRows, gotBytes [Partitions]int64
	for _, r := range rows {
		wantRows[partitionOf(r.Domain)]++
		wantBytes[partitionOf(r.Domain)] += int64(len(r.AppendKey(nil)))
	}
	if b.Count(&gotRows, &gotBytes); gotRows != wantRows {
		t.Errorf("rows %v, want %v", gotRows, wantRows)
	}
	for p, want := range wantBytes {
		if got := gotBytes[p]; got < want || got > want+14*wantRows[p] {
			t.Errorf("partition %d: Count says %d bytes of keys, want %d to %[3]d+14*%[4]d", p, got, want, wantRows[p])
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	store := blob.NewMemory()
	if _, err := b.WriteRun(ctx, store, "staging/r/run"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	want := oracle(rows, 0, 255)
	for range 2 {
		c := &collector{tb: t}
		if err := b.Rows(context.Background(), 0, 255, c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.rows); diff != "" {
			t.Errorf("differs: %s", diff)
		}
	}
	if _, err := writeShuffleFile(ctx, b, store, "staging/r/shuffle"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if b.Len() != 0 || b.Hosts() != 0 {
		t.Errorf("%d rows and %d hosts are left", b.Len(), b.Hosts())
	}
	addAll()
	f, err := writeShuffleFile(context.Background(), b, store, "staging/r/shuffle")
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() != 0 || b.Hosts() != 0 {
		t.Errorf("%d rows and %d hosts are left", b.Len(), b.Hosts())
	}
	if diff := cmp.Diff(want, loaded(t, store, []ShuffleFile{f}, 0, 255, 1<<30)); diff != "" {
		t.Errorf("differs: %s", diff)
	}
}

// mergeError merges a run and returns the error and the rows that were passed on before it.
func mergeError(tb testing.TB, store blob.Store, run Run) (rows []Row, err error) {
	c := &collector{tb: tb}
	err = MergeRuns(context.Background(), store, []Run{run}, nil, c)
	return c.rows, err
}

// A flipped bit anywhere, or truncation at any length, of a run or a shuffle file is detected.
func TestDamagedFileIsCorrupt(t *testing.T) {
	ctx := context.Background()
	rows := manyRows(5, 60)
	want := oracle(rows, 0, 255)
	store := blob.NewMemory()
	run := writeRuns(t, store, rows, 1<<30)[0]
	file := writeShuffle(t, store, rows, 1<<30)[0]
	for key, read := range map[string]func(c *collector) error{
		run.Key:  func(c *collector) error { return MergeRuns(ctx, store, []Run{run}, nil, c) },
		file.Key: func(c *collector) error { return load(store, []ShuffleFile{file}, 0, 255, 1<<30, c) },
	} {
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << (i % 8)
			if _, err := store.Put(ctx, key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			c := &collector{tb: t}
			if err := read(c); err == nil && !cmp.Equal(want, c.rows) || err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%s with a flipped bit in byte %d of %d: %d rows, %v", key, i, len(data), len(c.rows), err)
			}
		}
		for n := range data {
			if _, err := store.Put(ctx, key, data[:n], blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			c := &collector{tb: t}
			if err := read(c); err == nil {
				t.Fatalf("%s truncated to %d of %d bytes: %d rows", key, n, len(data), len(c.rows))
			}
		}
	}
}

// Prefetched reads are not done again, and those of other partitions are not used for the load.
func TestPrefetchedRowsAreTheSame(t *testing.T) {
	ctx := context.Background()
	memory := blob.NewMemory()
	rows := manyRows(9, 6000)
	files := writeShuffle(t, memory, rows, 20_000)
	var requests []int64
	for _, c := range []struct {
		name     string
		prefetch func(first int) int // the first partition to prefetch before first is loaded, 256 for none
	}{
		{"nothing", func(int) int { return 256 }},
		{"the next", func(first int) int { return first }},
		{"others", func(first int) int { return (first + 16) % 256 }},
	} {
		for _, budget := range []int64{30_000, 1 << 30} {
			store := blob.NewCounting(memory)
			s, err := OpenShuffle(ctx, store, files)
			if err != nil {
				t.Fatal(err)
			}
			b := NewBuffer(budget)
			for first := 0; first < 256; first += 16 {
				if n := c.prefetch(first); n < 256 {
					b.Prefetch(ctx, s, byte(n), byte(n+15))
				}
				var runs []Run
				spill := func() error {
					run, err := b.WriteRun(ctx, memory, fmt.Sprintf("staging/r/spill/%06d", len(runs)))
					runs = append(runs, run)
					return err
				}
				sink := &collector{tb: t}
				err := b.Load(ctx, s, byte(first), byte(first+15), spill)
				if err == nil && len(runs) == 0 {
					err = b.Rows(ctx, byte(first), byte(first+15), sink)
				} else if err == nil {
					if err = spill(); err == nil {
						key := func(pass, n int) string { return fmt.Sprintf("staging/r/merging/%d-%d", pass, n) }
						err = MergeRuns(ctx, memory, runs, key, sink)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				b.Empty()
				if diff := cmp.Diff(oracle(rows, byte(first), byte(first+15)), sink.rows); diff != "" {
					t.Fatalf("prefetched %s, budget %d, partitions from %02x: %s", c.name, budget, first, diff)
				}
			}
			b.Release()
			if c.name != "others" {
				requests = append(requests, store.Count(blob.OpOpen).Requests)
			}
		}
	}
	if requests[0] == 0 || requests[0] != requests[2] || requests[1] != requests[3] {
		t.Errorf("%d reads without prefetching, %d with it", requests[:2], requests[2:])
	}
	// A file that is gone when it is prefetched.
	s, err := OpenShuffle(ctx, memory, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Delete(ctx, files[1].Key); err != nil {
		t.Fatal(err)
	}
	b := NewBuffer(1 << 30)
	b.Prefetch(ctx, s, 0, 255)
	if err := b.Load(ctx, s, 0, 255, nil); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a file gone when it is prefetched: %v", err)
	}
}

func TestMergeEndsWhenTheSinkOrTheStoreFails(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	rows := manyRows(6, 2000)
	runs, files := writeRuns(t, store, rows, 20_000), writeShuffle(t, store, rows, 20_000)
	enough := errors.New("enough")
	for name, merge := range map[string]func(c *collector) error{
		"runs":    func(c *collector) error { return MergeRuns(ctx, store, runs, nil, c) },
		"shuffle": func(c *collector) error { return load(store, files, 0, 255, 1<<30, c) },
	} {
		c := &collector{tb: t, err: enough, stop: 10}
		if err := merge(c); !errors.Is(err, enough) || len(c.rows) != 10 {
			t.Errorf("%s: %v after %d rows", name, err, len(c.rows))
		}
		if err := errors.Join(store.Delete(ctx, runs[1].Key), store.Delete(ctx, files[1].Key)); err != nil {
			t.Fatal(err)
		}
		if err := merge(&collector{tb: t}); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%s with a file gone: %v", name, err)
		}
		runs, files = writeRuns(t, store, rows, 20_000), writeShuffle(t, store, rows, 20_000)
	}
	// A file that is gone after it was opened.
	s, err := OpenShuffle(ctx, store, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, files[2].Key); err != nil {
		t.Fatal(err)
	}
	if err := NewBuffer(1<<30).Load(ctx, s, 0, 255, nil); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a file gone while it is read: %v", err)
	}
}

// framesOf writes a file with these frames, valid or not, and correct checksums. Last is the size
// of the last frame.
func framesOf(tb testing.TB, store blob.Store, key string, frames ...[]byte) (o lake.FrameObject, last int64) {
	tb.Helper()
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	for _, f := range frames {
		before := w.Bytes()
		if _, _, err := w.Frame(nil, f); err != nil {
			tb.Fatal(err)
		}
		last = w.Bytes() - before
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := store.Put(context.Background(), key, buf.Bytes(), blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
	return lake.NewFrameObject(key, ff), last
}

// runOf writes a run with one frame of keys.
func runOf(tb testing.TB, store blob.Store, keys []byte, rows int64) Run {
	o, _ := framesOf(tb, store, "staging/r/run", keys)
	return Run{FrameObject: o, Rows: rows}
}

// shuffleOf writes a shuffle file with one frame of rows, one of hosts, and a directory.
func shuffleOf(tb testing.TB, store blob.Store, rows, hosts, directory []byte, n int64) ShuffleFile {
	o, size := framesOf(tb, store, "staging/r/shuffle", rows, hosts, directory)
	return ShuffleFile{FrameObject: o, DirectoryBytes: size, Rows: n}
}

// directory returns a directory of one partition, that of a.b.
func directory(slash byte, rows, rowFrames, hosts, hostFrames uint64) []byte {
	b := append(codec.AppendMagic(nil, "SHFL", 1), slash, 1, partitionOf("a.b"))
	for _, n := range []uint64{rows, rowFrames, hosts, hostFrames} {
		b = codec.AppendUvarint(b, n)
	}
	return b
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
	rowKey := func(path string) string {
		return string((&Row{Domain: "a.b", Host: "a.b", PathQuery: path, Scheme: "http", Port: -1}).AppendKey(nil))
	}
	record := func(shared uint64, suffix string) key {
		return key{shared: shared, length: uint64(len(suffix)), suffix: suffix}
	}
	frame := func(keys ...key) string { return string(keyFrame(keys...)) }
	a, b := rowKey("/a"), rowKey("/b")
	const same = uint64(len("a.b\x00a.b\x00/")) // common prefix of a and b
	for name, c := range map[string]struct {
		keys string
		rows int64
		ok   bool
	}{
		"good":                   {frame(record(0, a), record(same, b[same:])), 2, true},
		"no key":                 {frame(record(0, "nonsense")), 1, false},
		"no lengths":             {"\x00" + a, 1, false},
		"only lengths":           {"\x7f" + a, 1, false},
		"lengths without an end": {"\xff", 1, false},
		"truncated shared":       {"\x01\x80" + a, 1, false},
		"truncated length":       {"\x01\x00" + a, 1, false},
		"truncated bytes":        {frame(key{shared: 0, length: uint64(len(a)), suffix: a[:10]}), 1, false},
		"bytes after the last":   {frame(record(0, a)) + "a", 1, false},
		"equal keys":             {frame(record(0, a), record(uint64(len(a)), "")), 2, false},
		"first key shares":       {frame(record(1, a)), 1, false},
		"shares too much":        {frame(record(0, a), record(uint64(len(a))+1, "x")), 2, false},
		"descending":             {frame(record(0, b), record(same, a[same:])), 2, false},
		"shares too little":      {frame(record(0, a), record(same-1, b[same-1:])), 2, false},
		"more rows than said":    {frame(record(0, a), record(same, b[same:])), 1, false},
		"fewer rows than said":   {frame(record(0, a)), 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := blob.NewMemory()
			got, err := mergeError(t, store, runOf(t, store, []byte(c.keys), c.rows))
			if c.ok && (err != nil || len(got) != 2) || !c.ok && !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%d rows, %v", len(got), err)
			}
		})
	}
}

// framedRow returns a row as in a frame, of the host with a number.
func framedRow(host uint32, path string, kind uint32, suffix string) string {
	b := codec.AppendU32(codec.AppendU32(nil, host), uint32(len(path))<<2|kind)
	b = append(b, path...)
	if kind == 2 {
		b = append(codec.AppendU32(b, uint32(len(suffix))), suffix...)
	}
	return string(b)
}

// framedHost returns a host as in a frame, with the number and size of its rows. Domain is a
// length, or the domain that follows the host.
func framedHost[D int | string](host string, domain D, rows, bytes int) string {
	b := codec.AppendU32(codec.AppendU32(nil, uint32(rows)), uint32(bytes))
	switch d := any(domain).(type) {
	case int:
		return string(codec.AppendU32(b, uint32(len(host)|d<<16))) + host
	case string:
		return string(codec.AppendU32(b, uint32(len(host)|len(d)<<16|1<<31))) + host + d
	}
	return ""
}

func TestShuffleOfBadRowsIsCorrupt(t *testing.T) {
	suffix := string((&Row{Domain: "", Scheme: "ftp", Port: 21}).AppendKey(nil)[3:])
	long := "/" + strings.Repeat("x", 200)
	rows := framedRow(0, "/b", 0, "") + framedRow(1, "/", 2, suffix) + framedRow(0, long, 1, "")
	sizes := []int{4 + 2 + 4 + len(long), 4 + 1 + 4 + len(suffix)}
	hosts := framedHost("www.a.b", 3, 2, sizes[0]) + framedHost("a.b", "a.b", 1, sizes[1])
	dir := directory(1, 3, 1, 2, 1)
	// One host and its rows.
	host := func(rows, bytes int) string { return framedHost("a.b", 3, rows, bytes) }
	one := directory(1, 1, 1, 1, 1)
	for name, c := range map[string]struct {
		rows, hosts string
		directory   []byte
		n           int64
		ok          bool
	}{
		"good":                      {rows, hosts, dir, 3, true},
		"a host without rows":       {rows, hosts + framedHost("", 0, 0, 0), directory(1, 3, 1, 3, 1), 3, true},
		"a path without a slash":    {rows, hosts, directory(0, 3, 1, 2, 1), 3, true},
		"slash of two":              {rows, hosts, directory(2, 3, 1, 2, 1), 3, false},
		"a path with a zero byte":   {framedRow(0, "/a\x00b", 0, ""), host(1, 8), one, 1, false},
		"a long one":                {framedRow(0, long+"\x00", 0, ""), host(1, 4+len(long)+1), one, 1, false},
		"zero byte and suffix":      {framedRow(0, "/\x00", 2, ""), host(1, 10), one, 1, false},
		"a path, no slash":          {framedRow(0, "a", 0, ""), host(1, 5), one, 1, false},
		"an empty path, no slash":   {framedRow(0, "", 0, ""), host(1, 4), one, 1, false},
		"a truncated row":           {framedRow(0, "/b", 0, "")[:9], host(1, 5), one, 1, false},
		"a truncated header":        {framedRow(0, "/b", 0, "")[:7], host(1, 3), one, 1, false},
		"a truncated suffix":        {framedRow(0, "/", 2, suffix)[:15], host(1, 11), one, 1, false},
		"a truncated suffix length": {framedRow(0, "/", 2, "")[:11], host(1, 7), one, 1, false},
		"an invalid suffix":         {framedRow(0, "/", 2, "nonsense"), host(1, 17), one, 1, false},
		"an unknown kind":           {framedRow(0, "/b", 3, ""), host(1, 6), one, 1, false},
		"an unknown host":           {framedRow(1, "/b", 0, ""), host(1, 6), one, 1, false},
		"another host's row":        {framedRow(0, "/b", 0, "") + framedRow(0, "/c", 0, ""), host(1, 6) + framedHost("w.a.b", 3, 1, 6), directory(1, 2, 1, 2, 1), 2, false},
		"another host's bytes":      {framedRow(0, "/b", 0, "") + framedRow(1, "/c", 0, ""), host(1, 7) + framedHost("w.a.b", 3, 1, 5), directory(1, 2, 1, 2, 1), 2, false},
		"one row as two":            {framedRow(0, "/bcdefgh", 0, "") + framedRow(1, "/c", 0, ""), host(2, 12) + framedHost("w.a.b", 3, 0, 6), directory(1, 2, 1, 2, 1), 2, false},
		"two rows as one":           {framedRow(0, "/", 0, "") + framedRow(0, "/", 0, ""), host(1, 14), one, 1, false},
		"bytes after the last":      {rows + "\x00", hosts, dir, 3, false},
		"another partition's":       {framedRow(0, "/b", 0, ""), framedHost("b.a", 3, 1, 6), one, 1, partitionOf("b.a") == partitionOf("a.b")},
		"a truncated host":          {rows, hosts[:len(hosts)-1], dir, 3, false},
		"a truncated host header":   {rows, hosts[:len(hosts)-7], dir, 3, false},
		"a host too long":           {framedRow(0, "/b", 0, ""), framedHost(strings.Repeat("a.", 600)+"a.b", 3, 1, 6), one, 1, false},
		"a domain too long":         {framedRow(0, "/b", 0, ""), framedHost("a.b", 4, 1, 6), one, 1, false},
		"a domain of its own long":  {framedRow(0, "/b", 0, ""), framedHost("a.b", strings.Repeat("a.", 600), 1, 6), one, 1, false},
		"more rows than said":       {rows, hosts, directory(1, 2, 1, 2, 1), 2, false},
		"fewer rows than said":      {rows, hosts, directory(1, 4, 1, 2, 1), 4, false},
		"more hosts than said":      {rows, hosts, directory(1, 3, 1, 1, 1), 3, false},
		"fewer hosts than said":     {rows, hosts, directory(1, 3, 1, 3, 1), 3, false},
		"more frames than there":    {rows, hosts, directory(1, 3, 2, 2, 1), 3, false},
		"fewer frames than there":   {rows, hosts, directory(1, 3, 1, 2, 0), 3, false},
		"frames of hosts as rows":   {rows, hosts, directory(1, 3, 2, 2, 0), 3, false},
		"another number of rows":    {rows, hosts, dir, 2, false},
		"another magic":             {rows, hosts, []byte("SHFM\x01\x00\x00\x00\x01\x00"), 3, false},
		"another version":           {rows, hosts, codec.AppendMagic(nil, "SHFL", 3), 3, false},
		"an empty directory":        {rows, hosts, codec.AppendMagic(nil, "SHFL", 1), 3, false},
		"bytes after the directory": {rows, hosts, append(bytes.Clone(dir), 0), 3, false},
		"partitions out of order":   {rows, hosts, append(codec.AppendMagic(nil, "SHFL", 1), 1, 2, 7, 1, 1, 1, 1, 7, 2, 0, 1, 0), 3, false},
		"more partitions than are":  {rows, hosts, append(codec.AppendMagic(nil, "SHFL", 1), 1, 0xff, 0x7f), 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := blob.NewMemory()
			f := &collector{tb: t}
			err := load(store, []ShuffleFile{shuffleOf(t, store, []byte(c.rows), []byte(c.hosts), c.directory, c.n)}, partitionOf("a.b"), partitionOf("a.b"), 1<<30, f)
			if c.ok && (err != nil || len(f.rows) != 3) || !c.ok && !errors.Is(err, codec.ErrCorrupt) && !codec.IsFormat(err) {
				t.Errorf("%d rows, %v", len(f.rows), err)
			}
		})
	}
}

// A corrupt file does not change the rows that a buffer already has, also if the file has rows of a
// host that should have none.
func TestCorruptShuffleLeavesOtherRows(t *testing.T) {
	ctx := context.Background()
	for _, path := range []string{"/c", "/" + strings.Repeat("c", 200)} {
		store := blob.NewMemory()
		rows := framedRow(0, "/b", 0, "") + framedRow(1, path, 0, "")
		hosts := framedHost("a.b", 3, 2, 6+4+len(path)) + framedHost("", 0, 0, 0)
		f := shuffleOf(t, store, []byte(rows), []byte(hosts), directory(1, 2, 1, 2, 1), 2)
		s, err := OpenShuffle(ctx, store, []ShuffleFile{f})
		if err != nil {
			t.Fatal(err)
		}
		b := NewBuffer(1 << 30)
		defer b.Release()
		host, err := b.Host("a.example", "www.a.example", urlnorm.DomainID("a.example"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/y", "/x"} {
			if err := b.AddPlain(host, []byte(path), true); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Load(ctx, s, 0, 255, nil); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatal(err)
		}
		c := &collector{tb: t}
		err = b.Rows(ctx, 0, 255, c)
		if err != nil || len(c.rows) != 2 || c.rows[0].PathQuery != "/x" || c.rows[1].PathQuery != "/y" {
			t.Errorf("%v, %v", c.rows, err)
		}
	}
}

// A reader allocates memory by the size of the file, not by the number of hosts in its directory.
func TestShuffleOfFewHostsTakesLittleMemory(t *testing.T) {
	store := blob.NewMemory()
	rows, hosts := []byte(framedRow(0, "/b", 0, "")), []byte(framedHost("a.b", 3, 1, 6))
	f := shuffleOf(t, store, rows, hosts, directory(1, 1, 1, 1<<24-1, 1), 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := load(store, []ShuffleFile{f}, 0, 255, 1<<30, &collector{tb: t}); !errors.Is(err, codec.ErrCorrupt) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("%d MiB", n>>20)
	}
}

// FuzzRun reads runs of arbitrary frames with correct checksums.
func FuzzRun(f *testing.F) {
	f.Add([]byte("\x02\x00\x05a\x00b\x00c"))
	m := newRowMaker(7)
	row := m.Row()
	text := string(row.AppendKey(nil))
	f.Add(keyFrame(key{shared: 0, length: uint64(len(text)), suffix: text}))
	f.Fuzz(func(t *testing.T, keys []byte) {
		if len(keys) == 0 {
			return
		}
		store := blob.NewMemory()
		for rows := range int64(4) {
			if _, err := mergeError(t, store, runOf(t, store, keys, rows)); err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%v is not a corruption", err)
			}
		}
	})
}

// FuzzShuffle reads shuffle files of arbitrary frames with correct checksums; the collector checks
// the order of rows.
func FuzzShuffle(f *testing.F) {
	f.Add([]byte(framedRow(0, "/b", 0, "")+framedRow(0, "/a", 1, "")),
		[]byte(framedHost("www.a.b", 3, 2, 12)), directory(1, 2, 1, 1, 1))
	f.Add([]byte(framedRow(0, "", 2, "x\x00\x00\x00\x00\x00")),
		[]byte(framedHost("a.b", "a.b", 1, 14)), directory(0, 1, 1, 1, 1))
	f.Fuzz(func(t *testing.T, rows, hosts, directory []byte) {
		if len(rows) == 0 || len(hosts) == 0 || len(directory) == 0 {
			return
		}
		store := blob.NewMemory()
		for n := range int64(4) {
			file := shuffleOf(t, store, rows, hosts, directory, n)
			err := load(store, []ShuffleFile{file}, 0, 255, 1<<30, &collector{tb: t})
			if err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%v is not a corruption", err)
			}
		}
	})
}

// FuzzSort compares the rows that a buffer passes on with the oracle.
func FuzzSort(f *testing.F) {
	f.Add([]byte("0/a\n1/ab\n0/a\n2/aaaaaaaaa\n3/aaaaaaaaab\n4\n5/"))
	f.Add(bytes.Repeat([]byte("0/aaaaaaaab\n1/aaaaaaaa\n9/aaaaaaaac\n0/aaaaaaaa/aaaaaaaa\n"), 10))
	f.Fuzz(func(t *testing.T, in []byte) {
		var rows []Row
		for line := range bytes.SplitSeq(in, []byte("\n")) {
			if len(line) == 0 || bytes.IndexByte(line, 0) >= 0 {
				continue
			}
			r := Row{Domain: "a.b", Host: "a.b", Scheme: "https", Port: -1, PathQuery: string(line[1:])}
			if line[0]&1 != 0 {
				r.Host = "www.a.b"
			}
			if line[0]&2 != 0 {
				r.Scheme = "http"
			}
			if line[0]&4 != 0 {
				r.Domain, r.Host = "b.a", "b.a"
			}
			if line[0]&8 != 0 {
				r.RawURL = string(line)
			}
			rows = append(rows, r)
		}
		fill(t, rows, 1<<30, func(b *Buffer) error {
			c := &collector{tb: t}
			if err := b.Rows(context.Background(), 0, 255, c); err != nil {
				return err
			}
			if diff := cmp.Diff(oracle(rows, 0, 255), c.rows); diff != "" {
				t.Error(diff)
			}
			return nil
		})
	})
}

func BenchmarkShuffleAndSort(b *testing.B) {
	rows := crawlRows(500_000)
	store, err := blob.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		files := writeShuffle(b, store, rows, 32<<20)
		sink := &countingSink{}
		for p := range 16 {
			if err := load(store, files, byte(p<<4), byte(p<<4|15), 1<<30, sink); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(sink.rows), "rows")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
}

// countingSink counts rows.
type countingSink struct{ rows int }

func (s *countingSink) Rows(_ []SortedHost, rows []SortedRow) (int, error) {
	s.rows += len(rows)
	return len(rows), nil
}

func BenchmarkSortRows(b *testing.B) {
	rows := crawlRows(500_000)
	for b.Loop() {
		fill(b, rows, 1<<30, func(buffer *Buffer) error {
			return buffer.Rows(context.Background(), 0, 255, &countingSink{})
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
}

// crawlRows returns rows like those of a crawl: few large sites, many small ones, deep paths.
func crawlRows(n int) []Row {
	m := newRowMaker(8)
	rows := make([]Row, n)
	for i := range rows {
		d := m.Rng.IntN(1 + m.Rng.IntN(1+m.Rng.IntN(20_000)))
		domain := fmt.Sprintf("site%d.example", d)
		rows[i] = Row{Domain: domain, Host: "www." + domain, Scheme: "https", Port: -1,
			PathQuery: fmt.Sprintf("/archive/%d/%02d/articles/%x.html", 2000+m.Rng.IntN(24), m.Rng.IntN(12), m.Rng.Uint64()),
			TS:        m.Rng.Int64N(1e12), HasTS: true}
	}
	return rows
}
