package rowsort

import (
	"bytes"
	"context"
	"encoding/binary"
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

// withoutVectors runs f as on a processor without the features of hasVectors.
func withoutVectors(f func()) {
	defer func(has bool) { hasVectors = has }(hasVectors)
	hasVectors = false
	f()
}

// listSink prints hosts and rows.
type listSink struct{ strings.Builder }

func (s *listSink) Rows(hosts []row.SortedHost, rows []row.SortedRow) (int, error) {
	for _, h := range hosts {
		fmt.Fprintf(s, "%s %s %x\n", h.Domain, h.Host, h.DomainID)
		for _, r := range rows[:h.Rows] {
			fmt.Fprintf(s, "%q %v\n", r.Path, *r.Suffix)
		}
		rows = rows[h.Rows:]
	}
	return 0, nil
}

// checkShuffle writes rows to a shuffle file and loads them, with assembly and without, and
// compares the rows' offsets, the files and the loaded rows.
func checkShuffle(tb testing.TB, fill func(b *Buffer)) {
	tb.Helper()
	ctx := context.Background()
	write := func() (blob.Store, ShuffleFile, []byte) {
		store := blob.NewMemory()
		b := NewBuffer(1 << 30)
		defer b.Release()
		fill(b)
		var rows, keyBytes, wantRows, wantBytes [row.Partitions]int64
		b.Count(&wantRows, &wantBytes)
		b.arrange(row.Partitions)
		offsets := slices.Clone(b.offsets)
		withoutVectors(func() { b.arrange(row.Partitions) })
		if len(offsets) != b.Len() || !slices.Equal(b.offsets, offsets) {
			tb.Fatal("assembly and Go list different offsets")
		}
		f, err := b.WriteShuffle(ctx, store, "f", &rows, &keyBytes)
		if err != nil {
			tb.Fatal(err)
		}
		if rows != wantRows || keyBytes != wantBytes {
			tb.Fatal("WriteShuffle and Count differ")
		}
		data, _, err := store.Get(ctx, "f")
		if err != nil {
			tb.Fatal(err)
		}
		return store, f, data
	}
	read := func(store blob.Store, f ShuffleFile) string {
		var sink listSink
		for first := 0; first < row.Partitions; first += 128 {
			s, err := OpenShuffle(ctx, store, []ShuffleFile{f})
			if err != nil {
				tb.Fatal(err)
			}
			b := NewBuffer(1 << 30)
			defer b.Release()
			if err := b.Load(ctx, s, byte(first), byte(first+127), nil); err != nil {
				tb.Fatal(err)
			}
			if err := b.Rows(ctx, byte(first), byte(first+127), &sink); err != nil {
				tb.Fatal(err)
			}
		}
		return sink.String()
	}
	store, f, data := write()
	got := read(store, f)
	withoutVectors(func() {
		store, f, want := write()
		if !bytes.Equal(data, want) {
			tb.Fatal("assembly and Go write different files")
		}
		if got != read(store, f) {
			tb.Fatal("assembly and Go load different rows")
		}
	})
}

func TestShuffleIsTheSameWithoutVectors(t *testing.T) {
	text := bytes.Repeat([]byte("/some/path-of-text.html?x=y&"), 10_000)
	for _, size := range []int{30, 150, 700, 5000, 200_000} {
		checkShuffle(t, func(b *Buffer) {
			rng := rand.New(rand.NewPCG(uint64(size), 1))
			for i := range 300 {
				domain := fmt.Sprintf("d%d.example", i)
				if _, err := b.Host(domain, strings.Repeat("www.", i%3)+domain, urlnorm.DomainID(domain)); err != nil {
					t.Fatal(err)
				}
			}
			for range min(40_000, 20_000_000/size) {
				suffix := row.UsualSuffixes[rng.IntN(2)]
				if rng.IntN(5) == 0 {
					suffix.RawURL = string(text[:rng.IntN(min(2*size, 100_000))])
				}
				if err := b.Add(rng.Uint32N(1+rng.Uint32N(300)), text[:1+rng.IntN(size)], &suffix); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// One partition whose rows and hosts take many frames.
	checkShuffle(t, func(b *Buffer) {
		rng := rand.New(rand.NewPCG(9, 10))
		for i := range uint32(20_000) {
			host := fmt.Sprintf("host-%d.example.com", i)
			if _, err := b.Host("example.com", host, urlnorm.DomainID("example.com")); err != nil {
				t.Fatal(err)
			}
			for range rng.IntN(4) {
				if err := b.AddPlain(i, text[:1+i%500], true); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// FuzzShuffleVectors compares spreadVectors and scatterVectors with Go.
func FuzzShuffleVectors(f *testing.F) {
	f.Add([]byte("abcdefgh\x80\xffABC"), uint16(1000))
	f.Fuzz(func(t *testing.T, data []byte, hosts uint16) {
		checkShuffle(t, func(b *Buffer) {
			for i := range uint32(hosts) + 1 {
				domain := fmt.Sprintf("d%d.example", i)
				b.PlainHost(domain, domain, urlnorm.DomainID(domain))
			}
			for i := 0; i+2 < len(data); i++ {
				n := int(data[i]) + int(data[i+1])<<(data[i]%4)
				path := append([]byte("/"), bytes.ReplaceAll(bytes.Repeat(data, 1+n/len(data))[:n], []byte{0}, nil)...)
				suffix := row.UsualSuffixes[data[i+1]%2]
				if data[i+1] > 200 {
					suffix.RawURL = string(path[:len(path)/2])
				}
				if err := b.Add(uint32(data[i+2])<<(data[i]%8)%(uint32(hosts)+1), path[data[i+2]/255:], &suffix); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// checkScatter scatters rows, valid or not, with assembly and without, and compares the results.
func checkScatter(t *testing.T, rows []byte, hosts int, slash bool) {
	t.Helper()
	scatter := func() (rest int, offsets []uint64, memory []byte) {
		memory = make([]byte, 1<<chunkBits+2000)
		l := &shuffleLoad{b: &Buffer{chunks: appendChunks(nil, memory[:1<<chunkBits+1000])}}
		for i := range hosts {
			offsets = append(offsets, uint64(i*1000))
		}
		return l.scatter(rows, offsets, slash), offsets, memory
	}
	rest, offsets, memory := scatter()
	withoutVectors(func() {
		wantRest, wantOffsets, want := scatter()
		if rest != wantRest || !slices.Equal(offsets, wantOffsets) {
			t.Fatalf("%d bytes are left, want %d; offsets %x, want %x", rest, wantRest, offsets, wantOffsets)
		}
		if !bytes.Equal(memory, want) {
			t.Fatal("assembly and Go copy rows to different offsets")
		}
	})
}

// Assembly and Go stop at the same invalid row, and read and write nothing outside of their memory.
func TestScatterEndsAtTheSameRowWithoutVectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 1000 {
		var rows []byte
		for range 1 + rng.IntN(20) {
			n := 1 + rng.IntN(1+rng.IntN(200))
			rows = binary.LittleEndian.AppendUint32(rows, rng.Uint32N(250))
			rows = binary.LittleEndian.AppendUint32(rows, uint32(n<<row.SuffixBits)|rng.Uint32N(2))
			rows = append(rows, '/')
			rows = append(rows, bytes.Repeat([]byte("x"), n-1)...)
			if rng.IntN(10) == 0 {
				rows[len(rows)-1-rng.IntN(min(30, len(rows)))] ^= byte(rng.Uint32())
			}
		}
		guarded := testenv.Guarded(t, len(rows)-rng.IntN(min(9, len(rows))))
		copy(guarded, rows)
		checkScatter(t, guarded, 240+rng.IntN(40), rng.IntN(2) == 0)
	}
}

// FuzzScatter compares scatterVectors with Go for rows that may be invalid.
func FuzzScatter(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x09\x00\x00\x00/a\x00\x00\x00\x00\x04\x00\x00\x00/"), uint8(2), true)
	f.Fuzz(func(t *testing.T, rows []byte, hosts uint8, slash bool) {
		guarded := testenv.Guarded(t, len(rows))
		copy(guarded, rows)
		checkScatter(t, guarded, int(hosts), slash)
	})
}
