package shard

// Long work is done in pieces with rests in between, so that requests do not wait for a processor
// that work in the background has.

import (
	"io"
	"slices"
	"time"
)

const (
	// writeAtOnce is how many bytes of a file are written at once.
	writeAtOnce = 64 << 10
	// piece is how long is worked before there is a rest: a request that comes meanwhile may wait
	// for a processor that long.
	piece = 250 * time.Microsecond
	// stepsAtOnce is how many steps there are between two looks at the clock.
	stepsAtOnce = 1024
	// longestRest bounds a rest, which is as long as a multiple of the time that the piece took.
	longestRest = 50 * time.Millisecond
)

// pacer is for the work of one goroutine. A nil one never rests.
type pacer struct {
	rests func() int
	sleep func(time.Duration)
	began time.Time // of the piece that is worked on
	steps int
}

// newPace returns a Pacer for work that begins now. Rests says how many times as long as a piece
// the rest after it is. If it is nil there are no rests.
func newPace(rests func() int) *pacer {
	if rests == nil {
		return nil
	}
	return &pacer{rests: rests, sleep: time.Sleep, began: time.Now()}
}

// Look is called often, outside of locks, and rests if a piece has taken its time.
func (p *pacer) Look() {
	if p == nil {
		return
	}
	took := time.Since(p.began)
	if took < piece {
		return
	}
	if times := p.rests(); times > 0 {
		p.sleep(min(time.Duration(times)*took, longestRest))
	}
	p.began = time.Now()
}

// Step is called for each element of a list, and looks at the clock for some of them.
func (p *pacer) Step() {
	if p == nil {
		return
	}
	if p.steps++; p.steps%stepsAtOnce == 0 {
		p.Look()
	}
}

// compare returns the comparison of a sort; each comparison is a step.
func compare[T any](p *pacer, compare func(a, b T) int) func(a, b T) int {
	return func(a, b T) int {
		p.Step()
		return compare(a, b)
	}
}

// Writer returns a writer to w with looks in between.
func (p *pacer) Writer(w io.Writer) io.Writer { return &writer{p, w} }

type writer struct {
	p *pacer
	w io.Writer
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, writeAtOnce) {
		wrote, err := w.w.Write(part)
		if n += wrote; err != nil {
			return n, err
		}
		w.p.Look()
	}
	return n, nil
}
