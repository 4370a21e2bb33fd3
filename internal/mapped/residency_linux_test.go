package mapped

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

func TestResidencyBoundsResidentMemory(t *testing.T) {
	const count, size, allowed = 3, 20<<20 + 4567, 8 << 20
	r := NewResidency(residentFileBytes() + allowed)
	var files []*File
	var want [][]byte
	for i := range count {
		data := make([]byte, size)
		rng := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = rng.Read(data)
		f, _ := openLocal(t, data, Options{Residency: r})
		files, want = append(files, f), append(want, data)
	}
	if r.MappedBytes() != count*size {
		t.Fatalf("%d bytes are mapped, want %d", r.MappedBytes(), count*size)
	}
	// Hashing alone leaves nothing resident.
	for _, f := range files {
		if err := f.Check(0, size); err != nil {
			t.Fatal(err)
		}
	}
	if got := residentFileBytes(); got > r.limit {
		t.Fatalf("%d bytes resident after all blocks were hashed, limit %d", got, r.limit)
	}
	exceeded := false
	for range 3 {
		for i, f := range files {
			got, err := f.Slice(0, size)
			if err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("file %d has other bytes: %v", i, err)
			}
			exceeded = exceeded || residentFileBytes() > r.limit
		}
		for range touchesPerTrim {
			files[0].Touch()
		}
		for r.trimming.Load() {
			runtime.Gosched()
		}
		if got := residentFileBytes(); got > r.limit {
			t.Fatalf("%d bytes resident, limit %d", got, r.limit)
		}
	}
	if !exceeded {
		t.Fatal("the limit was never exceeded: nothing was tested")
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r.MappedBytes() != 0 {
		t.Fatalf("%d bytes are mapped after all files were closed", r.MappedBytes())
	}
	for range touchesPerTrim {
		r.touch() // finds nothing to drop
	}
	for r.trimming.Load() {
		runtime.Gosched()
	}
}
