package urlnorm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// checkBatch parses inputs in as few calls as the limit of o allows and compares each result with
// Parse. It returns how often o was reset.
func checkBatch(tb testing.TB, n *Normalizer, o *Origins, inputs [][]byte) (resets int) {
	tb.Helper()
	alone := Normalizer{suffixes: n.suffixes, stripNames: n.stripNames, stripPrefixes: n.stripPrefixes}
	out := make([]Parsed, len(inputs))
	for len(inputs) > 0 {
		before := o.Len()
		parsed := n.ParseBatch(o, inputs, out)
		if parsed < 1 && before == 0 || parsed > len(inputs) {
			tb.Fatalf("%d of %d inputs parsed with %d origins", parsed, len(inputs), before)
		}
		for i, raw := range inputs[:parsed] {
			p := out[i]
			want, err := alone.Parse(raw)
			if err != nil {
				var reject *RejectError
				if !errors.As(err, &reject) || p.Reject == nil || *p.Reject != *reject || p.Origin != NoOrigin || p.PathQuery != nil {
					tb.Fatalf("%q: %+v, want %v", raw, p, err)
				}
				continue
			}
			if p.Reject != nil || int(p.Origin) >= o.Len() {
				tb.Fatalf("%q: %+v with %d origins, want %+v", raw, p, o.Len(), want)
			}
			at := o.At(p.Origin)
			if got := (URL{Scheme: at.Scheme, Host: at.Host, Port: at.Port, PathQuery: string(p.PathQuery), Domain: at.Domain}); got != want {
				tb.Fatalf("%q is %+v, want %+v", raw, got, want)
			}
			if at.DomainID != DomainID(at.Domain) {
				tb.Fatalf("id of %q is %x", at.Domain, at.DomainID)
			}
			if int(p.Origin) >= before {
				if int(p.Origin) != before {
					tb.Fatalf("%q: origin %d comes after %d", raw, p.Origin, before)
				}
				before++
			}
		}
		if before != o.Len() {
			tb.Fatalf("%d origins, want the %d seen", o.Len(), before)
		}
		if inputs = inputs[parsed:]; len(inputs) > 0 {
			o.Reset()
			resets++
		}
	}
	return resets
}

// checkNumbers checks that no origin has two numbers.
func checkNumbers(tb testing.TB, o *Origins) {
	tb.Helper()
	seen := map[Origin]uint32{}
	for i := range uint32(o.Len()) {
		if was, ok := seen[o.At(i)]; ok {
			tb.Fatalf("origins %d and %d are %+v", was, i, o.At(i))
		}
		seen[o.At(i)] = i
	}
}

// spellings are origins spelled in ways that are equal or nearly so.
var spellings = []string{
	"http://example.com", "https://example.com", "HTTP://example.com", "http://EXAMPLE.com", "http://Example.COM",
	"http://example.com:80", "https://example.com:443", "https://example.com:80", "http://example.com:", "http://example.com:080", "http://example.com:8080", "https://example.com:08080",
	"http://example.com.", "http://example.com..", "http://u:p@example.com", "http://@example.com", "http://example%2ecom", "http://ex%41mple.com",
	"example.com", "Example.com", "example.com:80", "//example.com", "http:example.com", "http:///example.com", "http:\\\\example.com", "ftp://example.com", "ftp://example.com:21", "ftp://example.com:80",
	" http://example.com", "ht\ttp://example.com", "http://exam\nple.com", "http://example.com\t", "http://[::1]", "http://[0:0::1]:80", "[::1]", "http://[::1",
	"http://127.0.0.1", "http://127.1", "http://0x7f000001", "127.0.0.1", "http://1.2.3.256", "http://b\u00fccher.example", "http://B\u00dcCHER.example", "http://xn--bcher-kva.example", "http://xn--a.example", "b\u00fccher.example",
	"localhost", "http://localhost", "localhost:80", "word", "http://word", "t.co", "http://t.co", "https://t.co:443", "http://", "https://", "mailto:a@b.c", "http://a b", "http://a<b", "http://example.com:99999", "http://example.com:a",
	"http://" + strings.Repeat("a", 63) + ".com", "http://" + strings.Repeat("a", 64) + ".com", "http://" + strings.Repeat("a.", 126) + "com", "http://" + strings.Repeat("a", 600) + ".com",
	"https://a12345678901234.com", "https://a12345678901.com", "https://a1234567890.com", "http://a_b.example.co.uk", "http://example.com\u3002", "http://example\u3002com",
}

var endings = []string{"", "/", "/a", "/a//b", "/a/./b", "/../", "?", "?b&a", "?a=/", "#", "#/", "\\a", "/%7e", "/%", "/\u00e9", "/a b ", "/a\tb", "\n/a", " ", "/?utm_source=x&a=1", "/a?b=2&a=1&utm_x=1",
	"/" + strings.Repeat("long/", 20), "/" + strings.Repeat(" ", 5), "/" + strings.Repeat("\u00e9", 2000), "/" + strings.Repeat("\u00e9", 3000), "/" + strings.Repeat("x", 5000), "/" + strings.Repeat("x", 17000), ":80/", "@example.com/"}

func TestParseBatchEqualsParse(t *testing.T) {
	var inputs [][]byte
	for _, s := range spellings {
		for _, e := range endings {
			inputs = append(inputs, []byte(s+e))
		}
	}
	for _, l := range readTable(t) {
		inputs = append(inputs, []byte(l.input))
	}
	for _, s := range sharedInputs(t) {
		inputs = append(inputs, []byte(s))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, strip := range [][]string{nil, {"utm_*", "a"}} {
		for _, limit := range []int{0, 1, 12 << 10} {
			n, err := New(BuiltinSuffixes(), Options{StripParams: strip})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range caches(limit) {
				checkBatch(t, n, o, inputs)
				mixed := slices.Concat(inputs, inputs)
				r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
				for len(mixed) > 0 {
					some := mixed[:min(len(mixed), r.IntN(200))]
					resets := checkBatch(t, n, o, some)
					if limit == 0 && resets > 0 {
						t.Error("reset below the limit")
					}
					mixed = mixed[len(some):]
				}
				checkNumbers(t, o)
			}
		}
	}
}

func TestParseBatchOfRealData(t *testing.T) {
	n, o, small := newNormalizer(), NewOrigins(0), NewOrigins(256<<10)
	resets := 0
	readData(t, func(name string, b []byte) {
		inputs := inputsIn(name, b)
		checkBatch(t, n, o, inputs[:len(inputs)/2])
		resets += checkBatch(t, n, small, inputs[len(inputs)/2:])
	})
	checkNumbers(t, o)
	if resets < 10 {
		t.Errorf("the small cache was reset %d times, want 10 at least", resets)
	}
}

// The memory counted against the limit is that of what the cache holds.
func TestOriginsMemoryIsBounded(t *testing.T) {
	const limit = 1 << 20
	n, o := newNormalizer(), NewOrigins(limit)
	var out [1]Parsed
	total, most := 0, 0
	for i := range 100_000 {
		// Every other line is another spelling of one origin.
		raw := fmt.Appendf(nil, "http://host-%d.example.com/a", i)
		if i%2 == 1 {
			raw = fmt.Appendf(nil, "http://example.com:%020d/", 80)
			raw = slices.Concat(raw[:18], bytes.Repeat([]byte("0"), i%200), raw[18:])
		}
		if n.ParseBatch(o, [][]byte{raw}, out[:]) == 0 {
			total += o.Len()
			o.Reset()
			if n.ParseBatch(o, [][]byte{raw}, out[:]) != 1 || out[0].Origin != 0 || o.Len() != 1 {
				t.Fatalf("after a reset: %+v", out[0])
			}
		}
		if size := 4*len(o.slots) + 8*o.end + 24*o.len; size > limit {
			t.Fatalf("%d bytes for %d origins", size, o.Len())
		}
		most = max(most, o.Len())
	}
	if total+o.Len() < 50_000 || most < limit/150 {
		t.Errorf("%d origins in all, %d at once", total+o.Len(), most)
	}
}

func TestKnownOriginsAllocateNothing(t *testing.T) {
	n, o := newNormalizer(), NewOrigins(0)
	var inputs [][]byte
	for i := range 100 {
		inputs = append(inputs, fmt.Appendf(nil, "https://www.host%d.example/path/%d?b=%d&a", i, i, i))
	}
	out := make([]Parsed, len(inputs))
	n.ParseBatch(o, inputs, out)
	if got := testing.AllocsPerRun(20, func() { n.ParseBatch(o, inputs, out) }); got != 0 {
		t.Errorf("%v allocations a batch", got)
	}
}

// caches returns an empty cache for each way in which this machine can look inputs up.
func caches(limit int) []*Origins {
	o := []*Origins{newOrigins(limit, false)}
	if hasVectors {
		o = append(o, newOrigins(limit, true))
	}
	return o
}

// checkLocated compares what locateAll finds in inputs, 64 at most, with a loop over bytes.
func checkLocated(tb testing.TB, o *Origins, inputs [][]byte) {
	tb.Helper()
	var b batch
	for i := range batchSize { // contents left by an earlier batch
		b.start[i], b.end[i], b.stop[i], b.length[i], b.scheme[i], b.hash[i] = 9, 99, 999, 9999, 2, 77
	}
	b.locateAll(o, inputs)
	for i, raw := range inputs {
		text := bytes.TrimRightFunc(raw, func(r rune) bool { return r <= ' ' })
		if len(text) < wordSize || len(text) > maxPlain {
			if b.end[i] != 0 {
				tb.Fatalf("%q: text ends at %d", raw, b.end[i])
			}
			continue
		}
		scheme, start := textBare, 0
		if bytes.HasPrefix(text, []byte("https://")) {
			scheme, start = textHTTPS, 8
		} else if bytes.HasPrefix(text, []byte("http://")) {
			scheme, start = textHTTP, 7
		}
		end := len(text)
		if k := bytes.IndexByte(text[start:], '/'); k >= 0 {
			end = start + k
		}
		if int(b.start[i]) != start || int(b.end[i]) != end || int(b.scheme[i]) != scheme || int(b.length[i]) != len(text) {
			tb.Fatalf("%q: text %d to %d of %d, scheme %d, want %d to %d of %d, scheme %d",
				raw, b.start[i], b.end[i], b.length[i], b.scheme[i], start, end, len(text), scheme)
		}
		if hash := o.hash(text[start:end], scheme); b.hash[i] != hash {
			tb.Fatalf("%q: hash %x, want %x", raw, b.hash[i], hash)
		}
		stop, first := end, int(b.stop[i])
		if end < len(text) {
			for stop++; stop < len(text); stop++ {
				c := text[stop]
				if classes[c]&escaped != 0 || c == '%' || c == '?' || c == '#' || text[stop-1] == '/' && (c == '/' || c == '.') {
					break
				}
			}
		}
		// Without vectors the scan may stop early, at bytes that need no change.
		if first > stop || first < min(end+1, len(text)) || first < stop && o.vectors && first != scanPath(text, end+1) {
			tb.Fatalf("%q: path stops at %d, want %d", raw, first, stop)
		}
	}
}

func TestLocateAllLengths(t *testing.T) {
	for _, o := range caches(0) {
		for _, start := range []string{"http://", "https://", "", "httpx://", "HTTP://"} {
			for host := range 70 {
				var inputs [][]byte
				for path := range 200 {
					raw := []byte(start + strings.Repeat("h", host))
					if path > 0 {
						raw = append(append(raw, '/'), strings.Repeat("p", path-1)...)
					}
					inputs = append(inputs, raw)
				}
				for some := range slices.Chunk(inputs, batchSize) {
					checkLocated(t, o, some)
				}
			}
		}
		// Every byte at every offset after a text.
		for c := range 256 {
			var inputs [][]byte
			for at := range 150 {
				for _, around := range []string{"p", "/", "."} {
					raw := []byte("http://h/a" + strings.Repeat("p", 150))
					raw[len("http://h/")+at] = byte(c)
					raw[len("http://h/")+at-min(at, 1)] = around[0]
					inputs = append(inputs, raw)
				}
			}
			for some := range slices.Chunk(inputs, batchSize) {
				checkLocated(t, o, some)
			}
		}
	}
}

// Earlier contents of the batch, and what follows an input in memory, do not change the result.
func TestLocateIgnoresWhatFollows(t *testing.T) {
	for _, o := range caches(0) {
		text := []byte("https://example.com/abc/def?x#//" + strings.Repeat("/.", 100))
		for from := range 20 {
			var inputs [][]byte
			for n := range 64 {
				inputs = append(inputs, text[from:from+n])
			}
			for n := range len(inputs) {
				checkLocated(t, o, inputs[:n+1])
			}
		}
	}
}

// Inputs of any length end where mapped memory ends.
func TestNoReadOutsideInputs(t *testing.T) {
	for _, text := range []string{
		"https://www.example.com/" + strings.Repeat("abcdefg/", 40), "http://example.org/?" + strings.Repeat("a=b&", 60), strings.Repeat("a.", 40) + "com/x",
	} {
		mem := testenv.Guarded(t, len(text))
		all := caches(0)
		for n := 1; n <= len(text); n++ {
			raw := mem[len(mem)-n:]
			copy(raw, text)
			for _, o := range all {
				for range 2 { // the second time its origin is known
					checkBatch(t, newNormalizer(), o, [][]byte{raw})
				}
				checkLocated(t, o, [][]byte{raw})
			}
			checkWords(t, raw)
		}
	}
}

// A text may be compared with longer ones: after each header there are vectorText bytes of its
// chunk.
func TestTextsHaveSlackInTheirChunk(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, o := range caches(0) {
		n := newNormalizer()
		for i := 0; len(o.texts) < 4; i++ {
			n.ParseBatch(o, [][]byte{fmt.Appendf(nil, "http://%x.%s.com/", i, strings.Repeat("a", 1+r.IntN(40)))}, make([]Parsed, 1))
		}
		for _, slot := range o.slots {
			offset := slot & (1<<slotTag - 1)
			if offset%chunkWords > chunkWords-1-vectorText/wordSize {
				t.Fatalf("text at word %d of a chunk of %d", offset%chunkWords, chunkWords)
			}
		}
		checkNumbers(t, o)
	}
}

func FuzzParseBatch(f *testing.F) {
	for i, s := range spellings {
		f.Add([]byte(s+"/a\n"+s+endings[i%len(endings)]+"\n"+spellings[(i+1)%len(spellings)]+"/b?x"), uint64(i))
	}
	for _, l := range readTable(f) {
		f.Add([]byte(l.input), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		var inputs [][]byte
		for _, line := range bytes.Split(data, []byte("\n")) {
			inputs = append(inputs, line)
			// The same origin with other paths, and other spellings with this one's.
			if i := bytes.LastIndexByte(line, '/'); i >= 0 {
				inputs = append(inputs, slices.Concat(line[:i], []byte(endings[r.IntN(len(endings))])),
					slices.Concat([]byte(spellings[r.IntN(len(spellings))]), line[i:]))
			}
		}
		for range len(inputs) {
			inputs = append(inputs, inputs[r.IntN(len(inputs))])
		}
		n := newNormalizer()
		if seed%2 == 1 {
			n.stripNames = []string{"a"}
		}
		all := caches(int(seed % 2 * (8<<10 + seed%4096)))
		for len(inputs) > 0 {
			some := inputs[:1+r.IntN(len(inputs))]
			for _, o := range all {
				checkLocated(t, o, some[:min(len(some), batchSize)])
				checkBatch(t, n, o, some)
				checkNumbers(t, o)
			}
			inputs = inputs[len(some):]
		}
	})
}

// crawled returns URLs in the order of a crawl: of very many hosts, few of which have very many
// URLs, and with neighbours often of one host.
func crawled(urls, hosts int) [][]byte {
	r := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(r, 1.05, 8, uint64(hosts-1))
	inputs := manyHosts(urls, hosts)
	starts := make([][]byte, hosts)
	for i, in := range manyHosts(hosts, hosts) {
		starts[i] = in[:len("https://")+bytes.IndexByte(in[len("https://"):], '/')]
	}
	text := make([]byte, 0, 120*urls)
	start := starts[0]
	for i, in := range inputs {
		if i == 0 || r.IntN(5) > 0 {
			start = starts[zipf.Uint64()]
		}
		at := len(text)
		text = append(append(text, start...), in[len("https://")+bytes.IndexByte(in[len("https://"):], '/'):]...)
		inputs[i] = text[at:len(text):len(text)]
	}
	return inputs
}

func BenchmarkParseBatch(b *testing.B) {
	inputs := crawled(1_000_000, 300_000)
	n := newNormalizer()
	out := make([]Parsed, batchSize)
	perURL := func(b *testing.B, f func()) {
		for b.Loop() {
			f()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(inputs)), "ns/url")
	}
	b.Run("each", func(b *testing.B) {
		perURL(b, func() {
			for _, in := range inputs {
				n.Parse(in)
			}
		})
	})
	batches := func(o *Origins) {
		for some := range slices.Chunk(inputs, batchSize) {
			if n.ParseBatch(o, some, out) != len(some) {
				b.Fatal("the limit is reached")
			}
		}
	}
	b.Run("new", func(b *testing.B) {
		perURL(b, func() { batches(NewOrigins(0)) })
	})
	b.Run("known", func(b *testing.B) {
		o := NewOrigins(0)
		batches(o)
		perURL(b, func() { batches(o) })
	})
}
