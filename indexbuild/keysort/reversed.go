package keysort

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"slices"
)

// Reversed sorts lines by their bytes from the last to the first, in bounded memory. It is for one
// goroutine. Close removes the temporary file.
//
// Lines are kept as they are. The last eight bytes of one, as a little-endian number, are the first
// eight of the reversed line as a big-endian one, by which lines are compared.
type Reversed struct {
	memory      int
	text        []byte // the lines in memory, behind headBytes that are none
	refs, spare []lineRef
	runs        *Runs
}

// MaxReversed is how many bytes a line has at most.
const MaxReversed = 1<<lengthBits - 1

// lineRef is a line in memory.
type lineRef struct {
	head uint64 // the next bytes of the reversed line, from some depth on; see headOf
	at   uint64 // where the line ends, and in the low lengthBits how long it is
}

const (
	lengthBits = 8
	headBytes  = 8

	// lineBytes is what a line takes besides its text: its reference, again while it is sorted.
	lineBytes = 2 * 16

	// textBytes is about how long a line is.
	textBytes = 16

	// distributed is the least number of lines whose sorting by distribution is faster than by
	// comparison.
	distributed = 1 << 10
)

// NewReversed returns a Reversed for about expect lines. Whenever it would hold more than memory
// bytes, it spills to a temporary file in dir; "" is the system's temporary folder. It holds the
// lines of one AddLines at least.
func NewReversed(dir string, memory int, expect int64) *Reversed {
	lines := min(expect, int64(memory)/(lineBytes+textBytes))
	return &Reversed{
		memory: memory, text: make([]byte, headBytes, headBytes+textBytes*lines), refs: make([]lineRef, 0, lines), runs: NewRuns(dir),
	}
}

// Close removes the temporary file.
func (r *Reversed) Close() { r.runs.Close() }

// AddLines adds a copy of text, which is whole lines of up to MaxReversed bytes. They end at ends,
// each with a newline.
func (r *Reversed) AddLines(text []byte, ends []uint32) error {
	if size := len(r.text) + len(text) + lineBytes*(len(r.refs)+len(ends)); size > r.memory && len(r.refs) > 0 {
		if err := r.runs.Add(r.sorted()); err != nil {
			return err
		}
		r.text, r.refs = r.text[:headBytes], r.refs[:0]
	}
	base := uint64(len(r.text))
	r.text = append(r.text, text...)
	r.refs = slices.Grow(r.refs, len(ends))
	start := uint32(0)
	for _, end := range ends {
		at := (base+uint64(end)-1)<<lengthBits | uint64(end-1-start)
		head, _ := r.headOf(at, 0)
		r.refs = append(r.refs, lineRef{head, at})
		start = end
	}
	return nil
}

// headOf returns the next bytes of a reversed line, from depth on, as a number that sorts like
// them. Behind the end of the line are zeros. More tells that the line does not end before depth.
func (r *Reversed) headOf(at uint64, depth int) (head uint64, more bool) {
	left := int(at&MaxReversed) - depth
	if left <= 0 {
		return 0, false
	}
	end := int(at>>lengthBits) - depth
	head = binary.LittleEndian.Uint64(r.text[end-headBytes:])
	if left < headBytes {
		head &^= 1<<(8*(headBytes-left)) - 1
	}
	return head, true
}

// sort sorts lines whose reversed bytes are equal before depth, where their heads begin. It
// distributes them by their heads, and those with equal ones by the bytes that follow.
func (r *Reversed) sort(refs, spare []lineRef, depth int) {
	if len(refs) < distributed {
		slices.SortFunc(refs, func(a, b lineRef) int { return r.compare(a, b, depth) })
		return
	}
	distribute(refs, spare)
	for lo := 0; lo < len(refs); {
		hi := lo + 1
		for hi < len(refs) && refs[hi].head == refs[lo].head {
			hi++
		}
		r.sortEqual(refs, lo, hi, spare[lo:hi], depth+headBytes)
		lo = hi
	}
}

// sortEqual sorts the lines [lo, hi) of refs, whose reversed bytes are equal before depth.
func (r *Reversed) sortEqual(refs []lineRef, lo, hi int, spare []lineRef, depth int) {
	if hi == lo+1 {
		return
	}
	some := false // of the lines go on at depth
	for i := lo; i < hi; i++ {
		head, more := r.headOf(refs[i].at, depth)
		refs[i].head, some = head, some || more
	}
	if some {
		r.sort(refs[lo:hi], spare, depth)
	} else { // they differ by zeros, if at all
		slices.SortFunc(refs[lo:hi], func(a, b lineRef) int { return cmp.Compare(a.at&MaxReversed, b.at&MaxReversed) })
	}
}

// compare compares two lines by their heads, which begin at depth, and by the bytes that follow.
func (r *Reversed) compare(a, b lineRef, depth int) int {
	left, right := a.head, b.head
	for more := true; left == right; {
		if !more {
			return cmp.Compare(a.at&MaxReversed, b.at&MaxReversed)
		}
		depth += headBytes
		var moreRight bool
		left, more = r.headOf(a.at, depth)
		right, moreRight = r.headOf(b.at, depth)
		more = more || moreRight
	}
	return cmp.Compare(left, right)
}

// distribute sorts lines by their heads, byte by byte from the last one.
func distribute(refs, spare []lineRef) {
	var counts [headBytes][256]int
	for i := range refs {
		for b := range headBytes {
			counts[b][byte(refs[i].head>>(8*b))]++
		}
	}
	from, to := refs, spare
	for b := range headBytes {
		next := &counts[b]
		if next[byte(refs[0].head>>(8*b))] == len(refs) {
			continue // all have the same byte
		}
		sum := 0
		for i, n := range next {
			next[i], sum = sum, sum+n
		}
		for _, ref := range from {
			at := &next[byte(ref.head>>(8*b))]
			to[*at] = ref
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &refs[0] {
		copy(refs, from)
	}
}

// sorted sorts the lines in memory and returns a Source of the reversed ones.
func (r *Reversed) sorted() Source {
	r.spare = slices.Grow(r.spare[:0], len(r.refs))[:len(r.refs)]
	r.sort(r.refs, r.spare, 0)
	return &sortedLines{r: r}
}

type sortedLines struct {
	r    *Reversed
	next int
	line []byte
}

// Next implements Source.
func (s *sortedLines) Next() (key, value []byte, err error) {
	if s.next == len(s.r.refs) {
		return nil, nil, io.EOF
	}
	at := s.r.refs[s.next].at
	s.next++
	end := at >> lengthBits
	s.line = append(s.line[:0], s.r.text[end-at&MaxReversed:end]...)
	slices.Reverse(s.line)
	return s.line, nil, nil
}

// Each passes the reversed lines to yield, in the order of their bytes. They are valid during the
// call, and used up.
func (r *Reversed) Each(ctx context.Context, yield func(line []byte) error) error {
	return r.runs.Merge(ctx, []Source{r.sorted()}, func(line, _ []byte) error { return yield(line) })
}
