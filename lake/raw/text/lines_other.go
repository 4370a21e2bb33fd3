//go:build !amd64

package text

func lineEnds(s []byte, lineEnd byte, most int, ends *lineEndOffsets) int {
	return lineEndsGo(s, lineEnd, most, ends)
}
