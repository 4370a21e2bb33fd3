package prefetch

// ask has the core fetch the lines of b, which is not empty, without waiting for them.
func ask(b []byte) { askLines(&b[0], len(b)) }

//go:noescape
func askLines(p *byte, n int)
