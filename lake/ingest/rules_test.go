package ingest_test

import (
	"context"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// setList gives a lake a public suffix list.
func setList(t *testing.T, store blob.Store, rules string) *urlnorm.SuffixList {
	t.Helper()
	list, err := urlnorm.ParseSuffixList([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	from, err := catalog.ReadRules(t.Context(), store)
	if err == nil {
		err = catalog.SetRules(t.Context(), store, from, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A run follows the list that the lake had when it was planned, which is not the program's here and
// changes while the run goes on. Runs with other limits write the same record.
func TestRunFollowsTheListOfItsPlan(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{
		"1.txt": "http://a.example.com/\nhttp://b.example.com/\nhttp://x.a.example.com/\nhttp://y.co.uk/\n",
		"2.txt": "http://z.co.uk/\nhttp://w.co.uk/\nhttp://b.example.com/2\nhttp://192.0.2.1/\n",
	})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, Format: "lines"}
	const before, after, domains = "com\nexample.com\n", "com\nco.uk\n", 4 // a.example.com, b.example.com, co.uk, the address
	digests := map[string]bool{}
	for name, run := range map[string]func(store blob.Store) (ingest.FinishResult, error){
		"splits": func(store blob.Store) (ingest.FinishResult, error) {
			return steps(ctx, store, "run", spec, ingest.Limits{Split: 1, Object: 1})
		},
		"one split": func(store blob.Store) (ingest.FinishResult, error) {
			return steps(ctx, store, "run", spec, ingest.Limits{})
		},
		"small": func(store blob.Store) (ingest.FinishResult, error) {
			out, err := small(ctx, store, "run", spec, ingest.Limits{})
			return out.Finish, err
		},
	} {
		store := blob.NewMemory()
		list := setList(t, store, before)
		l := ingest.Limits{}
		if name == "splits" {
			l = ingest.Limits{Split: 1, Object: 1}
		}
		if _, err := ingest.MakePlanWithin(ctx, store, "run", spec, l); err != nil {
			t.Fatal(err)
		}
		other := setList(t, store, after)
		out, err := run(store)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, _, err := store.Get(ctx, out.BatchKey)
		if err != nil {
			t.Fatal(err)
		}
		b, err := lake.DecodeBatch(data, out.BatchKey)
		if err != nil {
			t.Fatal(err)
		}
		if b.PublicSuffix != list.Identity() || b.Domains != domains || b.Rows != 8 {
			t.Errorf("%s: %d rows of %d domains by %q", name, b.Rows, b.Domains, b.PublicSuffix)
		}
		digests[out.Digest] = true

		// The next run follows the new list.
		spec := spec
		spec.Batch = "next"
		if _, err := ingest.MakePlan(ctx, store, "next", spec); err != nil {
			t.Fatal(err)
		}
		next, err := steps(ctx, store, "next", spec, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if data, _, err = store.Get(ctx, next.BatchKey); err != nil {
			t.Fatal(err)
		}
		if b, err = lake.DecodeBatch(data, next.BatchKey); err != nil {
			t.Fatal(err)
		}
		// example.com, w.co.uk, y.co.uk, z.co.uk, the address
		if b.PublicSuffix != other.Identity() || b.Domains != 5 {
			t.Errorf("%s: the next batch has %d domains by %q", name, b.Domains, b.PublicSuffix)
		}
	}
	if len(digests) != 1 {
		t.Errorf("records %v, want one", digests)
	}
}
