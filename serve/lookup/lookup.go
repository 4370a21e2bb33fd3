// Package lookup answers the two queries of a lake: which datasets contain a domain, and which of
// its URLs a dataset contains. It needs only the lake's store and a cache directory. Package api
// calls it for every request.
//
// A Server follows the manifest and opens its versions. A Snapshot is one open version as one
// principal may read it. It answers from its version until it is released, even if other versions
// are published meanwhile. A new version is opened before it replaces the current one. An old
// version stays open for the clients that page through it, until others have taken its place or the
// manifest no longer lists it. It is closed when its last request has ended.
//
// A server can hold a lease (package lease) that names its open versions, so that a garbage
// collector keeps what they refer to. Requests that find their version open do not touch it.
//
// An answer is exact or an error. Totals count rows. A page at any offset is a slice of the full
// list and costs the same at any offset: the index has the row counts of every part, so no rows are
// read only to be skipped. Damaged bytes are a *codec.CorruptError.
package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/flight"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lru"
	"github.com/urlake/urlake/serve/turns"
)

var (
	// ErrBadVersion means that the text is neither a version id nor a tag.
	ErrBadVersion = errors.New("not a version id or tag")
	// ErrGone means that the version was published but is no longer kept.
	ErrGone = errors.New("version is no longer kept")
	// ErrUnknownDataset means that the version has no dataset with that id.
	ErrUnknownDataset = errors.New("unknown dataset")
	// ErrRange means that the offset or the limit of a query is not allowed. See URLsQuery.
	ErrRange = errors.New("offset or limit out of range")
	// ErrDeadline means that not a single row of a page was read in time, or that not all versions
	// of a page were.
	ErrDeadline = errors.New("deadline passed")
)

// Server opens the versions of one lake and answers from them. It is safe for concurrent use.
type Server struct {
	store    blob.Store
	opt      Options
	follower *catalog.Follower
	frames   *lru.Cache[segment.CacheKey, any]
	pages    *lru.Cache[pageKey, any]
	history  *lru.Cache[catalog.VersionRef, any] // summaries of versions
	resident *mapped.Residency
	// turns are those of heavy work at the processors. Gate admits the pages of parts that it
	// decodes, and light those of other work, which so does not wait for it.
	turns       *turns.Turns
	gate, light *semaphore.Weighted
	diffs       *semaphore.Weighted // one for each Diff
	opens       *semaphore.Weighted // one for each older version that is being opened
	merged      *semaphore.Weighted // pages of merges of distinct URLs
	// scans has one for each scan of a whole version, scansWaiting one for those that wait too.
	scans, scansWaiting *semaphore.Weighted
	datasets            int     // on a page: MaxDatasets, fewer in tests
	leases              *leases // nil if the server holds none
	// fetching has the pages of parts that are being read, so that requests for the same rows that
	// come at once read them once.
	fetching flight.Group[fetchKey, []*rowPage]
	ahead    *ahead

	current atomic.Pointer[openVersion]
	// takedowns are those of the newest manifest read. loading is held while others are read.
	takedowns atomic.Pointer[takedowns]
	loading   sync.Mutex
	// refreshing keeps two callers of Refresh from opening the same version twice.
	refreshing sync.Mutex

	mu       sync.Mutex        // guards the fields below
	manifest *catalog.Manifest // the newest read, nil before the first
	polled   time.Time
	err      error      // why the newest manifest is not served
	older    []*opening // least recently used first
	segments map[string]*sharedSegment
	closed   bool
}

// opening is a version besides the current one that is open or being opened.
type opening struct {
	ref  catalog.VersionRef
	done chan struct{} // closed once snap or err is set
	snap *openVersion
	err  error
}

// sharedSegment is a segment that is open or being opened, and how many snapshots use it.
// Consecutive versions share most of their segments.
type sharedSegment struct {
	users int
	done  chan struct{} // closed once seg or err is set
	seg   *segment.Segment
	err   error
	// views are what open versions have of the segment (catalog.Segment.View), guarded by
	// Server.mu. Those of versions that were closed may be among them.
	views map[string]bool
}

// NewServer returns a server for the lake in store. It reads nothing before Refresh or Run.
func NewServer(store blob.Store, opt Options) *Server {
	opt.setDefaults()
	decoding := opt.HeapBytes() / 4 / decodingBytes // pages of parts at a time
	light := max(MaxPages, decoding/4)
	s := &Server{
		store: objects{store}, opt: opt, follower: catalog.NewFollower(store), datasets: MaxDatasets,
		frames: lru.New[segment.CacheKey, any](opt.FrameBytes), pages: lru.New[pageKey, any](opt.PageBytes),
		history:  lru.New[catalog.VersionRef, any](historyCacheBytes),
		resident: mapped.NewResidency(opt.residentBytes()),
		turns:    turns.New(runtime.GOMAXPROCS(0)),
		gate:     semaphore.NewWeighted(max(MaxPages, decoding-light)), light: semaphore.NewWeighted(light),
		diffs: semaphore.NewWeighted(diffsAtOnce),
		opens: semaphore.NewWeighted(MaxOpenings),
		scans: semaphore.NewWeighted(scansAtOnce), scansWaiting: semaphore.NewWeighted(scansAtOnce + scansWaiting),
		merged:   semaphore.NewWeighted(mergedPages),
		segments: map[string]*sharedSegment{}, ahead: newAhead(opt.Warm),
	}
	if opt.LeaseTTL > 0 {
		s.leases = newLeases(s, store)
	}
	return s
}

// Run follows the manifest until ctx ends. After a failure the server keeps its current version and
// retries. Status reports the failure, and repeated failures are logged at growing intervals.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(s.opt.Poll)
	defer tick.Stop()
	failures := failureLog{log: s.opt.Log, what: "following the manifest"}
	for {
		err := s.Refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		failures.note(ctx, err, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Refresh reads the manifest if it has changed, and opens its current version unless it is open.
func (s *Server) Refresh(ctx context.Context) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	err := contain(func() error {
		var err error
		for range refreshes {
			var m *catalog.Manifest
			if m, err = s.poll(ctx); err != nil {
				return err
			}
			if cur := s.current.Load(); cur == nil || cur.version.ID != m.CurrentVersion {
				err = s.advance(ctx, m)
			} else {
				_, err = cur.view(ctx) // before a request needs it
			}
			s.dropUnlisted(m)
			if !errors.Is(err, ErrGone) && !errors.Is(err, catalog.ErrUnknownVersion) {
				break
			}
		}
		return cmp.Or(err, s.follower.Stale()) // the served version is newer than a stale manifest
	})
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	return err
}

// poll reads the manifest if it has changed, with its takedowns, and returns the newest one read.
// From then on all requests are answered by these takedowns.
func (s *Server) poll(ctx context.Context) (*catalog.Manifest, error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.opt.Access != nil {
		if err := s.opt.Access.Poll(ctx); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
	}
	m, _, err := s.follower.Poll(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.loadTakedowns(ctx, m); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifest, s.polled = m, time.Now()
	return m, nil
}

// advance opens the current version of m and makes it the current snapshot.
func (s *Server) advance(ctx context.Context, m *catalog.Manifest) error {
	ref, err := m.Version("")
	if err != nil {
		return err
	}
	started := time.Now()
	snap, err := s.open(ctx, ref)
	if err != nil {
		return err
	}
	s.warm(ctx, snap)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		snap.Release()
		return errClosed
	}
	old := s.current.Swap(snap)
	var evicted []*opening
	if old != nil {
		// Clients that page through the old version will request it again.
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
	s.opt.Log.LogAttrs(ctx, slog.LevelInfo, "version opened",
		slog.String("version", ref.ID), slog.Uint64("generation", m.Generation),
		slog.Int("segments", c.Segments), slog.Int("datasets", c.Datasets), slog.Int64("rows", c.Rows),
		slog.Int64("us", time.Since(started).Microseconds()))
	// Above seven eighths of the limit the garbage collector would run all the time.
	if index, limit := s.Status().IndexBytes, debug.SetMemoryLimit(-1); index+s.opt.CacheBytes() > limit/8*7 {
		s.opt.Log.LogAttrs(ctx, slog.LevelWarn,
			"the memory limit is too small for this lake: requests will wait for the garbage collector",
			slog.Int64("index_bytes", index), slog.Int64("cache_bytes", s.opt.CacheBytes()),
			slog.Int64("heap_limit", limit))
	}
	if s.opt.CacheDir != "" {
		if err := segment.PruneCache(s.opt.CacheDir, keep); err != nil {
			s.opt.Log.LogAttrs(ctx, slog.LevelWarn, "pruning the cache directory", slog.String("error", err.Error()))
		}
	}
	return nil
}

// keep adds o to the older versions and returns those evicted for it. The caller holds s.mu and
// releases the evicted ones after unlocking it.
func (s *Server) keep(o *opening) (evicted []*opening) {
	s.older = append(s.older, o)
	if n := len(s.older) - s.opt.KeepOpen; n > 0 {
		evicted = slices.Clone(s.older[:n])
		s.older = slices.Delete(s.older, 0, n)
	}
	return evicted
}

// release drops the server's own pins of versions. A version is closed when the requests that use
// it have ended.
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

// dropUnlisted releases the versions that m no longer lists.
func (s *Server) dropUnlisted(m *catalog.Manifest) {
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

// Acquire pins a version, an id or a tag, as the newest takedowns leave it and as the principal of
// ctx may read it (Server.As), and opens it if necessary. catalog.Current and "" stand for the
// current one. The caller must call Release on the snapshot.
func (s *Server) Acquire(ctx context.Context, version string) (*Snapshot, error) {
	reader, err := s.readerOf(ctx)
	if err != nil {
		return nil, err
	}
	open, err := s.acquire(ctx, version)
	if err != nil {
		return nil, err
	}
	snap, err := open.as(ctx, reader)
	if err != nil {
		open.Release()
		return nil, err
	}
	return snap, nil
}

// acquire is Acquire without regard to who asks.
func (s *Server) acquire(ctx context.Context, version string) (*openVersion, error) {
	if version == catalog.Current {
		version = ""
	}
	if version != "" && !catalog.ValidVersionID(version) {
		ref, err := s.find(ctx, version)
		if err != nil {
			return nil, err
		}
		version = ref.ID
	}
	for {
		cur := s.current.Load()
		if cur != nil && (version == "" || version == cur.version.ID) {
			if cur.retain() {
				return cur, nil
			}
			continue // replaced and closed since it was loaded
		}
		if version == "" {
			return nil, s.notReady()
		}
		snap, err := s.acquireOlder(ctx, version)
		if !errors.Is(err, errEvicted) {
			return snap, err
		}
	}
}

// errEvicted means that a version was evicted and closed before the waiting request could pin it.
var errEvicted = errors.New("version was closed")

// notReady returns a *NotReadyError that says why there is no current version.
func (s *Server) notReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return &NotReadyError{s.err}
	}
	return &NotReadyError{errStarting}
}

// NotReadyError means that no version is open yet. Err says why.
type NotReadyError struct{ Err error }

func (e *NotReadyError) Error() string { return "not ready: " + e.Err.Error() }
func (e *NotReadyError) Unwrap() error { return e.Err }

// acquireOlder pins a version that is not the current one, and opens it if necessary.
func (s *Server) acquireOlder(ctx context.Context, id string) (*openVersion, error) {
	ref, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	for admitted := false; ; admitted = true {
		s.mu.Lock()
		i := slices.IndexFunc(s.older, func(o *opening) bool { return o.ref == ref })
		if admitted && (s.closed || i >= 0) { // another request has begun to open it
			s.opens.Release(1)
		}
		if s.closed {
			s.mu.Unlock()
			return nil, &NotReadyError{errClosed}
		}
		if i >= 0 {
			o := s.older[i]
			s.older = append(slices.Delete(s.older, i, i+1), o)
			s.mu.Unlock()
			return o.wait(ctx)
		}
		if admitted {
			break // with s.mu held
		}
		s.mu.Unlock()
		if err := s.admitOpening(ctx); err != nil {
			return nil, err
		}
	}
	o := &opening{ref: ref, done: make(chan struct{})}
	evicted := s.keep(o)
	s.mu.Unlock()
	release(evicted)
	go func() {
		defer s.opens.Release(1)
		// Other requests may wait for this version, so the opening does not end with this request.
		var snap *openVersion
		err := contain(func() (err error) {
			snap, err = s.open(context.WithoutCancel(ctx), ref)
			return err
		})
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

// wait waits until the version is open and pins it. The error is errEvicted if the version was
// closed again before that.
func (o *opening) wait(ctx context.Context) (*openVersion, error) {
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

// find looks up a version in the manifest. If the id is newer than all versions of the manifest, or
// the manifest does not have the tag, find polls again, because it may be newer than the last poll.
func (s *Server) find(ctx context.Context, id string) (catalog.VersionRef, error) {
	tag := catalog.ValidTag(id)
	if !tag && !catalog.ValidVersionID(id) {
		return catalog.VersionRef{}, fmt.Errorf("%w: %q", ErrBadVersion, id)
	}
	s.mu.Lock()
	m, polled := s.manifest, s.polled
	s.mu.Unlock()
	if m == nil {
		return catalog.VersionRef{}, s.notReady()
	}
	ref, err := listed(m, id)
	if err != nil && !errors.Is(err, ErrGone) && time.Since(polled) > newerPoll {
		if m, err = s.poll(ctx); err != nil {
			return catalog.VersionRef{}, err
		}
		ref, err = listed(m, id)
	}
	return ref, err
}

// listed looks up a version in m. The error is ErrGone for an id older than the newest version.
func listed(m *catalog.Manifest, id string) (catalog.VersionRef, error) {
	ref, err := m.Version(id)
	if err != nil && catalog.ValidVersionID(id) && id < m.Versions[len(m.Versions)-1].ID {
		return catalog.VersionRef{}, fmt.Errorf("%w: %s", ErrGone, id)
	}
	return ref, err
}

// open opens a version. It has one pin, which belongs to the caller.
func (s *Server) open(ctx context.Context, ref catalog.VersionRef) (*openVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := s.claim(ctx, ref); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			s.leases.drop(ref.ID)
		}
	}()
	v, err := catalog.ReadVersion(ctx, s.store, ref)
	if err != nil {
		return nil, err
	}
	snap := &openVersion{server: s, ref: ref, version: v, segments: make([]*segment.Segment, len(v.Segments))}
	snap.dead = make([]*deletion.Table, len(v.Segments))
	if snap.suffixes, err = s.loadSuffixes(ctx, v); err != nil {
		return nil, fmt.Errorf("open version %s: %w", ref.ID, err)
	}
	snap.pins.Store(1)
	group, groupCtx := newGroup(ctx)
	group.SetLimit(openParallel)
	// All answers name datasets, so they are read once. Batches are not read at all.
	group.Go(func() error {
		for d, err := range v.Datasets(groupCtx, 0) {
			if err != nil {
				return err
			}
			snap.every = append(snap.every, d)
		}
		return nil
	})
	opened := make([]bool, len(v.Segments))
	for i := range v.Segments {
		group.Go(func() (err error) {
			snap.segments[i], err = s.openSegment(groupCtx, &v.Segments[i])
			opened[i] = err == nil
			return err
		})
		if dead := v.Segments[i].Dead; dead != nil {
			group.Go(func() (err error) {
				snap.dead[i], err = s.openDead(groupCtx, dead)
				return err
			})
		}
	}
	err = group.Wait()
	if err == nil {
		snap.named = make(map[string]int, len(snap.every))
		for i := range snap.every {
			snap.named[snap.every[i].Name] = i
		}
		_, err = snap.view(ctx)
	}
	if err != nil {
		for i := range v.Segments {
			if opened[i] {
				s.closeSegment(v.Segments[i].ID)
			}
		}
		return nil, fmt.Errorf("open version %s: %w", ref.ID, err)
	}
	done = true
	return snap, nil
}

// loadSuffixes returns the public suffix list that a version follows. A list that is missing or
// damaged does not keep the version from being served; then the result is nil.
func (s *Server) loadSuffixes(ctx context.Context, v *catalog.Version) (*urlnorm.SuffixList, error) {
	list, err := lake.LoadSuffixList(ctx, s.store, v.PublicSuffix)
	var missing *lake.MissingListError
	if errors.As(err, &missing) || errors.Is(err, codec.ErrCorrupt) {
		s.opt.Log.LogAttrs(ctx, slog.LevelWarn, "version without its public suffix list: domains of hosts are guessed",
			slog.String("version", v.ID), slog.String("error", err.Error()))
		return nil, nil
	}
	return list, err
}

// openSegment opens a segment, or shares it if it is open or being opened. Each call that succeeds
// needs one call of closeSegment.
func (s *Server) openSegment(ctx context.Context, v *catalog.Segment) (*segment.Segment, error) {
	for {
		s.mu.Lock()
		shared, ok := s.segments[v.ID]
		if !ok {
			shared = &sharedSegment{done: make(chan struct{}), views: map[string]bool{}}
			s.segments[v.ID] = shared
		}
		shared.users++
		shared.views[v.View()] = true
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
			// The request that opened the segment was cancelled or ran out of time. This one has a
			// context of its own, so it tries again.
			if errors.Is(shared.err, context.Canceled) || errors.Is(shared.err, context.DeadlineExceeded) {
				continue
			}
			return nil, shared.err
		}
		ref := segment.Ref{ID: v.ID, XXH64: v.SegmentXXH64, Bytes: v.Bytes, Domains: v.Domains, Rows: v.Rows}
		var seg *segment.Segment
		// A panic becomes an error, because the callers that wait for done must get a result.
		err := contain(func() (err error) {
			seg, err = segment.Open(ctx, s.store, ref,
				segment.Options{CacheDir: s.opt.CacheDir, Cache: s.frames, Residency: s.resident})
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

// openDead opens the deletion table that a version names. If the current version has it open, it is
// shared.
func (s *Server) openDead(ctx context.Context, d *catalog.Dead) (*deletion.Table, error) {
	if cur := s.current.Load(); cur != nil {
		for _, o := range cur.dead {
			if o != nil && o.Ref() == d.Table {
				return o, nil
			}
		}
	}
	return deletion.Open(ctx, s.store, d.Table, s.frames)
}

// closeSegment ends one use of a segment. The last call closes it.
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
			s.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "closing a segment",
				slog.String("segment", id), slog.String("error", err.Error()))
		}
	}
}

// Close releases all versions without waiting for requests that have one pinned, and removes the
// lease, or lets the last of these requests do so. No Refresh may run at the same time.
func (s *Server) Close() {
	s.ahead.close()
	s.mu.Lock()
	s.closed = true
	older := s.older
	s.older = nil
	cur := s.current.Swap(nil)
	s.mu.Unlock()
	for _, o := range older {
		select {
		case <-o.done: // so that nothing is left to do when Close returns
			if o.snap != nil {
				o.snap.Release()
			}
		default:
			release([]*opening{o})
		}
	}
	if cur != nil {
		cur.Release()
	}
	s.leases.close()
}

// Status is the state of a server.
type Status struct {
	// Version is the id of the current version. It is empty before the first version is opened.
	Version string
	// Published is when Version was published, by the clock of its publisher.
	Published     time.Time
	Generation    uint64
	TakedownEpoch uint64
	// Takedowns is how many takedowns are in force. TakedownRefresh is how long it took to read
	// them when they last changed. DeletionBytes is the memory of the deletion tables of
	// the takedowns and the current version.
	Takedowns       int64
	TakedownRefresh time.Duration
	DeletionBytes   int64
	// Counts are those of the version without what takedowns hide.
	Counts catalog.Counts
	// DeadRows are rows of the version's segments that the version does not have.
	DeadRows int64
	// CanonicalForm and PublicSuffix are those of the version.
	CanonicalForm, PublicSuffix string
	// Polled is when the manifest was last read or found unchanged.
	Polled time.Time
	// Err is why the newest manifest is not served, or nil if it is.
	Err error
	// Open counts the versions that are open.
	Open int
	// Leased counts the versions that the server's lease names. It is 0 without a lease and after
	// the lease has expired. LeaseFailures counts the writes of the lease that failed.
	Leased        int
	LeaseFailures int64
	// IndexBytes is the memory of the open segments without caches and mapped files, MappedBytes
	// the size of the mapped files.
	IndexBytes, MappedBytes int64
	// Frames and Pages describe the caches of index frames and of decoded rows.
	Frames, Pages lru.Stats
	// Ahead counts what was read before it was asked for.
	Ahead AheadStats
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	st := Status{
		Frames: s.frames.Stats(), Pages: s.pages.Stats(), MappedBytes: s.resident.MappedBytes(),
		Ahead: s.ahead.counts(),
	}
	st.Leased, st.LeaseFailures = s.leases.status()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Polled, st.Err, st.Open = s.polled, s.err, len(s.older)
	for _, shared := range s.segments {
		if shared.seg != nil {
			st.IndexBytes += shared.seg.MemoryBytes()
		}
	}
	if s.manifest != nil {
		st.Generation = s.manifest.Generation
	}
	if t := s.takedowns.Load(); t != nil {
		st.TakedownEpoch, st.Takedowns, st.TakedownRefresh = t.epoch, t.rules, t.took
		st.DeletionBytes = t.memoryBytes()
	}
	if cur := s.current.Load(); cur != nil {
		v := cur.version
		st.Version, st.Counts, st.CanonicalForm, st.PublicSuffix = v.ID, v.Counts, v.CanonicalForm, v.PublicSuffix
		if view := cur.applied.Load(); view != nil {
			st.Counts.Rows = view.rows
		}
		st.DeadRows, _ = v.DeadRows()
		for _, o := range cur.dead {
			if o != nil {
				st.DeletionBytes += o.MemoryBytes()
			}
		}
		st.Published, _ = time.Parse(time.RFC3339, v.Created) // checked when the version was read
		st.Open++
	}
	return st
}

// openVersion is one open version, which the requests of all principals share.
type openVersion struct {
	server   *Server
	ref      catalog.VersionRef
	version  *catalog.Version
	segments []*segment.Segment // as in version
	dead     []*deletion.Table  // of the segments; nil for those without dead rows
	every    []catalog.Dataset  // of the version, by id, for whoever may read them
	named    map[string]int     // their names, to their indexes
	// suffixes is the public suffix list that the version follows, nil if the lake lacks it.
	suffixes *urlnorm.SuffixList
	// applied is the version as the takedowns leave it; see view.
	applied atomic.Pointer[view]
	// results are what scans of the version have found out.
	results results
	// visible is what principals may read of it.
	visible visibleCache
	// pins counts the requests that use the version, plus one while the server keeps it open. At
	// zero the version is closed.
	pins atomic.Int64
}

// retain pins the version, unless it is closed, and reports whether it did.
func (s *openVersion) retain() bool {
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

// Release ends one use of the snapshot. The caller must not use anything that points into the
// snapshot afterwards.
func (s *openVersion) Release() {
	switch n := s.pins.Add(-1); {
	case n == 0:
		for i := range s.version.Segments {
			s.server.closeSegment(s.version.Segments[i].ID)
		}
		s.server.leases.drop(s.ref.ID)
	case n < 0:
		panic(fmt.Sprintf("version %s released more often than acquired", s.version.ID))
	}
}

// Version describes the version. The caller must not change it.
func (s *openVersion) Version() *catalog.Version { return s.version }
