package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	_ "github.com/urlake/urlake/lake/blob/s3blob"
)

// batchesOf lists the digests of the current version's batches; a lake without a version has none.
func batchesOf(t *testing.T, store blob.Store) []string {
	t.Helper()
	_, _, err := ReadManifest(t.Context(), store)
	if errors.Is(err, ErrNoVersion) {
		return nil
	}
	_, v := current(t, store)
	var all []string
	for b, err := range v.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Digest)
	}
	slices.Sort(all)
	return all
}

func digests(n int) []string {
	var all []string
	for i := range n {
		all = append(all, id32(1000+i))
	}
	slices.Sort(all)
	return all
}

func TestCommitsFollowEachOther(t *testing.T) {
	store := blob.NewMemory()
	for n := range 5 {
		done := apply(t, store, addBatch(n))
		m, v := current(t, store)
		if done.Existed || done.Generation != uint64(n+1) || m.Generation != uint64(n+1) || done.Version.ID != v.ID {
			t.Fatalf("commit %d: got %+v, manifest %+v", n, done, m)
		}
		if n > 0 && v.Parent != m.Versions[n-1].ID {
			t.Fatalf("commit %d: parent %s of %+v", n, v.Parent, m.Versions)
		}
		if got := batchesOf(t, store); !slices.Equal(got, digests(n+1)) {
			t.Fatalf("commit %d: batches %v", n, got)
		}
	}
	m, v := current(t, store)
	if v.Counts.Batches != 5 || v.Counts.Datasets != 3 || v.Counts.Rows != 510 || v.Counts.Parts != 10 || v.Counts.Segments != 5 {
		t.Fatalf("counts %+v", v.Counts)
	}
	for _, ref := range m.Versions {
		if _, err := ReadVersion(t.Context(), store, ref); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCommitMadeTwiceChangesNothing(t *testing.T) {
	store := blob.NewMemory()
	first := apply(t, store, addBatch(0))
	apply(t, store, addBatch(1))
	before := get(t, store, ManifestKey)
	again := apply(t, store, addBatch(0))
	if !again.Existed || again.Version != first.Version {
		t.Fatalf("got %+v, first was %+v", again, first)
	}
	if string(get(t, store, ManifestKey)) != string(before) {
		t.Fatal("the manifest changed")
	}
}

// One call of the store fails, before or after it took effect. Readers see the old or the new
// state, and applying the commit again leads to the new one, with one version.
func TestReadersSeeOldOrNewWhereverTheStoreFails(t *testing.T) {
	errLost := errors.New("connection lost")
	for _, published := range []int{0, 1} {
		for _, err := range []error{errLost, blob.ErrPrecondition} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d published, %v, after=%v", published, err, after), func(t *testing.T) {
					for nth := 1; ; nth++ {
						inner := blob.NewMemory()
						for n := range published {
							apply(t, inner, addBatch(n))
						}
						store := blobtest.NewFaulty(inner)
						store.Inject(blobtest.Fault{Nth: nth, Err: err, After: after})
						done, commitErr := addBatch(published).Apply(t.Context(), store)
						if store.Fired() == 0 {
							if nth < 4 {
								t.Fatalf("only %d calls", nth-1)
							}
							return
						}
						got := batchesOf(t, inner)
						if !slices.Equal(got, digests(published)) && !slices.Equal(got, digests(published+1)) {
							t.Fatalf("call %d: a reader sees %v", nth, got)
						}
						if commitErr == nil && !slices.Equal(got, digests(published+1)) {
							t.Fatalf("call %d: success %+v, but a reader sees %v", nth, done, got)
						}
						apply(t, inner, addBatch(published))
						m, _ := current(t, inner)
						if got := batchesOf(t, inner); !slices.Equal(got, digests(published+1)) || len(m.Versions) != published+1 {
							t.Fatalf("call %d: after a retry a reader sees %v in %d versions", nth, got, len(m.Versions))
						}
					}
				})
			}
		}
	}
}

func TestReadersSeeOldOrNewWhereverTheCommitterDies(t *testing.T) {
	for n := 0; ; n++ {
		inner := blob.NewMemory()
		apply(t, inner, addBatch(0))
		store := blobtest.NewFaulty(inner)
		store.CrashAfter(n)
		_, err := addBatch(1).Apply(t.Context(), store)
		got := batchesOf(t, inner)
		if !store.Crashed() {
			if err != nil || !slices.Equal(got, digests(2)) || n < 2 {
				t.Fatalf("without a crash after %d changes: %v, %v", n, got, err)
			}
			return
		}
		if err == nil || !slices.Equal(got, digests(1)) {
			t.Fatalf("crash after %d changes: %v, %v", n, got, err)
		}
		apply(t, inner, addBatch(1))
		if got := batchesOf(t, inner); !slices.Equal(got, digests(2)) {
			t.Fatalf("crash after %d changes, then again: %v", n, got)
		}
	}
}

// Another commit is made between any two calls of a commit.
func TestCommitRebasesOnWhatCameFirst(t *testing.T) {
	for nth := 1; ; nth++ {
		inner := blob.NewMemory()
		apply(t, inner, addBatch(0))
		store := blobtest.NewFaulty(inner)
		store.Inject(blobtest.Fault{Nth: nth, Do: func() { apply(t, inner, addBatch(2)) }})
		apply(t, store, addBatch(1))
		if store.Fired() == 0 {
			return
		}
		m, _ := current(t, inner)
		if got := batchesOf(t, inner); !slices.Equal(got, digests(3)) || m.Generation != 3 {
			t.Fatalf("call %d: %v in generation %d", nth, got, m.Generation)
		}
	}
}

func TestCommitEndsWhenItsInputsAreNoLongerLive(t *testing.T) {
	errGone := errors.New("input replaced")
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	c := addBatch(1)
	base, _ := current(t, store)
	build := c.Build
	c.Build = func(ctx context.Context, parent *Version) (*Next, error) {
		if parent.ID != base.CurrentVersion {
			return nil, errGone
		}
		apply(t, store, addBatch(2))
		return build(ctx, parent)
	}
	if _, err := c.Apply(t.Context(), store); !errors.Is(err, errGone) {
		t.Fatalf("got %v", err)
	}
	if m, _ := current(t, store); m.Generation != 2 {
		t.Fatalf("generation %d", m.Generation)
	}
}

func TestTenCommittersAtOnceLoseNothing(t *testing.T) {
	const committers = 10
	race := func(t *testing.T, open func() blob.Store) {
		var wg sync.WaitGroup
		for n := range committers {
			store := open()
			wg.Go(func() {
				if _, err := addBatch(n).Apply(t.Context(), store); err != nil {
					t.Errorf("committer %d: %v", n, err)
				}
			})
			// A second process with the same plan.
			wg.Go(func() {
				if _, err := addBatch(n).Apply(t.Context(), store); err != nil {
					t.Errorf("committer %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		store := open()
		m, _ := current(t, store)
		if m.Generation != committers || len(m.Versions) != committers {
			t.Errorf("generation %d with %d versions", m.Generation, len(m.Versions))
		}
		if got := batchesOf(t, store); !slices.Equal(got, digests(committers)) {
			t.Errorf("got %v", got)
		}
	}
	t.Run("memory", func(t *testing.T) {
		store := blob.NewMemory()
		race(t, func() blob.Store { return store })
	})
	t.Run("file", func(t *testing.T) {
		url := "file://" + t.TempDir()
		race(t, func() blob.Store { return openStore(t, url) })
	})
	t.Run("s3", func(t *testing.T) {
		url := testenv.S3(t)
		race(t, func() blob.Store { return openStore(t, url) })
	})
}

func openStore(t *testing.T, url string) blob.Store {
	t.Helper()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// careless ignores the condition of every put.
type careless struct{ blob.Store }

func (careless) URL() string { return "mem:careless" }

func (c careless) Put(ctx context.Context, key string, data []byte, _ blob.Condition) (blob.Info, error) {
	return c.Store.Put(ctx, key, data, blob.Condition{})
}

func TestStoreThatIgnoresConditionsIsRejected(t *testing.T) {
	store := careless{blob.NewMemory()}
	if _, err := addBatch(0).Apply(t.Context(), store); !errors.Is(err, blob.ErrUnconditional) {
		t.Fatalf("got %v", err)
	}
	if _, _, err := ReadManifest(t.Context(), store); !errors.Is(err, ErrNoVersion) {
		t.Fatalf("got %v", err)
	}
}

// The manifest is lost several times. Readers that saw it accept the next one.
func TestLostManifestIsFollowedByAHigherGeneration(t *testing.T) {
	store := blob.NewMemory()
	f := NewFollower(store)
	var last Committed
	for n := range 12 {
		done := apply(t, store, addBatch(n))
		if n > 0 && (done.Generation <= last.Generation || done.Version.ID <= last.Version.ID) {
			t.Fatalf("commit %d: %+v after %+v", n, done, last)
		}
		last = done
		m, changed, err := f.Poll(t.Context())
		if err != nil || !changed || m.Generation != done.Generation {
			t.Fatalf("commit %d: %+v, changed %v, %v", n, m, changed, err)
		}
		if n%4 != 3 {
			continue
		}
		ids, err := versionIDs(t.Context(), store)
		if err != nil || ids[len(ids)-1] != done.Version.ID {
			t.Fatalf("newest of %q, %v", ids, err)
		}
		if err := store.Delete(t.Context(), ManifestKey); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Poll(t.Context()); !errors.Is(err, ErrGeneration) {
			t.Fatalf("none: %v", err)
		}
	}
	if ids, err := versionIDs(t.Context(), blob.NewMemory()); err != nil || len(ids) != 0 {
		t.Errorf("an empty lake: %q, %v", ids, err)
	}
}

// A committer whose clock is wrong, or jumps, commits like any other: ids and generations ascend,
// and readers follow.
func TestCommitterWithAWrongClock(t *testing.T) {
	store := blob.NewMemory()
	f := NewFollower(store)
	clock := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	last := Committed{}
	for n, jump := range []time.Duration{0, time.Second, -5 * time.Hour, time.Second, 10 * 365 * 24 * time.Hour, -11 * 365 * 24 * time.Hour, 0} {
		clock = clock.Add(jump)
		c := addBatch(n)
		c.Now = func() time.Time { return clock }
		done := apply(t, store, c)
		if done.Version.ID <= last.Version.ID || done.Generation != last.Generation+1 {
			t.Errorf("%v after a jump of %v: version %s, generation %d; before %s, %d",
				clock, jump, done.Version.ID, done.Generation, last.Version.ID, last.Generation)
		}
		m, changed, err := f.Poll(t.Context())
		if err != nil || !changed || m.CurrentVersion != done.Version.ID || len(m.Versions) != n+1 {
			t.Errorf("a reader after a jump of %v: %v, %v", jump, changed, err)
		}
		if again := apply(t, store, c); !again.Existed || again.Version != done.Version {
			t.Errorf("the commit again after a jump of %v: %+v", jump, again)
		}
		last = done
	}
	if dropped, m, err := DropExpired(t.Context(), store, 2); err != nil || len(dropped) != 5 || m.CurrentVersion != last.Version.ID {
		t.Errorf("kept %+v, %v", m, err)
	}
}
