// Package lookup answers the two queries of a lake, which datasets contain a domain and which
// of its URLs a dataset contains, from a lake and a cache directory alone.
//
// A Server follows the manifest. A Snapshot is one version, open; whoever has one pinned
// gets answers from that version until it is released, whatever is published meanwhile: a new
// version is opened before it takes the old one's place, and an old one is closed when its
// last request has ended.
//
// What it promises: an answer is exact or an error. Totals are counts of rows, pages at any
// offset are slices of the full list, and they cost the same at any offset: the index says how
// many rows lie where, so nothing is read to be skipped. Bytes that are not what was
// written are a *codec.CorruptError.
package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/urlnorm"
)

var (
	// ErrBadVersion: the text is no version id.
	ErrBadVersion = errors.New("not a version id")
	// ErrGone: the version was published once and is kept no longer.
	ErrGone = errors.New("version is no longer kept")
	// ErrUnknownDataset: the version has no dataset with that id.
	ErrUnknownDataset = errors.New("unknown dataset")
	// ErrRange: an offset or limit outside of what is allowed.
	ErrRange = errors.New("offset or limit out of range")
	// ErrDeadline: a page did not get a single row in time.
	ErrDeadline = errors.New("deadline passed")
)

// Options of a Server. Zero fields have the defaults.
type Options struct {
	// CacheDir holds copies of the mapped index files of a lake whose objects are not files.
	CacheDir string
	// MemoryBytes is the resident memory that the process is to stay within. A quarter bounds what of all mapped files is resident
	// (see mapped.Residency), and the caches have shares of the rest, which is Go's heap: see HeapBytes.
	MemoryBytes int64
	// FrameBytes bounds the cache of decoded index frames, a quarter of MemoryBytes by default, PageBytes that of decoded rows, three sixteenths.
	FrameBytes, PageBytes int64
	// Poll is how often the manifest is looked at.
	Poll time.Duration
	// Deadline is how long a page may take: what is complete by then is the page.
	Deadline time.Duration
	// KeepOpen is how many versions besides the current one stay open for cursors and version=.
	KeepOpen int
	// PublicSuffix is the public suffix list of this program; "" is urlnorm's.
	PublicSuffix string
	// Log receives what happens outside of requests; nil is slog's default.
	Log *slog.Logger
}

const (
	// DefaultMemoryBytes leaves a margin below 300 MiB. Its caches are 64 MiB of frames, the lower end of what the original specification gives
	// postings pages, and 48 MiB of rows, some three hundred pages of two thousand.
	DefaultMemoryBytes = 256 << 20
	// DefaultPoll bounds how old an answer without version= can be.
	DefaultPoll = 2 * time.Second
	// DefaultDeadline is many times what a stone cold page over a slow network takes.
	DefaultDeadline = 10 * time.Second
	// DefaultKeepOpen lets clients page on through a few publishes without reopening.
	DefaultKeepOpen = 4

	// openTimeout bounds the opening of a version, which may have to download its mapped files.
	openTimeout = 30 * time.Minute
	// openParallel is how many segments of a version are opened at once.
	openParallel = 4
	// newerPoll is how old the last poll has to be before a version id from the future causes another
	// one: a cursor can come from a server that polled earlier, and a forged one must not cost a request each.
	newerPoll = 200 * time.Millisecond
	// decodingBytes is about what decoding a page of a part takes meanwhile. All requests together decode as many at a time as fit into a quarter
	// of the heap, and at least what one request may have.
	decodingBytes = 300 << 10
)

// setDefaults fills in what is zero.
func (o *Options) setDefaults() {
	o.MemoryBytes = cmp.Or(o.MemoryBytes, DefaultMemoryBytes)
	o.FrameBytes = cmp.Or(o.FrameBytes, o.MemoryBytes/4)
	o.PageBytes = cmp.Or(o.PageBytes, o.MemoryBytes/16*3)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	o.KeepOpen = cmp.Or(o.KeepOpen, DefaultKeepOpen)
	o.PublicSuffix = cmp.Or(o.PublicSuffix, urlnorm.PSLVersion())
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// HeapBytes is what of MemoryBytes is for Go's heap: a limit that the program has to set.
func (o Options) HeapBytes() int64 {
	o.setDefaults()
	return o.MemoryBytes - o.residentBytes()
}

// CacheBytes are those of both caches, of which the heap has to have room beside other things.
func (o Options) CacheBytes() int64 {
	o.setDefaults()
	return o.FrameBytes + o.PageBytes
}

func (o *Options) residentBytes() int64 { return o.MemoryBytes / 4 }

// Server opens the versions of one lake and answers from them. It is safe for concurrent use.
type Server struct {
	store    blob.Store
	opt      Options
	follower *manifest.Follower
	frames   *cache[segment.CacheKey]
	pages    *cache[pageKey]
	resident *mapped.Residency
	gate     *semaphore.Weighted
	datasets int // on a page: MaxDatasets

	current atomic.Pointer[Snapshot]
	// refreshing keeps two callers of Refresh from opening the same version twice.
	refreshing sync.Mutex

	mu       sync.Mutex
	manifest *manifest.Manifest // the newest seen, nil before the first
	polled   time.Time
	err      error      // why the newest manifest is not the current one
	older    []*opening // the most recently used last
	segments map[string]*sharedSegment
	closed   bool
}

// opening is a version besides the current one that is open or being opened.
type opening struct {
	ref  manifest.VersionRef
	done chan struct{}
	snap *Snapshot
	err  error
}

// sharedSegment is an open segment and how many snapshots use it: versions that follow each
// other have most of their segments in common.
type sharedSegment struct {
	users int
	done  chan struct{}
	seg   *segment.Segment
	err   error
}

// NewServer makes a server for the lake in store. It reads nothing before Refresh or Run.
func NewServer(store blob.Store, opt Options) *Server {
	opt.setDefaults()
	return &Server{
		store: whole{store}, opt: opt, follower: manifest.NewFollower(store), datasets: MaxDatasets,
		frames: newCache[segment.CacheKey](opt.FrameBytes), pages: newCache[pageKey](opt.PageBytes),
		resident: mapped.NewResidency(opt.residentBytes()), gate: semaphore.NewWeighted(max(MaxPages, opt.HeapBytes()/4/decodingBytes)), segments: map[string]*sharedSegment{},
	}
}

// whole is the store of immutable objects: one that ends before the bytes that are known to be in it is damaged. Its
// readers call it from goroutines of their own, so a panic of the store is contained here.
type whole struct{ blob.Store }

func (w whole) ReadRange(ctx context.Context, key string, off, n int64) (data []byte, err error) {
	err = contain(func() (err error) {
		data, err = w.Store.ReadRange(ctx, key, off, n)
		return err
	})
	return data, cut(err, key, off, n)
}

func (w whole) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := w.Store.Open(ctx, key, off, n)
	return r, cut(err, key, off, n)
}

// Unwrap lets the files of a local store be found.
func (w whole) Unwrap() blob.Store { return w.Store }

func cut(err error, key string, off, n int64) error {
	if errors.Is(err, blob.ErrRange) {
		return codec.Corrupt(key, "object", off, fmt.Sprintf("%d bytes", n), "the end before them")
	}
	return err
}

// Run follows the manifest until ctx ends. What goes wrong is logged, ever more seldom while it lasts, and shown by Status; the
// server goes on with the version it has and tries again.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(s.opt.Poll)
	defer tick.Stop()
	complaints := complaints{log: s.opt.Log, what: "following the manifest"}
	for {
		err := s.Refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		complaints.note(ctx, err, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Refresh looks at the manifest once and opens its current version if that is not open yet.
func (s *Server) Refresh(ctx context.Context) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	err := contain(func() error {
		m, err := s.poll(ctx)
		if err != nil {
			return err
		}
		if cur := s.current.Load(); cur == nil || cur.version.ID != m.CurrentVersion {
			err = s.advance(ctx, m)
		} else {
			cur.epoch.Store(m.TakedownEpoch)
		}
		s.dropUnlisted(m)
		return err
	})
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	return err
}

// poll reads the manifest if it has changed.
func (s *Server) poll(ctx context.Context) (*manifest.Manifest, error) {
	m, _, err := s.follower.Poll(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manifest == nil || m.Generation >= s.manifest.Generation {
		s.manifest = m
	}
	s.polled = time.Now()
	return s.manifest, nil
}

// advance opens the current version of m and swaps it in.
func (s *Server) advance(ctx context.Context, m *manifest.Manifest) error {
	ref, err := m.Version("")
	if err != nil {
		return err
	}
	started := time.Now()
	snap, err := s.open(ctx, ref)
	if err != nil {
		return err
	}
	snap.epoch.Store(m.TakedownEpoch)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		snap.Release()
		return errClosed
	}
	old := s.current.Swap(snap)
	var evicted []*opening
	if old != nil {
		// Clients that page through the old version will ask for it again.
		done := make(chan struct{})
		close(done)
		evicted = s.keep(&opening{ref: old.ref, done: done, snap: old})
	}
	keep := make([]string, 0, len(s.segments))
	for id := range s.segments {
		keep = append(keep, id)
	}
	s.mu.Unlock()
	release(evicted)
	c := &snap.version.Counts
	s.opt.Log.LogAttrs(ctx, slog.LevelInfo, "version opened", slog.String("version", ref.ID), slog.Uint64("generation", m.Generation),
		slog.Int("segments", c.Segments), slog.Int("datasets", c.Datasets), slog.Int64("rows", c.Rows),
		slog.Int64("us", time.Since(started).Microseconds()))
	if index, limit := s.Status().IndexBytes, debug.SetMemoryLimit(-1); index+s.opt.CacheBytes() > limit/8*7 {
		s.opt.Log.LogAttrs(ctx, slog.LevelWarn, "the memory limit is too small for this lake: requests will wait for the garbage collector",
			slog.Int64("index_bytes", index), slog.Int64("cache_bytes", s.opt.CacheBytes()), slog.Int64("heap_limit", limit))
	}
	if s.opt.CacheDir != "" {
		if err := segment.PruneCache(s.opt.CacheDir, keep); err != nil {
			s.opt.Log.LogAttrs(ctx, slog.LevelWarn, "pruning the cache directory", slog.String("error", err.Error()))
		}
	}
	return nil
}

// keep puts o among the older versions and returns those that no longer fit. s.mu is held.
func (s *Server) keep(o *opening) (evicted []*opening) {
	s.older = append(s.older, o)
	if n := len(s.older) - s.opt.KeepOpen; n > 0 {
		evicted = slices.Clone(s.older[:n])
		s.older = slices.Delete(s.older, 0, n)
	}
	return evicted
}

// release gives up the server's own hold on versions; requests that use them go on.
func release(list []*opening) {
	for _, o := range list {
		go func() {
			<-o.done
			if o.snap != nil {
				o.snap.Release()
			}
		}()
	}
}

// dropUnlisted closes the versions that m no longer lists.
func (s *Server) dropUnlisted(m *manifest.Manifest) {
	var dropped []*opening
	s.mu.Lock()
	s.older = slices.DeleteFunc(s.older, func(o *opening) bool {
		_, err := m.Version(o.ref.ID)
		if err != nil {
			dropped = append(dropped, o)
		}
		return err != nil
	})
	s.mu.Unlock()
	release(dropped)
}

// Acquire pins a version, "" being the current one, until its Release.
func (s *Server) Acquire(ctx context.Context, version string) (*Snapshot, error) {
	for {
		cur := s.current.Load()
		if cur != nil && (version == "" || version == cur.version.ID) {
			if cur.retain() {
				return cur, nil
			}
			continue // swapped out and closed since it was loaded
		}
		if version == "" {
			return nil, s.notReady()
		}
		snap, err := s.acquireOlder(ctx, version)
		if err != errEvicted {
			return snap, err
		}
	}
}

// errEvicted: others have asked for so many versions that the one waited for was closed again.
var errEvicted = errors.New("version was closed")

// notReady is why there is no current version.
func (s *Server) notReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return &NotReadyError{s.err}
	}
	return &NotReadyError{errStarting}
}

// NotReadyError says that no version is open yet, and why.
type NotReadyError struct{ Err error }

func (e *NotReadyError) Error() string { return "not ready: " + e.Err.Error() }
func (e *NotReadyError) Unwrap() error { return e.Err }

// acquireOlder pins a version that is not the current one, opening it if need be.
func (s *Server) acquireOlder(ctx context.Context, id string) (*Snapshot, error) {
	if !manifest.ValidVersionID(id) {
		return nil, fmt.Errorf("%w: %q", ErrBadVersion, id)
	}
	ref, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, &NotReadyError{errClosed}
	}
	i := slices.IndexFunc(s.older, func(o *opening) bool { return o.ref == ref })
	if i >= 0 {
		o := s.older[i]
		s.older = append(slices.Delete(s.older, i, i+1), o)
		s.mu.Unlock()
		return o.wait(ctx)
	}
	o := &opening{ref: ref, done: make(chan struct{})}
	evicted := s.keep(o)
	epoch := s.manifest.TakedownEpoch
	s.mu.Unlock()
	release(evicted)
	go func() {
		// Others may wait for it: it goes on when the request that began it is given up.
		var snap *Snapshot
		err := contain(func() (err error) {
			snap, err = s.open(context.WithoutCancel(ctx), ref)
			return err
		})
		if err == nil {
			snap.epoch.Store(epoch)
		}
		s.mu.Lock()
		o.snap, o.err = snap, err
		if err != nil {
			s.older = slices.DeleteFunc(s.older, func(other *opening) bool { return other == o })
		}
		s.mu.Unlock()
		close(o.done)
	}()
	return o.wait(ctx)
}

func (o *opening) wait(ctx context.Context) (*Snapshot, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.done:
	}
	if o.err != nil {
		return nil, o.err
	}
	if !o.snap.retain() {
		return nil, errEvicted
	}
	return o.snap, nil
}

// find looks a version up in the manifest. An id later than all of them may be newer than the last poll.
func (s *Server) find(ctx context.Context, id string) (manifest.VersionRef, error) {
	s.mu.Lock()
	m, polled := s.manifest, s.polled
	s.mu.Unlock()
	if m == nil {
		return manifest.VersionRef{}, s.notReady()
	}
	newest := func(m *manifest.Manifest) string { return m.Versions[len(m.Versions)-1].ID }
	if id > newest(m) && time.Since(polled) > newerPoll {
		var err error
		if m, err = s.poll(ctx); err != nil {
			return manifest.VersionRef{}, err
		}
	}
	ref, err := m.Version(id)
	if err != nil && id < newest(m) {
		return manifest.VersionRef{}, fmt.Errorf("%w: %s", ErrGone, id)
	}
	return ref, err
}

// open opens a version for one user.
func (s *Server) open(ctx context.Context, ref manifest.VersionRef) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	v, err := manifest.ReadVersion(ctx, s.store, ref)
	if err != nil {
		return nil, err
	}
	snap := &Snapshot{server: s, ref: ref, version: v, segments: make([]*segment.Segment, len(v.Segments))}
	snap.pins.Store(1)
	group, groupCtx := newGroup(ctx)
	group.SetLimit(openParallel)
	opened := make([]bool, len(v.Segments))
	for i := range v.Segments {
		group.Go(func() (err error) {
			snap.segments[i], err = s.openSegment(groupCtx, &v.Segments[i])
			opened[i] = err == nil
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for i := range v.Segments {
			if opened[i] {
				s.closeSegment(v.Segments[i].ID)
			}
		}
		return nil, fmt.Errorf("open version %s: %w", ref.ID, err)
	}
	return snap, nil
}

// openSegment opens a segment or joins those that use it.
func (s *Server) openSegment(ctx context.Context, v *manifest.Segment) (*segment.Segment, error) {
	for {
		s.mu.Lock()
		shared, ok := s.segments[v.ID]
		if !ok {
			shared = &sharedSegment{done: make(chan struct{})}
			s.segments[v.ID] = shared
		}
		shared.users++
		s.mu.Unlock()
		if ok {
			select {
			case <-shared.done:
			case <-ctx.Done():
				s.closeSegment(v.ID)
				return nil, ctx.Err()
			}
			if shared.err == nil {
				return shared.seg, nil
			}
			s.closeSegment(v.ID)
			// The first to try may have been given up; this one has its own time.
			if errors.Is(shared.err, context.Canceled) || errors.Is(shared.err, context.DeadlineExceeded) {
				continue
			}
			return nil, shared.err
		}
		ref := segment.Ref{ID: v.ID, XXH64: v.SegmentXXH64, Bytes: v.Bytes, Domains: v.Domains, Rows: v.Rows}
		var seg *segment.Segment
		err := contain(func() (err error) { // those who wait have to hear of it
			seg, err = segment.Open(ctx, s.store, ref, segment.Options{CacheDir: s.opt.CacheDir, Cache: s.frames, Residency: s.resident})
			return err
		})
		s.mu.Lock()
		shared.seg, shared.err = seg, err
		s.mu.Unlock()
		close(shared.done)
		if err != nil {
			s.closeSegment(v.ID)
			return nil, err
		}
		return seg, nil
	}
}

// closeSegment ends one use of a segment. The last one unmaps it.
func (s *Server) closeSegment(id string) {
	s.mu.Lock()
	shared := s.segments[id]
	shared.users--
	last := shared.users == 0
	if last {
		delete(s.segments, id)
	}
	s.mu.Unlock()
	if last && shared.seg != nil {
		if err := shared.seg.Close(); err != nil {
			s.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "closing a segment", slog.String("segment", id), slog.String("error", err.Error()))
		}
	}
}

// Close gives up all versions. Requests that have one pinned still end; no Refresh may be under way.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	older := s.older
	s.older = nil
	cur := s.current.Swap(nil)
	s.mu.Unlock()
	release(older)
	if cur != nil {
		cur.Release()
	}
}

// Status is what a server says of itself.
type Status struct {
	// Version is the current one as this server sees it, "" before the first was opened.
	Version string
	// Published is when it was, by the committer's clock.
	Published     time.Time
	Generation    uint64
	TakedownEpoch uint64
	Counts        manifest.Counts
	// CanonicalForm and PublicSuffix are the version's, OwnPublicSuffix is the server's.
	CanonicalForm, PublicSuffix, OwnPublicSuffix string
	// Polled is when the manifest was last read, or seen to be unchanged.
	Polled time.Time
	// Err is why the newest manifest is not served, nil if it is.
	Err error
	// Open counts the versions that are open.
	Open int
	// IndexBytes is what their segments hold in memory besides caches, MappedBytes the size of their mapped files.
	IndexBytes, MappedBytes int64
	// Frames and Pages are the caches.
	Frames, Pages CacheStats
}

// Status describes the server.
func (s *Server) Status() Status {
	st := Status{OwnPublicSuffix: s.opt.PublicSuffix, Frames: s.frames.Stats(), Pages: s.pages.Stats(), MappedBytes: s.resident.MappedBytes()}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Polled, st.Err, st.Open = s.polled, s.err, len(s.older)
	for _, shared := range s.segments {
		if shared.seg != nil {
			st.IndexBytes += shared.seg.MemoryBytes()
		}
	}
	if s.manifest != nil {
		st.Generation, st.TakedownEpoch = s.manifest.Generation, s.manifest.TakedownEpoch
	}
	if cur := s.current.Load(); cur != nil {
		v := cur.version
		st.Version, st.Counts, st.CanonicalForm, st.PublicSuffix = v.ID, v.Counts, v.CanonicalForm, v.PublicSuffix
		st.Published, _ = time.Parse(time.RFC3339, v.Created) // was checked when it was read
		st.Open++
	}
	return st
}

// Snapshot is one open version. A snapshot from Acquire is good until its Release.
type Snapshot struct {
	server   *Server
	ref      manifest.VersionRef
	version  *manifest.Version
	segments []*segment.Segment // as in version
	epoch    atomic.Uint64
	// pins is the number of requests plus one for the server while it keeps the version open. At zero it is closed.
	pins atomic.Int64
}

// retain pins the snapshot unless it is closed already.
func (s *Snapshot) retain() bool {
	for {
		n := s.pins.Load()
		if n == 0 {
			return false
		}
		if s.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends one use of the snapshot. Nothing that points into it may be used afterwards.
func (s *Snapshot) Release() {
	switch n := s.pins.Add(-1); {
	case n == 0:
		for i := range s.version.Segments {
			s.server.closeSegment(s.version.Segments[i].ID)
		}
	case n < 0:
		panic(fmt.Sprintf("version %s released more often than acquired", s.version.ID))
	}
}

// Version describes the version. It must not be changed.
func (s *Snapshot) Version() *manifest.Version { return s.version }

// TakedownEpoch is the number of takedowns that answers take into account.
func (s *Snapshot) TakedownEpoch() uint64 { return s.epoch.Load() }

// OtherSuffixes tells whether the version's domains were made with another public suffix list than this server
// has. Then it also asks for the other names that a host could be filed under, see Target.
func (s *Snapshot) OtherSuffixes() bool {
	return s.version.PublicSuffix != s.server.opt.PublicSuffix
}
