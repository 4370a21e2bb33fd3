package row

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
)

// slowStore is a store that calls before when a stream is opened, and counts the open streams.
type slowStore struct {
	blob.Store
	before func(ctx context.Context) error
	open   atomic.Int64
}

func (s *slowStore) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.open.Add(1)
	if err := s.before(ctx); err != nil {
		s.open.Add(-1)
		return nil, err
	}
	r, err := s.Store.Open(ctx, key, off, n)
	if err != nil {
		s.open.Add(-1)
		return nil, err
	}
	return &slowStream{ReadCloser: r, s: s}, nil
}

type slowStream struct {
	io.ReadCloser
	s    *slowStore
	once sync.Once
}

func (r *slowStream) Close() error {
	r.once.Do(func() { r.s.open.Add(-1) })
	return r.ReadCloser.Close()
}

// Prefetching and loading partitions without rows succeeds and adds none.
func TestPrefetchOfPartitionsWithoutRows(t *testing.T) {
	ctx := t.Context()
	memory := blob.NewMemory()
	rows := []Row{{Domain: "example.com", Host: "example.com", PathQuery: "/", Scheme: "https", Port: -1}}
	files := writeShuffle(t, memory, rows, 1<<20)
	s, err := OpenShuffle(ctx, memory, files)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBuffer(1 << 20)
	defer b.Release()
	p := partitionOf("example.com")
	for _, empty := range [][2]byte{{p + 1, p + 1}, {(p + 16) &^ 15, (p+16)&^15 + 15}} {
		b.Prefetch(ctx, s, empty[0], empty[1])
		if err := b.Load(ctx, s, empty[0], empty[1], nil); err != nil || b.Len() != 0 {
			t.Errorf("partitions %02x: %d rows, %v", empty, b.Len(), err)
		}
	}
}

// Prefetched reads are used once: the next load of the same partitions reads them again.
func TestPrefetchedReadsAreUsedOnce(t *testing.T) {
	ctx := t.Context()
	memory := blob.NewMemory()
	rows := manyRows(11, 2000)
	s, err := OpenShuffle(ctx, memory, writeShuffle(t, memory, rows, 20_000))
	if err != nil {
		t.Fatal(err)
	}
	b := NewBuffer(1 << 30)
	defer b.Release()
	b.Prefetch(ctx, s, 0, 255)
	for range 2 {
		c := &collector{tb: t}
		if err := b.Load(ctx, s, 0, 255, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Rows(ctx, 0, 255, c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(oracle(rows, 0, 255), c.rows); diff != "" {
			t.Fatal(diff)
		}
		b.Empty()
	}
}

// Prefetch has as many reads in flight as a load, however many files there are.
func TestPrefetchBoundsItsReads(t *testing.T) {
	const most = 8
	memory := blob.NewMemory()
	rows := manyRows(5, 20_000)
	files := writeShuffle(t, memory, rows, 12_000)
	if len(files) < 8*most {
		t.Fatalf("%d files", len(files))
	}
	want := oracle(rows, 0, 255)
	for _, prefetch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			begin := make(chan struct{})
			store := &slowStore{Store: memory, before: func(context.Context) error { <-begin; return nil }}
			s, err := OpenShuffle(ctx, store, files)
			if err != nil {
				t.Fatal(err)
			}
			b := NewBuffer(1 << 30)
			defer b.Release()
			loaded := make(chan error, 1)
			load := func() { loaded <- b.Load(ctx, s, 0, 255, nil) }
			if prefetch {
				b.Prefetch(ctx, s, 0, 255)
			} else {
				go load()
			}
			synctest.Wait() // for all reads that start
			if n := store.open.Load(); n != most {
				t.Errorf("prefetched %t: %d reads of %d files at once, want %d", prefetch, n, len(files), most)
			}
			close(begin)
			if prefetch {
				go load()
			}
			if err := <-loaded; err != nil {
				t.Fatal(err)
			}
			c := &collector{tb: t}
			if err := b.Rows(ctx, 0, 255, c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, c.rows); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// Loads that fail or are canceled while reads are in flight, prefetched or not, do not affect later
// loads and leave no goroutine or stream behind.
func TestLoadsThatFail(t *testing.T) { synctest.Test(t, loadsThatFail) }

func loadsThatFail(t *testing.T) {
	memory := blob.NewMemory()
	rows := manyRows(7, 4000)
	files := writeShuffle(t, memory, rows, 30_000)
	want := map[int][]Row{}
	for first := 0; first < 256; first += 64 {
		want[first] = oracle(rows, byte(first), byte(first+63))
	}
	errBroken := errors.New("broken")
	var failing atomic.Int64 // of 1000
	store := &slowStore{Store: memory, before: func(ctx context.Context) error {
		if rand.Int64N(1000) < failing.Load() {
			return errBroken
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(rand.IntN(300)) * time.Microsecond):
			return nil
		}
	}}
	s, err := OpenShuffle(t.Context(), store, files)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		failing.Store(int64(i % 3 * 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(8000))*time.Microsecond)
		if i%3 == 0 {
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
		}
		b := NewBuffer(1 << 30)
		for first := 0; first < 256; first += 64 {
			c := &collector{tb: t}
			err := b.Load(ctx, s, byte(first), byte(first+63), func() error { return errors.New("full") })
			if err == nil {
				if i%4 != 0 {
					next := (first + 64) % 256
					b.Prefetch(ctx, s, byte(next), byte(next+63))
				}
				err = b.Rows(ctx, byte(first), byte(first+63), c)
			}
			if err != nil {
				if !errors.Is(err, errBroken) && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				break
			}
			if diff := cmp.Diff(want[first], c.rows); diff != "" {
				t.Fatal(diff)
			}
			b.Empty()
		}
		b.Release() // with reads in flight
		cancel()
	}
	synctest.Wait() // does not return while a goroutine is left
	if n := store.open.Load(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}
