package lookup

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
)

// leasing are options of a server with a lease.
func leasing() Options { return Options{LeaseTTL: lease.DefaultTTL, Program: "test"} }

// leased returns the versions that the only lease names, or nil if there is no lease.
func leased(t testing.TB, store blob.Store) []string {
	t.Helper()
	list, err := lease.All(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return nil
	}
	if len(list) > 1 || list[0].Err != nil || !list[0].Live(time.Now(), 0) {
		t.Fatalf("leases %+v, want a live one", list)
	}
	return list[0].Versions
}

func wantLeased(t testing.TB, store blob.Store, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := gocmp.Diff(want, leased(t, store)); diff != "" {
		t.Errorf("%s, the lease (-want +got):\n%s", when, diff)
	}
}

// becomesLeased waits until the lease names these versions.
func becomesLeased(t testing.TB, store blob.Store, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	testenv.Until(t, when+", the lease names "+strings.Join(want, ", "), func() bool {
		return slices.Equal(leased(t, store), want)
	})
}

// settle waits until the lease does without the versions that were closed.
func settle(t testing.TB, s *Server) {
	t.Helper()
	testenv.Until(t, "the lease is written", func() bool {
		l := s.leases
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.trim == nil && l.next == nil && !l.running
	})
}

// copied returns a store in memory with the same objects.
func copied(t testing.TB, store blob.Store) *blob.Memory {
	t.Helper()
	m := blob.NewMemory()
	blobtest.Copy(t, store, m)
	return m
}

// unlist removes a version from the manifest, as the first step of a garbage collector does.
func unlist(t testing.TB, store blob.Store, id string) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation++
	m.Versions = slices.DeleteFunc(m.Versions, func(v catalog.VersionRef) bool { return v.ID == id })
	data, err := codec.Seal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), catalog.ManifestKey, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// collect deletes what only these versions refer to, unless a live lease names one of them, as the
// second step of a garbage collector does. It reports whether it did.
func collect(t testing.TB, store blob.Store, ids ...string) bool {
	t.Helper()
	all, err := lease.All(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		for _, id := range ids {
			if l.Live(time.Now(), lease.MaxSkew) && (l.Err != nil || slices.Contains(l.Versions, id)) {
				return false
			}
		}
	}
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	keep := []string{catalog.ManifestKey, lease.Root, "registry/", "rules/", "batches/", "urls/", catalog.VersionPiecesRoot}
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		keep = append(keep, ref.Object)
		for i := range v.Segments {
			keep = append(keep, strings.TrimSuffix(v.Segments[i].SegmentJSON, "segment.json"))
		}
	}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(keep, func(p string) bool { return strings.HasPrefix(info.Key, p) }) {
			if err := store.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	return true
}

func TestLeaseNamesOpenVersions(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	v, last := h.versions, h.versions[len(h.versions)-1]
	opt := leasing()
	opt.KeepOpen = 1
	opt.CacheDir = t.TempDir()
	s := NewServer(store, opt)
	s.leases.delay = time.Millisecond
	wantLeased(t, store, "before the first refresh")
	refresh := func() {
		t.Helper()
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	acquired := func(version string) *Snapshot {
		t.Helper()
		snap, err := s.Acquire(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	// let waits until the server does not keep a version open any more.
	let := func(snap *Snapshot) {
		t.Helper()
		testenv.Until(t, "only the request uses the version", func() bool { return snap.pins.Load() == 1 })
		settle(t, s)
	}
	refresh()
	wantLeased(t, store, "after the first refresh", last)
	acquired(v[0]).Release()
	wantLeased(t, store, "with an older version", v[0], last)
	under := acquired(v[1]) // evicts v[0]
	becomesLeased(t, store, "after an eviction", v[1], last)
	other := acquired(v[2]) // evicts v[1], which is in use
	let(under)
	wantLeased(t, store, "with an evicted version in use", v[1], v[2], last)
	if st := s.Status(); st.Leased != 3 || st.LeaseFailures != 0 {
		t.Errorf("%d versions are leased, %d failures", st.Leased, st.LeaseFailures)
	}
	unlist(t, store, v[1])
	unlist(t, store, v[2])
	refresh()
	let(other)
	wantLeased(t, store, "with unlisted versions in use", v[1], v[2], last)
	h.oracles[2].check(t, other, []string{"example.com"})
	other.Release()
	becomesLeased(t, store, "with one unlisted version in use", v[1], last)
	h.oracles[1].check(t, under, []string{"example.com", "localhost"})
	under.Release()
	becomesLeased(t, store, "after the end of the request", last)

	// A flip makes the version before an older one. With the next flip it is evicted.
	under = acquired("")
	flip := func(batch string) string {
		testlake.Ingest(t, store, "alpha", batch, []testlake.Record{{URL: "https://example.com/" + batch}})
		id := testlake.Publish(t, store).Version
		refresh()
		return id
	}
	v5 := flip("f1")
	settle(t, s)
	wantLeased(t, store, "after a flip", last, v5)
	v6 := flip("f2")
	let(under)
	wantLeased(t, store, "after two flips, with a request of the first version", last, v5, v6)
	h.oracles[3].check(t, under, []string{"example.com"})
	under.Release()
	becomesLeased(t, store, "after two flips", v5, v6)

	under = acquired("")
	s.Close()
	s.Close()
	wantLeased(t, store, "after Close, with a request under way", v5, v6)
	if _, err := under.Domain(t.Context(), target(t, "example.com"), ""); err != nil {
		t.Error(err)
	}
	under.Release()
	becomesLeased(t, store, "after the last request")
}

func TestCloseRemovesLease(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		h := build(t, store)
		s := serve(t, store, leasing())
		for _, version := range h.versions {
			snap, err := s.Acquire(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			snap.Release()
		}
		wantLeased(t, store, "with all versions", slices.Clone(h.versions)...)
		s.Close()
		wantLeased(t, store, "after Close")
	})
}

// A version that a collector drops after the server has written its lease is not read.
func TestVersionDroppedWhileItIsLeasedIsGone(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	faulty := blobtest.NewFaulty(store)
	s := serve(t, faulty, leasing())
	isLease := func(key string) bool { return strings.HasPrefix(key, lease.Root) }
	faulty.Inject(blobtest.Fault{Op: blob.OpPut, Key: isLease, Nth: 1, After: true, Do: func() { unlist(t, store, h.versions[1]) }},
		blobtest.Fault{Key: func(key string) bool { return key == catalog.VersionKey(h.versions[1]) }})
	if _, err := s.Acquire(t.Context(), h.versions[1]); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	if n := faulty.Fired(); n != 1 {
		t.Errorf("%d faults happened: the version was read", n)
	}
	becomesLeased(t, store, "after a version that is gone", h.versions[3])
	faulty.Heal()
	// So does one that cannot be opened.
	faulty.Inject(blobtest.Fault{Key: func(key string) bool { return key == catalog.VersionKey(h.versions[0]) }, Do: func() {
		wantLeased(t, store, "while a version is opened", h.versions[0], h.versions[3])
	}, Err: errors.New("no answer")})
	if _, err := s.Acquire(t.Context(), h.versions[0]); err == nil || faulty.Fired() != 2 {
		t.Errorf("a version that cannot be read: %v after %d faults", err, faulty.Fired())
	}
	becomesLeased(t, store, "after a version that cannot be opened", h.versions[3])
	faulty.Heal()
	// The same for the version that becomes the current one. Refresh opens the one after it.
	next := func(batch string) string {
		testlake.Ingest(t, store, "alpha", batch, []testlake.Record{{URL: "https://example.com/" + batch}})
		return testlake.Publish(t, store).Version
	}
	dropped, current := next("n1"), ""
	faulty.Inject(blobtest.Fault{Op: blob.OpPut, Key: isLease, Nth: 1, After: true, Do: func() {
		current = next("n2")
		unlist(t, store, dropped)
	}}, blobtest.Fault{Key: func(key string) bool { return key == catalog.VersionKey(dropped) }})
	if err := s.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.Status().Version; got != current || current == "" || faulty.Fired() != 3 {
		t.Errorf("the current version is %s, want %s; %d faults", got, current, faulty.Fired())
	}
}

// A collector takes its two steps before any two requests to the store of a server that opens the
// version. Each time the server has the version with all it needs, or says that it is gone.
func TestLeaseMeetsCollectorAnywhere(t *testing.T) {
	made := blob.NewMemory()
	h := build(t, made)
	old := h.versions[1]
	domains := []string{"example.com", "localhost", "site3.test"}
	// round returns how many requests the opening made, and what came of it.
	round := func(t *testing.T, first, second int) (requests int, gone, collected bool) {
		store := copied(t, made)
		faulty := blobtest.NewFaulty(store)
		s := serve(t, faulty, leasing())
		defer s.Close()
		steps := func(n int) {
			if n == first {
				unlist(t, store, old)
			}
			if n == second {
				collected = collect(t, store, old)
			}
		}
		var mu sync.Mutex
		faulty.Inject(blobtest.Fault{Do: func() {
			mu.Lock()
			defer mu.Unlock()
			requests++
			steps(requests)
		}})
		snap, err := s.Acquire(t.Context(), old)
		faulty.Heal()
		for n := requests + 1; n <= max(first, second); n++ {
			steps(n)
		}
		if errors.Is(err, ErrGone) {
			return requests, true, collected
		}
		if err != nil {
			t.Fatalf("steps before requests %d and %d: %v", first, second, err)
		}
		s.clearCaches(true, true)
		h.oracles[1].check(t, snap, domains)
		snap.Release()
		return requests, false, collected
	}
	most, gone, collected := round(t, -1, -1)
	if most < 8 || gone || collected {
		t.Fatalf("without a collector: %d requests, %v, %v", most, gone, collected)
	}
	var outcomes [2][2]int
	for first := 1; first <= most+1; first++ {
		for second := first; second <= most+1; second++ {
			if (first+second)%testenv.Every(9) != 0 && second != first {
				continue
			}
			_, gone, collected := round(t, first, second)
			outcomes[index(gone)][index(collected)]++
		}
	}
	if outcomes[0][1] > 0 || outcomes[0][0] == 0 || outcomes[1][0] == 0 || outcomes[1][1] == 0 {
		t.Errorf("served and kept %d, served and deleted %d, gone and kept %d, gone and deleted %d",
			outcomes[0][0], outcomes[0][1], outcomes[1][0], outcomes[1][1])
	}
	t.Logf("%d requests: %v", most, outcomes)
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Servers of read-only stores, and of stores that are down for writes, work the same.
func TestServerWorksWithoutLease(t *testing.T) {
	made := blob.NewMemory()
	h := build(t, made)
	for name, c := range map[string]struct {
		err  error
		ttl  time.Duration
		puts int64 // at least, for four openings
	}{
		"read-only": {blob.ErrDenied, lease.DefaultTTL, 1},
		"down":      {errors.New("service unavailable"), 3 * time.Second, 4},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				store := copied(t, made)
				faulty := blobtest.NewFaulty(store)
				faulty.Inject(blobtest.Fault{Op: blob.OpPut, Err: c.err})
				counting := blob.NewCounting(faulty)
				var log lockedBuffer
				opt := leasing()
				opt.LeaseTTL = c.ttl
				opt.Log = slog.New(slog.NewTextHandler(&log, nil))
				s := serve(t, counting, opt)
				for i, version := range h.versions {
					snap, err := s.Acquire(t.Context(), version)
					if err != nil {
						t.Fatal(err)
					}
					h.oracles[i].check(t, snap, []string{"example.com"})
					snap.Release()
				}
				wantLeased(t, store, "without permission")
				if n := counting.Count(blob.OpPut).Requests; n < c.puts || n > c.puts && name == "read-only" {
					t.Errorf("%d writes, want %d", n, c.puts)
				}
				if st := s.Status(); st.Leased != 0 || st.LeaseFailures < c.puts {
					t.Errorf("%d versions are leased, %d failures", st.Leased, st.LeaseFailures)
				}
				lines := 0
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "lease") {
						lines++
					}
				}
				if lines != 1 {
					t.Errorf("logged %s", log.String())
				}
				if name == "down" {
					faulty.Heal()
					becomesLeased(t, store, "when the store can be written again", slices.Clone(h.versions)...)
				}
				s.Close()
				wantLeased(t, store, "after Close")
				if n := counting.Count(blob.OpDelete).Requests; name == "read-only" && n != 0 {
					t.Errorf("%d deletions of nothing", n)
				}
			})
		})
	}
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestOpeningsShareLeaseWrites(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	faulty := blobtest.NewFaulty(store)
	counting := blob.NewCounting(faulty)
	s := serve(t, counting, leasing())
	// The first write waits until all openings have begun.
	faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, Do: func() {
		testenv.Until(t, "all versions are claimed", func() bool {
			s.leases.mu.Lock()
			defer s.leases.mu.Unlock()
			return len(s.leases.uses) == len(h.versions)
		})
	}})
	var openings sync.WaitGroup
	for range 8 {
		for _, version := range h.versions[:3] {
			openings.Go(func() {
				snap, err := s.Acquire(t.Context(), version)
				if err != nil {
					t.Error(err)
					return
				}
				snap.Release()
			})
		}
	}
	openings.Wait()
	if n := counting.Count(blob.OpPut).Requests; n < 2 || n > 3 {
		t.Errorf("%d writes, want one for the current version and at most two for three others", n)
	}
	wantLeased(t, store, "with all versions", slices.Clone(h.versions)...)
}

// A flip costs two writes of the lease, before the new version is opened and after an old one is
// closed, and a look at the manifest.
func TestLeaseCostOfAFlip(t *testing.T) {
	made := blob.NewMemory()
	h := build(t, made)
	next := copied(t, made)
	testlake.Ingest(t, next, "alpha", "n", []testlake.Record{{URL: "https://example.com/n"}})
	published := testlake.Publish(t, next).Version
	flip := func(opt Options) (cost string) {
		store := copied(t, made)
		counting := blob.NewCounting(store)
		opt.KeepOpen = 1
		s := serve(t, counting, opt)
		snap, err := s.Acquire(t.Context(), h.versions[0])
		if err != nil {
			t.Fatal(err)
		}
		snap.Release()
		blobtest.Copy(t, next, store)
		stats := counting.Count(blob.OpStat).Requests
		reads, writes := counting.Reads().Requests, counting.Writes().Requests
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Status().Version; got != published {
			t.Fatalf("the current version is %s", got)
		}
		if opt.LeaseTTL > 0 {
			becomesLeased(t, store, "after the flip", h.versions[3], published)
		}
		return fmt.Sprintf("%d reads, %d of them stat, %d writes",
			counting.Reads().Requests-reads, counting.Count(blob.OpStat).Requests-stats, counting.Writes().Requests-writes)
	}
	without, with := flip(Options{}), flip(leasing())
	t.Logf("without a lease: %s; with: %s", without, with)
	var reads, stats, writes, reads2, stats2, writes2 int
	const form = "%d reads, %d of them stat, %d writes"
	if _, err := fmt.Sscanf(without, form, &reads, &stats, &writes); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(with, form, &reads2, &stats2, &writes2); err != nil {
		t.Fatal(err)
	}
	if reads2 != reads+1 || stats2 != stats+1 || writes != 0 || writes2 != 2 {
		t.Errorf("without a lease: %s; with: %s", without, with)
	}
}

// A program that reads a few versions and ends writes its lease once, even if that fails.
func TestLeaseOfAShortProgram(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	for _, broken := range []bool{false, true} {
		faulty := blobtest.NewFaulty(store)
		if broken {
			faulty.Inject(blobtest.Fault{Op: blob.OpPut})
		}
		counting := blob.NewCounting(faulty)
		opt := leasing()
		opt.LeaseAll = true
		s := serve(t, counting, opt)
		for _, version := range h.versions {
			snap, err := s.Acquire(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			snap.Release()
		}
		if want := slices.Clone(h.versions); broken {
			wantLeased(t, store, "after a failure")
		} else {
			wantLeased(t, store, "with all versions", want...)
		}
		s.Close()
		if p, d := counting.Count(blob.OpPut).Requests, counting.Count(blob.OpDelete).Requests; p != 1 || d != 1 {
			t.Errorf("%d puts and %d deletions, want one each", p, d)
		}
		wantLeased(t, store, "after Close")
	}
}

// A lookup does not pay for the lease.
func TestLeaseCostsRequestsNothing(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	counting := blob.NewCounting(store)
	s := serve(t, counting, leasing())
	acquire(t, s, h.versions[0])
	before := counting.Reads().Requests + counting.Writes().Requests
	s.leases.mu.Lock() // whoever needs it waits for ever
	allocated := testing.AllocsPerRun(100, func() {
		snap, err := s.Acquire(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		snap.Release()
	})
	snap, err := s.Acquire(t.Context(), h.versions[0])
	if err != nil {
		t.Fatal(err)
	}
	snap.Release()
	s.leases.mu.Unlock()
	if n := counting.Reads().Requests + counting.Writes().Requests - before; n != 0 || allocated != 0 {
		t.Errorf("%d requests to the store; %v allocations", n, allocated)
	}
}
