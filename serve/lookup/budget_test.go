package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lru"
)

// rounds is a store that answers reads in rounds. It answers the reads of a round only when all of
// them are in flight. So a test can check without a clock that reads are concurrent.
type rounds struct {
	blob.Store

	mu    sync.Mutex
	want  []int         // number of reads of the present and later rounds
	now   []string      // keys read in the present round
	gate  chan struct{} // closed when the present round is complete
	extra []string      // keys read after the last round
}

// expect sets the number of reads of each round.
func (r *rounds) expect(sizes ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want, r.now, r.extra, r.gate = sizes, nil, nil, make(chan struct{})
}

// done returns an error unless exactly the expected rounds took place.
func (r *rounds) done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.want) != 0 || len(r.extra) != 0 {
		return fmt.Errorf("missing rounds: %v reads, of which the present one has %v; extra reads: %v",
			r.want, r.now, r.extra)
	}
	return nil
}

func (r *rounds) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	r.mu.Lock()
	if len(r.want) == 0 {
		r.extra = append(r.extra, key)
		r.mu.Unlock()
		return r.Store.ReadRange(ctx, key, off, n)
	}
	gate := r.gate
	if r.now = append(r.now, key); len(r.now) == r.want[0] {
		close(gate)
		r.want, r.now, r.gate = r.want[1:], nil, make(chan struct{})
	}
	r.mu.Unlock()
	select {
	case <-gate:
		return r.Store.ReadRange(ctx, key, off, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *rounds) Unwrap() blob.Store { return r.Store }

// clearCaches empties the chosen caches of the server.
func (s *Server) clearCaches(frames, pages bool) {
	if frames {
		driveOut(s.frames, s.opt.FrameBytes, func(i int) segment.CacheKey { return segment.CacheKey{Frame: i} })
	}
	if pages {
		driveOut(s.pages, s.opt.PageBytes, func(i int) pageKey { return pageKey{firstRow: int64(i)} })
	}
}

// driveOut fills a cache of so many bytes with other values, of which each says that it takes a
// large part of it.
func driveOut[K comparable](c *lru.Cache[K, any], limit int64, key func(i int) K) {
	for i := range 400 {
		c.Add(key(-1-i), nil, limit/16-1000)
	}
}

// A cold page reads an index frame, a payload frame if needed, a page-index frame, and then four
// column ranges concurrently. Any offset costs the same. A warm page reads nothing.
func TestRequestBudget(t *testing.T) {
	budget := func(t *testing.T, inner blob.Store) {
		// In one segment: site.test in one part, spread.test in three.
		for b := range 3 {
			var records []testlake.Record
			for i := range 6000 {
				records = append(records, testlake.Record{URL: fmt.Sprintf("https://spread.test/b%d/%06d", b, i)})
				if b == 0 {
					records = append(records, testlake.Record{URL: fmt.Sprintf("https://site.test/%06d", i)})
				}
			}
			testlake.Ingest(t, inner, "alpha", fmt.Sprintf("b%d", b), records)
		}
		testlake.Publish(t, inner)
		store := &rounds{Store: inner}
		s := serve(t, store, Options{Deadline: time.Minute})
		snap := acquire(t, s, "")
		check := func(what string, f func() error, sizes ...int) {
			t.Helper()
			store.expect(sizes...)
			if err := errors.Join(f(), store.done()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		urls := func(domain string, offset int64, rows int) func() error {
			return func() error {
				p, err := snap.URLs(t.Context(),
					URLsQuery{Target: target(t, domain), Dataset: 1, Offset: offset, Limit: rows})
				if err == nil && p.Len() != rows {
					err = fmt.Errorf("%d rows", p.Len())
				}
				return err
			}
		}
		domain := func(name string) func() error {
			return func() error {
				p, err := snap.Domain(t.Context(), target(t, name), "")
				if err == nil && len(p.Datasets) > 1 {
					err = fmt.Errorf("%d datasets", len(p.Datasets))
				}
				return err
			}
		}
		for _, offset := range []int64{0, 1234, 5900} {
			s.clearCaches(true, true)
			check("cold page of one part", urls("site.test", offset, 100), 1, 1, 4)
			check("warm page", urls("site.test", offset, 100))
			s.clearCaches(false, true)
			check("page with warm frames", urls("site.test", offset, 100), 4)
		}
		for _, offset := range []int64{0, 1234, 5800, 6000, 17_800} {
			s.clearCaches(true, true)
			check("cold page of one of three parts", urls("spread.test", offset, 100), 1, 1, 1, 4)
			s.clearCaches(false, true)
			check("page of one of three parts, warm frames", urls("spread.test", offset, 100), 4)
		}
		s.clearCaches(true, true)
		// The page indexes of small parts share a frame, which is read once.
		check("cold page of two parts", urls("spread.test", 5950, 100), 1, 1, 1, 8)
		s.clearCaches(false, true)
		check("page of two parts with warm frames", urls("spread.test", 5950, 100), 8)
		s.clearCaches(true, true)
		check("cold page over several pages of a part", urls("site.test", 1000, 4500), 1, 1, 4)

		s.clearCaches(true, true)
		check("cold domain", domain("site.test"), 1)
		check("warm domain", domain("site.test"))
		check("unknown domain", domain("no-such-domain.example"))
		check("page of an unknown domain", func() error {
			p, err := snap.URLs(t.Context(),
				URLsQuery{Target: target(t, "no-such-domain.example"), Dataset: 1, Limit: 1})
			if err == nil && (p.Len() != 0 || p.Total != 0) {
				err = fmt.Errorf("%d rows", p.Len())
			}
			return err
		})
	}
	t.Run("memory", func(t *testing.T) { budget(t, blob.NewMemory()) })
	t.Run("s3", func(t *testing.T) { budget(t, open(t, testenv.S3(t))) })
}

// late is a store whose reads of some objects wait until their context ends.
type late struct {
	blob.Store
	is func(key string) bool
	at func(key string, off int64) bool
}

func (l *late) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if l.is != nil && l.is(key) || l.at != nil && l.at(key, off) {
		<-ctx.Done()
		return nil, errors.New("connection closed")
	}
	return l.Store.ReadRange(ctx, key, off, n)
}

func (l *late) Unwrap() blob.Store { return l.Store }

func TestDeadlineEndsPageEarly(t *testing.T) {
	store := &late{Store: blob.NewMemory()}
	for b := range 3 {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", b),
			[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", b)}})
	}
	testlake.Publish(t, store)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, store, Options{Deadline: 500 * time.Millisecond})
		snap := acquire(t, s, "")
		tg := target(t, "example.com")
		q := URLsQuery{Target: tg, Dataset: 1, Limit: 10}
		store.is = func(key string) bool { return strings.Contains(key, "part-b1-") }
		p, err := snap.URLs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if p.Len() != 1 || p.StoppedBy != "deadline" || p.Cursor == "" || p.Total != 3 {
			t.Fatalf("%d rows of %d, stopped by %q", p.Len(), p.Total, p.StoppedBy)
		}
		q.Cursor = p.Cursor
		if _, err := snap.URLs(t.Context(), q); !errors.Is(err, ErrDeadline) {
			t.Fatalf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := snap.URLs(ctx, q); err == nil || errors.Is(err, ErrDeadline) {
			t.Fatalf("with a cancelled context: %v", err)
		}
		store.is = nil
		if p, err = snap.URLs(t.Context(), q); err != nil || p.Len() != 2 || p.Offset != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}
