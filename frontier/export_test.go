package frontier

import "context"

// WarnOfLarge logs the queues that are too large now.
func (f *Frontier) WarnOfLarge(ctx context.Context) error { return f.warnOfLarge(ctx) }

// Lapse lets the time for which a shard is this process' be over, as if Redis had not answered.
func (f *Frontier) Lapse(number int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if s := f.owned[number]; s != nil {
		s.tenure.until.Store(0)
	}
}

// Doubt lets a shard that is served be opened again by the next upkeep.
func (f *Frontier) Doubt(number int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if s := f.owned[number]; s != nil {
		s.doubtful.Store(true)
	}
}

// Awaited says that files are written with rests.
func (f *Frontier) Awaited() bool { return f.awaited() }

// BulkLeast is how many URLs are many.
const BulkLeast = bulkLeast
