package segment

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestMappedFilesDoNotFillTheResidentMemory(t *testing.T) {
	const files, size, allowed = 3, 20<<20 + 4567, 8 << 20
	r := NewResidency(residentFileBytes() + allowed)
	var maps []*mapped
	var want [][]byte
	for i := range files {
		data := make([]byte, size)
		rng := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = rng.Read(data)
		h := newBlockHash()
		_, _ = h.Write(data)
		f := h.file("map")
		path := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		m, err := mapFile(path, "map", &f)
		if err != nil {
			t.Fatal(err)
		}
		m.resident = r
		r.add(m)
		maps, want = append(maps, m), append(want, data)
	}
	if r.MappedBytes() != files*size {
		t.Fatalf("%d bytes are mapped", r.MappedBytes())
	}
	// Hashing alone leaves nothing behind.
	for _, m := range maps {
		if err := m.check(0, size); err != nil {
			t.Fatal(err)
		}
	}
	if got := residentFileBytes(); got > r.limit {
		t.Fatalf("%d bytes resident after all blocks were hashed, limit %d", got, r.limit)
	}
	passed := false
	for range 3 {
		for i, m := range maps {
			got, err := m.bytes(0, size)
			if err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("file %d has other bytes: %v", i, err)
			}
			passed = passed || residentFileBytes() > r.limit
		}
		for range touchesPerLook {
			r.touch()
		}
		for r.trimming.Load() {
			runtime.Gosched()
		}
		if got := residentFileBytes(); got > r.limit {
			t.Fatalf("%d bytes resident, limit %d", got, r.limit)
		}
	}
	if !passed {
		t.Fatal("the limit was never passed: nothing was tested")
	}
	for _, m := range maps {
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
	if r.MappedBytes() != 0 {
		t.Fatalf("%d bytes are mapped after all was closed", r.MappedBytes())
	}
	for range touchesPerLook {
		r.touch() // has nothing to drop
	}
	for r.trimming.Load() {
		runtime.Gosched()
	}
}
