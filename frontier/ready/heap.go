package ready

// entry says when to look at a key.
type entry struct {
	at     int64
	number uint32
}

// heap has the earliest entry first. Each entry is no later than its children, of which it has
// four: these are in one or two lines of a cache.
type heap []entry

const children = 4

func (h *heap) push(e entry) {
	*h = append(*h, e)
	all, i := *h, len(*h)-1
	for i > 0 {
		parent := (i - 1) / children
		if all[parent].at <= e.at {
			break
		}
		all[i] = all[parent]
		i = parent
	}
	all[i] = e
}

// pop removes the first entry.
func (h *heap) pop() {
	last := len(*h) - 1
	e := (*h)[last]
	if *h = (*h)[:last]; last > 0 {
		h.replace(e)
	}
}

// replace puts an entry in the place of the first.
func (h *heap) replace(e entry) { h.down(0, e) }

// down puts an entry at a place or below it, where it belongs.
func (h *heap) down(i int, e entry) {
	all := *h
	for {
		first := i*children + 1
		if first >= len(all) {
			break
		}
		least := first
		for j := first + 1; j < min(first+children, len(all)); j++ {
			if all[j].at < all[least].at {
				least = j
			}
		}
		if e.at <= all[least].at {
			break
		}
		all[i] = all[least]
		i = least
	}
	all[i] = e
}

// order makes a heap of entries in any order.
func (h *heap) order() {
	for i := (len(*h) - 2) / children; i >= 0 && len(*h) > 1; i-- {
		h.down(i, (*h)[i])
	}
}
