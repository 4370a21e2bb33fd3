package publish_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// colliding hashes evil.test as good.test.
func colliding(domain []byte) segment.Key {
	if string(domain) == "evil.test" {
		domain = []byte("good.test")
	}
	return postings.DomainKey(domain)
}

// publishColliding is All with colliding hashes, without Verify, which has the right ones.
func publishColliding(t *testing.T, store blob.Store) (skipped []publish.Skipped) {
	t.Helper()
	run, dir := testlake.Run(), t.TempDir()
	for round := range 10 {
		plan, err := publish.Plan(t.Context(), store, run, round)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Nothing {
			return plan.Skipped
		}
		built, err := publish.BuildWith(t.Context(), store, plan.PlanKey, 0, indexbuild.Options{TempDir: dir, KeyOf: colliding})
		if err != nil {
			t.Fatal(err)
		}
		if built.Damaged > 0 {
			continue
		}
		if done, err := publish.Commit(t.Context(), store, plan.PlanKey, built, t.TempDir()); err != nil || done.Stale {
			t.Fatal(done, err)
		}
		return plan.Skipped
	}
	t.Fatal("ten rounds and no version")
	return nil
}

// liveNames returns the batches of the current version.
func liveNames(t *testing.T, store blob.Store) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(live(current(t, store))))
}

// A batch with a domain that collides with another batch's is left out with both names, and all
// others are published. A collision of published batches only keeps their segments apart.
func TestCollidingBatchIsLeftOut(t *testing.T) {
	ingest := func(store blob.Store, dataset, batch string, domains ...string) {
		var records []testlake.Record
		for _, d := range domains {
			records = append(records, testlake.Record{URL: "http://" + d + "/"})
		}
		testlake.Ingest(t, store, dataset, batch, records)
	}
	store := blob.NewMemory()
	ingest(store, "alpha", "b", "good.test", "a.test")
	ingest(store, "beta", "b", "evil.test", "b.test")
	ingest(store, "gamma", "b", "c.test")
	ingest(store, "self", "b", "evil.test", "good.test")
	skipped := publishColliding(t, store)
	if got := liveNames(t, store); !slices.Equal(got, []string{"1/b", "3/b"}) || len(skipped) != 2 {
		t.Fatalf("published %q, skipped %+v", got, skipped)
	}
	for _, s := range skipped {
		if !strings.Contains(s.Reason, `"evil.test"`) || !strings.Contains(s.Reason, `"good.test"`) {
			t.Errorf("%+v", s)
		}
	}
	// Alone, the batch can be published: its segment has only one of the domains.
	skipped = publishColliding(t, store)
	if got := liveNames(t, store); !slices.Equal(got, []string{"1/b", "2/b", "3/b"}) || len(skipped) != 1 {
		t.Fatalf("published %q, skipped %+v", got, skipped)
	}
	// Compaction cannot join the two segments, and goes on without one of them.
	want := 3
	for n := range 3 * publish.TargetSegments {
		ingest(store, "more", fmt.Sprintf("b%02d", n), fmt.Sprintf("d%d.test", n))
		publishColliding(t, store)
		if want++; len(liveNames(t, store)) != want {
			t.Fatalf("after %d more batches: %q", n+1, liveNames(t, store))
		}
	}
}

// A change of the public suffix list that makes two batches of one segment collide ends with the
// names of both, not with a build that fails for ever.
func TestCollisionAfterAChangeOfTheListStopsIt(t *testing.T) {
	store, run := blob.NewMemory(), testlake.Run()
	testlake.SetList(t, store, "test evil.test")
	testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "http://good.test/"}})
	testlake.Ingest(t, store, "beta", "b", []testlake.Record{{URL: "http://a.evil.test/"}})
	testlake.Publish(t, store)
	before := current(t, store).ID
	testlake.SetList(t, store, "test")
	moves, err := publish.Plan(t.Context(), store, run, 0)
	if err != nil || moves.RewriteTasks != 1 {
		t.Fatal(moves, err)
	}
	if _, err := publish.Rewrite(t.Context(), store, moves.RewriteKey, 0, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	plan, err := publish.Plan(t.Context(), store, run, 0)
	if err != nil || plan.Moved != 1 {
		t.Fatal(plan, err)
	}
	built, err := publish.BuildWith(t.Context(), store, plan.PlanKey, 0, indexbuild.Options{TempDir: t.TempDir(), KeyOf: colliding})
	if err != nil || built.Damaged != 1 {
		t.Fatal(built, err)
	}
	_, err = publish.Plan(t.Context(), store, run, 1)
	var stays *publish.MoveError
	if !errors.As(err, &stays) || stays.Version != before || stays.DatasetID != 2 ||
		!strings.Contains(stays.Reason, `"evil.test"`) || !strings.Contains(stays.Reason, `"good.test"`) {
		t.Error(err)
	}
}
