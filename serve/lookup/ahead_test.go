package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

// pagedLake has a domain whose list takes several pages of a part, and other domains.
func pagedLake(t *testing.T) *blob.Memory {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 40_000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://site.test/%06d", i)})
	}
	for i := range 500 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://other%d.test/", i)})
	}
	testlake.Ingest(t, store, "alpha", "b", records)
	testlake.Publish(t, store)
	return store
}

// TestEqualReadsAreOne has many requests for one cold page at once: its frames and its column
// ranges are read once.
func TestEqualReadsAreOne(t *testing.T) {
	inner := pagedLake(t)
	store := &rounds{Store: inner}
	s := serve(t, store, Options{Deadline: time.Minute})
	snap := acquire(t, s, "")
	tg := target(t, "site.test")
	q := URLsQuery{Target: tg, Dataset: 1, Offset: 9000, Limit: 100}
	store.expect(1, 1, 4)
	errs := make([]error, 50)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			p, err := snap.URLs(t.Context(), q)
			if err == nil && (p.Len() != 100 || string(p.URL(0)) != "https://site.test/009000") {
				err = fmt.Errorf("%d rows", p.Len())
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errors.Join(errs...), store.done()); err != nil {
		t.Error(err)
	}
}

// TestNextPagesAreReadAhead follows cursors: from the second page on, nothing is read for a page
// that was not read before it was asked for.
func TestNextPagesAreReadAhead(t *testing.T) {
	counting := blob.NewCounting(pagedLake(t))
	s := serve(t, counting, Options{Deadline: time.Minute})
	snap := acquire(t, s, "")
	q := URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 10_000}
	rows := 0
	for n := 0; ; n++ {
		before := counting.Reads()
		p, err := snap.URLs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Len() {
			if want := fmt.Sprintf("https://site.test/%06d", rows+i); string(p.URL(i)) != want {
				t.Fatalf("%s, want %s", p.URL(i), want)
			}
		}
		rows += p.Len()
		if n == 2 && counting.Reads() != before {
			// The page after this one may be read already.
			if st := s.Status().Ahead; st.Pages < 1 {
				t.Errorf("page %d was read when it was asked for: %+v", n, st)
			}
		}
		if q.Cursor = p.Cursor; q.Cursor == "" {
			break
		}
		if n > 0 {
			testenv.Until(t, "the next page is read ahead", func() bool { return s.Status().Ahead.Pages >= int64(n) })
		}
	}
	if st := s.Status().Ahead; rows != 40_000 || st.Pages < 2 || st.Skipped+st.Cancelled != 0 {
		t.Errorf("%d rows, %+v", rows, st)
	}
	// Streams too.
	s.clearCaches(false, true)
	list, err := snap.List(t.Context(), URLsQuery{Target: target(t, "site.test"), Dataset: 1})
	if err != nil {
		t.Fatal(err)
	}
	rows = 0
	for p, err := list.Next(t.Context(), MaxLimit); p != nil; p, err = list.Next(t.Context(), MaxLimit) {
		if err != nil {
			t.Fatal(err)
		}
		rows += p.Len()
	}
	if rows != 40_000 {
		t.Errorf("%d rows", rows)
	}
}

// TestReadAheadIsBounded holds the reads of pages: beyond the room for them none are begun, and the
// end of the server ends those that are.
func TestReadAheadIsBounded(t *testing.T) {
	store := &late{Store: pagedLake(t)}
	s := serve(t, store, Options{Deadline: time.Minute})
	snap := acquire(t, s, "")
	list, err := snap.List(t.Context(), URLsQuery{Target: target(t, "site.test"), Dataset: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list.Next(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the first page is read ahead", func() bool {
		if s.Status().Ahead.Pages != 1 || !s.ahead.room.TryAcquire(aheadAtOnce) {
			return false
		}
		s.ahead.room.Release(aheadAtOnce)
		return true
	})
	s.clearCaches(false, true)
	store.is = func(string) bool { return true }
	for range aheadAtOnce + 3 {
		list.readAhead(t.Context(), t.Context(), 100)
	}
	if st := s.Status().Ahead; st.Skipped != 3 {
		t.Errorf("%+v", st)
	}
	s.ahead.close()
	if st := s.Status().Ahead; st.Cancelled != aheadAtOnce {
		t.Errorf("%+v", st)
	}
}

// TestHotDomainsAreWarmAfterAFlip asks for some domains, publishes a version whose segment is a new
// one, and asks for them again: the first answers of the version take no read.
func TestHotDomainsAreWarmAfterAFlip(t *testing.T) {
	for _, warm := range []int{0, 100} {
		t.Run(fmt.Sprint(warm), func(t *testing.T) {
			inner := pagedLake(t)
			testenv.Bubble(t, func(t *testing.T) {
				slow := blobtest.NewFaulty(inner)
				slow.Inject(blobtest.Fault{Op: blob.OpReadRange, Do: func() { time.Sleep(time.Millisecond) }})
				counting := blob.NewCounting(slow)
				s := serve(t, counting, Options{Deadline: time.Minute, Warm: warm})
				ask := func() (reads int64) {
					snap, err := s.Acquire(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					defer snap.Release()
					before := counting.Count(blob.OpReadRange).Requests
					for i := range 20 {
						if p, err := snap.Domain(t.Context(), target(t, fmt.Sprintf("other%d.test", i)), ""); err != nil || p.Total != 1 {
							t.Fatal(p, err)
						}
					}
					p, err := snap.URLs(t.Context(), URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 100})
					if err != nil || p.Len() != 100 {
						t.Fatal(p, err)
					}
					return counting.Count(blob.OpReadRange).Requests - before
				}
				if ask() == 0 {
					t.Error("the first answers took no read")
				}
				testlake.Ingest(t, inner, "alpha", "b", []testlake.Record{{URL: "https://gone.test/"}}) // replaced
				var records []testlake.Record
				for i := range 300 {
					records = append(records, testlake.Record{URL: fmt.Sprintf("https://site.test/%06d", i)},
						testlake.Record{URL: fmt.Sprintf("https://other%d.test/", i)})
				}
				testlake.Ingest(t, inner, "alpha", "c", records)
				testlake.Publish(t, inner)
				if err := s.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				st := s.Status().Ahead
				reads := ask()
				if warm > 0 && (reads != 0 || st.Warmed != 21 || st.Late != 0 || st.WarmTime == 0) {
					t.Errorf("%d reads after the flip, %+v", reads, st)
				}
				if warm == 0 && (reads == 0 || st.Warmed != 0 || st.Hot != 0) {
					t.Errorf("%d reads after the flip, %+v", reads, st)
				}
			})
		})
	}
}

// TestWarmingEndsInTime has a store whose reads hang.
func TestWarmingEndsInTime(t *testing.T) {
	store := &late{Store: pagedLake(t)}
	s := serve(t, store, Options{Deadline: time.Minute, Warm: 100})
	snap := acquire(t, s, "")
	for i := range 30 {
		if _, err := snap.Domain(t.Context(), target(t, fmt.Sprintf("other%d.test", i)), ""); err != nil {
			t.Fatal(err)
		}
	}
	s.clearCaches(true, true)
	store.is = func(string) bool { return true }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.warm(ctx, snap.openVersion)
	if st := s.Status().Ahead; st.Late != 30 || st.Warmed != 0 {
		t.Errorf("%+v", st)
	}
}
