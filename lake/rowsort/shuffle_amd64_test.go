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

// withoutVectors runs f as on a processor that has none.
func withoutVectors(f func()) {
	defer func(has bool) { hasVectors = has }(hasVectors)
	hasVectors = false
	f()
}

// listSink lists what it is given.
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

// checkShuffle puts rows through a shuffle file with vectors and without, and holds against each other where their places are, what was written, and what is read.
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
		places := slices.Clone(b.places)
		withoutVectors(func() { b.arrange(row.Partitions) })
		if len(places) != b.Len() || !slices.Equal(b.places, places) {
			tb.Fatal("rows have other places")
		}
		f, err := b.WriteShuffle(ctx, store, "f", &rows, &keyBytes)
		if err != nil {
			tb.Fatal(err)
		}
		if rows != wantRows || keyBytes != wantBytes {
			tb.Fatal("other counts")
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
			tb.Fatal("another file is written")
		}
		if got != read(store, f) {
			tb.Fatal("others rows are read")
		}
	})
}

func TestRowsAreShuffledTheSameWithoutVectors(t *testing.T) {
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
				tail := row.UsualSuffixes[rng.IntN(2)]
				if rng.IntN(5) == 0 {
					tail.RawURL = string(text[:rng.IntN(min(2*size, 100_000))])
				}
				if err := b.Add(rng.Uint32N(1+rng.Uint32N(300)), text[:1+rng.IntN(size)], &tail); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// Partitions and hosts of many frames.
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
				tail := row.UsualSuffixes[data[i+1]%2]
				if data[i+1] > 200 {
					tail.RawURL = string(path[:len(path)/2])
				}
				if err := b.Add(uint32(data[i+2])<<(data[i]%8)%(uint32(hosts)+1), path[data[i+2]/255:], &tail); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// checkScatter scatters what may be rows with vectors and without.
func checkScatter(t *testing.T, rows []byte, hosts int, slash bool) {
	t.Helper()
	scatter := func() (rest int, places []uint64, memory []byte) {
		memory = make([]byte, 1<<chunkBits+2000)
		l := &shuffleLoad{b: &Buffer{chunks: appendChunks(nil, memory[:1<<chunkBits+1000])}}
		for i := range hosts {
			places = append(places, uint64(i*1000))
		}
		return l.scatter(rows, places, slash), places, memory
	}
	rest, places, memory := scatter()
	withoutVectors(func() {
		wantRest, wantPlaces, want := scatter()
		if rest != wantRest || !slices.Equal(places, wantPlaces) {
			t.Fatalf("%d bytes are left, want %d; places %x, want %x", rest, wantRest, places, wantPlaces)
		}
		if !bytes.Equal(memory, want) {
			t.Fatal("rows are elsewhere")
		}
	})
}

// What is no row ends both, and neither reads or writes elsewhere.
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

func FuzzScatter(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x09\x00\x00\x00/a\x00\x00\x00\x00\x04\x00\x00\x00/"), uint8(2), true)
	f.Fuzz(func(t *testing.T, rows []byte, hosts uint8, slash bool) {
		guarded := testenv.Guarded(t, len(rows))
		copy(guarded, rows)
		checkScatter(t, guarded, int(hosts), slash)
	})
}
