package lake

// copyEachPlain copies each piece to where it goes.
func copyEachPlain(to, from [][]byte) {
	for i, piece := range from {
		copy(to[i], piece)
	}
}
