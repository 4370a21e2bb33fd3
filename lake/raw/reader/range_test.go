package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// readRanges reads an object range by range. It converts line numbers to those of the object.
func readRanges(data []byte, name string, plan raw.Plan, ranges []raw.Range) (got, error) {
	var all got
	var lines int64
	for i, rg := range ranges {
		stored := data[rg.Stored:]
		if plan.Format == raw.Parquet {
			stored = data
		}
		r, err := OpenRange(bytes.NewReader(stored), name, plan, rg)
		if err != nil {
			return all, err
		}
		read := readAll
		if i%2 == 1 {
			read = func(r *Reader) (got, error) { return readBatches(r, 7) }
		}
		g, err := read(r)
		for i, row := range g.Rows {
			_, text, _ := strings.Cut(row, " ")
			all.Rows = append(all.Rows, fmt.Sprintf("%d %s", lines+g.Lines[i], text))
			all.Offsets, all.Lines = append(all.Offsets, g.Offsets[i]), append(all.Lines, lines+g.Lines[i])
		}
		all.Counts.Records += g.Counts.Records
		all.Counts.Rejects += g.Counts.Rejects
		all.Counts.Blank += g.Counts.Blank
		all.Counts.Comments += g.Counts.Comments
		all.Counts.Spaced += g.Counts.Spaced
		all.Counts.BadTS += g.Counts.BadTS
		lines += r.Lines()
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// open returns the function with which Ranges opens an object in memory.
func open(data []byte) func(int64) (io.ReadCloser, error) {
	return func(off int64) (io.ReadCloser, error) {
		return opened{bytes.NewReader(data[off:]), bytes.NewReader(data)}, nil
	}
}

type opened struct {
	io.Reader
	parquetin.RandomAccess
}

func (opened) Close() error { return nil }

// cutAt returns the ranges of uncompressed text between the given offsets.
func cutAt(size int, at ...int) []raw.Range {
	var out []raw.Range
	last := 0
	for _, b := range append(at, size) {
		if b > last {
			out = append(out, raw.Range{From: int64(last), To: int64(b), Stored: int64(last), StoredTo: int64(b)})
			last = b
		}
	}
	return out
}

// seekableText compresses data in frames of the sizes that size returns, and appends a seek table.
func seekableText(tb testing.TB, data []byte, checksums bool, size func() int) []byte {
	tb.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	var out, table []byte
	frames := 0
	for len(data) > 0 {
		n := min(size(), len(data))
		before := len(out)
		out = enc.EncodeAll(data[:n], out)
		table = binary.LittleEndian.AppendUint32(table, uint32(len(out)-before))
		table = binary.LittleEndian.AppendUint32(table, uint32(n))
		if checksums {
			table = append(table, 1, 2, 3, 4)
		}
		data = data[n:]
		frames++
	}
	out = binary.LittleEndian.AppendUint32(out, seekTableMagic)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(table)+seekFooterSize))
	out = append(out, table...)
	out = binary.LittleEndian.AppendUint32(out, uint32(frames))
	flags := byte(0)
	if checksums {
		flags = seekChecksums
	}
	return binary.LittleEndian.AppendUint32(append(out, flags), seekFooterMagic)
}

// Constants of the seek table's format (facebook/zstd, contrib/seekable_format).
const (
	seekTableMagic  = 0x184D2A5E
	seekFooterMagic = 0x8F92EAB1
	seekFooterSize  = 9
	seekChecksums   = 0x80
)

// rangedTexts returns objects in all formats of text that can be cut, with every kind of line.
func rangedTexts() map[string]string {
	long := strings.Repeat("x", 150)
	return map[string]string{
		"list.txt":   "\ufeffhttp://a/\n\n# remark\nhttp://b/\r\n\ufeffhttp://c/\n" + long + "\n\r\nhttp://d/ \n\n\nhttp://e/",
		"mac.txt":    "http://a/\r\rhttp://b/\r# remark\r" + long + "\rhttp://c/",
		"t.tsv":      "title\n\nurl\tts\tn\nhttp://a/\t2020-01-01\t1\n\"http://b/\"\t\t2\n\"http://c/\tx\ty\nhttp://d/\tno\t\"q\"\"q\"\n\t\t\n\"" + long + "\"\t\t\n" + long + "\nhttp://e/\t\t4\r\n\tx\t\n",
		"l.jsonl":    "{\"url\":\"http://a/\",\"ts\":5}\n\n{\"url\":\"http://b/\",\"x\":\"\\n\"}\n{broken\n\"http://c/\"\n{\"x\":1}\n{\"url\":\"" + long + "\"}\n{\"url\":\"http://d/\"}",
		"i.cdx":      " CDX N b a m s k r M S V g\norg,a)/ 20200101000000 http://a/ - - - - - 1 2 f\n\n CDX N b a\norg,b)/ x http://b/\nshort line\n" + long + "\norg,c)/ 20200101000000 http://c/ - - - - - 1 2 f\n",
		"i.cdxj":     "org,a)/ 20200101000000 {\"url\":\"http://a/\"}\n!meta\norg,b)/ 20200101000000 {\"url\":\"http://b/\"}\nbad\norg,c)/ 20200101000000 {\"nope\":1}\n",
		"blank.txt":  "\n\n\n",
		"one.txt":    "http://a/",
		"double.txt": "http://a/\nhttp://b/\n",
	}
}

func TestEveryLineIsInOneRange(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for name, content := range rangedTexts() {
		opt := raw.Options{MaxLine: 120, Extras: []string{"*"}}
		whole, plan := read(t, name, content, opt)
		if !plan.Ranged() {
			t.Fatalf("%s: plan %+v is not ranged", name, plan)
		}
		first := len("\ufeff") // the first range has the byte order mark and the header row
		if plan.HeaderRow > 0 {
			first = strings.Index(content, "http://a/")
		}
		check := func(ranges []raw.Range) {
			t.Helper()
			cut, err := readRanges([]byte(content), name, plan, ranges)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("%s in ranges %v:\n%s", name, ranges, diff)
			}
		}
		var every []int
		for at := first; at < len(content); at++ {
			every = append(every, at)
		}
		for _, at := range testenv.Places(first, len(content), 7) {
			check(cutAt(len(content), at))
		}
		check(cutAt(len(content), every...))
		for range 200 / testenv.Every(5) {
			var at []int
			for i := first; i < len(content); i++ {
				if rng.IntN(12) == 0 {
					at = append(at, i)
				}
			}
			check(cutAt(len(content), at...))
		}
	}
}

// bigText returns a list that is longer than raw.HeadSize, with rejects and comments.
func bigText(lines int) []byte {
	rng := rand.New(rand.NewPCG(7, 8))
	var b bytes.Buffer
	for i := range lines {
		switch rng.IntN(20) {
		case 0:
			b.WriteString("\n")
		case 1:
			b.WriteString("# remark\r\n")
		case 2:
			fmt.Fprintf(&b, "http://long.example/%s\n", strings.Repeat("y", rng.IntN(5000)))
		default:
			fmt.Fprintf(&b, "http://h%d.example/p/%d\n", rng.IntN(50), i)
		}
	}
	return b.Bytes()
}

func TestRangesOfSeekableZstd(t *testing.T) {
	t.Parallel()
	text := bigText(20_000)
	whole, err := readBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(rest []byte) func() int {
		return func() int { // frames of whole lines
			n := min(len(rest), 3000)
			if i := bytes.IndexByte(rest[n:], '\n'); i >= 0 {
				n += i + 1
			} else {
				n = len(rest)
			}
			rest = rest[n:]
			return n
		}
	}
	rng := rand.New(rand.NewPCG(9, 1))
	for name, size := range map[string]func() int{
		"even":  func() int { return 10_000 },
		"odd":   func() int { return 1 + rng.IntN(30_000) },
		"lines": lines(text),
		"one":   func() int { return len(text) },
	} {
		for _, checksums := range []bool{false, true} {
			if !checksums && name != "even" && testenv.Every(2) > 1 {
				continue
			}
			if name == "lines" {
				size = lines(text)
			}
			data := seekableText(t, text, checksums, size)
			for _, every := range []int64{1, 1000, 20_000, int64(len(data)) - 1, int64(len(data))} {
				plan, ranges, err := Ranges(open(data), int64(len(data)), "x.zst", raw.Options{}, every)
				if err != nil {
					t.Fatal(err)
				}
				if name == "one" || every >= int64(len(data)) {
					if ranges != nil {
						t.Errorf("%s: %d ranges, want none", name, len(ranges))
					}
					continue
				}
				// Two cuts may fall on the same border. None is in the first HeadSize bytes.
				if len(ranges) < 2 || every == 1 && name == "even" && len(ranges) < (len(text)-raw.HeadSize)/10_000 {
					t.Fatalf("%s every %d: %d ranges", name, every, len(ranges))
				}
				if last := ranges[len(ranges)-1]; ranges[0].To < raw.HeadSize || last.To != int64(len(text)) || last.StoredTo != int64(len(data)) {
					t.Fatalf("wrong ranges %v", ranges)
				}
				cut, err := readRanges(data, "x.zst", plan, ranges)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(whole, cut); diff != "" {
					t.Fatalf("%s every %d:\n%s", name, every, diff)
				}
			}
		}
	}
}

func TestRangesOfText(t *testing.T) {
	text := bigText(20_000)
	for _, every := range []int64{4096, 100_000, int64(len(text)) - 1} {
		plan, ranges, err := Ranges(open(text), int64(len(text)), "x.txt", raw.Options{}, every)
		if err != nil || len(ranges) < 2 {
			t.Fatalf("%v, %v", ranges, err)
		}
		for _, rg := range ranges[1:] {
			if n := rg.To - rg.From; n > every+1 || n < every/2 {
				t.Errorf("every %d: a range of %d bytes", every, n)
			}
		}
		whole, err := readBytes(text)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := readRanges(text, "x.txt", plan, ranges)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestRangesOfAllFormats holds that what is read of an object in ranges is what is read of it
// in one piece, for every object of testdata, every format of lines and fields of every kind.
func TestRangesOfAllFormats(t *testing.T) {
	t.Parallel()
	texts := rangedTexts()
	options := map[string]raw.Options{}
	for _, f := range recordFormats {
		texts[f.name], options[f.name] = f.make(50), f.opt
	}
	fields := []string{"http://a.com/", "http://b.com/ http://c.com/", "http://d.com/;http://e.com/x",
		"http://f.com/x # a comment", "http://g.com/ Our page", "no URL", "http://h.com/xhttp://i.com/"}
	for _, field := range fields {
		texts["several.txt"] += strings.Repeat("http://z.com/\n", 9) + field + "\n"
		texts["several.tsv"] += "1\thttp://z.com/\n1\t" + field + "\n"
		texts["several.csv"] += "1,http://z.com/,x\n1,\"" + field + "\",x\n"
		texts["several.jsonl"] += `{"n":1,"url":"` + field + "\"}\n"
	}
	paths, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if texts[filepath.Base(path)] = string(data); strings.HasSuffix(path, ".want") || unpack.CompressionOf(data) != raw.NoCompression {
			delete(texts, filepath.Base(path))
		}
	}
	var cut []string
	for name, text := range texts {
		data := []byte(strings.Repeat(strings.TrimSuffix(text, "\n")+"\n", 1+1<<20/len(text)))
		plan, ranges, err := Ranges(open(data), int64(len(data)), name, options[name], 100<<10)
		if errors.Is(err, raw.ErrInput) && name != "i.cdxj" || err == nil && len(ranges) == 0 {
			continue // read whole, or refused
		}
		if err != nil || len(ranges) < 9 {
			t.Fatalf("%s: %d ranges, %v", name, len(ranges), err)
		}
		cut = append(cut, plan.Format)
		r, err := New(bytes.NewReader(data), name, options[name])
		if err != nil {
			t.Fatal(err)
		}
		whole, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := readRanges(data, name, plan, ranges)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(whole.Rows, parts.Rows) || !slices.Equal(whole.Offsets, parts.Offsets) {
			i := 0
			for i < min(len(whole.Rows), len(parts.Rows)) && whole.Rows[i] == parts.Rows[i] {
				i++
			}
			t.Errorf("%s (%s): %d rows, in ranges %d; row %d is %q, in ranges %q", name, plan.Format, len(whole.Rows),
				len(parts.Rows), i, whole.Rows[min(i, len(whole.Rows)-1)], parts.Rows[min(i, len(parts.Rows)-1)])
		}
		if diff := cmp.Diff(whole.Counts, parts.Counts); diff != "" {
			t.Errorf("%s: counts: %s", name, diff)
		}
	}
	for _, format := range []string{raw.Lines, raw.TSV, raw.Spaced, raw.JSONLines, raw.CDX, raw.CDXJ, raw.CrawlLog, raw.NTriples} {
		if !slices.Contains(cut, format) {
			t.Errorf("no object of format %s is read in ranges", format)
		}
	}
}

func TestObjectsThatCannotBeCutAreReadWhole(t *testing.T) {
	text := bigText(20_000)
	cat := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	even := func() int { return 10_000 }
	good := seekableText(t, text, true, even)
	broken := func(at int, x byte) []byte {
		b := bytes.Clone(good)
		b[len(b)-at] ^= x
		return b
	}
	table := bytes.Repeat([]byte("\"http://a/\nx\",http://b/,c\n"), 30_000)
	for name, data := range map[string][]byte{
		"a.csv":      cat([]byte("note,url,x\n"), table),
		"a.json":     cat([]byte("["), bytes.Repeat([]byte("{\"url\":\"http://a/\"},\n"), 30_000), []byte("{}]")),
		"a.gz":       compressed(t, "gzip", text),
		"plain.zst":  compressed(t, "zstd", text),
		"joined.zst": cat(good, good),
		"magic.zst":  broken(1, 1),
		"flags.zst":  broken(5, 4),
		"count.zst":  broken(9, 1),
		"huge.zst":   broken(7, 0x7f),
		"p.parquet":  writeParquet(t, []struct{ URL string }{{"http://a/"}, {"http://b/"}}, pq.MaxRowsPerRowGroup(2)),
		"short.txt":  []byte("http://a/\n"),
		"head.txt":   text[:raw.HeadSize],
		"empty.txt":  nil,
	} {
		plan, ranges, err := Ranges(open(data), int64(len(data)), name, raw.Options{}, 1000)
		if err != nil || ranges != nil {
			t.Errorf("%s (%s): %d ranges, %v", name, plan.Format, len(ranges), err)
		}
	}
	var format *raw.FormatError
	if _, _, err := Ranges(open([]byte("%PDF-1.4")), 8, "a.pdf", raw.Options{}, 1); !errors.As(err, &format) {
		t.Errorf("a rejected object: %v", err)
	}
	fault := errors.New("gone")
	if _, _, err := Ranges(func(int64) (io.ReadCloser, error) { return nil, fault }, 8, "a", raw.Options{}, 1); !errors.Is(err, fault) {
		t.Errorf("an object that cannot be opened: %v", err)
	}
}

// A wrong seek table is an error. It never changes the records.
func TestWrongSeekTableIsAnError(t *testing.T) {
	t.Parallel()
	text := bigText(6_000)
	data := seekableText(t, text, true, func() int { return 10_000 })
	whole, err := readBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	frames := (len(text) + 9_999) / 10_000
	table := len(data) - seekFooterSize - 12*frames
	move := func(frame, field int, by int32) []byte {
		b := bytes.Clone(data)
		at := b[table+12*frame+4*field:]
		binary.LittleEndian.PutUint32(at, uint32(int32(binary.LittleEndian.Uint32(at))+by))
		return b
	}
	for name, bad := range map[string][]byte{
		"longer":          move(frames-3, 1, 1),
		"shorter":         move(frames-3, 1, -1),
		"last longer":     move(frames-1, 1, 7),
		"last shorter":    move(frames-1, 1, -7),
		"first":           move(0, 1, 100),
		"nothing":         move(frames-2, 1, -10_000),
		"stored of two":   bytes.Clone(data),
		"raw of two, far": bytes.Clone(data),
	} {
		switch name {
		case "stored of two":
			bad = move(frames-3, 0, 1)
			at := bad[table+12*(frames-2):]
			binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)-1)
		case "raw of two, far":
			bad = move(frames-4, 1, 5)
			at := bad[table+12*(frames-2)+4:]
			binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)-5)
		}
		plan, ranges, err := Ranges(open(bad), int64(len(bad)), "x.zst", raw.Options{}, 1)
		if err != nil || len(ranges) < 2 {
			t.Fatalf("%s: %d ranges, %v", name, len(ranges), err)
		}
		if _, err := readRanges(bad, "x.zst", plan, ranges); !errors.Is(err, raw.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A flipped bit is an error, or changes nothing, or leaves no ranges.
	rng := rand.New(rand.NewPCG(2, 2))
	for range 300 / testenv.Every(10) {
		bad := bytes.Clone(data)
		at := rng.IntN(len(bad))
		if rng.IntN(2) == 0 {
			at = table + rng.IntN(len(bad)-table)
		}
		bad[at] ^= 1 << rng.IntN(8)
		plan, ranges, err := Ranges(open(bad), int64(len(bad)), "x.zst", raw.Options{}, 1)
		if err != nil {
			if !errors.Is(err, raw.ErrInput) {
				t.Fatalf("byte %d: %v", at, err)
			}
			continue
		}
		if ranges == nil {
			continue
		}
		cut, err := readRanges(bad, "x.zst", plan, ranges)
		if err == nil && !cmp.Equal(whole, cut) || err != nil && !errors.Is(err, raw.ErrInput) {
			t.Fatalf("byte %d of %d: %v, or other records", at, len(bad), err)
		}
	}
}

func TestRangeOfATruncatedObjectIsAnError(t *testing.T) {
	text := bigText(20_000)
	data := seekableText(t, text, true, func() int { return 10_000 })
	plan, ranges, err := Ranges(open(data), int64(len(data)), "x.zst", raw.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	rg := ranges[len(ranges)/2]
	for end := rg.Stored; end < rg.StoredTo; end++ {
		r, err := OpenRange(bytes.NewReader(data[rg.Stored:end]), "x.zst", plan, rg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(r)
		var bad *raw.DataError
		if !errors.As(err, &bad) || bad.Line != 0 || bad.Offset < rg.From || bad.Offset > rg.To || bad.CompressedOffset < rg.Stored || bad.CompressedOffset > end {
			t.Fatalf("cut at %d: %+v", end, err)
		}
	}
}

func TestImpossibleRangesAreErrors(t *testing.T) {
	list := raw.Plan{Compression: raw.NoCompression, Format: raw.Lines}
	for _, c := range []struct {
		plan raw.Plan
		rg   raw.Range
	}{
		{raw.Plan{Compression: raw.NoCompression, Format: raw.CSV}, raw.Range{From: 0, To: 1, Stored: 0, StoredTo: 1}},
		{raw.Plan{Compression: "gzip", Format: raw.Lines}, raw.Range{From: 0, To: 1, Stored: 0, StoredTo: 1}},
		{raw.Plan{Compression: "gzip", Format: raw.Parquet}, raw.Range{From: 0, To: 1, Stored: 0, StoredTo: 1}},
		{list, raw.Range{}}, {list, raw.Range{From: -1, To: 1, Stored: 0, StoredTo: 1}}, {list, raw.Range{From: 2, To: 1, Stored: 2, StoredTo: 3}}, {list, raw.Range{From: 0, To: 1, Stored: 1, StoredTo: 1}},
	} {
		if _, err := OpenRange(strings.NewReader("x"), "x", c.plan, c.rg); err == nil {
			t.Errorf("%+v of %+v: no error", c.rg, c.plan)
		}
	}
}

// A range inside a long line must not read on to the end of that line.
func TestRangeWithinALineReadsNoFurtherThanItself(t *testing.T) {
	rg := raw.Range{From: 1 << 20, To: 2 << 20, Stored: 1 << 20, StoredTo: 2 << 20}
	endless := &counted{}
	r, err := OpenRange(endless, "x", raw.Plan{Compression: raw.NoCompression, Format: raw.Lines}, rg)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil || len(g.Rows) != 0 || r.Lines() != 0 {
		t.Fatalf("%v, %v, %d lines", g.Rows, err, r.Lines())
	}
	if endless.n > rg.To-rg.From+1<<17 {
		t.Errorf("read %d bytes of a range of %d", endless.n, rg.To-rg.From)
	}
}

// counted yields the letter x without end and counts the bytes.
type counted struct{ n int64 }

func (c *counted) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	c.n += int64(len(p))
	return len(p), nil
}

func FuzzRanges(f *testing.F) {
	for name, text := range rangedTexts() {
		f.Add(name, []byte(text), []byte{5, 40, 1, 1, 200})
	}
	f.Fuzz(func(t *testing.T, name string, data, cuts []byte) {
		opt := raw.Options{MaxLine: 120, Extras: []string{"*"}}
		r, err := New(bytes.NewReader(data), name, opt)
		if err != nil || !r.Plan().Ranged() || r.Plan().Compression != raw.NoCompression {
			return
		}
		whole, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		at := len("\ufeff")
		if r.Plan().HeaderRow > 0 {
			if len(whole.Offsets) == 0 {
				return
			}
			at = int(whole.Offsets[0])
		}
		var borders []int
		for _, c := range cuts {
			if at += 1 + int(c); at < len(data) {
				borders = append(borders, at)
			}
		}
		cut, err := readRanges(data, name, r.Plan(), cutAt(len(data), borders...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Fatalf("cut at %v:\n%s", borders, diff)
		}
	})
}
