//go:build !amd64

package text

func lineEnds(s []byte, eol byte, most int, ends *[LinesAtOnce + 64]int32) int {
	return lineEndsBytes(s, eol, most, ends)
}
