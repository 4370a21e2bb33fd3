//go:build !amd64

package raw

func lineEnds(s []byte, eol byte, most int, ends *[linesAtOnce + 64]int32) int {
	return lineEndsBytes(s, eol, most, ends)
}
