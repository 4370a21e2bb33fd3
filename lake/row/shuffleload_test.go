package row

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Load groups files, and calls full, as if it took one file after the other: for files with and
// without rows, buffers that already have rows, and a full that does not empty the buffer.
func TestLoadTakesOneFileAfterTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		s := &Shuffle{files: make([]shuffleReader, r.IntN(7))}
		for i := range s.files {
			if r.IntN(3) > 0 {
				s.files[i].parts[3].rows = r.Int64N(4)
			}
		}
		budget, used := r.Int64N(10)*2*rowRefSize, r.Int64N(8)*2*rowRefSize
		left := int64(0)
		if r.IntN(4) == 0 {
			left = r.Int64N(5) * 2 * rowRefSize
		}
		each := func() (log string) {
			b := &Buffer{budget: budget, used: used}
			var files []int
			var memory int64
			load := func() {
				log += fmt.Sprint("load", files)
				b.used += memory
			}
			full := func() { log += "full"; b.used = left }
			for i := range s.files {
				n := s.files[i].memory(0, 256)
				if n == 0 {
					continue
				}
				if len(files) > 0 && b.used+memory+n > b.budget {
					load()
					full()
					files, memory = files[:0], 0
				}
				files, memory = append(files, i), memory+n
			}
			if len(files) > 0 {
				load()
			}
			if b.Full() {
				full()
			}
			return log
		}()
		taken := func() (log string) {
			b := &Buffer{budget: budget, used: used}
			l := b.shuffleLoad(s, 0, 255)
			load := func() error {
				var files []int
				for _, f := range l.files {
					for i := range s.files {
						if f == &s.files[i] {
							files = append(files, i)
						}
					}
					b.used += f.memory(0, 256)
				}
				log += fmt.Sprint("load", files)
				return nil
			}
			full := func() error { log += "full"; b.used = left; return nil }
			if err := l.all(load, full); err != nil {
				t.Fatal(err)
			}
			return log
		}()
		if each != taken {
			t.Fatalf("budget %d, used %d, left %d: %s, one by one %s", budget, used, left, taken, each)
		}
	}
}
