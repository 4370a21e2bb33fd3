package frontier

import (
	"sync/atomic"
	"time"
)

const (
	// claimsFor is how long after a claim others are taken to come all the time, and addsFor the same
	// of URLs that are added. They are long: if the machine stands still for some milliseconds, the
	// claims that wait must not find files that are written without rests meanwhile.
	claimsFor = 100 * time.Millisecond
	addsFor   = 100 * time.Millisecond
	// busyFor is how long after a claim work for many URLs leaves processors to the next one.
	busyFor = 5 * time.Millisecond

	// While workers claim, files are written with rests: long ones, shorter ones once much is to be
	// written, and none once it is very much, or much while URLs are added. Numbers are those of
	// shard.Shard.Fullness.
	much, veryMuch          = 2, 4
	longRests, shorterRests = 9, 3
)

// within says that less than d has gone by since a time.
func within(d time.Duration, since *atomic.Int64) bool {
	return int64(time.Since(begin))-since.Load() < int64(d)
}

// rests is how many times as long as a piece of work on files of a shard the rest after it is. A
// shard that is being opened has none, nor has any while another one waits to be opened again: they
// are written in turn.
func (f *Frontier) rests(s *owned) int {
	if !within(claimsFor, &f.claimedAt) || s.tenure == nil || !s.mine() {
		return 0
	}
	fullest := 0.0
	for _, s := range f.all() {
		if s.doubtful.Load() {
			return 0
		}
		fullest = max(fullest, s.files.Fullness())
	}
	return restsAt(fullest, within(addsFor, &f.addedAt))
}

func restsAt(fullness float64, adds bool) int {
	switch {
	case fullness > veryMuch || fullness > much && adds:
		return 0
	case fullness > much:
		return shorterRests
	default:
		return longRests
	}
}
