package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/serve/turns"
)

// watched is a store whose reads take a second, unless their context ends before. It counts the
// reads of parts, and those that come from somebody who has a turn.
type watched struct {
	blob.Store
	parts, held atomic.Int64
}

func (w *watched) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if turns.Own(ctx).Has() {
		w.held.Add(1)
	}
	if strings.HasSuffix(key, ".parquet") {
		w.parts.Add(1)
	}
	select {
	case <-time.After(round):
		return w.Store.ReadRange(ctx, key, off, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *watched) Unwrap() blob.Store { return w.Store }

// holdTurns takes all turns of a server, and returns what gives them back. There have to be as many
// as there are without light work.
func holdTurns(t *testing.T, s *Server) (give func()) {
	t.Helper()
	var held []*turns.Turn
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		heavy, turn := turns.With(ctx, s.Turns())
		err := turn.Take(heavy)
		cancel()
		if err != nil {
			break
		}
		held = append(held, turn)
	}
	if len(held) == 0 {
		t.Fatal("no turn is left")
	}
	return func() {
		for _, turn := range held {
			turn.Give()
		}
	}
}

// TestHeavyWorkTakesTurns holds all turns: no heavy work is done before they are given back, and
// none keeps a turn while it waits for the store.
func TestHeavyWorkTakesTurns(t *testing.T) {
	inner := pagedLake(t)
	testlake.Ingest(t, inner, "alpha", "c", []testlake.Record{{URL: "https://site.test/new"}, {URL: "https://www.other1.test/new"}})
	testlake.Publish(t, inner)
	testenv.Bubble(t, func(t *testing.T) {
		store := &watched{Store: inner}
		s := serve(t, store, Options{Deadline: 20 * time.Minute})
		after := acquire(t, s, "")
		before := acquire(t, s, after.Version().Parent)
		for name, work := range map[string]func(ctx context.Context) error{
			"a diff": func(ctx context.Context) error {
				page, err := after.Diff(ctx, before, DiffQuery{Limit: 10})
				if err == nil && len(page.Changes) != 2 {
					err = fmt.Errorf("%+v", page)
				}
				return err
			},
			"domains with a suffix": func(ctx context.Context) error {
				page, err := after.Domains(ctx, DomainsQuery{Suffix: "7.test", Limit: 1000})
				if err == nil && len(page.Domains) != 50 {
					err = fmt.Errorf("%d domains", len(page.Domains))
				}
				return err
			},
			"a bulk lookup": func(ctx context.Context) error {
				b, err := after.Bulk(ctx, BulkQuery{})
				if err != nil {
					return err
				}
				found := 0
				err = b.Lookup(ctx, [][]byte{[]byte("site.test"), []byte("other1.test"), []byte("absent.test")}, func(_ int, a *BulkAnswer) error {
					found += len(a.Datasets)
					return nil
				})
				if err == nil && found != 2 {
					err = fmt.Errorf("%d found", found)
				}
				return err
			},
			"rows of a tree": func(ctx context.Context) error {
				h, err := after.Holdings(ctx, target(t, "site.test"), nil)
				if err != nil {
					return err
				}
				seen := 0
				n, err := h.Read(ctx, h.All, false, Selection{}, 1e6, func(_ *part.Columns, lo, hi int) error {
					if seen += hi - lo; !turns.Own(ctx).Has() {
						return errors.New("rows are looked at without a turn")
					}
					return nil
				})
				if err == nil && (n != 40_001 || seen != 40_001) {
					err = fmt.Errorf("%d rows, %d seen", n, seen)
				}
				return err
			},
			"a page of rows": func(ctx context.Context) error {
				page, err := after.URLs(ctx, URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 1000})
				if err == nil && page.Len() != 1000 {
					err = fmt.Errorf("%d rows", page.Len())
				}
				return err
			},
			"the sums of a dataset": func(context.Context) error {
				_, err := after.TopOf(t.Context(), 1)
				return err
			},
			"the number of domains": func(context.Context) error {
				_, err := after.DomainsBelow(t.Context(), "test")
				return err
			},
		} {
			s.clearCaches(true, true)
			give := holdTurns(t, s)
			var done atomic.Bool
			var err error
			go func() {
				ctx, turn := turns.With(t.Context(), s.Turns())
				err = work(ctx)
				turn.Give()
				done.Store(true)
			}()
			time.Sleep(2 * time.Minute)
			if done.Load() {
				t.Errorf("%s took no turn: %v", name, err)
			}
			give()
			time.Sleep(2 * time.Minute)
			if !done.Load() || err != nil {
				t.Errorf("%s with turns: %v, %v", name, done.Load(), err)
			}
		}
		holdTurns(t, s)() // waits for those that are left over
		if n := store.held.Load(); n > 0 {
			t.Errorf("%d reads came from somebody with a turn", n)
		}
	})
}

// TestWarmingTakesTurns warms domains and lists of a version without and with a turn.
func TestWarmingTakesTurns(t *testing.T) {
	inner := pagedLake(t)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, inner, Options{Warm: 10})
		snap := acquire(t, s, "")
		for i := range 4 {
			s.Asked(fmt.Sprintf("other%d.test", i))
		}
		s.Asked(ListName("site.test", 1))
		give := holdTurns(t, s)
		s.warm(t.Context(), snap.openVersion)
		if st := s.Status().Ahead; st.Warmed != 0 || st.Late != 5 {
			t.Errorf("without turns: %+v", st)
		}
		give()
		s.warm(t.Context(), snap.openVersion)
		if st := s.Status().Ahead; st.Warmed != 5 || st.Late != 5 {
			t.Errorf("with turns: %+v", st)
		}
		holdTurns(t, s)()
	})
}

// TestLightRowsDoNotWaitForHeavyOnes asks for rows that heavy requests are reading, which wait for
// their turns and hold all room for decoding.
func TestLightRowsDoNotWaitForHeavyOnes(t *testing.T) {
	inner := pagedLake(t)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, &watched{Store: inner}, Options{Deadline: 20 * time.Minute})
		snap := acquire(t, s, "")
		q := URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 100}
		ask := func(ctx context.Context) error {
			page, err := snap.URLs(ctx, q)
			if err == nil && page.Len() != 100 {
				err = fmt.Errorf("%d rows", page.Len())
			}
			return err
		}
		give := holdTurns(t, s)
		var all sync.WaitGroup
		var heavy error
		all.Go(func() {
			ctx, _ := turns.With(t.Context(), s.Turns())
			heavy = ask(ctx)
		})
		time.Sleep(time.Minute)
		units := int64(0)
		for s.gate.TryAcquire(1) {
			units++
		}
		started := time.Now()
		if err := ask(t.Context()); err != nil || time.Since(started) > 10*round {
			t.Errorf("a light request took %s: %v", time.Since(started), err)
		}
		s.gate.Release(units)
		give()
		all.Wait()
		if heavy != nil {
			t.Error(heavy)
		}
	})
}

// TestOneRequestReadsAgain ends the request that reads rows for many in the middle of the reads:
// one of the others reads them again, and not all.
func TestOneRequestReadsAgain(t *testing.T) {
	inner := pagedLake(t)
	testenv.Bubble(t, func(t *testing.T) {
		store := &watched{Store: inner}
		s := serve(t, store, Options{Deadline: 20 * time.Minute})
		snap := acquire(t, s, "")
		q := URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 100}
		if _, err := snap.URLs(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		once := store.parts.Swap(0)
		s.clearCaches(false, true)
		leaving, leave := context.WithTimeout(t.Context(), round/2)
		defer leave()
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = leaving
				}
				page, err := snap.URLs(ctx, q)
				if i == 0 && err == nil {
					t.Error("the request that has ended got an answer")
				} else if i > 0 && (err != nil || page.Len() != 100) {
					t.Errorf("request %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := store.parts.Load(); once == 0 || n != 2*once {
			t.Errorf("%d reads of parts, and %d by one request", n, once)
		}
	})
}
