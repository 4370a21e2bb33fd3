package arena

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestArenaKeeps keeps strings of many lengths, some longer than a chunk, and reads them again.
func TestArenaKeeps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	var a Arena
	var want [][]byte
	var places []Place
	for i := range 2000 {
		n := rng.IntN(300)
		if i%100 == 0 {
			n = rng.IntN(3 * chunkSize)
		}
		b := bytes.Repeat([]byte{byte(i)}, n)
		want, places = append(want, b), append(places, a.Keep(b))
	}
	sum := 0
	for i, p := range places {
		if got := a.Get(p); !bytes.Equal(got, want[i]) {
			t.Fatalf("string %d: %d bytes, want %d", i, len(got), len(want[i]))
		}
		sum += len(want[i])
	}
	if a.Size() < sum || a.Size() > sum+3*len(want) {
		t.Errorf("a size of %d, want %d and their lengths", a.Size(), sum)
	}
}

// TestMapEqualsMap adds strings of many lengths and removes them at random, some soon and a few
// never, and compares with a map. The memory of those that are removed has to be freed.
func TestMapEqualsMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	m, want := NewMap(), map[uint64][]byte{}
	var there []uint64
	remove := func() {
		i := rng.IntN(len(there))
		if there[i]%100 == 0 { // this one stays
			return
		}
		m.Remove(there[i])
		delete(want, there[i])
		there[i] = there[len(there)-1]
		there = there[:len(there)-1]
	}
	for number := uint64(1); number <= 130_000; number++ {
		n := rng.IntN(200)
		if number%5000 == 1 {
			n = rng.IntN(2 * mapChunk)
		}
		b := bytes.Repeat([]byte{byte(number)}, n)
		m.Add(number, b)
		want[number], there = b, append(there, number)
		most := 20_000
		if number > 70_000 {
			most = 2000
		}
		for len(there) > most {
			remove()
		}
		if number%1000 != 0 {
			continue
		}
		used, n := 0, 0
		for number, b := range m.All() {
			if w, ok := want[number]; !ok || !bytes.Equal(b, w) || !m.Has(number) {
				t.Fatalf("string %d: %d bytes; want %d, %v", number, len(b), len(w), ok)
			}
			used += len(b)
			n++
		}
		held := 0
		for _, c := range m.chunks {
			held += cap(c)
		}
		if n != len(want) || held != m.size {
			t.Fatalf("%d strings in %d bytes, noted as %d; want %d", n, held, m.size, len(want))
		}
		if (number < 70_000 || number > 120_000) && held > 3*used+4*mapChunk {
			t.Fatalf("%d bytes for strings of %d", held, used)
		}
	}
	m.Remove(1) // again
	if _, ok := m.Get(1); ok || m.Has(1) {
		t.Error("the first string has come back")
	}
}
