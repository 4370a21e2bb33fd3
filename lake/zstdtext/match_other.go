//go:build !amd64

package zstdtext

// pass and measures are for assembly.
type (
	pass     struct{}
	measures struct{}
)

// parseWide is for assembly.
func (f *finder) parseWide([]byte, int) bool { return false }

// scan looks up the n positions of text from at on and returns how many starts it found.
func (f *finder) scan(text []byte, at, n int) int { return f.scanWords(text, at, 0, n, 0) }

// take chooses matches from the starts of the chunk at at.
func (f *finder) take(text []byte, at int, starts []uint32) {
	for _, s := range starts {
		f.takeOne(text, at+int(s&rankMask), int(s>>posShift))
	}
}
