package prefetch

import (
	"testing"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"
)

// Sum64 must not touch memory before or after the bytes.
func TestChunksBetweenForbiddenPages(t *testing.T) {
	page := unix.Getpagesize()
	size := (5*chunk + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(all)
	for _, edge := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(edge, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	b := all[page : page+size]
	for i := range b {
		b[i] = byte(i * 7)
	}
	for n := range size + 1 {
		for _, b := range [][]byte{b[:n], b[size-n:]} {
			if got, want := Sum64(b), xxhash.Sum64(b); got != want {
				t.Fatalf("sum of %d bytes: %016x, want %016x", n, got, want)
			}
		}
	}
}
