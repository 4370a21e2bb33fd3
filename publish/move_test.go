package publish_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/serve/lookup"
)

// randomSuffixes returns some rules for the names of randomHost.
func randomSuffixes(rng *rand.Rand) string {
	rules := []string{"x", "y"}
	for range rng.IntN(7) {
		name := []string{"a.x", "b.x", "c.x", "a.a.x", "b.a.x", "a.y", "b.y", "c.b.y"}[rng.IntN(8)]
		rules = append(rules, []string{"", "", "*.", "!"}[rng.IntN(4)]+name)
	}
	return strings.Join(rules, " ")
}

func randomHost(rng *rand.Rand) string {
	host := []string{"x", "y"}[rng.IntN(2)]
	for range rng.IntN(4) {
		host = []string{"a", "b", "c", fmt.Sprint("d", rng.IntN(15))}[rng.IntN(4)] + "." + host
	}
	return host
}

func randomRows(rng *rand.Rand, n int) (rows []row.Row) {
	seen := map[string]bool{}
	for range n {
		r := row.Row{Host: randomHost(rng), PathQuery: fmt.Sprintf("/%x", rng.Uint32N(1<<20)), Scheme: "https", Port: -1}
		if r.HasTS = rng.IntN(3) == 0; r.HasTS {
			r.TS = rng.Int64N(1e12)
		}
		if key := string(r.AppendKey(nil)); !seen[key] {
			seen[key] = true
			rows = append(rows, r)
		}
	}
	return rows
}

// madeBatch is a batch of rows, with domains by the list that it is made by.
type madeBatch struct {
	dataset, name string
	rows          []row.Row
	options       indextest.Options
}

// add adds the batch to a lake as a finished ingest that followed a list.
func (b *madeBatch) add(t testing.TB, store blob.Store, list *urlnorm.SuffixList) {
	t.Helper()
	d, err := catalog.RegisterDataset(t.Context(), store, lake.Dataset{Name: b.dataset})
	if err != nil {
		t.Fatal(err)
	}
	rows := slices.Clone(b.rows)
	for i := range rows {
		rows[i].Domain = list.Domain(rows[i].Host)
	}
	l := &indextest.Lake{Store: store}
	record := l.WriteBatch(t, d.ID, b.name, rows, b.options, func(task *indextest.Task) lake.FrameObject {
		o, n, err := postings.ExtractTask(t.Context(), store, &task.MergedTask, t.TempDir(), nil)
		if err != nil || n != task.Domains {
			t.Fatalf("%d domains, want %d: %v", n, task.Domains, err)
		}
		return o
	})
	domains := map[string]bool{}
	for _, r := range rows {
		domains[r.Domain] = true
	}
	record.PublicSuffix, record.Domains, record.Records = list.Identity(), int64(len(domains)), record.Rows
	ref := indextest.PutBatch(t, store, record)
	finish(t, store, d.ID, b.name, ref.Digest, time.Now().UnixNano(), false)
}

// answers asks a version about all hosts: the datasets of their domains and all URLs of these, page
// by page. Version "" is the current one.
func answers(t testing.TB, store blob.Store, hosts []string, version string) map[string][]string {
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
	all := map[string][]string{}
	for _, host := range hosts {
		target := lookup.Target{Host: host}
		page, err := snap.Domain(t.Context(), target, "")
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{fmt.Sprintf("%d datasets have %s", page.Total, page.Domain)}
		for _, d := range page.Datasets {
			lines = append(lines, fmt.Sprintf("%s %+v", d.Name, d.Totals))
			q := lookup.URLsQuery{Target: target, Dataset: d.ID, Limit: 5}
			for {
				urls, err := snap.URLs(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range urls.Len() {
					ts, has := urls.TS(i)
					lines = append(lines, fmt.Sprintf("%d of %d: %s %d %v", urls.Offset+int64(i), urls.Total, urls.URL(i), ts, has))
				}
				if q.Cursor = urls.Cursor; q.Cursor == "" {
					break
				}
			}
		}
		all[host] = lines
	}
	return all
}

// hostsOf returns the hosts of all rows.
func hostsOf(batches []madeBatch) []string {
	seen := map[string]bool{}
	for _, b := range batches {
		for _, r := range b.rows {
			seen[r.Host] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// verifyAll verifies all segments of the current version, with all parts.
func verifyAll(t testing.TB, store blob.Store) {
	t.Helper()
	for _, s := range current(t, store).Segments {
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		if _, err := verify.Segment(t.Context(), store, ref, true, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
}

// stored returns the objects of a lake by key, without those that are replaced or staged.
func stored(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, "staging/") || strings.HasPrefix(info.Key, "registry/") || info.Key == catalog.ManifestKey {
			continue
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = string(data)
	}
	return all
}

// A lake that gets another list answers like a lake that had it from the start: batches that were
// published, that were finished, and that an ingest under the old list finishes afterwards.
func TestMovedLakeAnswersLikeOneOfTheNewList(t *testing.T) {
	moved := 0
	seeds := 12 / testenv.Every(4)
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		fromRules, toRules := randomSuffixes(rng), randomSuffixes(rng)
		var batches []madeBatch
		for i := range 2 + rng.IntN(6) {
			b := madeBatch{dataset: fmt.Sprint("d", rng.IntN(3)), name: fmt.Sprint("b", i), rows: randomRows(rng, 1+rng.IntN(120))}
			b.options.Width, b.options.Tasks = rng.IntN(3), 1+rng.IntN(3)
			if rng.IntN(2) == 0 {
				b.options.Limits = indextest.TinyParts
			}
			batches = append(batches, b)
		}
		rounds := make([]bool, len(batches)) // a publish follows the batch
		for i := range rounds {
			rounds[i] = rng.IntN(2) == 0
		}
		change := 1 + rng.IntN(len(batches)) // the list changes before this batch
		late := rng.IntN(2) == 0             // batches after the change are by the old list nevertheless
		lakes := [2]blob.Store{blob.NewMemory(), blob.NewMemory()}
		from, to := testlake.SetList(t, lakes[0], fromRules), testlake.SetList(t, lakes[1], toRules)
		old := ""
		var oldAnswers map[string][]string
		var oldObjects map[string]string
		hosts := hostsOf(batches)
		for i := range len(batches) + 1 {
			if i == change {
				if v := current(t, lakes[0]); v != nil {
					old, oldAnswers = v.ID, answers(t, lakes[0], hosts, v.ID)
				}
				oldObjects = stored(t, lakes[0])
				testlake.SetList(t, lakes[0], toRules)
			}
			if i == len(batches) {
				break
			}
			by := from
			if i >= change && !late {
				by = to
			}
			batches[i].add(t, lakes[0], by)
			batches[i].add(t, lakes[1], to)
			if rounds[i] {
				testlake.Publish(t, lakes[0])
				testlake.Publish(t, lakes[1])
			}
		}
		testlake.Publish(t, lakes[0])
		testlake.Publish(t, lakes[1])
		v := current(t, lakes[0])
		if v.PublicSuffix != to.Identity() {
			t.Fatalf("seed %d: the version names %q", seed, v.PublicSuffix)
		}
		if diff := cmp.Diff(answers(t, lakes[1], hosts, ""), answers(t, lakes[0], hosts, "")); diff != "" {
			t.Fatalf("seed %d: a lake of the new list answers (-), the moved lake (+):\n%s", seed, diff)
		}
		if old != "" {
			if diff := cmp.Diff(oldAnswers, answers(t, lakes[0], hosts, old)); diff != "" {
				t.Fatalf("seed %d: the old version answered (-), and now (+):\n%s", seed, diff)
			}
		}
		for key, data := range stored(t, lakes[0]) {
			if before, ok := oldObjects[key]; ok && before != data {
				t.Fatalf("seed %d: %s has changed", seed, key)
			}
			if strings.Contains(data, `"moved_from"`) {
				moved++
			}
		}
		verifyAll(t, lakes[0])
		if again := testlake.Publish(t, lakes[0]); !again.Existed {
			t.Fatalf("seed %d: nothing is new, but %+v", seed, again)
		}
	}
	if moved < seeds {
		t.Errorf("only %d batches were moved", moved)
	}
}

// movableLake is a small lake of two segments. Of the first, two batches change between the lists
// that it returns; of the second none does. A third batch is finished and not published.
func movableLake(t testing.TB, store blob.Store) (fromRules, toRules string, batches []madeBatch) {
	fromRules, toRules = "x y", "x y a.x"
	rows := func(n int, hosts ...string) (rows []row.Row) {
		for i := range n {
			for _, h := range hosts {
				rows = append(rows, row.Row{Host: h, PathQuery: fmt.Sprint("/", i), Scheme: "https", Port: -1})
			}
		}
		return rows
	}
	batches = []madeBatch{
		{dataset: "alpha", name: "b1", rows: rows(9, "a.x", "s.a.x", "t.a.x", "b.x", "c.x", "d.y")},
		{dataset: "beta", name: "b1", rows: rows(4, "www.u.a.x", "b.x"), options: indextest.Options{Width: 1}},
		{dataset: "alpha", name: "b0", rows: rows(5, "b.x", "d.y")},
		{dataset: "beta", name: "b2", rows: rows(3, "s.a.x", "d.y")},
	}
	list := testlake.SetList(t, store, fromRules)
	for i := range batches {
		batches[i].add(t, store, list)
		if i == 1 || i == 2 {
			testlake.Publish(t, store)
		}
	}
	return fromRules, toRules, batches
}

// versions returns the ids of all versions that the manifest names.
func versions(t testing.TB, store blob.Store) (ids []string) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Versions {
		ids = append(ids, v.ID)
	}
	return ids
}

func TestMoveKeepsSegmentsInTheirPlaces(t *testing.T) {
	store := blob.NewMemory()
	_, to, _ := movableLake(t, store)
	before := current(t, store)
	testlake.SetList(t, store, to)
	done := testlake.Publish(t, store)
	v := current(t, store)
	if v.ID != done.Version || len(v.Segments) != 3 || v.Segments[1] != before.Segments[1] || v.Segments[0] == before.Segments[0] {
		t.Fatalf("segments %+v, before %+v", v.Segments, before.Segments)
	}
	if got, _ := findLive(t, v, 1, "b0"); got != allLive(t, before)[0] {
		t.Errorf("the batch of which nothing moves is %+v, it was %+v", got, allLive(t, before)[0])
	}
	if n := len(versions(t, store)); n != 3 {
		t.Errorf("%d versions, want 3", n)
	}
	// A list with the same rules under another name changes nothing but the name.
	list, err := urlnorm.ParseSuffixList([]byte("// VERSION: 1\nx\ny\na.x\n"))
	if err != nil {
		t.Fatal(err)
	}
	from, err := catalog.ReadRules(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := catalog.SetRules(t.Context(), store, from, list); err != nil {
		t.Fatal(err)
	}
	testlake.Publish(t, store)
	next := current(t, store)
	if diff := cmp.Diff(v.Segments, next.Segments); diff != "" || next.PublicSuffix == v.PublicSuffix {
		t.Errorf("list %q after %q: %s", next.PublicSuffix, v.PublicSuffix, diff)
	}
}

// A compaction writes a union, and before it plans again, a publish gives the lake another list.
// The union has the name of the one that the list asks for: its members are a union, which was
// written again, and a batch of which nothing moves. It is written again, too.
func TestCompactionOvertakenByAnotherList(t *testing.T) {
	store := blob.NewMemory()
	rows := func(n int, hosts ...string) (rows []row.Row) {
		for i := range n {
			for _, h := range hosts {
				rows = append(rows, row.Row{Host: h, PathQuery: fmt.Sprint("/", i), Scheme: "https", Port: -1})
			}
		}
		return rows
	}
	list := testlake.SetList(t, store, "x y")
	publishBatch := func(name string, rows []row.Row) {
		b := madeBatch{dataset: "alpha", name: name, rows: rows}
		b.add(t, store, list)
		testlake.Publish(t, store)
	}
	publishBatch("b1", rows(5, "s.a.x", "d.y"))
	publishBatch("b2", rows(4, "t.a.x", "d.y"))
	compact := publish.Compaction{Full: true}
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), compact, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	publishBatch("b3", rows(3, "b.x"))

	run := testlake.Run()
	written := func(round int) bool {
		plan, err := publish.PlanCompaction(t.Context(), store, run, round, compact)
		if err != nil {
			t.Fatal(err)
		}
		for task := range plan.RewriteTasks {
			if _, err := publish.Rewrite(t.Context(), store, plan.RewriteKey, task, t.TempDir(), nil); err != nil {
				t.Fatal(err)
			}
		}
		return plan.RewriteTasks > 0
	}
	if !written(0) {
		t.Fatal("the compaction writes no union")
	}
	testlake.SetList(t, store, "x y a.x")
	testlake.Publish(t, store)
	if !written(1) {
		t.Fatal("the compaction takes the union of the list before")
	}
	if _, err := publish.CompactAll(t.Context(), store, run, compact, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if v := current(t, store); len(v.Segments) != 1 {
		t.Fatalf("%d segments, want 1", len(v.Segments))
	}
	verifyAll(t, store)
	got := answers(t, store, []string{"s.a.x", "t.a.x", "b.x", "d.y"}, "")
	if urls := got["s.a.x"]; len(urls) == 0 || strings.Contains(strings.Join(urls, "\n"), "t.a.x") {
		t.Errorf("the domain s.a.x has %q", urls)
	}
}

// A publish that moves a lake and stops at any change of the store leaves the old version or the
// new one, and the next publish ends with the same answers, in one flip.
func TestMoveStopsAnywhere(t *testing.T) {
	whole := blob.NewMemory()
	_, to, batches := movableLake(t, whole)
	hosts := hostsOf(batches)
	old := answers(t, whole, hosts, "")
	testlake.SetList(t, whole, to)
	testlake.Publish(t, whole)
	want := answers(t, whole, hosts, "")
	source := blob.NewMemory()
	movableLake(t, source)
	testlake.SetList(t, source, to)
	dir := t.TempDir()
	for n := 0; ; n += testenv.Every(5) {
		inner := blob.NewMemory()
		blobtest.Copy(t, source, inner)
		before := versions(t, inner)
		store := blobtest.NewFaulty(inner)
		store.CrashAfter(n)
		_, err := publish.All(t.Context(), store, "first", dir)
		crashed := store.Crashed()
		if crashed != errors.Is(err, blobtest.ErrCrashed) && !(err == nil && crashed) { // only the clean-up failed
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		flipped := len(versions(t, inner)) > len(before)
		expected := old
		if flipped {
			expected = want
		}
		if diff := cmp.Diff(expected, answers(t, inner, hosts, "")); diff != "" {
			t.Fatalf("crash after %d changes, flipped %v: %s", n, flipped, diff)
		}
		if diff := cmp.Diff(old, answers(t, inner, hosts, before[len(before)-1])); diff != "" {
			t.Fatalf("crash after %d changes: the old version answers otherwise: %s", n, diff)
		}
		// The same run goes on, or another one starts.
		if _, err := publish.All(t.Context(), inner, []string{"first", "second"}[n%2], dir); err != nil {
			t.Fatalf("crash after %d changes, then: %v", n, err)
		}
		if diff := cmp.Diff(want, answers(t, inner, hosts, "")); diff != "" {
			t.Fatalf("crash after %d changes, then: %s", n, diff)
		}
		if got := len(versions(t, inner)); got != len(before)+1 {
			t.Fatalf("crash after %d changes: %d versions, want one more than %d", n, got, len(before))
		}
		if !crashed {
			if n < 40 {
				t.Errorf("only %d changes", n)
			}
			break
		}
	}
}

// A store that fails once, at any operation, ends a publish that moves a lake with its error, or
// does not matter. No batch is left out, and the next publish ends with the same answers.
func TestMoveOutlivesFailures(t *testing.T) {
	whole := blob.NewMemory()
	_, to, batches := movableLake(t, whole)
	hosts := hostsOf(batches)
	testlake.SetList(t, whole, to)
	testlake.Publish(t, whole)
	want := answers(t, whole, hosts, "")
	source := blob.NewMemory()
	movableLake(t, source)
	testlake.SetList(t, source, to)
	dir := t.TempDir()
	for n := 1; ; n += testenv.Every(5) + n/10 {
		inner := blob.NewMemory()
		blobtest.Copy(t, source, inner)
		before := len(versions(t, inner))
		store := blobtest.NewFaulty(inner)
		store.Inject(blobtest.Fault{Nth: n, After: n%2 == 0})
		done, err := publish.All(t.Context(), store, "first", dir)
		if err != nil && !errors.Is(err, blobtest.ErrInjected) || len(done.Skipped) > 0 {
			t.Fatalf("failure of call %d: %+v, %v", n, done, err)
		}
		if done, err := publish.All(t.Context(), inner, "first", dir); err != nil || len(done.Skipped) > 0 {
			t.Fatalf("failure of call %d, then: %+v, %v", n, done, err)
		}
		if diff := cmp.Diff(want, answers(t, inner, hosts, "")); diff != "" {
			t.Fatalf("failure of call %d, then: %s", n, diff)
		}
		if got := len(versions(t, inner)); got != before+1 {
			t.Fatalf("failure of call %d: %d versions, want one more than %d", n, got, before)
		}
		if store.Fired() == 0 {
			if n < 100 {
				t.Errorf("only %d calls", n)
			}
			break
		}
	}
}

// An ingest that was planned under the old list ends after the change, and after the flip. Its
// batch is published under the new list.
func TestIngestInFlightWhileTheListChanges(t *testing.T) {
	store := blob.NewMemory()
	testlake.SetList(t, store, "x y")
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://s.a.x/1"}, {URL: "https://t.a.x/1"}})
	testlake.Publish(t, store)
	input := filepath.Join(t.TempDir(), "urls.txt")
	if err := os.WriteFile(input, []byte("https://s.a.x/2\nhttps://b.x/2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run := testlake.Run()
	if _, err := ingest.MakePlan(t.Context(), store, run, ingest.Spec{Dataset: "alpha", Batch: "b2", Inputs: []string{input}}); err != nil {
		t.Fatal(err)
	}
	testlake.SetList(t, store, "x y a.x")
	testlake.Publish(t, store)
	flipped := current(t, store)
	if _, err := ingest.Normalize(t.Context(), store, run, 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Merge(t.Context(), store, run, 0, t.TempDir(), postings.Collect(t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	late, err := ingest.Finish(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Publish(t, store)
	v := current(t, store)
	b, ok := findLive(t, v, 1, "b2")
	if !ok || b.Digest == late.Digest || v.Segments[0] != flipped.Segments[0] {
		t.Fatalf("%+v of %+v after %+v", b, v, flipped)
	}
	if r := record(t, store, 1, "b2", b.Digest); r.MovedFrom != late.Digest || r.PublicSuffix != v.PublicSuffix {
		t.Errorf("moved from %s to %q", r.MovedFrom, r.PublicSuffix)
	}
	got := answers(t, store, []string{"s.a.x"}, "")["s.a.x"]
	want := []string{"1 datasets have s.a.x", "alpha {Rows:2 Size:0 HasSize:false FirstTS:0 LastTS:0 HasTS:false}",
		"0 of 2: https://s.a.x/1 0 false", "1 of 2: https://s.a.x/2 0 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Whoever waits for the batch finds it.
	ref := testlake.Finished(t, store, 1, "b2")
	if found, err := publish.Find(t.Context(), store, ref, flipped.ID); err != nil || !found.Published || found.Current != v.ID {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err := publish.FindAll(t.Context(), store, []publish.Ingest{ref}); err != nil || found[0] != v.ID {
		t.Errorf("found %v, %v", found, err)
	}
	// The repetition of a Finish whose reply was lost changes nothing.
	if _, err := ingest.Finish(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	if digests := testlake.Batches(t, store, 1); digests["b2"] != b.Digest {
		t.Errorf("current is %v, want %s", digests, b.Digest)
	}
	if again := testlake.Publish(t, store); !again.Existed || len(again.Skipped) > 0 {
		t.Errorf("%+v", again)
	}
}

// A finished batch that cannot be moved is left out and named. A batch of the version keeps the
// version as it is, until it is ingested again.
func TestBatchThatCannotBeMoved(t *testing.T) {
	store := blob.NewMemory()
	_, to, batches := movableLake(t, store)
	hosts := hostsOf(batches)
	old := answers(t, store, hosts, "")
	before := current(t, store)
	digests := testlake.Batches(t, store, 2)
	mend := damage(t, store, record(t, store, 2, "b2", digests["b2"]).Parts[0].Key, "missing")
	testlake.SetList(t, store, to)
	done := testlake.Publish(t, store)
	if diff := cmp.Diff([]string{"beta/b2"}, skipped(done)); diff != "" {
		t.Fatalf("skipped: %s", diff)
	}
	expectLive(t, store, map[string]int64{"1/b0": 10, "1/b1": 54, "2/b1": 8})
	mend()
	if done := testlake.Publish(t, store); len(done.Skipped) > 0 {
		t.Fatalf("after the mend: %+v", done)
	}

	// Back to the old list, with a damaged part in the version.
	flipped := current(t, store)
	live, _ := findLive(t, flipped, 2, "b1")
	key := record(t, store, 2, "b1", live.Digest).Parts[0].Key
	damage(t, store, key, "flipped")
	list := testlake.SetList(t, store, "x y")
	_, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
	var stays *publish.MoveError
	if !errors.As(err, &stays) || stays.Batch != "b1" || stays.DatasetID != 2 || !strings.Contains(err.Error(), key) {
		t.Fatalf("got %v", err)
	}
	if v := current(t, store); v.ID != flipped.ID {
		t.Fatalf("version %s, want %s", v.ID, flipped.ID)
	}
	// The batch is ingested again. The damaged one need not be moved then.
	batches[1].add(t, store, list)
	testlake.Publish(t, store)
	now := answers(t, store, hosts, "")
	for host, lines := range old {
		if strings.HasSuffix(host, "a.x") || host == "d.y" {
			continue // another batch has rows of them now
		}
		if diff := cmp.Diff(lines, now[host]); diff != "" {
			t.Errorf("%s: %s", host, diff)
		}
	}
	if diff := cmp.Diff(old, answers(t, store, hosts, before.ID)); diff != "" {
		t.Error(diff)
	}
}

// A moved lake is rebuilt like any other: its segments, postings and registries.
func TestMovedLakeIsRebuilt(t *testing.T) {
	store := blob.NewMemory()
	_, to, batches := movableLake(t, store)
	testlake.SetList(t, store, to)
	testlake.Publish(t, store)
	hosts := hostsOf(batches)
	want := answers(t, store, hosts, "")
	verifyAll(t, store)
	v := current(t, store)
	var lost []string
	for _, s := range v.Segments {
		lost = append(lost, s.DomainsMPHF)
	}
	for _, b := range allLive(t, v) {
		r := record(t, store, b.DatasetID, b.Batch, b.Digest)
		for _, p := range r.Postings {
			lost = append(lost, p.Key)
		}
	}
	lost = append(lost, lake.RegistryKey)
	before := map[string][]byte{}
	for _, key := range lost {
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		before[key] = data
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	done, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	if err != nil || len(done.Lost) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, key := range lost {
		data, _, err := store.Get(t.Context(), key)
		if err != nil || !strings.HasPrefix(key, "registry/") && string(data) != string(before[key]) {
			t.Errorf("%s: %v, %d bytes, want %d", key, err, len(data), len(before[key]))
		}
	}
	if again := testlake.Publish(t, store); !again.Existed || again.Version <= v.ID {
		t.Errorf("after the rebuild: %+v", again)
	}
	if diff := cmp.Diff(want, answers(t, store, hosts, "")); diff != "" {
		t.Error(diff)
	}
	verifyAll(t, store)
}

// A plan without a change of the list reads nothing more than before.
func TestPlanWithoutAChangeIsCheap(t *testing.T) {
	store := blob.NewMemory()
	movableLake(t, store)
	testlake.Publish(t, store)
	counting := blob.NewCounting(store)
	s, err := publish.Plan(t.Context(), counting, testlake.Run(), 0)
	if err != nil || !s.Nothing {
		t.Fatalf("%+v, %v", s, err)
	}
	// The manifest, the version, the registry three times with its copy, what waits, with the
	// pieces of the version that know it, the contents of the staging, and three requests that find
	// out whether the manifest was put back.
	if n := counting.Reads().Requests; n > 22 {
		t.Errorf("%d reads", n)
	}
}
