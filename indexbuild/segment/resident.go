package segment

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// touchesPerLook is how many lookups in mapped files pass between two looks at the process's resident memory. Each touches
	// a handful of places, and the kernel maps up to 64 KiB around one: some 20 MiB at the worst.
	touchesPerLook = 64
	// dropBytes is how much of a file is dropped at once: it takes some tens of microseconds.
	dropBytes = 4 << 20
)

// Residency keeps the mapped files of all segments that are opened with it from filling the process's resident memory. It is
// safe for concurrent use.
//
// The pages of mapped files that lookups have touched count as the process's memory although the kernel could take them back,
// and lookups are random: sooner or later all of every file is counted. Once the resident pages of all files that the process has
// mapped, its program included, pass the limit, mapped files are dropped piece by piece, in turn, down to
// three quarters of the limit. They stay in the kernel's cache of files as long as there is room, where the next touch finds
// them in about a microsecond. On systems other than Linux nothing is dropped.
type Residency struct {
	limit int64

	touches  atomic.Uint32
	trimming atomic.Bool

	mu    sync.Mutex // held while a file is dropped: an unmapped address may be anybody's
	files []*mapped
	bytes int64 // of all files
	file  int   // what is dropped next
	off   int64
}

// NewResidency makes a bound of limit bytes.
func NewResidency(limit int64) *Residency { return &Residency{limit: limit} }

// MappedBytes is the size of all mapped files, resident or not.
func (r *Residency) MappedBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

func (r *Residency) add(m *mapped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, m)
	r.bytes += int64(len(m.data))
}

// remove has to come before m is unmapped.
func (r *Residency) remove(m *mapped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = slices.DeleteFunc(r.files, func(other *mapped) bool { return other == m })
	r.bytes -= int64(len(m.data))
}

// touch notes a lookup. A nil Residency has no limit.
func (r *Residency) touch() {
	if r == nil || r.touches.Add(1)%touchesPerLook != 0 || !r.trimming.CompareAndSwap(false, true) {
		return
	}
	if residentFileBytes() <= r.limit {
		r.trimming.Store(false)
		return
	}
	go func() {
		defer r.trimming.Store(false)
		for left := r.MappedBytes(); left > 0 && residentFileBytes() > r.limit/4*3; {
			left -= r.drop()
		}
	}()
}

// drop drops the next piece of a file and returns its size.
func (r *Residency) drop() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 {
		return dropBytes
	}
	r.file %= len(r.files)
	m := r.files[r.file]
	from := min(r.off, int64(len(m.data)))
	to := min(from+dropBytes, int64(len(m.data)))
	dropResident(m.data[from:to])
	if r.off = to; to == int64(len(m.data)) {
		r.file, r.off = r.file+1, 0
	}
	return max(to-from, 1)
}
