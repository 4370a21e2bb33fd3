package shard

import (
	"io"
	"os"
	"slices"
	"time"
)

const (
	// writeAtOnce is how much of a file is written at once.
	writeAtOnce = 64 << 10
	// restFactor is how long the writer of a file rests after a piece, as a multiple of the time
	// that the piece took, and longestRest bounds that.
	restFactor  = 3
	longestRest = 50 * time.Millisecond
	// muchMemory is how many times MemoryBytes are much more than that.
	muchMemory = 2
)

// pacedFile is a file that is written in pieces, with rests in between while the shard is busy.
// Merging takes a processor for seconds; requests would wait for it, or share a core with it.
type pacedFile struct {
	s     *Shard
	file  *os.File
	began time.Time // of the piece that comes
	sleep func(time.Duration)
}

func (s *Shard) paced(f *os.File) io.Writer { return &pacedFile{s, f, time.Now(), time.Sleep} }

func (f *pacedFile) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, writeAtOnce) {
		wrote, err := f.file.Write(piece)
		if n += wrote; err != nil {
			return n, err
		}
		if f.s.unhurried() {
			f.sleep(min(restFactor*time.Since(f.began), longestRest))
		}
		f.began = time.Now()
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
