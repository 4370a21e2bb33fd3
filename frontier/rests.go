package frontier

import "time"

const (
	// busyFor is how long after a claim there is taken to be another one soon, and addsFor how long
	// after URLs were added others are.
	busyFor = 5 * time.Millisecond
	addsFor = 100 * time.Millisecond

	// While workers claim, files are written with rests: long ones, shorter ones once much is to be
	// written, and none once it is very much, or much while URLs are added. Numbers are those of
	// shard.Shard.Fullness.
	much, veryMuch          = 2, 4
	longRests, shorterRests = 9, 3
)

// claimsGoOn says that workers claim URLs all the time.
func (f *Frontier) claimsGoOn() bool {
	return int64(time.Since(begin))-f.claimedAt.Load() < int64(busyFor)
}

// addsGoOn says that URLs are added all the time.
func (f *Frontier) addsGoOn() bool {
	return int64(time.Since(begin))-f.addedAt.Load() < int64(addsFor)
}

// rests is how many times as long as a piece of work on files of a shard the rest after it is. A
// shard that is being opened has none, nor has any while another one waits to be opened again: they
// are written in turn.
func (f *Frontier) rests(s *owned) int {
	if !f.claimsGoOn() || s.tenure == nil || !s.mine() {
		return 0
	}
	fullest := 0.0
	for _, s := range f.all() {
		if s.doubtful.Load() {
			return 0
		}
		fullest = max(fullest, s.files.Fullness())
	}
	return restsAt(fullest, f.addsGoOn())
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
