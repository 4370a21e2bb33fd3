package part

import "encoding/binary"

// levelWriter writes definition levels in Parquet's hybrid encoding: runs of a repeated level, and
// runs of groups of eight bits. Its zero value is not ready: have has to be 8.
type levelWriter struct {
	dst    []byte
	groups []byte // groups that are not in dst yet
	have   int    // levels in the last group; 8 if it is full or there is none
}

// shortRun is the least number of equal levels that become a run of their own. Such a run ends a
// run of groups, so it costs another header too.
const shortRun = 48

// add appends n equal levels.
func (w *levelWriter) add(n int, defined bool) {
	if w.have < 8 {
		k := min(n, 8-w.have)
		w.bits(k, defined)
		n -= k
	}
	if n < shortRun {
		for n > 0 {
			w.groups, w.have = append(w.groups, 0), 0
			k := min(n, 8)
			w.bits(k, defined)
			n -= k
		}
		return
	}
	w.flush()
	w.dst = binary.AppendUvarint(w.dst, uint64(n)<<1)
	if defined {
		w.dst = append(w.dst, 1)
	} else {
		w.dst = append(w.dst, 0)
	}
}

// bits adds n levels to the last group, which has space for them.
func (w *levelWriter) bits(n int, defined bool) {
	if defined {
		w.groups[len(w.groups)-1] |= byte((1<<n - 1) << w.have)
	}
	w.have += n
}

// flush writes the groups as a run.
func (w *levelWriter) flush() {
	if len(w.groups) > 0 {
		w.dst = append(binary.AppendUvarint(w.dst, uint64(len(w.groups))<<1|1), w.groups...)
		w.groups = w.groups[:0]
	}
}
