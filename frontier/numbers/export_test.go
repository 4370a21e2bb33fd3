package numbers

// Slots returns how many slots a table has.
func (t *Table[V]) Slots() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].slots)
	}
	return n
}

// Probes returns how many slots a search for one of the numbers of a table looks at, on average.
func (t *Table[V]) Probes() float64 {
	n, probes := 0, 0
	for i := range t.parts {
		p := &t.parts[i]
		n += p.n
		for j := range p.slots {
			if next := p.slots[j].next; next != 0 {
				_, _, hash := t.part(next - 1)
				probes += (j-p.home(hash))&(len(p.slots)-1) + 1
			}
		}
	}
	return float64(probes) / float64(max(n, 1))
}
