//go:build !amd64

package zstdtext

// scanState and measures are used by assembly only.
type (
	scanState struct{}
	measures  struct{}
)

// parseFast reports that there is no assembly.
func (f *finder) parseFast([]byte, int) bool { return false }

// scanChunk looks up the n positions of text from at on and returns how many candidates it found.
func (f *finder) scanChunk(text []byte, at, n int) int { return f.scanGeneric(text, at, 0, n, 0) }

// choose chooses matches among the candidates of the chunk at at.
func (f *finder) choose(text []byte, at int, candidates []uint32) {
	for _, c := range candidates {
		f.chooseOne(text, at+int(c&rankMask), int(c>>posShift))
	}
}
