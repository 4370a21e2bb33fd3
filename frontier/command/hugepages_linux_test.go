//go:build !race

package command

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

// huge is how much of this process' memory is in huge pages.
func huge(t *testing.T) (kib int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`AnonHugePages:\s+(\d+) kB`).FindSubmatch(maps); m != nil {
		kib, err = strconv.Atoi(string(m[1]))
	}
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestForHeap has the heap grow, and holds that it does so in huge pages if the kernel gives them
// to who asks, and that what is reserved for that is not used memory.
func TestForHeap(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	hugePagesForHeap()
	runtime.ReadMemStats(&after)
	const size = 64 << 20
	if used := func(m *runtime.MemStats) uint64 { return m.HeapSys - m.HeapReleased }; used(&after) > used(&before)+size/4 {
		t.Errorf("%d bytes of the heap are in use, %d before", used(&after), used(&before))
	}
	had := huge(t)
	grown := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		grown[i] = 1
	}
	got := huge(t) - had
	runtime.KeepAlive(grown)
	if hugePagesWanted() > 0 && got < size>>10/2 {
		t.Errorf("of %d KiB that the heap has grown by %d are in huge pages", size>>10, got)
	}
}

// TestLimit reads limits as control groups tell them.
func TestLimit(t *testing.T) {
	for text, want := range map[string]uint64{"2147483648\n": 2 << 30, "max\n": math.MaxUint64, "": math.MaxUint64} {
		file := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := limit(file); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := limit(filepath.Join(t.TempDir(), "none")); got != math.MaxUint64 {
		t.Errorf("no file: %d", got)
	}
}
