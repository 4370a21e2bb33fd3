package lookup

import (
	"cmp"
	"testing"
)

func TestMemoryIsDivided(t *testing.T) {
	for _, o := range []Options{
		{}, {MemoryBytes: 64 << 20}, {MemoryBytes: 4 << 30}, {FrameBytes: 10 << 20, PageBytes: 100 << 20},
	} {
		all := cmp.Or(o.MemoryBytes, DefaultMemoryBytes)
		if heap, caches := o.HeapBytes(), o.CacheBytes(); heap >= all || caches >= heap || caches <= 0 {
			t.Errorf("%+v: of %d bytes the heap has %d, caches %d", o, all, heap, caches)
		}
	}
	if got := (Options{FrameBytes: 10, PageBytes: 100}).CacheBytes(); got != 110 {
		t.Errorf("%d bytes of caches", got)
	}
}
