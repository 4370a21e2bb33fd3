package lookup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/catalog"
)

const (
	// DefaultVersions is the number of versions on a page if the client names none, MaxVersions the
	// highest number that it can ask for. A page reads an object for each version that is not
	// cached, and one more.
	DefaultVersions = 20
	MaxVersions     = 100

	// historyCacheBytes is enough for the summaries of more than a thousand versions.
	historyCacheBytes = 1 << 20
	// summaryBytes is the memory of a summary and of its texts of fixed length. The manifest has
	// the texts of the key.
	summaryBytes = 384
	// versionDecoding is how many times its size the document of a version takes while it is
	// decoded.
	versionDecoding = 4
)

// VersionsPage is one page of the list of versions.
type VersionsPage struct {
	// Current is the version that the manifest names as the current one. Until the server has
	// opened it, requests without a version are answered from the one before.
	Current string
	// Total is the number of versions that the manifest lists.
	Total int
	// Versions are those of this page, newest first. If Uncounted is set, they are without counts,
	// as these are of all datasets and the reader may not read all.
	Versions  []catalog.Summary
	Uncounted bool
	// Cursor is where the next page starts. It is empty on the last page.
	Cursor string
}

// Versions lists the versions of the manifest, newest first, limit a page, starting at cursorText.
// An empty cursor starts at the newest. A cursor stays valid when versions are published or
// dropped, because it names the version after which the page starts.
func (s *Server) Versions(ctx context.Context, limit int, cursorText string) (*VersionsPage, error) {
	if limit < 1 || limit > MaxVersions {
		return nil, ErrRange
	}
	after := "" // the oldest version of the page before
	if cursorText != "" {
		c, err := parseCursor(cursorText, cursorVersions)
		if err == nil {
			err = c.check("", 0)
		}
		if err == nil && !catalog.ValidVersionID(c.version) {
			err = fmt.Errorf("%w: it names no version", ErrBadCursor)
		}
		if err != nil {
			return nil, err
		}
		after = c.version
	}
	reader, err := s.readerOf(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.newest(ctx, after)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opt.Deadline, ErrDeadline)
	defer cancel()
	var list []catalog.Summary
	var from int
	for {
		end := len(m.Versions)
		if after != "" {
			// Another server can know versions that this one does not. The page would lack them.
			if after > m.Versions[end-1].ID {
				_, err := m.Version(after)
				return nil, err
			}
			end, _ = slices.BinarySearchFunc(m.Versions, after, func(v catalog.VersionRef, id string) int {
				return strings.Compare(v.ID, id)
			})
		}
		from = max(0, end-limit)
		if list, err = m.Summaries(ctx, from, end, s.summary); err == nil {
			break
		}
		// The lease does not name the versions of a list. One that is missing may have been dropped
		// and deleted since the manifest was read.
		newer, pollErr := s.poll(ctx)
		if pollErr != nil || newer.Generation == m.Generation {
			return nil, deadline(ctx, err)
		}
		m = newer
	}
	slices.Reverse(list)
	page := &VersionsPage{Current: m.CurrentVersion, Total: len(m.Versions), Versions: list}
	if page.Uncounted = !reader.All(); page.Uncounted {
		for i := range list {
			list[i].Counts, list[i].Change = catalog.Counts{}, nil
		}
	}
	if from > 0 {
		c := cursor{
			kind: cursorVersions, fingerprint: fingerprint(cursorVersions, "", 0), version: m.Versions[from].ID,
		}
		page.Cursor = c.String()
	}
	return page, nil
}

// newest returns the newest manifest read. If id is newer than all its versions, newest polls
// again, because the version may have been published since the last poll.
func (s *Server) newest(ctx context.Context, id string) (*catalog.Manifest, error) {
	s.mu.Lock()
	m, polled := s.manifest, s.polled
	s.mu.Unlock()
	if m == nil {
		return nil, s.notReady()
	}
	if id > m.Versions[len(m.Versions)-1].ID && time.Since(polled) > newerPoll {
		return s.poll(ctx)
	}
	return m, nil
}

// summary gets the summary of a version from the cache, or reads it when the gate admits that. Rows
// that takedowns hide are not counted.
func (s *Server) summary(ctx context.Context, ref catalog.VersionRef) (catalog.Summary, error) {
	sum, err := s.readSummary(ctx, ref)
	if t := s.takedowns.Load(); t != nil && err == nil {
		sum.Counts.Rows -= t.hidden(sum.Views)
	}
	return sum, err
}

// readSummary is summary without takedowns.
func (s *Server) readSummary(ctx context.Context, ref catalog.VersionRef) (sum catalog.Summary, err error) {
	if v, ok := s.history.Get(ref); ok {
		return v.(catalog.Summary), nil
	}
	pages := min(MaxPages, 1+ref.Bytes*versionDecoding/decodingBytes)
	if err := s.gate.Acquire(ctx, pages); err != nil {
		return sum, err
	}
	defer s.gate.Release(pages)
	err = contain(func() (err error) {
		sum, err = catalog.ReadSummary(ctx, s.store, ref)
		return err
	})
	if err == nil {
		s.history.Add(ref, sum, int64(summaryBytes+48*len(sum.Views)+len(sum.BuiltBy)+len(sum.CanonicalForm)+len(sum.PublicSuffix)))
	}
	return sum, err
}
