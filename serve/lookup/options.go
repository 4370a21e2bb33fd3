package lookup

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/urlake/urlake/lake/access"
)

// Options of a Server. A field that is zero has its default.
type Options struct {
	// CacheDir holds copies of the mapped index files if the lake's objects are not local files.
	CacheDir string
	// MemoryBytes is the resident memory that the process stays within. A quarter of it limits the
	// resident part of all mapped files (see mapped.Residency). The rest is for Go's heap, which
	// includes the caches (see HeapBytes).
	MemoryBytes int64
	// FrameBytes limits the cache of decoded index frames, by default to a quarter of MemoryBytes.
	// PageBytes limits the cache of decoded rows, by default to three sixteenths of MemoryBytes.
	FrameBytes, PageBytes int64
	// Poll is the time between two reads of the manifest.
	Poll time.Duration
	// Deadline is how long a page may take. A page of URLs ends with the rows read by then; a page
	// of versions that takes longer is an error.
	Deadline time.Duration
	// KeepOpen is how many versions stay open, for cursors and version=, besides the current one.
	KeepOpen int
	// Warm is how many of the domains and lists that are asked for most are read before a new
	// version is served, so that their first answers from it wait for no read. A new version waits
	// for that for 2 seconds at most. With 0 nothing is counted or read.
	Warm int
	// LeaseTTL is how long the server's lease lasts after a renewal. Without it, which is the
	// default, the server holds none, and only the grace period of a garbage collector protects it.
	LeaseTTL time.Duration
	// LeaseAll makes the lease name all versions that the manifest lists. This is for programs that
	// read a few versions and end: they write the lease once, even if that fails, and remove it.
	LeaseAll bool
	// Program is the program and build that the lease names.
	Program string
	// Access says who may read which dataset. It is polled with the manifest. Without it everybody
	// reads everything. With it the server answers a context that is of no principal (Server.As) as
	// one who says no name.
	Access *access.Follower
	// Pace is the least time of a list of domains by name for readers of some datasets. It is
	// doubled until it is enough, up to Deadline. Otherwise the time would tell how many hidden
	// domains begin with a text. Without it, which is the default, answers take their time.
	Pace time.Duration
	// Log receives events outside of requests. The default is slog's default logger.
	Log *slog.Logger
}

const (
	// DefaultMemoryBytes leaves a margin below the target of 300 MiB resident. It gives 64 MiB to
	// the cache of frames and 48 MiB to the cache of rows.
	DefaultMemoryBytes = 256 << 20
	// DefaultPoll limits how outdated an answer without version= can be.
	DefaultPoll = 2 * time.Second
	// DefaultDeadline is many times what a cold page over a slow network takes.
	DefaultDeadline = 10 * time.Second
	// DefaultPace is long enough to pass hundreds of thousands of names.
	DefaultPace = 200 * time.Millisecond
	// DefaultKeepOpen lets clients page through a list during a few publishes without reopening its
	// version.
	DefaultKeepOpen = 4

	// openTimeout limits the opening of a version, which may have to download its mapped files.
	openTimeout = 30 * time.Minute
	// openParallel is how many segments of a version are opened at once.
	openParallel = 4
	// newerPoll is the minimum age of the last poll before an unknown newer version id causes
	// another poll. A cursor can come from another server that already serves a newer version, but
	// forged cursors must not cause a request to the store each.
	newerPoll = 200 * time.Millisecond
	// refreshes is how often Refresh begins again because the version that it was about to open is
	// no longer listed.
	refreshes = 3
	// decodingBytes is the memory that the gate counts for one page of a part while it is decoded.
	// Together, requests decode as many pages at a time as fit into a quarter of the heap. Light
	// ones have a quarter of these, and both kinds at least MaxPages. Decoding a full page of 8,192
	// rows allocates about 1 MiB, so with such pages the gates admit more than that.
	decodingBytes = 300 << 10
)

// setDefaults sets the fields that are zero.
func (o *Options) setDefaults() {
	o.MemoryBytes = cmp.Or(o.MemoryBytes, DefaultMemoryBytes)
	o.FrameBytes = cmp.Or(o.FrameBytes, o.MemoryBytes/4)
	o.PageBytes = cmp.Or(o.PageBytes, o.MemoryBytes/16*3)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	o.KeepOpen = cmp.Or(o.KeepOpen, DefaultKeepOpen)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// HeapBytes is the part of MemoryBytes for Go's heap. The program has to set it as the memory limit
// of the runtime.
func (o Options) HeapBytes() int64 {
	o.setDefaults()
	return o.MemoryBytes - o.residentBytes()
}

// CacheBytes is the size of both caches together. It must be less than HeapBytes.
func (o Options) CacheBytes() int64 {
	o.setDefaults()
	return o.FrameBytes + o.PageBytes
}

func (o *Options) residentBytes() int64 { return o.MemoryBytes / 4 }
