package text

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

func checkLineEnds(tb testing.TB, s []byte, lineEnd byte) {
	tb.Helper()
	for _, most := range []int{1, 2, 3, 10, LinesAtOnce} {
		var got, want lineEndOffsets
		n, m := lineEnds(s, lineEnd, most, &got), lineEndsGo(s, lineEnd, most, &want)
		if !slices.Equal(got[:n], want[:m]) {
			tb.Fatalf("line ends %v, want %v", got[:n], want[:m])
		}
		at := 0
		for _, end := range want[:m] {
			if i := bytes.IndexByte(s[at:], lineEnd); i != int(end)-at {
				tb.Fatalf("line from %d ends at %d, want %d", at, end, at+i)
			}
			at = int(end) + 1
		}
		if m < most && bytes.IndexByte(s[at:], lineEnd) >= 0 {
			tb.Fatalf("only %d line ends, want %d", m, most)
		}
	}
}

func TestLineEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 300 {
		for _, every := range []int{1, 2, 3, 10, 50, 100, 1000} {
			for _, lineEnd := range []byte("\n\r") {
				s := make([]byte, size+100)
				for i := range s {
					s[i] = 'a'
					if r.IntN(every) == 0 {
						s[i] = "\n\r"[r.IntN(2)]
					}
				}
				from := r.IntN(100)
				checkLineEnds(t, s[from:from+size], lineEnd)
			}
		}
	}
}

// The memory behind a text is not accessible.
func TestLineEndsReadsOnlyItsText(t *testing.T) {
	mem := testenv.Guarded(t, 300)
	for i := range mem {
		mem[i] = "abcdefg\n"[i%8]
	}
	for size := range len(mem) + 1 {
		checkLineEnds(t, mem[len(mem)-size:], '\n')
		checkLineEnds(t, mem[len(mem)-size:], '\r')
	}
}

func FuzzLineEnds(f *testing.F) {
	f.Add([]byte("a\nbc\r\n\n\n"), byte('\n'))
	f.Fuzz(func(t *testing.T, s []byte, lineEnd byte) { checkLineEnds(t, s, lineEnd) })
}
