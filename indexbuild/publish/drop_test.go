package publish_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/gc"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

// takeDown adds a takedown and returns its id.
func takeDown(t testing.TB, store blob.Store, kind takedown.Kind, text string, edit func(*takedown.Rule)) string {
	t.Helper()
	target, err := takedown.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	r := takedown.Rule{ID: takedown.NewID(now), Target: target, Reason: "test", Created: now}
	if edit != nil {
		edit(&r)
	}
	res, err := suppress.Add(t.Context(), store, r, suppress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res.ID
}

func lift(t testing.TB, store blob.Store, id string) {
	t.Helper()
	if _, err := suppress.Lift(t.Context(), store, id, "me", "over", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
}

// hiddenRows is how many rows takedowns hide in the current version.
func hiddenRows(t testing.TB, store blob.Store) (rows int64) {
	t.Helper()
	m, _, err := manifest.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := takedown.Read(t.Context(), store, m.Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range current(t, store).Segments {
		rows += doc.Hidden([]string{s.ID})
	}
	return rows
}

func collectAll(t testing.TB, store blob.Store) {
	t.Helper()
	if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
}

// status is what "takedown status" says.
func status(t testing.TB, store blob.Store, id string) *suppress.State {
	t.Helper()
	s, err := suppress.Inspect(t.Context(), store, id, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A compaction drops what is hidden, whatever the scope of the takedown, from single batches and
// from unions, and answers stay as they are.
func TestCompactionDropsHiddenRows(t *testing.T) {
	var all []testlake.Record
	for i := range 60 {
		r := testlake.Record{URL: fmt.Sprintf("https://h%d.site%d.test/p%d/%d", i%3, i%5, i%4, i)}
		if r.HasTS = i%2 == 0; r.HasTS {
			r.TS = int64(1_500_000_000_000 + i*1000)
		}
		all = append(all, r)
	}
	hosts := []string{"site0.test", "site1.test", "site2.test", "site3.test", "site4.test"}
	from, to := int64(1_500_000_010_000), int64(1_500_000_040_000)
	for name, c := range map[string]struct {
		kind takedown.Kind
		text string
		edit func(*takedown.Rule)
	}{
		"domain":  {takedown.Domain, "site1.test", nil},
		"host":    {takedown.Host, "h2.site2.test", nil},
		"url":     {takedown.URL, "https://h0.site3.test/p2/18", nil},
		"prefix":  {takedown.Prefix, "h1.site4.test/p0/", nil},
		"dataset": {takedown.Domain, "site1.test", func(r *takedown.Rule) { r.DatasetID, r.Dataset = 2, "beta" }},
		"time":    {takedown.Domain, "site1.test", func(r *takedown.Rule) { r.From, r.To = &from, &to }},
	} {
		for _, united := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s united=%v", name, united), func(t *testing.T) {
				store := blob.NewMemory()
				for i, b := range []string{"alpha/b1", "alpha/b2", "beta/b1"} {
					dataset, batch, _ := strings.Cut(b, "/")
					testlake.Ingest(t, store, dataset, batch, all[:40+10*i])
					testlake.Publish(t, store)
				}
				if united {
					compact(t, store, true)
				}
				before := current(t, store).Counts.Rows
				id := takeDown(t, store, c.kind, c.text, c.edit)
				hidden := hiddenRows(t, store)
				if hidden == 0 {
					t.Fatal("nothing is hidden")
				}
				want := unordered(answers(t, store, hosts, ""))
				if s := status(t, store, id); s.Gone {
					t.Fatal("gone before")
				}
				done := compact(t, store, false)
				v := current(t, store)
				if done.Existed || v.Counts.Rows != before-hidden || v.Counts.Batches != 3 || hiddenRows(t, store) != 0 {
					t.Fatalf("%+v, %d of %d rows hidden: %+v", done, hidden, before, v.Counts)
				}
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("(-hidden +dropped):\n%s", diff)
				}
				checkLake(t, store)
				if again := compact(t, store, false); !again.Existed {
					t.Errorf("again: %+v", again)
				}
				collectAll(t, store)
				if s := status(t, store, id); !s.Gone {
					t.Errorf("%+v", s)
				}
				checkLake(t, store)
				// What is dropped does not come back with a lift.
				lift(t, store, id)
				if diff := cmp.Diff(want, unordered(answers(t, store, hosts, ""))); diff != "" {
					t.Errorf("(-dropped +lifted):\n%s", diff)
				}
				checkLake(t, store)
			})
		}
	}
}

var _ = publish.Compaction{}
