package lookup

import (
	"context"
	"slices"
	"time"

	"github.com/urlake/urlake/lake/manifest"
)

// MaxOpenings is how many versions besides the current one are opened at once. Opening one can
// download its mapped files, and takes memory for each domain.
const MaxOpenings = 4

// Deadline is how long a page may take.
func (s *Server) Deadline() time.Duration { return s.opt.Deadline }

// IsOpen reports whether Acquire would find a version open. It is true for one that does not exist,
// as far as the server knows: Acquire opens nothing for it.
func (s *Server) IsOpen(version string) bool {
	id, _, ok := s.Identify(version)
	if !ok {
		return true
	}
	if cur := s.current.Load(); cur != nil && cur.version.ID == id {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.older, func(o *opening) bool {
		if o.ref.ID != id {
			return false
		}
		select {
		case <-o.done:
			return true
		default:
			return false
		}
	})
}

// Identify says which version a request for one, an id or a tag, would be answered from now, and by
// which takedowns. It reads nothing, opens nothing, and reports false if the server does not know.
func (s *Server) Identify(version string) (id string, takedownEpoch uint64, ok bool) {
	t := s.takedowns.Load()
	if t == nil {
		return "", 0, false
	}
	if version == "" || version == manifest.Current {
		cur := s.current.Load()
		if cur == nil {
			return "", 0, false
		}
		return cur.version.ID, t.epoch, true
	}
	s.mu.Lock()
	m := s.manifest
	s.mu.Unlock()
	if m == nil || !manifest.ValidTag(version) && !manifest.ValidVersionID(version) {
		return "", 0, false
	}
	ref, err := m.Version(version)
	return ref.ID, t.epoch, err == nil
}

// admitOpening waits until another version may be opened. The caller has to release s.opens.
func (s *Server) admitOpening(ctx context.Context) error {
	if err := s.opens.Acquire(ctx, 1); err != nil {
		return deadline(ctx, context.Cause(ctx))
	}
	return nil
}
