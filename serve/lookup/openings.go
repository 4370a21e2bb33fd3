package lookup

import (
	"context"
	"time"

	"github.com/urlake/urlake/lake/catalog"
)

// MaxOpenings is how many versions besides the current one are opened at once. Opening one can
// download its mapped files, and takes memory for each domain.
const MaxOpenings = 4

// Deadline is how long a page may take.
func (s *Server) Deadline() time.Duration { return s.opt.Deadline }

// State is what answers are made from: a version, as takedowns leave it, for those who may read the
// same (Snapshot.Audience). Equal requests have equal answers in equal states.
type State struct {
	Version       string
	TakedownEpoch uint64
	Audience      string
}

// IsOpen reports whether Acquire would find a version open. It is true for one that does not exist,
// as far as the server knows: Acquire opens nothing for it.
func (s *Server) IsOpen(version string) bool {
	id, ok := s.identify(version)
	return !ok || s.opened(id) != nil
}

// identify finds the id of a version, without reads.
func (s *Server) identify(version string) (id string, ok bool) {
	if version == "" || version == catalog.Current {
		if cur := s.current.Load(); cur != nil {
			return cur.version.ID, true
		}
		return "", false
	}
	s.mu.Lock()
	m := s.manifest
	s.mu.Unlock()
	if m == nil || !catalog.ValidTag(version) && !catalog.ValidVersionID(version) {
		return "", false
	}
	ref, err := m.Version(version)
	return ref.ID, err == nil
}

// opened returns a version that is open, or nil. It is not pinned: what belongs to its segments
// must not be used.
func (s *Server) opened(id string) *openVersion {
	if cur := s.current.Load(); cur != nil && cur.version.ID == id {
		return cur
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.older {
		if o.ref.ID == id {
			select {
			case <-o.done:
				return o.snap
			default:
			}
		}
	}
	return nil
}

// Identify says in which state the server would answer a request of ctx for a version, an id or a
// tag. It reads and opens nothing, and reports false if it cannot tell.
func (s *Server) Identify(ctx context.Context, version string) (State, bool) {
	t := s.takedowns.Load()
	id, ok := s.identify(version)
	if t == nil || !ok {
		return State{}, false
	}
	state := State{Version: id, TakedownEpoch: t.epoch}
	reader, err := s.readerOf(ctx)
	if err != nil {
		return State{}, false
	}
	if !reader.All() {
		open := s.opened(id)
		if open == nil {
			return State{}, false
		}
		state.Audience = open.visibleTo(reader).audience
	}
	return state, true
}

// admitOpening waits until another version may be opened. The caller has to release s.opens.
func (s *Server) admitOpening(ctx context.Context) error {
	if err := s.opens.Acquire(ctx, 1); err != nil {
		return deadline(ctx, context.Cause(ctx))
	}
	return nil
}
