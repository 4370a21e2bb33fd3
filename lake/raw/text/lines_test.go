package text

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

func checkLineEnds(tb testing.TB, s []byte, eol byte) {
	tb.Helper()
	for _, most := range []int{1, 2, 3, 10, LinesAtOnce} {
		var got, want [LinesAtOnce + 64]int32
		n, m := lineEnds(s, eol, most, &got), lineEndsBytes(s, eol, most, &want)
		if !slices.Equal(got[:n], want[:m]) {
			tb.Fatalf("line ends %v, want %v", got[:n], want[:m])
		}
		at := 0
		for _, end := range want[:m] {
			if i := bytes.IndexByte(s[at:], eol); i != int(end)-at {
				tb.Fatalf("line from %d ends at %d, want %d", at, end, at+i)
			}
			at = int(end) + 1
		}
		if m < most && bytes.IndexByte(s[at:], eol) >= 0 {
			tb.Fatalf("only %d line ends", m)
		}
	}
}

func TestLineEndsAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 300 {
		for _, every := range []int{1, 2, 3, 10, 50, 100, 1000} {
			for _, eol := range []byte("\n\r") {
				s := make([]byte, size+100)
				for i := range s {
					s[i] = 'a'
					if r.IntN(every) == 0 {
						s[i] = "\n\r"[r.IntN(2)]
					}
				}
				from := r.IntN(100)
				checkLineEnds(t, s[from:from+size], eol)
			}
		}
	}
}

// Nothing behind a text is read.
func TestLineEndsAreLookedForInTheirTextOnly(t *testing.T) {
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
	f.Fuzz(func(t *testing.T, s []byte, eol byte) { checkLineEnds(t, s, eol) })
}
