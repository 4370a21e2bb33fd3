//go:build !amd64

package rowsort

func (w *shuffleWriter) spreadMany([]byte) int { return 0 }

func scatterMany([]byte, []uint64, [][]byte, bool) int { return 0 }
