package mapped

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// touchesPerTrim is how many lookups in mapped files pass between two checks of the process's
	// resident memory. Each lookup touches a handful of offsets, and the kernel maps up to 64 KiB
	// around each: some 20 MiB at worst.
	touchesPerTrim = 64
	// dropBytes is how much of a file is dropped at a time, which takes some tens of microseconds.
	dropBytes = 4 << 20
)

// Residency bounds how much of the files opened with it is resident in the process's memory. It is
// safe for concurrent use.
//
// Pages of mapped files that lookups have touched count as the process's memory although the kernel
// can reclaim them, and lookups are random: in the end every page of every file would count. Once
// the resident pages of everything that the process has mapped, its program included, exceed the
// limit, the files' pages are dropped, a piece of a file at a time, until three quarters of the
// limit are left. Dropped pages stay in the kernel's page cache while there is room, where the next
// touch finds them in about a microsecond. On systems other than Linux nothing is dropped.
type Residency struct {
	limit int64

	touches  atomic.Uint32
	trimming atomic.Bool

	mu    sync.Mutex // held while pages are dropped: an unmapped address may belong to anything
	files []*File
	bytes int64 // of all files
	file  int   // index of the file to drop from next
	off   int64 // and the offset in it
}

// NewResidency returns a Residency with a limit of that many bytes.
func NewResidency(limit int64) *Residency { return &Residency{limit: limit} }

// MappedBytes is the size of all mapped files, resident or not.
func (r *Residency) MappedBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

func (r *Residency) add(f *File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, f)
	r.bytes += f.Size()
}

// remove must be called before f is unmapped.
func (r *Residency) remove(f *File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = slices.DeleteFunc(r.files, func(other *File) bool { return other == f })
	r.bytes -= f.Size()
}

// touch counts a lookup. A nil Residency has no limit.
func (r *Residency) touch() {
	if r == nil || r.touches.Add(1)%touchesPerTrim != 0 || !r.trimming.CompareAndSwap(false, true) {
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

// drop drops the pages of the next piece of a file and returns the piece's size.
func (r *Residency) drop() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 {
		return dropBytes
	}
	r.file %= len(r.files)
	f := r.files[r.file]
	from := min(r.off, f.Size())
	to := min(from+dropBytes, f.Size())
	dropResident(f.data[from:to])
	if r.off = to; to == f.Size() {
		r.file, r.off = r.file+1, 0
	}
	return max(to-from, 1)
}
