package shard

import (
	"io"
	"slices"
	"time"
)

const (
	// writeAtOnce is how much of a file is written at once.
	writeAtOnce = 64 << 10
	// pieceTime is how long files are worked on before there is a rest. A request that comes
	// meanwhile may wait for a processor that long.
	pieceTime = 250 * time.Microsecond
	// stepsAtOnce is how many elements of a list are worked on between two looks at the clock.
	stepsAtOnce = 1024
	// restFactor is how long a rest is, as a multiple of the time that the piece took, and
	// longestRest bounds that.
	restFactor  = 3
	longestRest = 50 * time.Millisecond
	// muchMemory is how many times MemoryBytes are much more than that.
	muchMemory = 2
)

// pacer divides the work of writing and opening files into pieces, with rests in between while the
// shard is busy. That work takes a processor for seconds; requests would wait for it. A nil one has
// no rests.
type pacer struct {
	s     *Shard
	began time.Time // of the piece that is worked on
	sleep func(time.Duration)
	steps int
}

func (s *Shard) newPacer() *pacer { return &pacer{s: s, began: time.Now(), sleep: time.Sleep} }

// look ends a piece that has taken its time.
func (p *pacer) look() {
	if p == nil {
		return
	}
	took := time.Since(p.began)
	if took < pieceTime {
		return
	}
	if p.s.unhurried() {
		p.sleep(min(restFactor*took, longestRest))
	}
	p.began = time.Now()
}

// step is called for each element of a list.
func (p *pacer) step() {
	if p == nil {
		return
	}
	if p.steps++; p.steps%stepsAtOnce == 0 {
		p.look()
	}
}

// paced returns a comparison that counts as a step.
func paced[T any](p *pacer, with func(a, b T) int) func(a, b T) int {
	return func(a, b T) int {
		p.step()
		return with(a, b)
	}
}

// writer is a file that is written in pieces.
func (p *pacer) writer(w io.Writer) io.Writer { return &pacedWriter{p, w} }

type pacedWriter struct {
	p *pacer
	w io.Writer
}

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, writeAtOnce) {
		wrote, err := w.w.Write(piece)
		if n += wrote; err != nil {
			return n, err
		}
		w.p.look()
	}
	return n, nil
}

// unhurried says that requests come before files.
func (s *Shard) unhurried() bool { return s.o.Busy != nil && !s.Crowded() && s.o.Busy() }

// Crowded says whether much more is in memory than is to be, or the shard's files have failed.
func (s *Shard) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fuller(muchMemory) || s.failed != nil
}

// fuller says whether more is to be written to files than MemoryBytes, times a number.
func (s *Shard) fuller(times int) bool {
	limit := times * s.o.MemoryBytes
	return s.memory > limit || s.batch.seen.Len()*2*seenElement > limit || s.journal.Size() > int64(4*limit)
}
