package gc_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/starter/retire"
)

// turns is a store in which an actor's operations can be stopped between any two.
type turns struct {
	blob.Store
	before func(ctx context.Context, op, key string) error
}

func (s *turns) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if err := s.before(ctx, "get", key); err != nil {
		return nil, blob.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *turns) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := s.before(ctx, "stat", key); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Stat(ctx, key)
}

func (s *turns) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := s.before(ctx, "read", key); err != nil {
		return nil, err
	}
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s *turns) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.before(ctx, "open", key); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, key, off, n)
}

func (s *turns) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if err := s.before(ctx, "put", key); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Put(ctx, key, data, cond)
}

func (s *turns) Delete(ctx context.Context, keys ...string) error {
	if err := s.before(ctx, "delete", strings.Join(keys, " ")); err != nil {
		return err
	}
	return s.Store.Delete(ctx, keys...)
}

func (s *turns) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := s.before(ctx, "list", prefix); err != nil {
			yield(blob.Info{}, err)
			return
		}
		s.Store.List(ctx, prefix)(yield)
	}
}

func (s *turns) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := s.Store.Create(ctx, key)
	return &turnsWriter{w, ctx, key, s}, err
}

type turnsWriter struct {
	blob.Writer
	ctx context.Context
	key string
	s   *turns
}

func (w *turnsWriter) Finish() (blob.Info, error) {
	if err := w.s.before(w.ctx, "finish", w.key); err != nil {
		return blob.Info{}, err
	}
	return w.Writer.Finish()
}

// actor runs something against a store, up to its nth operation, and on from there when it is told.
type actor struct {
	mu      sync.Mutex
	ops     int
	stopAt  int
	stopped chan struct{} // closed at operation stopAt
	resume  chan struct{} // closed to go on
	waits   chan struct{} // closed when it polls the sweep
	polls   int
	done    chan struct{}
	err     error
}

func act(t testing.TB, store blob.Store, stopAt int, do func(store blob.Store) error) *actor {
	a := &actor{
		stopAt: stopAt, stopped: make(chan struct{}), resume: make(chan struct{}), waits: make(chan struct{}),
		done: make(chan struct{}),
	}
	go func() {
		defer close(a.done)
		a.err = do(&turns{store, a.before})
	}()
	return a
}

func (a *actor) before(ctx context.Context, op, key string) error {
	a.mu.Lock()
	n := a.ops
	a.ops++
	if op == "get" && key == lease.SweepKey {
		if a.polls++; a.polls == 4 {
			close(a.waits)
		}
	} else if a.polls < 4 {
		a.polls = 0
	}
	if n == a.stopAt {
		close(a.stopped)
	}
	a.mu.Unlock()
	if n < a.stopAt {
		return nil
	}
	select {
	case <-a.resume:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach returns when the actor has come to its stop, has ended, or waits for a sweep.
func (a *actor) reach() {
	select {
	case <-a.stopped:
	case <-a.done:
	case <-a.waits:
	}
}

// everyInterleaving is set by the build tag soak. Otherwise about somePairs of all pairs of stops
// are taken, or fewer.
var everyInterleaving bool

const somePairs = 16

// An ingest writes a batch that the lake has had and that is garbage, and publishes it, while a
// collection deletes. Whatever the order, what the writer has published is there.
func TestEveryInterleavingOfAWriterAndACollection(t *testing.T) {
	x, y := records("x", 12), records("y", 9)
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", x)
	testlake.Publish(t, prepared)
	testlake.Ingest(t, prepared, "alpha", "b1", y)
	testlake.Publish(t, prepared)
	spec, temp := testlake.Spec(t, prepared, "alpha", "b1", x), t.TempDir()
	interleave(t, prepared, somePairs, func(store blob.Store) error {
		if _, err := testlake.Steps(context.Background(), store, spec, temp); err != nil {
			return err
		}
		_, err := publish.All(context.Background(), store, testlake.Run(), temp)
		return err
	}, func(string, error) bool { return false })
}

// A compaction writes a union that the lake has had and that is garbage, while a collection
// deletes.
func TestEveryInterleavingOfACompactionAndACollection(t *testing.T) {
	prepared, temp := blob.NewMemory(), t.TempDir()
	compact := func(store blob.Store) error {
		_, err := publish.CompactAll(context.Background(), store, testlake.Run(), publish.Compaction{Full: true}, temp)
		return err
	}
	for i, batch := range []string{"b1", "b2", "b3", "b1", "b1"} {
		tag := batch
		if i == 3 {
			tag = "other"
		}
		testlake.Ingest(t, prepared, "alpha", batch, records(tag, 9))
		testlake.Publish(t, prepared)
		if i == 2 {
			if err := compact(prepared); err != nil {
				t.Fatal(err)
			}
		}
	}
	interleave(t, prepared, somePairs/4, compact, func(string, error) bool { return false })
}

// A compaction drops rows while a collection deletes. The lake has had all that it writes before,
// and it is garbage.
func TestEveryInterleavingOfADroppingCompactionAndACollection(t *testing.T) {
	prepared, temp := blob.NewMemory(), t.TempDir()
	compact := func(store blob.Store) error {
		_, err := publish.CompactAll(context.Background(), store, testlake.Run(), publish.Compaction{}, temp)
		return err
	}
	for _, dataset := range []string{"alpha", "beta"} {
		testlake.Ingest(t, prepared, dataset, "b1", records("x", 9))
	}
	testlake.Publish(t, prepared)
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "site3.test")
	if err != nil {
		t.Fatal(err)
	}
	rule := catalog.Takedown{ID: "20261120-0123456789", Target: target, Reason: "test", Created: time.Unix(1_800_000_000, 0).UTC()}
	if _, err := suppress.Add(t.Context(), prepared, rule, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	// A compaction that died before its commit has written all of it.
	dead := blobtest.NewFaulty(prepared)
	dead.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == catalog.ManifestKey }})
	if err := compact(dead); err == nil {
		t.Fatal("the compaction did not stop")
	}
	interleave(t, prepared, somePairs/4, compact, func(string, error) bool { return false })
}

// A batch that was retired, and that no version has, is restored while a collection deletes it.
// Either it is back, or the restoration says that it is lost and the batch stays retired.
func TestEveryInterleavingOfARestorationAndACollection(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Ingest(t, prepared, "alpha", "b2", records("y", 9))
	testlake.Publish(t, prepared)
	testlake.Retire(t, prepared, catalog.BatchName{DatasetID: 1, Batch: "b1"})
	testlake.Publish(t, prepared)
	temp, back, lost := t.TempDir(), 0, 0
	interleave(t, prepared, somePairs, func(store blob.Store) error {
		opt := retire.Options{Dataset: "alpha", Batches: []string{"b1"}, Restore: true}
		s, err := opt.Select(context.Background(), store)
		if err == nil {
			err = s.Apply(context.Background(), store)
		}
		if err != nil {
			return err
		}
		_, err = publish.All(context.Background(), store, testlake.Run(), temp)
		return err
	}, func(name string, err error) bool {
		if err == nil {
			back++
			return false
		}
		lost++
		return strings.Contains(err.Error(), "not all of it is left")
	})
	t.Logf("restored %d times, lost %d times", back, lost)
	if back == 0 || lost == 0 {
		t.Error("one of the outcomes never was")
	}
}

// A takedown is added whose deletion tables are garbage, since it was lifted before, while a
// collection deletes them.
func TestEveryInterleavingOfATakedownAndACollection(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.PrefixTarget, "site3.test/x/1")
	if err != nil {
		t.Fatal(err)
	}
	rule := catalog.Takedown{ID: "20261120-0123456789", Target: target, Reason: "test", Created: time.Unix(1_800_000_000, 0).UTC()}
	add := func(store blob.Store) error {
		_, err := suppress.Add(context.Background(), store, rule, suppress.Options{})
		return err
	}
	if err := add(prepared); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Lift(t.Context(), prepared, rule.ID, "", "", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	rule.ID = "20261120-0123456780" // an id is given once
	interleave(t, prepared, somePairs, add, func(string, error) bool { return false })
}

// A batch that only an earlier union still has is restored while a collection deletes that.
func TestEveryInterleavingOfARestorationFromAUnion(t *testing.T) {
	prepared, temp := blob.NewMemory(), t.TempDir()
	for _, batch := range []string{"b1", "b2"} {
		testlake.Ingest(t, prepared, "alpha", batch, records(batch, 9))
		testlake.Publish(t, prepared)
	}
	compacted(t, prepared)
	testlake.Retire(t, prepared, catalog.BatchName{DatasetID: 1, Batch: "b1"})
	testlake.Publish(t, prepared)
	back, lost := 0, 0
	interleave(t, prepared, somePairs/4, func(store blob.Store) error {
		opt := retire.Options{Dataset: "alpha", Batches: []string{"b1"}, Restore: true}
		s, err := opt.Select(context.Background(), store)
		if err == nil {
			err = s.Apply(context.Background(), store)
		}
		if err != nil {
			return err
		}
		done, err := publish.All(context.Background(), store, testlake.Run(), temp)
		if err == nil && len(done.Skipped) > 0 {
			err = fmt.Errorf("restored, and then lost: %+v", done.Skipped)
		}
		return err
	}, func(name string, err error) bool {
		if err == nil {
			back++
			return false
		}
		lost++
		return strings.Contains(err.Error(), "not all of it is left")
	})
	t.Logf("restored %d times, lost %d times", back, lost)
	if back == 0 || lost == 0 {
		t.Error("one of the outcomes never was")
	}
}

// interleave lets a writer and a collection work on copies of a lake. The writer is stopped at each
// of its operations, then the collection at each of its own; then the one goes on to its end, or as
// far as it gets, and then the other. After each run the lake must be sound. Expected is called
// with the result of the writer, and reports whether an error may be.
func interleave(
	t *testing.T, prepared blob.Store, some int, write func(blob.Store) error, expected func(name string, err error) bool,
) {
	sweep := func(store blob.Store) error {
		_, err := gc.Collect(context.Background(), store, now())
		return err
	}
	operations := func(do func(blob.Store) error) int {
		store := blob.NewMemory()
		blobtest.Copy(t, prepared, store)
		a := act(t, store, 1<<30, do)
		<-a.done
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.ops
	}
	temp := t.TempDir()
	writes, sweeps := operations(write), operations(sweep)
	pairs := writes * sweeps
	step := 1
	if !everyInterleaving {
		step = pairs/some + 1
	}
	runs := 0
	for pair := 0; pair < pairs; pair += step {
		i, j := pair/sweeps, pair%sweeps
		for _, writerLast := range []bool{false, true} {
			store := blob.NewMemory()
			blobtest.Copy(t, prepared, store)
			w := act(t, store, i, write)
			w.reach()
			g := act(t, store, j, sweep)
			g.reach()
			first, second := w, g
			if writerLast {
				first, second = g, w
			}
			close(first.resume)
			select {
			case <-first.done:
			case <-first.waits:
			}
			close(second.resume)
			<-w.done
			<-g.done
			name := fmt.Sprintf("writer at %d, collection at %d, writer last %v", i, j, writerLast)
			if !expected(name, w.err) && w.err != nil || g.err != nil {
				t.Fatalf("%s: writer %v, collection %v", name, w.err, g.err)
			}
			runs++
			checkFast(t, store, temp, name)
		}
	}
	t.Logf("%d operations of the writer, %d of the collection, %d interleavings", writes, sweeps, runs)
}
