package lookup

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/lease"
)

const (
	// DefaultLeaseTTL is how long the lease of a server lasts if nobody says otherwise.
	DefaultLeaseTTL = lease.DefaultTTL

	// leaseTimeout limits how long an opening waits for a store that does not answer when the lease
	// is written, and Close for its removal.
	leaseTimeout = 5 * time.Second
	// rereadTimeout limits the read of the manifest after that.
	rereadTimeout = time.Minute
	// leaseDelay is the time from the closing of a version to the lease without it. Versions that
	// are closed together cost one write.
	leaseDelay = 500 * time.Millisecond
)

// leases keeps the lease of a server, which names its versions from before they are opened until
// they are closed. Openings share writes: those that come while one is made wait for the next.
// The nil pointer is a server without a lease.
type leases struct {
	server *Server
	holder *lease.Holder
	delay  time.Duration // leaseDelay, less in tests

	mu      sync.Mutex     // guards the fields below
	uses    map[string]int // versions that are open or being opened, and how often
	next    *leaseRound    // that will begin when the present one has ended, or nil
	running bool
	trim    *time.Timer // nil if no version was closed since the last trim
	closed  bool
}

// leaseRound is a write of the lease and a read of the manifest after it.
type leaseRound struct {
	done chan struct{} // closed once the fields below are set
	// manifest is nil if the server has no lease.
	manifest *catalog.Manifest
	err      error

	claimed bool // an opening waits for it
	exact   bool // the lease has to name the versions in use and no others
}

func newLeases(s *Server, store blob.Store) *leases {
	return &leases{server: s, delay: leaseDelay, uses: map[string]int{}, holder: lease.Hold(context.Background(), store, lease.Options{
		TTL: s.opt.LeaseTTL, Program: s.opt.Program, Log: s.opt.Log,
	})}
}

// claim makes the lease name a version and then finds out whether the manifest still lists it. Only
// after that may the version be read, until drop is called. After an error drop must not be called.
func (s *Server) claim(ctx context.Context, ref catalog.VersionRef) error {
	m, err := s.leases.claim(ctx, ref.ID)
	if err != nil || m == nil {
		return err
	}
	now, err := listed(m, ref.ID)
	if err == nil && now != ref {
		err = fmt.Errorf("%w: %s", ErrGone, ref.ID) // another version has its id
	}
	if err != nil {
		s.leases.drop(ref.ID)
	}
	return err
}

// claim makes the lease name a version. It returns the manifest as read after that, or nil if the
// lease cannot be written. After an error the version is not claimed.
func (l *leases) claim(ctx context.Context, id string) (*catalog.Manifest, error) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	l.uses[id]++
	r := l.round()
	r.claimed = true
	l.mu.Unlock()
	var err error
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		l.drop(id)
		return nil, err
	}
	return r.manifest, nil
}

// round returns the round that begins next. The caller holds l.mu.
func (l *leases) round() *leaseRound {
	if l.next == nil {
		l.next = &leaseRound{done: make(chan struct{})}
	}
	if !l.running {
		l.running = true
		go l.run()
	}
	return l.next
}

// drop ends one use of a version. If it was the last, the lease soon does without the version.
func (l *leases) drop(id string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses[id]--; l.uses[id] > 0 {
		return
	}
	delete(l.uses, id)
	switch {
	case l.closed && len(l.uses) == 0:
		go l.end()
	case !l.closed && l.trim == nil && !l.server.opt.LeaseAll:
		l.trim = time.AfterFunc(l.delay, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.trim = nil
			if !l.closed {
				l.round().exact = true
			}
		})
	}
}

// run makes rounds while there are any to make.
func (l *leases) run() {
	for {
		l.mu.Lock()
		r := l.next
		l.next = nil
		if r == nil {
			l.running = false
			l.mu.Unlock()
			return
		}
		want := slices.Sorted(maps.Keys(l.uses))
		l.mu.Unlock()
		r.err = contain(func() (err error) {
			r.manifest, err = l.write(want, r)
			return err
		})
		close(r.done)
	}
}

// write writes the lease if it does not name the wanted versions, and reads the manifest if an
// opening waits for it.
func (l *leases) write(want []string, r *leaseRound) (*catalog.Manifest, error) {
	st := l.holder.Status()
	named := st.Versions
	lacks := named == nil || slices.ContainsFunc(want, func(id string) bool { return !slices.Contains(named, id) })
	if lacks || r.exact && !slices.Equal(named, want) {
		if l.server.opt.LeaseAll {
			if st.Err != nil {
				return nil, nil
			}
			want = append(want, l.server.listedVersions()...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
		defer cancel()
		if l.holder.Set(ctx, want) != nil {
			return nil, nil // the holder has logged it, and retries
		}
	}
	if !r.claimed {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rereadTimeout)
	defer cancel()
	return l.server.poll(ctx)
}

// listedVersions returns the ids of the versions in the newest manifest read.
func (s *Server) listedVersions() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manifest != nil {
		for _, v := range s.manifest.Versions {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// close removes the lease, or lets the last use of a version do it.
func (l *leases) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	idle := len(l.uses) == 0
	l.mu.Unlock()
	if idle {
		l.end()
	}
}

func (l *leases) end() {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	if err := l.holder.Close(ctx); err != nil {
		l.server.opt.Log.LogAttrs(ctx, slog.LevelWarn, "the lease cannot be removed; it ends when it expires",
			slog.String("error", err.Error()))
	}
}

// status returns how many versions the lease names, and how often it could not be written.
func (l *leases) status() (versions int, failures int64) {
	if l == nil {
		return 0, 0
	}
	st := l.holder.Status()
	return len(st.Versions), st.Failures
}
