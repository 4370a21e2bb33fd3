package suppress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/lookup"
)

// records makes n distinct URLs of two domains.
func records(tag string, n int) []testlake.Record {
	var list []testlake.Record
	for i := range n {
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://h%d.site%d.test/%s/%d", i%3, i%2, tag, i)})
	}
	return list
}

// rule makes a rule.
func rule(t testing.TB, n int, kind catalog.TargetKind, text string) catalog.Takedown {
	t.Helper()
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Takedown{
		ID: fmt.Sprintf("20261120-%010x", n), Target: target, Reason: "test", By: "me", Created: time.Unix(1_800_000_000, 0).UTC(),
	}
}

// shown returns the URLs that a fresh server shows of a version, and the epoch.
func shown(t testing.TB, store blob.Store, version string) (urls []string, epoch uint64) {
	t.Helper()
	server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	for i := range 2 {
		target := lookup.Target{Host: fmt.Sprintf("site%d.test", i)}
		page, err := snap.Domain(t.Context(), target, "")
		if err != nil {
			t.Fatal(err)
		}
		epoch = page.TakedownEpoch
		for _, d := range page.Datasets {
			rows, err := snap.URLs(t.Context(), lookup.URLsQuery{Target: target, Dataset: d.ID, Limit: lookup.MaxLimit})
			if err != nil {
				t.Fatal(err)
			}
			if int64(rows.Len()) != d.Rows {
				t.Fatalf("%d rows, the total is %d", rows.Len(), d.Rows)
			}
			for i := range rows.Len() {
				urls = append(urls, string(rows.URL(i)))
			}
		}
	}
	slices.Sort(urls)
	return urls, epoch
}

func sound(t testing.TB, store blob.Store, name string) {
	t.Helper()
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, p := range report.Problems {
		t.Fatalf("%s: %s", name, p)
	}
}

func current(t testing.TB, store blob.Store) *catalog.Manifest {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// stopped is a store whose operations wait from the nth on until they may go on.
type stopped struct {
	blob.Store
	mu       sync.Mutex
	ops, at  int
	reached  chan struct{}
	released chan struct{}
}

func stopAt(store blob.Store, n int) *stopped {
	return &stopped{Store: store, at: n, reached: make(chan struct{}), released: make(chan struct{})}
}

func (s *stopped) step() {
	s.mu.Lock()
	n := s.ops
	s.ops++
	if n == s.at {
		close(s.reached)
	}
	s.mu.Unlock()
	if n >= s.at {
		<-s.released
	}
}

func (s *stopped) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	s.step()
	return s.Store.Get(ctx, key)
}

func (s *stopped) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	s.step()
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s *stopped) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.step()
	return s.Store.Open(ctx, key, off, n)
}

func (s *stopped) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	s.step()
	return s.Store.Put(ctx, key, data, cond)
}

// interleave stops one of two actors at some of its operations, lets the other do all of
// its own, and then the first go on.
func interleave(t *testing.T, prepared blob.Store, first, second func(blob.Store) error, check func(store blob.Store, name string)) {
	t.Helper()
	for n := 0; ; n += testenv.Every(5) {
		store := blob.NewMemory()
		blobtest.Copy(t, prepared, store)
		s := stopAt(store, n)
		done := make(chan error, 1)
		go func() { done <- first(s) }()
		ended := false
		select {
		case <-s.reached:
		case err := <-done:
			ended = true
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := second(store); err != nil {
			t.Fatalf("stopped at %d: %v", n, err)
		}
		close(s.released)
		if !ended {
			if err := <-done; err != nil {
				t.Fatalf("stopped at %d: %v", n, err)
			}
		}
		check(store, fmt.Sprintf("stopped at %d", n))
		if ended {
			t.Logf("%d operations", n)
			if n < 10 {
				t.Fatal("too few")
			}
			return
		}
	}
}

// A publish is stopped at each of its operations while a takedown is added, and the other way
// around. The rows that the publish brings are hidden either way.
func TestPublishRacesWithATakedown(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	testlake.Ingest(t, prepared, "alpha", "b2", records("y", 12))
	temp := t.TempDir()
	publishes := func(store blob.Store) error {
		_, err := publish.All(context.Background(), store, testlake.Run(), temp)
		return err
	}
	r := rule(t, 1, catalog.HostTarget, "h1.site1.test")
	adds := func(store blob.Store) error {
		_, err := suppress.Add(context.Background(), store, r, suppress.Options{TempDir: temp})
		return err
	}
	check := func(store blob.Store, name string) {
		m := current(t, store)
		if len(m.Versions) != 2 || m.TakedownEpoch != 1 {
			t.Fatalf("%s: %d versions, epoch %d", name, len(m.Versions), m.TakedownEpoch)
		}
		for i, v := range m.Versions {
			urls, epoch := shown(t, store, v.ID)
			if len(urls) != 10*(i+1) || epoch != 1 {
				t.Fatalf("%s: version %d shows %d URLs in epoch %d", name, i, len(urls), epoch)
			}
			for _, u := range urls {
				if strings.Contains(u, "h1.site1.test") {
					t.Fatalf("%s: version %d shows %s", name, i, u)
				}
			}
		}
		sound(t, store, name)
	}
	t.Run("publish first", func(t *testing.T) { interleave(t, prepared, publishes, adds, check) })
	t.Run("takedown first", func(t *testing.T) { interleave(t, prepared, adds, publishes, check) })
}

// Two people lift a takedown at once. One of them is told that the other has done it, and the
// record is that of the other.
func TestLiftsRaceWithEachOther(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	r := rule(t, 1, catalog.DomainTarget, "site0.test")
	if _, err := suppress.Add(t.Context(), prepared, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	done := map[string]error{}
	var mu sync.Mutex
	lift := func(by string) func(blob.Store) error {
		return func(store blob.Store) error {
			_, err := suppress.Lift(context.Background(), store, r.ID, by, "over", suppress.Options{})
			mu.Lock()
			defer mu.Unlock()
			if done[by] = err; errors.Is(err, suppress.ErrUnknown) {
				return nil
			}
			return err
		}
	}
	interleave(t, prepared, lift("ada"), lift("bob"), func(store blob.Store, name string) {
		m := current(t, store)
		doc, err := catalog.ReadTakedowns(t.Context(), store, m.Takedowns)
		if err != nil {
			t.Fatal(err)
		}
		rec, ok, err := doc.Record(t.Context(), store, r.ID)
		if err != nil || !ok || m.TakedownEpoch != 2 {
			t.Fatalf("%s: epoch %d, %+v, %v", name, m.TakedownEpoch, rec, err)
		}
		other := map[string]string{"ada": "bob", "bob": "ada"}[rec.LiftedBy]
		if err := done[other]; done[rec.LiftedBy] != nil || err == nil || !strings.Contains(err.Error(), rec.LiftedBy+" lifted") {
			t.Fatalf("%s: lifted by %q: %v", name, rec.LiftedBy, done)
		}
	})
}

// lostReply is a store that loses the reply of the first put of the manifest, and runs do before
// the writer hears of it.
type lostReply struct {
	blob.Store
	do func()
}

func (s *lostReply) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	info, err := s.Store.Put(ctx, key, data, cond)
	if key == catalog.ManifestKey && err == nil && s.do != nil {
		do := s.do
		s.do = nil
		do()
		return blob.Info{}, errors.New("the reply was lost")
	}
	return info, err
}

// A takedown is added, its reply is lost, and somebody lifts it. The retry does not add it again.
func TestLiftBeforeTheReplyOfTheAddition(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	r := rule(t, 1, catalog.DomainTarget, "site0.test")
	lossy := &lostReply{Store: store, do: func() {
		if _, err := suppress.Lift(t.Context(), store, r.ID, "ada", "over", suppress.Options{}); err != nil {
			t.Fatal(err)
		}
	}}
	res, err := suppress.Add(t.Context(), lossy, r, suppress.Options{})
	if err != nil || res.ID != r.ID || res.Epoch != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if m := current(t, store); m.TakedownEpoch != 2 {
		t.Fatalf("epoch %d", m.TakedownEpoch)
	}
	s, err := suppress.Inspect(t.Context(), store, r.ID, false)
	if err != nil || s.Rule != nil || s.LiftedBy != "ada" {
		t.Fatalf("%+v, %v", s, err)
	}
}

// Two takedowns, and a lift, are made at once. None is lost.
func TestChangesRaceWithEachOther(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	old := rule(t, 1, catalog.DomainTarget, "site0.test")
	if _, err := suppress.Add(t.Context(), prepared, old, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	add := func(n int, kind catalog.TargetKind, text string) func(blob.Store) error {
		r := rule(t, n, kind, text)
		return func(store blob.Store) error {
			_, err := suppress.Add(context.Background(), store, r, suppress.Options{})
			return err
		}
	}
	lift := func(store blob.Store) error {
		_, err := suppress.Lift(context.Background(), store, old.ID, "me", "over", suppress.Options{})
		return err
	}
	for name, second := range map[string]func(blob.Store) error{
		"lift": lift, "add": add(3, catalog.URLTarget, "https://h0.site0.test/x/0"),
	} {
		t.Run(name, func(t *testing.T) {
			interleave(t, prepared, add(2, catalog.PrefixTarget, "h1.site1.test/x/1"), second, func(store blob.Store, name string) {
				if m := current(t, store); m.TakedownEpoch != 3 {
					t.Fatalf("%s: epoch %d", name, m.TakedownEpoch)
				}
				sound(t, store, name)
			})
		})
	}
}

// A process that adds or lifts dies after each number of changes. Readers see the old or the new
// state, and doing it again completes it.
func TestReadersSeeOldOrNewWhereverAChangeDies(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	r := rule(t, 7, catalog.PrefixTarget, "https://h0.site0.test/x/")
	whole, _ := shown(t, prepared, "")
	add := func(store blob.Store) error {
		_, err := suppress.Add(t.Context(), store, r, suppress.Options{})
		return err
	}
	lift := func(store blob.Store) error {
		_, err := suppress.Lift(t.Context(), store, r.ID, "", "", suppress.Options{})
		if errors.Is(err, suppress.ErrUnknown) {
			return nil
		}
		return err
	}
	hidden := blob.NewMemory()
	blobtest.Copy(t, prepared, hidden)
	if err := add(hidden); err != nil {
		t.Fatal(err)
	}
	left, _ := shown(t, hidden, "")
	if len(left) >= len(whole) {
		t.Fatal("nothing is hidden")
	}
	for _, c := range []struct {
		name          string
		from          blob.Store
		do            func(blob.Store) error
		before, after []string
	}{{"add", prepared, add, whole, left}, {"lift", hidden, lift, left, whole}} {
		for n := 0; ; n += testenv.Every(3) {
			inner := blob.NewMemory()
			blobtest.Copy(t, c.from, inner)
			store := blobtest.NewFaulty(inner)
			store.CrashAfter(n)
			err := c.do(store)
			if !store.Crashed() {
				if err != nil || n < 3 {
					t.Fatalf("%s after %d changes: %v", c.name, n, err)
				}
				break
			}
			if got, _ := shown(t, inner, ""); !slices.Equal(got, c.before) && !slices.Equal(got, c.after) {
				t.Fatalf("%s, crash after %d changes: %d URLs are shown", c.name, n, len(got))
			}
			if err := c.do(inner); err != nil {
				t.Fatalf("%s, again after %d changes: %v", c.name, n, err)
			}
			if got, _ := shown(t, inner, ""); !slices.Equal(got, c.after) {
				t.Fatalf("%s, again after %d changes: %d URLs are shown", c.name, n, len(got))
			}
			sound(t, inner, c.name)
		}
	}
}

// A lake that loses its manifest keeps its takedowns.
func TestLostManifestKeepsTakedowns(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	for n, text := range []string{"site0.test", "site1.test"} {
		if _, err := suppress.Add(t.Context(), store, rule(t, n, catalog.DomainTarget, text), suppress.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), catalog.ManifestKey); err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b2", records("y", 12))
	testlake.Publish(t, store)
	if urls, epoch := shown(t, store, ""); len(urls) != 0 || epoch != 2 {
		t.Fatalf("%d URLs are shown in epoch %d", len(urls), epoch)
	}
	sound(t, store, "lost manifest")
}

// Damage to any object of the takedowns is found by verify, which names a rebuild. That makes all
// of them again, and rows stay hidden, unless the text of a rule is lost: then nothing is changed.
func TestRebuildMendsTakedowns(t *testing.T) {
	prepared := blob.NewMemory()
	testlake.Ingest(t, prepared, "alpha", "b1", records("x", 12))
	testlake.Publish(t, prepared)
	for i, host := range []string{"h1.site1.test", "h2.site0.test"} {
		if _, err := suppress.Add(t.Context(), prepared, rule(t, i+1, catalog.HostTarget, host), suppress.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	testlake.DropOldPieces(t, prepared)
	m := current(t, prepared)
	doc, err := catalog.ReadTakedowns(t.Context(), prepared, m.Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := shown(t, prepared, "")
	objects := []string{m.Takedowns.Object}
	for key, err := range doc.Objects(t.Context(), prepared) {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, key)
	}
	kept := 0
	for _, key := range objects {
		for _, missing := range []bool{false, true} {
			store := blob.NewMemory()
			blobtest.Copy(t, prepared, store)
			// What only earlier documents have would make it easy.
			for info, err := range store.List(t.Context(), catalog.TakedownRoot) {
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(objects, info.Key) {
					if err := store.Delete(t.Context(), info.Key); err != nil {
						t.Fatal(err)
					}
				}
			}
			good, _, err := store.Get(t.Context(), key)
			if err == nil {
				err = store.Delete(t.Context(), key)
			}
			if err == nil && !missing {
				bad := slices.Clone(good)
				bad[len(bad)/2] ^= 1
				_, err = store.Put(t.Context(), key, bad, blob.Condition{})
			}
			if err != nil {
				t.Fatal(err)
			}
			report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{TempDir: t.TempDir()})
			if err != nil || len(report.Problems) != 1 || !strings.HasPrefix(report.Problems[0], key) ||
				!strings.Contains(report.Problems[0], "starter rebuild") {
				t.Fatalf("%s: %v, %q", key, err, report.Problems)
			}
			done, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
			table := strings.HasPrefix(key, lake.DeletionRoot)
			if err != nil || len(done.Lost) > 0 == table {
				t.Fatalf("%s: %+v, %v", key, done, err)
			}
			if now := current(t, store); strings.HasSuffix(key, doc.RulePieces.Root) {
				if kept++; *now.Takedowns != *m.Takedowns || now.TakedownEpoch != m.TakedownEpoch {
					t.Errorf("%s: %+v took the place of the takedowns", key, now.Takedowns)
				}
				continue
			}
			sound(t, store, key)
			if got, _ := shown(t, store, ""); !slices.Equal(got, want) {
				t.Errorf("%s: %d rows are shown, want %d", key, len(got), len(want))
			}
		}
	}
	if len(objects) < 4 || kept != 2 {
		t.Errorf("%d objects, %d of them with rules", len(objects), kept)
	}
}

// Damage to a segment that only an earlier version has keeps no takedown from being added. The
// version is shown no longer.
func TestTakedownBesideADamagedEarlierVersion(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	if _, err := suppress.Add(t.Context(), store, rule(t, 1, catalog.HostTarget, "h1.site1.test"), suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, current(t, store).Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("x", 15))
	testlake.Publish(t, store)
	if err := store.Delete(t.Context(), segment.Prefix(v.Segments[0].ID)+segment.InfoName); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Add(t.Context(), store, rule(t, 2, catalog.HostTarget, "h2.site0.test"), suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	urls, epoch := shown(t, store, "")
	if epoch != 2 || slices.ContainsFunc(urls, func(u string) bool { return strings.Contains(u, "h1.site1") || strings.Contains(u, "h2.site0") }) {
		t.Errorf("epoch %d: %q", epoch, urls)
	}
	doc, err := catalog.ReadTakedowns(t.Context(), store, current(t, store).Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := doc.Find(v.Segments[0].View()); ok {
		t.Error("the takedowns cover the damaged segment")
	}
	done, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	if err != nil || len(done.Lost) != 1 || !strings.Contains(done.Lost[0], v.Segments[0].ID) {
		t.Errorf("%+v, %v", done, err)
	}
}

// Status finds rows in the parts of kept versions and in parts that no version has, and ends when
// nothing is left.
func TestStatusFindsEveryPart(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "beta", "b1", records("y", 12)) // not published
	r := rule(t, 1, catalog.HostTarget, "h1.site1.test")
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := suppress.Inspect(t.Context(), store, r.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[bool]int64{}
	for _, h := range s.Holdings {
		rows[len(h.Versions) > 0] += h.Rows
	}
	if s.Gone || rows[true] != 2 || rows[false] != 2 || s.Kept[0].Rows != 2 || s.Kept[0].Shown != 0 || s.PartsRead == 0 {
		t.Fatalf("%+v", s)
	}
	if deep, err := suppress.Inspect(t.Context(), store, r.ID, true); err != nil || len(deep.Unknown) > 0 || deep.PartsRead <= s.PartsRead {
		t.Fatalf("%+v, %v", deep, err)
	}
	none := rule(t, 2, catalog.URLTarget, "https://h1.site1.test/none")
	if _, err := suppress.Add(t.Context(), store, none, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "staging/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = suppress.Inspect(t.Context(), store, none.ID, true); err != nil || !s.Gone {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := suppress.Inspect(t.Context(), store, "20200101-0000000000", false); !errors.Is(err, suppress.ErrUnknown) {
		t.Fatal(err)
	}
}

// The record of a rule has its digest and not its text, also after it was lifted.
func TestRecordHasNoURL(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	r := rule(t, 1, catalog.URLTarget, "https://h1.site1.test/x/1")
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Lift(t.Context(), store, r.ID, "her", "over", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	m := current(t, store)
	doc, err := catalog.ReadTakedowns(t.Context(), store, m.Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	rec, ok, err := doc.Record(t.Context(), store, r.ID)
	if err != nil || !ok || rec.Digest != r.Digest() || rec.Lifted == nil || rec.LiftedBy != "her" || rec.Versions[0].Rows != 1 {
		t.Fatalf("%+v, %v", rec, err)
	}
	for key, err := range doc.Objects(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(t.Context(), key)
		if err != nil || strings.Contains(string(data), "site1") {
			t.Fatalf("%s has the text of the rule, %v", key, err)
		}
	}
}

// A compaction drops what is hidden, and what was hidden stays so in every version. A lift
// afterwards brings it back in those alone that still have it.
func TestTakedownsHoldAfterACompaction(t *testing.T) {
	store := blob.NewMemory()
	for b := range 4 {
		testlake.Ingest(t, store, "alpha", fmt.Sprint("b", b), records(fmt.Sprint("x", b), 12))
		testlake.Publish(t, store)
	}
	whole, _ := shown(t, store, "")
	r := rule(t, 1, catalog.HostTarget, "h1.site1.test")
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	left, _ := shown(t, store, "")
	before := current(t, store).CurrentVersion
	done, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir())
	if err != nil || done.Version == before {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, version := range []string{"", before} {
		if got, epoch := shown(t, store, version); !slices.Equal(got, left) || epoch != 1 || len(left) != len(whole)-8 {
			t.Fatalf("version %q shows %d URLs of %d, want %d", version, len(got), len(whole), len(left))
		}
	}
	sound(t, store, "compacted")
	if _, err := suppress.Lift(t.Context(), store, r.ID, "", "", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string][]string{"": left, before: whole} {
		if got, _ := shown(t, store, version); !slices.Equal(got, want) {
			t.Fatalf("version %q shows %d URLs, want %d", version, len(got), len(want))
		}
	}
}

// Status of a domain also names the indexes and the postings that have its name.
func TestStatusOfADomainNamesIndexes(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Ingest(t, store, "beta", "b1", []testlake.Record{{URL: "https://elsewhere.test/"}})
	testlake.Publish(t, store)
	r := rule(t, 1, catalog.DomainTarget, "site1.test")
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := suppress.Inspect(t.Context(), store, r.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, h := range s.Holdings {
		kinds[h.Kind]++
	}
	if kinds["part"] != 1 || kinds["index"] != 1 || kinds["postings"] != 1 || len(s.Holdings) != 3 {
		t.Errorf("%+v", s.Holdings)
	}
}

// A segment can have batches that name an older public suffix list, since a change of the list
// moved none of their rows. A takedown of a domain that the newer list has as a public suffix hides
// all rows below it in such a segment too, whether it is added before the change or after it.
func TestTakedownOfADomainThatBecomesASuffix(t *testing.T) {
	for _, before := range []bool{true, false} {
		store := blob.NewMemory()
		testlake.SetList(t, store, "test")
		testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://elsewhere.test/"}})
		testlake.Ingest(t, store, "beta", "b1", records("x", 12))
		testlake.Publish(t, store)
		r := rule(t, 1, catalog.DomainTarget, "site1.test")
		add := func() {
			t.Helper()
			res, err := suppress.Add(t.Context(), store, r, suppress.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Current.Rows != 6 {
				t.Errorf("added before the change %v: %+v", before, res.Current)
			}
		}
		if before {
			add()
		}
		testlake.SetList(t, store, "test site1.test")
		testlake.Publish(t, store)
		if !before {
			add()
		}
		sound(t, store, fmt.Sprintf("added before the change %v", before))
		s, err := suppress.Inspect(t.Context(), store, r.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range s.Kept {
			if k.Rows != 6 || k.Shown != 0 {
				t.Errorf("added before the change %v: %+v", before, k)
			}
		}
		// A compaction finds these rows, too.
		if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		sound(t, store, fmt.Sprintf("added before the change %v, compacted", before))
		s, err = suppress.Inspect(t.Context(), store, r.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		if newest := s.Kept[0]; newest.Rows != 0 || s.Kept[1].Rows != 6 {
			t.Errorf("added before the change %v, compacted: %+v", before, s.Kept)
		}
	}
}
