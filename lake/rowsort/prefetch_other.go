//go:build !amd64

package rowsort

// Without assembly for the processor, nothing is prefetched.

func prefetchNames([]hostRef, []bufferHost, [][]byte, [][]byte) {}

func prefetchRows([]uint32, [][]byte) {}

func prefetchRefs([]rowRef, [][]byte) {}
