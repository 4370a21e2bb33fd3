package lease

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

func folder(t *testing.T) blob.Store {
	t.Helper()
	store, err := blob.Open(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func begin(t *testing.T, store blob.Store, timeout time.Duration) *Sweep {
	t.Helper()
	s, err := BeginSweep(t.Context(), store, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// die ends a sweep as the death of its process does: nothing is renewed, the lock is free.
func (s *Sweep) die() {
	s.stop()
	<-s.done
	s.release()
}

func put1(t *testing.T, store blob.Store, key string) {
	t.Helper()
	if _, err := store.Put(t.Context(), key, []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, store blob.Store, key string) bool {
	t.Helper()
	_, err := store.Stat(t.Context(), key)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestWritersWaitForTheEndOfASweep(t *testing.T) {
	for name, store := range map[string]blob.Store{"memory": blob.NewMemory(), "folder": folder(t)} {
		t.Run(name, func(t *testing.T) {
			if epoch, err := LastSweep(t.Context(), store); epoch != 0 || err != nil {
				t.Fatal(epoch, err)
			}
			for want := range uint64(3) {
				s := begin(t, store, 0)
				if s.Epoch() != want+1 {
					t.Fatalf("sweep %d, want %d", s.Epoch(), want+1)
				}
				if err := AwaitSweep(t.Context(), store, want); err != nil { // the one before
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if err := AwaitSweep(ctx, store, s.Epoch()); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("a writer does not wait: %v", err)
				}
				cancel()
				put1(t, store, "a")
				if err := s.Delete(t.Context(), "a"); err != nil || exists(t, store, "a") {
					t.Fatal(err)
				}
				waited := make(chan error)
				go func() { waited <- AwaitSweep(context.Background(), store, s.Epoch()) }()
				if err := s.End(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-waited; err != nil {
					t.Fatal(err)
				}
				if epoch, err := LastSweep(t.Context(), store); epoch != s.Epoch() || err != nil {
					t.Fatal(epoch, err)
				}
			}
		})
	}
}

// A sweep in a folder ends with its process, whatever its timeout.
func TestDeadSweepInAFolderEndsAtOnce(t *testing.T) {
	store := folder(t)
	s := begin(t, store, 0)
	s.die()
	if err := AwaitSweep(t.Context(), store, s.Epoch()); err != nil {
		t.Fatal(err)
	}
	next := begin(t, store, 0)
	next.die()
	again := begin(t, store, 0)
	if again.Epoch() != 3 {
		t.Errorf("sweep %d", again.Epoch())
	}
	if err := again.End(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Elsewhere others end a sweep when its document has not changed for its timeout, and not before. A
// process that comes back then deletes nothing.
func TestDeadSweepEndsAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewMemory()
		s := begin(t, store, 0)
		s.stop() // frozen: it renews nothing
		<-s.done
		began := time.Now()
		for {
			err := AwaitSweep(t.Context(), store, s.Epoch())
			if err == nil {
				break
			}
			if !errors.Is(err, ErrSweepOpen) {
				t.Fatal(err)
			}
		}
		if waited := time.Since(began); waited < defaultSweepTimeout || waited > defaultSweepTimeout+time.Minute {
			t.Errorf("waited %v for a sweep of %v", waited, defaultSweepTimeout)
		}
		put1(t, store, "a")
		if err := s.Delete(t.Context(), "a"); !errors.Is(err, ErrSweepLost) || !exists(t, store, "a") {
			t.Errorf("a sweep that was ended deletes: %v", err)
		}
	})
}

// As long as a sweep is renewed, nobody ends it. When it cannot be renewed, it deletes nothing
// after a part of its timeout.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := blob.NewMemory()
		store := &failing{Store: inner}
		s := begin(t, store, 0)
		for range 200 {
			if err := AwaitSweep(t.Context(), inner, s.Epoch()); !errors.Is(err, ErrSweepOpen) {
				t.Fatalf("the sweep ended under its process: %v", err)
			}
		}
		put1(t, inner, "a")
		store.fail.Store(true)
		time.Sleep(defaultSweepTimeout/deletePart + time.Second)
		if err := s.Delete(t.Context(), "a"); !errors.Is(err, ErrSweepLost) || !exists(t, inner, "a") {
			t.Errorf("a sweep that could not be renewed deletes: %v", err)
		}
		store.fail.Store(false)
		time.Sleep(2 * defaultSweepTimeout / renewPart)
		if err := s.Delete(t.Context(), "a"); err != nil || exists(t, inner, "a") {
			t.Errorf("after another renewal: %v", err)
		}
		if err := s.End(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type failing struct {
	blob.Store
	fail atomic.Bool
}

func (f *failing) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if f.fail.Load() {
		return blob.Info{}, errors.New("the store is away")
	}
	return f.Store.Put(ctx, key, data, cond)
}

// A renewal that was given up on may have taken effect, or still do so: it is this sweep's, which
// goes on and ends. Else writers would wait for it for all of its timeout.
func TestRenewalThatWasGivenUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, renewals := range []int{0, 1} {
			inner := blob.NewMemory()
			store := &lostReplies{Store: inner}
			s := begin(t, store, 0)
			store.lose.Store(true)
			time.Sleep(defaultSweepTimeout/renewPart + time.Second)
			if store.lose.Swap(false); store.lost.Load() == 0 {
				t.Fatal("no renewal")
			}
			time.Sleep(time.Duration(renewals) * defaultSweepTimeout / renewPart)
			put1(t, inner, "a")
			if err := s.Delete(t.Context(), "a"); err != nil {
				t.Errorf("after %d more renewals: %v", renewals, err)
			}
			if err := s.End(t.Context()); err != nil {
				t.Errorf("after %d more renewals: %v", renewals, err)
			}
			if err := AwaitSweep(t.Context(), inner, s.Epoch()); err != nil {
				t.Error(err)
			}
		}
	})
}

// lostReplies is a store whose puts take effect without a reply, and that then cannot be read, as
// for a caller whose time has passed.
type lostReplies struct {
	blob.Store
	lose atomic.Bool
	lost atomic.Int64
}

func (l *lostReplies) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	info, err := l.Store.Put(ctx, key, data, cond)
	if l.lose.Load() {
		l.lost.Add(1)
		return blob.Info{}, context.DeadlineExceeded
	}
	return info, err
}

func (l *lostReplies) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if l.lose.Load() {
		return nil, blob.Info{}, context.DeadlineExceeded
	}
	return l.Store.Get(ctx, key)
}

// Of sweeps that begin at once one goes first, and the others after it.
func TestSweepsFollowEachOther(t *testing.T) {
	store := folder(t)
	open := make(chan struct{}, 1)
	errs := make(chan error)
	for range 8 {
		go func() {
			s, err := BeginSweep(context.Background(), store, 0)
			if err != nil {
				errs <- err
				return
			}
			select {
			case open <- struct{}{}:
			default:
				errs <- errors.New("two sweeps at once")
				return
			}
			runtime.Gosched() // for the others to begin, too
			<-open
			errs <- s.End(context.Background())
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if epoch, err := LastSweep(t.Context(), store); epoch != 8 || err != nil {
		t.Error(epoch, err)
	}
}

// What is not known about a sweep is not taken for its end.
func TestLostSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewMemory()
		began := time.Now()
		for errors.Is(AwaitSweep(t.Context(), store, 7), ErrSweepOpen) {
		}
		if waited := time.Since(began); waited < defaultSweepTimeout {
			t.Errorf("waited %v for a sweep whose document is lost", waited)
		}
		if epoch, err := LastSweep(t.Context(), store); epoch != 7 || err != nil {
			t.Error(epoch, err)
		}
		data, _, err := store.Get(t.Context(), SweepKey)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if _, err := store.Put(t.Context(), SweepKey, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := CheckSweep(t.Context(), store, 0); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("damaged: %v", err)
		}
		if err := CheckSweep(t.Context(), blob.NewMemory(), 7); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("missing: %v", err)
		}
		if _, err := LastSweep(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("damaged: %v", err)
		}
		if _, err := BeginSweep(t.Context(), store, 0); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("damaged: %v", err)
		}
	})
}

func TestLists(t *testing.T) {
	store := blob.NewMemory()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	var objects []TrashObject
	for i := range maxListed + 2 {
		objects = append(objects, TrashObject{Key: "k" + strings.Repeat("x", i%5), Bytes: int64(i)})
	}
	all := func(yield func(TrashObject, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
	if n, err := WriteTrash(t.Context(), store, at, all); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	put1(t, store, "index/trash/lists/other.json")
	lists, err := TrashLists(t.Context(), store)
	if err != nil || len(lists) != 2 {
		t.Fatal(lists, err)
	}
	var got []TrashObject
	for _, ref := range lists {
		if !ref.Created.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("created %v", ref.Created)
		}
		l, err := ref.Read(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.Objects...)
	}
	if !slices.Equal(got, objects) {
		t.Error("the lists have other objects, or another order")
	}
	data, _, err := store.Get(t.Context(), lists[1].Key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 4
		if _, err := store.Put(t.Context(), lists[1].Key, bad, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := lists[1].Read(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}
