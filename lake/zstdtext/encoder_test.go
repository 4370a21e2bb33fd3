package zstdtext

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/seekable"
)

func newDecoder(tb testing.TB) *zstd.Decoder {
	tb.Helper()
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(dec.Close)
	return dec
}

// check decodes a frame with another decoder and compares its header and content.
func check(tb testing.TB, dec *zstd.Decoder, frame, lengths, text []byte) {
	tb.Helper()
	want := slices.Concat(lengths, text)
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		tb.Fatal(err)
	}
	if !h.SingleSegment || h.HasCheckSum || h.DictionaryID != 0 || h.FrameContentSize != uint64(len(want)) {
		tb.Fatalf("%d and %d bytes: header %+v", len(lengths), len(text), h)
	}
	got, err := dec.DecodeAll(frame, make([]byte, 0, len(want)))
	if err != nil || !bytes.Equal(got, want) {
		tb.Fatalf("%d and %d bytes: read %d, %v", len(lengths), len(text), len(got), err)
	}
}

func random(seed uint64, n, letters int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.IntN(letters))
	}
	return b
}

// words is a text of a few thousand different words, as paths are.
func words(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	var vocabulary [3000]string
	for i := range vocabulary {
		w := make([]byte, 2+rng.IntN(9))
		for j := range w {
			w[j] = "etaoinshrdlucmfw0123"[rng.IntN(20)*rng.IntN(20)/20]
		}
		vocabulary[i] = string(w)
	}
	var b []byte
	for len(b) < n {
		b = append(b, vocabulary[rng.IntN(len(vocabulary))*rng.IntN(len(vocabulary))/len(vocabulary)]...)
		b = append(b, "/-_.=&"[rng.IntN(6)*rng.IntN(6)/6])
	}
	return b[:n]
}

// fibonacci is a text whose optimal codes exceed the longest code allowed.
func fibonacci() (b []byte) {
	for s, n, m := 0, 1, 1; len(b) < 100_000; s, n, m = s+1, m, n+m {
		b = append(b, bytes.Repeat([]byte{byte(s)}, n)...)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	rng.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	return b
}

// texts has texts at the edges of the format, by name.
func texts() map[string][]byte {
	const block = seekable.MaxRawBlock
	far := random(1, posMask, 256)
	all := map[string][]byte{
		"empty":                          nil,
		"one huge match":                 bytes.Repeat(random(2, 1000, 256), 120),
		"one huge match over blocks":     bytes.Repeat(random(3, 1000, 256), 500),
		"the farthest match":             slices.Concat(far, far),
		"a match farther than that":      slices.Concat(far, []byte{1}, far, []byte{1}),
		"distance 1":                     slices.Concat(words(4, 500), bytes.Repeat([]byte("a"), 1000), words(5, 500), bytes.Repeat([]byte("b"), 70_000)),
		"rare codes at their longest":    fibonacci(),
		"literals of one symbol":         bytes.Repeat([]byte("aaaaaaa/bcdefgh"), 5),
		"a match at the end":             slices.Concat(words(6, 5000), words(6, 100)),
		"a match up to the last but one": slices.Concat(words(6, 5000), words(6, 100), []byte{0}),
		"matches back to back":           []byte(strings.Repeat("/abcdef/ghijkl/abcdef/mnopqr/ghijkl/mnopqr", 400)),
		"raw block between others":       slices.Concat(words(7, block), random(8, block, 256), words(7, block)),
		"RLE block between others":       slices.Concat(words(7, block), bytes.Repeat([]byte("x"), block), words(7, block)),
		"a match over an RLE block":      slices.Concat(bytes.Repeat([]byte("x"), block-100), words(9, 100), bytes.Repeat([]byte("x"), block), words(9, 100)),
		"all bytes":                      random(10, 50_000, 256),
		"many symbols, few often":        slices.Concat(random(11, 300, 256), words(12, 20_000)),
	}
	for _, n := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 511, 512, 513, 1023, 1024, 1025, 16_383, 16_384,
		block - 1, block, block + 1, 2*block - 1, 2 * block, 2*block + 1, 300_000} {
		all[fmt.Sprint(n, " bytes of words")] = words(13, n)
		all[fmt.Sprint(n, " bytes the same")] = bytes.Repeat([]byte("a"), n)
		all[fmt.Sprint(n, " bytes of noise")] = random(14, n, 256)
		all[fmt.Sprint(n, " bytes of two letters")] = random(15, n, 2)
		all[fmt.Sprint(n, " bytes of 40 letters")] = random(16, n, 40)
		all[fmt.Sprint(n, " bytes of 129 letters")] = random(17, n, 129)
	}
	return all
}

func TestOtherDecodersReadFrames(t *testing.T) {
	dec := newDecoder(t)
	var e Encoder
	var all, want []byte
	for name, text := range texts() {
		for _, lengths := range [][]byte{
			nil, {7}, random(18, 3000, 256), words(19, 4000), bytes.Repeat([]byte("l"), 4000), random(20, seekable.MaxRawBlock+5, 200),
		} {
			frame := e.Append([]byte("before"), lengths, text)
			if !bytes.HasPrefix(frame, []byte("before")) {
				t.Fatal("Append changed what dst held")
			}
			frame = frame[len("before"):]
			func() {
				defer func() {
					if t.Failed() {
						t.Log(name)
					}
				}()
				check(t, dec, frame, lengths, text)
			}()
			// Raw blocks take three bytes each besides their content.
			blocks := 2 + len(lengths)/seekable.MaxRawBlock + len(text)/seekable.MaxRawBlock
			if most := len(lengths) + len(text) + 9 + 3*blocks; len(frame) > most {
				t.Errorf("%s: %d and %d bytes compress to %d", name, len(lengths), len(text), len(frame))
			}
			all, want = append(all, frame...), append(append(want, lengths...), text...)
		}
	}
	program, ok := testenv.Installed(t, "zstd")
	if !ok {
		return
	}
	path := filepath.Join(t.TempDir(), "frames.zst")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "-dc", path).Output(); err != nil || !bytes.Equal(out, want) {
		t.Errorf("%s -dc: %v, or other content than was encoded", program, err)
	}
}

// varied repeats text, each copy a little different, so that there are matches and sometimes
// several blocks.
func varied(text []byte, times int) []byte {
	most := 5000
	if times%32 == 0 {
		most = 150_000
	}
	text = bytes.Repeat(text, min(times, 1+most/max(1, len(text))))
	for i := 0; i < len(text); i += 1 + times*7 {
		text[i] ^= byte(i >> 8)
	}
	return text
}

// FuzzAppend encodes varied copies of its input, so that there are matches and several blocks.
func FuzzAppend(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint16(0))
	f.Add([]byte("lengths"), []byte("/a/b/c/index.html"), uint16(1))
	f.Add(bytes.Repeat([]byte{1, 2}, 50), words(1, 3000), uint16(3))
	f.Add([]byte{}, words(2, 500), uint16(700))
	f.Add([]byte{}, random(3, 300, 256), uint16(1500))
	dec := newDecoder(f)
	var used Encoder
	f.Fuzz(func(t *testing.T, lengths, text []byte, times uint16) {
		text = varied(text, int(times))
		frame := used.Append(nil, lengths, text)
		check(t, dec, frame, lengths, text)
		var e Encoder
		if !bytes.Equal(e.Append(nil, lengths, text), frame) {
			t.Fatal("a new encoder writes another frame")
		}
	})
}

func TestSameInputSameBytes(t *testing.T) {
	inputs := [][]byte{words(1, 70_000), words(2, 300_000), words(1, 1000), random(1, 140_000, 256), nil, words(3, 20_000)}
	var used Encoder
	for round := range 3 * maxEpoch {
		in := inputs[round%len(inputs)]
		got := used.Append(nil, in[:len(in)/10], in)
		var e Encoder
		if !bytes.Equal(got, e.Append(nil, in[:len(in)/10], in)) {
			t.Fatalf("frame %d depends on earlier frames", round)
		}
	}
}

// More sequences than the finder ever makes, so that their number takes three bytes.
func TestManySequences(t *testing.T) {
	dec := newDecoder(t)
	text := bytes.Repeat([]byte("abcd"), seekable.MaxRawBlock/4)
	for _, n := range []int{1, 2, 127, 128, 0x7eff, 0x7f00, 0x7f01, (len(text) - 8) / minMatch} {
		var matches []match
		for i := range n {
			matches = append(matches, match{int32(8 + minMatch*i), int32(8 + minMatch*(i+1)), int32(4 + 4*(i&1))})
		}
		var e Encoder
		e.seqs.set(text, 0, matches, firstDistance)
		frame := append(seekable.AppendZstdHeader(nil, len(text)), 0, 0, 0)
		at := len(frame)
		frame = e.seqs.append(e.lits.append(frame, e.seqs.literals))
		putBlockHeader(frame[at-blockHeader:], blockCompressed, len(frame)-at, true)
		check(t, dec, frame, nil, text)
	}
}

// Sequences of all lengths and distances, repeated distances among them, with and without literals.
func TestSequencesOfAllSizes(t *testing.T) {
	dec := newDecoder(t)
	rng := rand.New(rand.NewPCG(5, 1))
	for range 200 {
		text := random(rng.Uint64(), 9, 256)
		var matches []match
		distances := []int{1, 4, 8, 2, 3}
		for len(text) < seekable.MaxRawBlock-50 {
			if rng.IntN(3) > 0 {
				text = append(text, random(rng.Uint64(), 1<<rng.IntN(12)+rng.IntN(40), 256)...)
			}
			d := distances[rng.IntN(len(distances))]
			switch rng.IntN(4) {
			case 0:
				d = 1 + rng.IntN(len(text))
			case 1:
				d = max(1, distances[len(distances)-1]-1)
			}
			d = min(d, len(text))
			start := len(text)
			for range minMatch + rng.IntN(1+1<<rng.IntN(14)) {
				text = append(text, text[len(text)-d])
			}
			text = text[:min(len(text), seekable.MaxRawBlock)]
			if len(text) < start+minMatch {
				text = text[:start]
				break
			}
			matches = append(matches, match{int32(start), int32(len(text)), int32(d)})
			distances = append(distances, d)
			if len(distances) > 5 {
				distances = distances[1:]
			}
		}
		text = text[:min(len(text), seekable.MaxRawBlock)]
		var e Encoder
		e.seqs.set(text, 0, matches, firstDistance)
		frame := append(seekable.AppendZstdHeader(nil, len(text)), 0, 0, 0)
		at := len(frame)
		frame = e.seqs.append(e.lits.append(frame, e.seqs.literals))
		putBlockHeader(frame[at-blockHeader:], blockCompressed, len(frame)-at, true)
		if len(frame)-at < seekable.MaxRawBlock {
			check(t, dec, frame, nil, text)
		}
	}
}

// Texts of any size, with matches up to their end, and literals used in place, end where mapped
// memory ends.
func TestNoReadPastEnd(t *testing.T) {
	dec := newDecoder(t)
	var e Encoder
	memory := testenv.Guarded(t, 3000)
	rng := rand.New(rand.NewPCG(8, 1))
	for n := range len(memory) {
		text := memory[len(memory)-n:]
		copy(text, words(uint64(n), n))
		if n > 100 {
			most := rng.IntN(n / 2)
			copy(text[n-most:], text[:most])
		}
		check(t, dec, e.Append(nil, nil, text), nil, text)
		counts := make([]int32, n/4)
		for i := range counts {
			counts[i] = 1 + rng.Int32N(3)
		}
		values := text[n&3:]
		check(t, dec, e.AppendRuns(nil, values, 4, counts), nil, repeat(values, 4, counts))
	}
}

// A sequence with 33 extra bits comes before one whose codes are all rare, so that each of the
// three states gives off eight bits. With seven bits left over these are 64, a whole word.
func TestSequencesFillAWord(t *testing.T) {
	dec := newDecoder(t)
	rng := rand.New(rand.NewPCG(6, 1))
	text := random(7, 40, 256)
	var matches []match
	add := func(literals, length, distance int) {
		for range literals {
			text = append(text, byte(rng.IntN(256)))
		}
		start := len(text)
		for range length {
			text = append(text, text[len(text)-distance])
		}
		matches = append(matches, match{int32(start), int32(len(text)), int32(distance)})
	}
	for range 40 {
		for len(text) < 70_000 || rng.IntN(8) > 0 {
			add(3+rng.IntN(3), 4+rng.IntN(4), 4+rng.IntN(32))
		}
		add(20+rng.IntN(4), 70+rng.IntN(8), 40_000+rng.IntN(1000))
		add(256+rng.IntN(100), minMatch+512+rng.IntN(100), 66_000+rng.IntN(1000))
	}
	if len(text) > seekable.MaxRawBlock {
		t.Fatalf("%d bytes are more than a block", len(text))
	}
	var e Encoder
	e.seqs.set(text, 0, matches, firstDistance)
	frame := append(seekable.AppendZstdHeader(nil, len(text)), 0, 0, 0)
	at := len(frame)
	frame = e.seqs.append(e.lits.append(frame, e.seqs.literals))
	putBlockHeader(frame[at-blockHeader:], blockCompressed, len(frame)-at, true)
	check(t, dec, frame, nil, text)
}

// Each match repeats the text at its distance.
func TestMatchesRepeatText(t *testing.T) {
	for name, text := range texts() {
		var f finder
		f.reset()
		for from := 0; from < len(text); from += seekable.MaxRawBlock {
			to := min(len(text), from+seekable.MaxRawBlock)
			end := from
			for _, m := range f.parse(text[:to], from) {
				start, stop, d := int(m.start), int(m.end), int(m.distance)
				if start < end || stop < start+minMatch || stop > to || d < 1 || d > start ||
					!bytes.Equal(text[start:stop], text[start-d:stop-d]) {
					t.Fatalf("%s: match %+v after %d", name, m, end)
				}
				end = stop
			}
		}
	}
}

func TestHuffmanCodesAreComplete(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	for range 2000 {
		var h huffman
		n, last, sum := 2+rng.IntN(255), 0, 0
		skew := rng.IntN(17)
		for s := range n {
			h.total[s] = 1<<rng.IntN(1+skew) + uint32(rng.IntN(3))
			last = s
			sum += int(h.total[s])
		}
		if longest := h.build(last); longest > maxCodeBits {
			t.Fatalf("a code of %d bits", longest)
		}
		full, size := 0, 0
		for s := range n {
			l := int(h.lengths[s])
			if l < 1 {
				t.Fatalf("symbol %d of %d has no code", s, n)
			}
			full += 1 << (maxCodeBits - l)
			size += l * int(h.total[s])
		}
		for i, o := range h.order[1:] {
			if before := h.order[i]; h.lengths[before&0xff] < h.lengths[o&0xff] {
				t.Fatalf("a symbol that occurs %d times has a longer code than one with %d", o>>8, before>>8)
			}
		}
		if full != 1<<maxCodeBits {
			t.Fatalf("codes of %d symbols fill %d of %d", n, full, 1<<maxCodeBits)
		}
		if size > sum*8 {
			t.Fatalf("%d symbols take %d bits", sum, size)
		}
	}
}

func TestNormalizedCountsFillTheTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for range 20_000 {
		counts := make([]uint32, 1+rng.IntN(53))
		total := uint32(0)
		for s := range counts {
			if rng.IntN(3) > 0 {
				counts[s] = uint32(rng.IntN(1 + 1<<rng.IntN(15)))
			}
			total += counts[s]
		}
		if total == 0 {
			continue
		}
		log := uint(6 + rng.IntN(3))
		norm := make([]int16, len(counts))
		normalize(norm, counts, total, log)
		sum := 0
		for s, p := range norm {
			if (p > 0) != (counts[s] > 0) || p < 0 {
				t.Fatalf("counts %d are normalized to %d", counts, norm)
			}
			sum += int(p)
		}
		if sum != 1<<log {
			t.Fatalf("counts %d are normalized to %d", counts, norm)
		}
	}
}

func TestAppendReusesMemory(t *testing.T) {
	text := words(8, 100_000)
	var e Encoder
	dst := e.Append(nil, text[:5000], text)
	if n := testing.AllocsPerRun(20, func() { dst = e.Append(dst[:0], text[:5000], text) }); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// page is a column of some sorted rows, as DELTA_BYTE_ARRAY stores it.
type page struct {
	rows          int
	lengths, text []byte
}

// pages cuts a column of sorted URLs into pages. Lengths take a byte each, the difference to the
// one before, which is about what they take in a Parquet page.
func pages(values []string, rows int) (all []page) {
	for len(values) > 0 {
		n := min(rows, len(values))
		p := page{rows: n}
		last := ""
		lastPrefix, lastSuffix := 0, 0
		for _, v := range values[:n] {
			prefix := 0
			for prefix < min(len(v), len(last)) && v[prefix] == last[prefix] {
				prefix++
			}
			suffix := len(v) - prefix
			p.lengths = append(p.lengths, byte(prefix-lastPrefix), byte(suffix-lastSuffix))
			p.text = append(p.text, v[prefix:]...)
			last, lastPrefix, lastSuffix = v, prefix, suffix
		}
		all = append(all, p)
		values = values[n:]
	}
	return all
}

// columns sorts URLs by host and path and returns both columns.
func columns(lines io.Reader) (hosts, paths []string) {
	var urls [][2]string
	for sc := bufio.NewScanner(lines); sc.Scan(); {
		_, rest, ok := strings.Cut(strings.TrimSpace(sc.Text()), "://")
		if host, path, slash := strings.Cut(rest, "/"); ok && slash {
			urls = append(urls, [2]string{host, "/" + path})
		}
	}
	slices.SortFunc(urls, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, u := range slices.Compact(urls) {
		hosts, paths = append(hosts, u[0]), append(paths, u[1])
	}
	return hosts, paths
}

func open(tb testing.TB, path string) io.Reader {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// sitemaps returns the columns of a small real list.
func sitemaps(tb testing.TB) (hosts, paths []string) {
	return columns(open(tb, filepath.Join(testenv.Root(tb), "testdata", "eot2024-sitemaps", "sitemaps.txt.zst")))
}

// seeds returns the columns of a larger real list.
func seeds(tb testing.TB) (hosts, paths []string) {
	var all bytes.Buffer
	r := tar.NewReader(open(tb, testenv.Shared(tb, "data", "eot2024", "sitemap-url-seeds-a.tar.zst")))
	for {
		if _, err := r.Next(); err == io.EOF {
			return columns(&all)
		} else if err != nil {
			tb.Fatal(err)
		}
		if _, err := all.ReadFrom(r); err != nil {
			tb.Fatal(err)
		}
		all.WriteByte('\n')
	}
}

const pageRows = 2048

func newEncoder(tb testing.TB, level zstd.EncoderLevel) *zstd.Encoder {
	tb.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false),
		zstd.WithSingleSegment(true), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { enc.Close() })
	return enc
}

// Real paths come out smaller than at the fastest level of klauspost/compress.
func TestRealPathsCompressWell(t *testing.T) {
	dec, other := newDecoder(t), newEncoder(t, zstd.SpeedFastest)
	_, paths := sitemaps(t)
	var e Encoder
	own, theirs := 0, 0
	for _, p := range pages(paths, pageRows) {
		frame := e.Append(nil, p.lengths, p.text)
		check(t, dec, frame, p.lengths, p.text)
		own += len(e.Append(nil, nil, p.text))
		theirs += len(other.EncodeAll(p.text, nil))
	}
	if own >= theirs {
		t.Errorf("%d bytes, %d at the fastest level of klauspost/compress", own, theirs)
	}
}

// BenchmarkAppend encodes and decodes pages of real columns, beside other encoders and Huffman
// codes alone.
func BenchmarkAppend(b *testing.B) {
	for _, list := range []struct {
		name string
		load func(testing.TB) (hosts, paths []string)
	}{{"sitemaps", sitemaps}, {"seeds", seeds}} {
		b.Run(list.name, func(b *testing.B) {
			hosts, paths := list.load(b)
			benchmark(b, "path", paths)
			benchmark(b, "host", hosts)
		})
	}
}

func benchmark(b *testing.B, column string, values []string) {
	const maxPages = 64
	all := pages(values, pageRows)
	var some []page
	rows := 0
	for i := 0; i < len(all); i += 1 + len(all)/maxPages {
		some = append(some, all[i])
		rows += all[i].rows
	}
	var e Encoder
	var h huff0.Scratch
	h.Reuse = huff0.ReusePolicyNone
	level := func(l zstd.EncoderLevel) func(dst []byte, p *page) []byte {
		enc := newEncoder(b, l)
		return func(dst []byte, p *page) []byte { return enc.EncodeAll(p.text, dst) }
	}
	for _, c := range []struct {
		name   string
		encode func(dst []byte, p *page) []byte
	}{
		{"own", func(dst []byte, p *page) []byte { return e.Append(dst, nil, p.text) }},
		{"own with lengths", func(dst []byte, p *page) []byte { return e.Append(dst, p.lengths, p.text) }},
		{"klauspost fastest", level(zstd.SpeedFastest)},
		{"klauspost default", level(zstd.SpeedDefault)},
		{"klauspost better", level(zstd.SpeedBetterCompression)},
		{"klauspost best", level(zstd.SpeedBestCompression)},
		{"huff0", func(dst []byte, p *page) []byte {
			if out, _, err := huff0.Compress4X(p.text[:min(len(p.text), seekable.MaxRawBlock)], &h); err == nil {
				return append(dst, out...)
			}
			return append(dst, p.text...)
		}},
	} {
		report := func(b *testing.B, frames [][]byte) {
			size := 0
			for _, f := range frames {
				size += len(f)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
			b.ReportMetric(float64(size)/float64(rows), "B/row")
			b.ReportMetric(0, "ns/op")
		}
		frames := make([][]byte, len(some))
		b.Run(column+"/"+c.name, func(b *testing.B) {
			for b.Loop() {
				for i := range some {
					frames[i] = c.encode(frames[i][:0], &some[i])
				}
			}
			report(b, frames)
		})
		if c.name == "huff0" || frames[0] == nil {
			continue
		}
		b.Run(column+"/decode "+c.name, func(b *testing.B) {
			dec := newDecoder(b)
			buf := make([]byte, 0, 1<<20)
			for b.Loop() {
				for _, f := range frames {
					if _, err := dec.DecodeAll(f, buf); err != nil {
						b.Fatal(err)
					}
				}
			}
			report(b, frames)
		})
	}
}

// The table of costs has the known logarithms of powers of two, and descends.
func TestCostsAreLogarithms(t *testing.T) {
	for i := 0; i <= 8; i++ {
		if got, want := log2[1<<i], uint16(8-i)*costUnit; got != want {
			t.Errorf("a probability of %d/256 costs %d/%d bits, want %d", 1<<i, got, costUnit, want)
		}
	}
	for i := 2; i < len(log2); i++ {
		if log2[i] > log2[i-1] {
			t.Errorf("a probability of %d/256 costs %d, less than one of %d/256, %d", i-1, log2[i-1], i, log2[i])
		}
	}
}
