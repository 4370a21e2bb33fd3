package mph

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// relabDocument finds keys in the serialisation by its description alone, without samples
// and without this package's code.
type relabDocument struct {
	partitions [][][]uint64 // partition, level, word
	offsets    []uint64
}

func readRelab(data []byte) (*relabDocument, error) {
	d := &relabDocument{}
	take := func(n int) []byte {
		p := data[:n]
		data = data[n:]
		return p
	}
	count := int(take(1)[0])
	for range count {
		var levels [][]uint64
		for range int(take(1)[0]) {
			words := make([]uint64, binary.LittleEndian.Uint32(take(4)))
			for i := range words {
				words[i] = binary.LittleEndian.Uint64(take(8))
			}
			levels = append(levels, words)
		}
		d.partitions = append(d.partitions, levels)
	}
	d.offsets = []uint64{0}
	for range count - 1 {
		d.offsets = append(d.offsets, uint64(binary.LittleEndian.Uint32(take(4))))
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%d bytes left over", len(data))
	}
	return d, nil
}

func (d *relabDocument) find(key uint64) uint64 {
	mix := func(h uint64) uint64 {
		h ^= h >> 23
		h *= 0x2127599bf4325c37
		h ^= h >> 47
		return h
	}
	p := key % uint64(len(d.partitions))
	ones := uint64(0)
	for l, words := range d.partitions[p] {
		h := mix(uint64(l)) * 0x880355f21e6d1965
		h ^= mix(key)
		h *= 0x880355f21e6d1965
		i := mix(h) % (64 * uint64(len(words)))
		if words[i/64]&(1<<(i%64)) != 0 {
			for j := range i {
				ones += words[j/64] >> (j % 64) & 1
			}
			return d.offsets[p] + ones + 1
		}
		for _, w := range words {
			ones += uint64(bits.OnesCount64(w))
		}
	}
	return 0
}

func relabKeys(n int) []uint64 {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = rng.Uint64()
	}
	return keys
}

func TestRelabIsMinimalPerfectAndAsDescribed(t *testing.T) {
	for _, n := range []int{0, 1, 2, 31, 32, 33, 1000, 20_000} {
		for _, partitions := range []int{1, 2, 7, 255} {
			t.Run(fmt.Sprintf("n=%d,partitions=%d", n, partitions), func(t *testing.T) {
				keys := relabKeys(n)
				built, err := BuildRelab(keys, partitions)
				if err != nil {
					t.Fatal(err)
				}
				data, err := built.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				document, err := readRelab(data)
				if err != nil {
					t.Fatal(err)
				}
				parsed, err := ParseRelab(data, "mphf.bin")
				if err != nil {
					t.Fatal(err)
				}
				again, err := parsed.MarshalBinary()
				if err != nil || !bytes.Equal(again, data) {
					t.Errorf("parsed and written again: other bytes, %v", err)
				}
				if built.Len() != n || parsed.Len() != n {
					t.Errorf("%d and %d keys, want %d", built.Len(), parsed.Len(), n)
				}
				taken := make([]bool, n+1)
				for i, k := range append(keys, relabKeys(n+1)...) {
					want := document.find(k)
					if got := built.Find(k); got != want {
						t.Fatalf("key %x: built hash finds %d, document %d", k, got, want)
					}
					if got := parsed.Find(k); got != want {
						t.Fatalf("key %x: parsed hash finds %d, document %d", k, got, want)
					}
					if i >= n {
						continue
					}
					if want < 1 || want > uint64(n) || taken[want] {
						t.Fatalf("key %x: %d is not a number of its own in 1 to %d", k, want, n)
					}
					taken[want] = true
				}
			})
		}
	}
}

// Sizes of levels as described: ceil(floor(2n)/64) words for n keys left.
func TestRelabLevelSizes(t *testing.T) {
	r, err := BuildRelab(relabKeys(10_000), 1)
	if err != nil {
		t.Fatal(err)
	}
	left := 10_000
	for i, l := range r.partitions[0].levels {
		if want := (2*left + 63) / 64; len(l.words) != want {
			t.Errorf("level %d of %d keys: %d words, want %d", i, left, len(l.words), want)
		}
		for _, w := range l.words {
			left -= bits.OnesCount64(w)
		}
	}
	if left != 0 {
		t.Errorf("%d keys left", left)
	}
}

func TestRelabRefusesWhatItCannotBuild(t *testing.T) {
	for name, c := range map[string]struct {
		keys       []uint64
		partitions int
	}{
		"equal keys":          {[]uint64{1, 2, 3, 2}, 1},
		"no partition":        {[]uint64{1, 2}, 0},
		"too many partitions": {[]uint64{1, 2}, 256},
	} {
		if _, err := BuildRelab(c.keys, c.partitions); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func checkRelabCorrupt(tb testing.TB, err error) {
	tb.Helper()
	var corrupt *codec.CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != "mphf.bin" {
		tb.Fatalf("error %v, want a *codec.CorruptError that names the file", err)
	}
}

func TestRelabTruncatedOrExtendedIsCorrupt(t *testing.T) {
	r, err := BuildRelab(relabKeys(200), 3)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := r.MarshalBinary()
	for n := range data {
		_, err := ParseRelab(data[:n:n], "mphf.bin")
		checkRelabCorrupt(t, err)
	}
	_, err = ParseRelab(append(data, 0), "mphf.bin")
	checkRelabCorrupt(t, err)
}

// The format has no checksum: a changed bit that moves no partition's start shows only in
// the answers, and never as a panic.
func FuzzParseRelab(f *testing.F) {
	for _, partitions := range []int{1, 3} {
		r, err := BuildRelab(relabKeys(100), partitions)
		if err != nil {
			f.Fatal(err)
		}
		data, _ := r.MarshalBinary()
		f.Add(data, uint64(1))
	}
	f.Add([]byte{1, 0}, uint64(0))
	f.Add([]byte{1, 1, 0, 0, 0, 0}, uint64(0))
	f.Add([]byte{1, 1, 0xff, 0xff, 0xff, 0xff}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, key uint64) {
		r, err := ParseRelab(data, "mphf.bin")
		if err != nil {
			checkRelabCorrupt(t, err)
			return
		}
		again, err := r.MarshalBinary()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("written again: other bytes, %v", err)
		}
		d, err := readRelab(data)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if got, want := r.Find(key), d.find(key); got != want {
				t.Fatalf("key %x: %d, want %d", key, got, want)
			}
			key = key*6364136223846793005 + 1442695040888963407
		}
	})
}

func FuzzRelabFlippedBits(f *testing.F) {
	r, err := BuildRelab(relabKeys(300), 2)
	if err != nil {
		f.Fatal(err)
	}
	good, _ := r.MarshalBinary()
	for at := range good {
		f.Add(uint16(at), byte(1), uint64(at))
		f.Add(uint16(at), byte(0x80), uint64(at))
	}
	f.Fuzz(func(t *testing.T, at uint16, flip byte, key uint64) {
		data := bytes.Clone(good)
		data[int(at)%len(data)] ^= flip
		r, err := ParseRelab(data, "mphf.bin")
		if err != nil {
			checkRelabCorrupt(t, err)
			return
		}
		if n := r.Find(key); n > uint64(r.Len()) {
			t.Fatalf("number %d of %d", n, r.Len())
		}
	})
}
