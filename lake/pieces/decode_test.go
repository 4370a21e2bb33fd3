package pieces

import (
	"errors"
	"fmt"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// Foreign bytes are refused or decode to keys that ascend.
func FuzzDecode(f *testing.F) {
	for level := range 2 {
		w := cutter{level: level}
		for i := range 40 {
			e := Entry{Key: fmt.Appendf(nil, "key %02d", i)}
			if level == 0 {
				e.Value = []byte("value")
			}
			w.add(e, child{name: digest(e.Key), entries: 7})
		}
		w.cut()
		f.Add(w.done[0].data, level)
	}
	f.Fuzz(func(t *testing.T, data []byte, level int) {
		p, err := decode(data, "piece", level)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		last := ""
		for i, e := range p.entries {
			if string(e.Key) <= last || len(e.Key) > MaxKey || len(e.Value) > MaxValue || p.search(e.Key) != i {
				t.Fatalf("entry %d: %q after %q", i, e.Key, last)
			}
			last = string(e.Key)
		}
	})
}
