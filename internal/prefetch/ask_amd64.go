package prefetch

// ask prefetches the cache lines of b, without waiting for them. b must not be empty.
func ask(b []byte) { askLines(&b[0], len(b)) }

//go:noescape
func askLines(p *byte, n int)
