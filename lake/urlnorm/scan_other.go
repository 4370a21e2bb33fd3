//go:build !amd64

package urlnorm

func scanPath(s []byte, start int) int { return scanPathWords(s, start) }
