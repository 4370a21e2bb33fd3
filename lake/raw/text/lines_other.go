//go:build !amd64

package text

func lineEnds(s []byte, lineEnd byte, most int, ends *lineEndOffsets) (n int, plain, oneEach bool) {
	return lineEndsGo(s, lineEnd, most, ends)
}
