package lookup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/registry"
)

// withoutReversed opens a segment as one of an earlier version of urlake, which has no list of
// reversed domains.
func withoutReversed(t testing.TB, store blob.Store, seg *segment.Segment) *segment.Segment {
	t.Helper()
	old := seg.Info().Segment
	data, _, err := store.Get(t.Context(), segment.Prefix(old)+segment.InfoName)
	if err != nil {
		t.Fatal(err)
	}
	ref := segment.Ref{ID: old, XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)), Bytes: seg.Info().Bytes() + int64(len(data))}
	info, err := segment.ReadInfo(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	info.Files = slices.DeleteFunc(info.Files, func(f segment.File) bool {
		return f.Name == segment.ReversedName || f.Name == segment.ReversedStartsName
	})
	// The id as docs/formats/segment.md has it. The segment has one shard.
	text := fmt.Sprintf("urlake segment %d\n", info.Format)
	for _, f := range info.Files {
		text += fmt.Sprintf("%s\t%d\n", strings.Replace(f.Name, "/0000/", "/{shard}/", 1), f.Format)
	}
	info.Segment = lake.Digest(fmt.Appendf(nil, "%s%d batches\t%s\n", text, info.BatchCount, info.BatchDigest))
	put := func(name string, data []byte) {
		if _, err := store.Put(t.Context(), segment.Prefix(info.Segment)+name, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range info.Files {
		data, _, err := store.Get(t.Context(), segment.Prefix(old)+f.Name)
		if err != nil {
			t.Fatal(err)
		}
		put(f.Name, data)
	}
	if data, err = codec.Seal(info); err != nil {
		t.Fatal(err)
	}
	put(segment.InfoName, data)
	ref = segment.Ref{ID: info.Segment, XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)), Bytes: info.Bytes() + int64(len(data))}
	stripped, err := segment.Open(t.Context(), store, ref, segment.Options{CacheDir: t.TempDir(), WholeFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stripped.Close() })
	if stripped.Reversed() != nil {
		t.Fatal("the segment has reversed domains")
	}
	return stripped
}

// earlier returns a snapshot of the version of a lake, some of whose segments are those of an
// earlier version of urlake.
func earlier(t testing.TB, store blob.Store, opt Options, which func(i int) bool) *Snapshot {
	t.Helper()
	snap := acquire(t, serve(t, store, opt), "")
	for i, seg := range snap.segments {
		if which(i) {
			snap.segments[i] = withoutReversed(t, store, seg)
		}
	}
	return snap
}

// A version whose segments have lists of reversed domains, or not, or some of them, gives the same
// lists in the same order, page by page, also if pages are late. Counts of domains are the same,
// too.
func TestReversedListsOfEarlierSegments(t *testing.T) {
	store := blob.NewMemory()
	left := bulkLake(t, store, 11)
	rng := rand.New(rand.NewPCG(6, 6))
	for n, which := range []func(i int) bool{
		func(int) bool { return true }, func(i int) bool { return i%2 == 0 }, func(i int) bool { return i == 1 },
	} {
		snap := earlier(t, store, Options{}, which)
		if len(snap.segments) < 2 {
			t.Fatalf("%d segments", len(snap.segments))
		}
		for _, s := range []*Snapshot{snap, earlier(t, store, Options{Deadline: time.Nanosecond}, which)} {
			for range 60 {
				q := DomainsQuery{Limit: 1 + rng.IntN(30)}
				q.Prefix = []string{"", "", "", "s", "site1", "[", "zzz"}[rng.IntN(7)]
				q.Suffix = []string{".test", "test", "7.test", ".com", ".nowhere", "1]", "t"}[rng.IntN(7)]
				compareListed(t, s, left, []string{"", "alpha", "beta"}[rng.IntN(3)], &q)
			}
		}
		for _, suffix := range []string{"test", "github.io", "nowhere"} {
			want := int64(0)
			for _, name := range left.domains() {
				if strings.HasSuffix(name, "."+suffix) {
					want++
				}
			}
			if got, err := snap.DomainsBelow(t.Context(), suffix); err != nil || got != want {
				t.Errorf("%d: %d domains below %s, want %d: %v", n, got, suffix, want, err)
			}
		}
	}
}

// largeLists is a version with 40,000 domains in two segments. Dataset beta has few of them, whose
// reversed names are the last.
func largeLists(t testing.TB) (store blob.Store, beta uint32, names []string) {
	store = blob.NewMemory()
	for n := range 2 {
		var records []testlake.Record
		for i := range 20_000 {
			name := fmt.Sprintf("site%05d.test", 2*i+n)
			names = append(names, name)
			records = append(records, testlake.Record{URL: "https://" + name + "/"})
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprint(n), records)
		testlake.Publish(t, store)
	}
	testlake.Ingest(t, store, "beta", "1", []testlake.Record{{URL: "https://site99999.test/"}, {URL: "https://site89999.test/"}})
	testlake.Publish(t, store)
	datasets, err := registry.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range datasets {
		if d.Name == "beta" {
			beta = d.ID
		}
	}
	names = append(names, "site99999.test", "site89999.test")
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(backwards(a), backwards(b)) })
	return store, beta, names
}

// In a large segment of an earlier version of urlake more domains are passed than are kept of one
// scan.
func TestManyReversedDomainsOfEarlierSegments(t *testing.T) {
	store, beta, names := largeLists(t)
	s := earlier(t, store, Options{}, func(i int) bool { return i != 1 })
	got, _ := allDomains(t, s, DomainsQuery{Suffix: ".test", Limit: 1000, Dataset: beta, OneDataset: true})
	if len(got) != 2 || got[0].Domain != "site89999.test" || got[1].Domain != "site99999.test" {
		t.Errorf("%+v", got)
	}
	page, err := s.Domains(t.Context(), DomainsQuery{Suffix: ".test", Limit: 1000})
	for i := 0; i < 3000 && err == nil; i += 1000 {
		for k := range page.Domains {
			if page.Domains[k].Domain != names[i+k] {
				t.Fatalf("domain %d is %s, want %s", i+k, page.Domains[k].Domain, names[i+k])
			}
		}
		page, err = s.Domains(t.Context(), DomainsQuery{Suffix: ".test", Limit: 1000, Cursor: page.Cursor})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What is read of a segment follows from the suffix. With a prefix, too, it is the list of which
// fewer frames are to be read. Domains below a public suffix are counted by what is below it.
func TestSuffixReadsFewFrames(t *testing.T) {
	store, _, _ := largeLists(t)
	snap := acquire(t, serve(t, blob.NewCounting(store), Options{}), "")
	read := func(what string, query func(ctx *blob.Trace) error) (forward, reversed int64) {
		t.Helper()
		snap.server.clearCaches(true, true)
		trace := new(blob.Trace)
		if err := query(trace); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, a := range trace.Accesses() {
			switch {
			case strings.HasSuffix(a.Key, "/"+segment.DomainsName):
				forward += a.N
			case strings.HasSuffix(a.Key, "/"+segment.ReversedName):
				reversed += a.N
			}
		}
		return forward, reversed
	}
	list := func(q DomainsQuery, n int) func(*blob.Trace) error {
		return func(trace *blob.Trace) error {
			page, err := snap.Domains(blob.WithTrace(t.Context(), trace), q)
			if err == nil && len(page.Domains) != n {
				err = fmt.Errorf("%d domains", len(page.Domains))
			}
			return err
		}
	}
	all := int64(0)
	for _, seg := range snap.segments {
		all += seg.Info().File(segment.ReversedName).Bytes
	}
	for _, c := range []struct {
		q        DomainsQuery
		n        int
		reversed bool
	}{
		{DomainsQuery{Suffix: "3.test", Limit: 10}, 10, true},
		{DomainsQuery{Suffix: "9999.test", Limit: 10}, 6, true},
		{DomainsQuery{Prefix: "site3", Suffix: "77.test", Limit: 1000}, 100, true},
		{DomainsQuery{Prefix: "site333", Suffix: "7.test", Limit: 1000}, 10, false},
		{DomainsQuery{Prefix: "site333", Suffix: "t", Limit: 1000}, 100, false},
	} {
		forward, reversed := read(fmt.Sprintf("%+v", c.q), list(c.q, c.n))
		if !c.reversed {
			forward, reversed = reversed, forward
		}
		if forward != 0 || reversed == 0 || reversed > all/4 {
			t.Errorf("%+v: %d bytes of one list, %d of the other, of %d", c.q, forward, reversed, all)
		}
	}
	forward, reversed := read("domains below 99.test", func(trace *blob.Trace) error {
		n, err := snap.DomainsBelow(blob.WithTrace(t.Context(), trace), "99.test")
		if err == nil && n != 0 {
			err = fmt.Errorf("%d domains", n)
		}
		return err
	})
	if forward != 0 || reversed > all/4 {
		t.Errorf("a count read %d bytes of names and %d of reversed ones, of %d", forward, reversed, all)
	}
}

// A cursor belongs to an order: that of an earlier version of urlake, which listed domains with a
// suffix by name, is refused.
func TestCursorsOfTheOrderByName(t *testing.T) {
	store := blob.NewMemory()
	build(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	old := cursor{kind: cursorDomains, fingerprint: fingerprint(cursorDomains, `"" ".test" false`, 0), version: snap.version.ID}
	old.at.name = "site1"
	if _, err := snap.Domains(t.Context(), DomainsQuery{Suffix: ".test", Limit: 1, Cursor: old.String()}); !errors.Is(err, ErrBadCursor) {
		t.Errorf("a cursor of the other order: %v", err)
	}
}
