package frontier

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// claimsFor is how long after a claim others are taken to come all the time, and addsFor the
	// same of URLs that are added. They are long: if the machine stands still for some
	// milliseconds, the claims that wait must not find files that are written without rests.
	claimsFor = 100 * time.Millisecond
	addsFor   = 100 * time.Millisecond
	// busyFor is how long after a claim work for many URLs leaves processors to the next one.
	busyFor = 5 * time.Millisecond

	// While workers claim, files are written with long rests; with none once much is to be
	// written and URLs are added; otherwise with shorter ones once it is very much, and with none
	// once it is the most: what claims and results add to it is little. Numbers are the mean of
	// shard.Shard.Fullness, as the process keeps the sum in memory, and some shards are full
	// whenever many URLs have been added.
	much, veryMuch, most    = 2, 4, 8
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
	all, fullness := f.all(), 0.0
	for _, s := range all {
		if s.doubtful.Load() {
			return 0
		}
		fullness += s.files.Fullness()
	}
	return restsAt(fullness/float64(len(all)), within(addsFor, &f.addedAt))
}

func restsAt(fullness float64, adds bool) int {
	switch {
	case fullness > most || fullness > much && adds:
		return 0
	case fullness > veryMuch:
		return shorterRests
	default:
		return longRests
	}
}

// fullestFirst sorts shards by how much is to be written to their files.
func fullestFirst(all []*owned) []*owned {
	fullness := make(map[*owned]float64, len(all))
	for _, s := range all {
		fullness[s] = s.files.Fullness()
	}
	slices.SortFunc(all, func(a, b *owned) int { return cmp.Compare(fullness[b], fullness[a]) })
	return all
}
