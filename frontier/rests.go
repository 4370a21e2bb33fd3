package frontier

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// claimsFor is how long after a claim others are taken to come all the time, seenFor the same
	// of requests that look up many URLs, and addsFor that of URLs that are added. They are long:
	// if the machine stands still for some milliseconds, the claims that wait must not find files
	// that are written without rests.
	claimsFor = 100 * time.Millisecond
	seenFor   = 100 * time.Millisecond
	addsFor   = 100 * time.Millisecond
	// busyFor is how long after a claim work for many URLs leaves processors to the next one.
	busyFor = 5 * time.Millisecond

	// Numbers of shard.Shard.Fullness. While workers claim or many URLs are looked up, files are
	// written
	//   - without rests if the fullness is over most, or over much while URLs are added and no
	//     claim waits for its turn;
	//   - else with shorter rests if it is over veryMuch;
	//   - else with long rests: claims, results and lookups add little to what is in memory.
	// Over veryMuch nothing that is due is put into memory, either, and over full adds wait.
	much, veryMuch, full, most = 2, 4, 6, 8
	// aShard is how many times as full as all together one shard may be.
	aShard = 4
	// A rest is so many times as long as the work before it.
	longRests, shorterRests = 9, 3

	// roomFor bounds how long adds wait for room, and roomEvery is how often they look.
	roomFor   = 5 * time.Second
	roomEvery = 5 * time.Millisecond
)

// within says that less than d has gone by since a time.
func within(d time.Duration, since *atomic.Int64) bool {
	return int64(time.Since(begin))-since.Load() < int64(d)
}

// awaited says that others wait for the processors.
func (f *Frontier) awaited() bool {
	return within(claimsFor, &f.claimedAt) || within(seenFor, &f.seenAt)
}

// rests is how many times as long as a piece of work on files of a shard the rest after it is. A
// shard that is being opened has none, nor has any while another one waits to be opened again: they
// are written in turn.
func (f *Frontier) rests(s *owned) int {
	if !f.awaited() || s.tenure == nil || !s.mine() {
		return 0
	}
	var all []float64
	for _, s := range f.all() {
		if s.doubtful.Load() {
			return 0
		}
		all = append(all, s.files.Fullness())
	}
	return restsAt(fullnessOf(all, s.files.Fullness()), within(addsFor, &f.addedAt), f.claims.behind() > 0)
}

// waitForRoom returns when what is to be written to files is not far more than it should be, or
// after some time. Without it the memory of a process that writes with rests had no bound.
func (f *Frontier) waitForRoom(ctx context.Context) {
	for end := time.Now().Add(roomFor); f.isFull() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(roomEvery)
	}
}

// isFull says whether that is so, as it was a moment ago.
func (f *Frontier) isFull() bool {
	now, at := int64(time.Since(begin)), f.fullAt.Load()
	if now-at >= int64(roomEvery) && f.fullAt.CompareAndSwap(at, now) {
		var all []float64
		for _, s := range f.all() {
			if v := s.files.Fullness(); !math.IsInf(v, 1) { // it will be opened again
				all = append(all, v)
			}
		}
		f.full.Store(fullnessOf(all, 0) > full)
	}
	return f.full.Load()
}

// fullnessOf is the mean of all shards: the process has the sum in memory, and some shards are full
// whenever many URLs were added. The one that is written counts more if it is much fuller.
func fullnessOf(all []float64, written float64) float64 {
	sum := 0.0
	for _, f := range all {
		sum += f
	}
	return max(sum/float64(max(len(all), 1)), written/aShard)
}

// restsAt is rests with a fullness, while URLs are added or not, and claims wait or not.
func restsAt(fullness float64, adds, behind bool) int {
	switch {
	case fullness > most || fullness > much && adds && !behind:
		return 0
	case fullness > veryMuch:
		return shorterRests
	default:
		return longRests
	}
}

// fullestFirst sorts shards by how much is to be written to their files. Those that are to be
// opened again come first.
func fullestFirst(all []*owned, fullness func(*owned) float64) []*owned {
	order := make(map[*owned]float64, len(all))
	for _, s := range all {
		order[s] = fullness(s)
		if s.doubtful.Load() {
			order[s] = math.Inf(1)
		}
	}
	slices.SortFunc(all, func(a, b *owned) int { return cmp.Compare(order[b], order[a]) })
	return all
}
