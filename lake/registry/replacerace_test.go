package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/registry"
)

// races returns all orders of the steps of several actors, each with its own in sequence.
func races(actors ...[]string) (all [][]string) {
	ended := true
	for i, steps := range actors {
		if len(steps) == 0 {
			continue
		}
		ended = false
		rest := slices.Clone(actors)
		rest[i] = steps[1:]
		for _, tail := range races(rest...) {
			all = append(all, append([]string{steps[0]}, tail...))
		}
	}
	if ended {
		return [][]string{nil}
	}
	return all
}

// Two ingests that replace one dataset finish, are published and are withdrawn in every order. Of
// those that are left, the one that registered later is the dataset's only content. Its outcome
// says so, and that of the other one says that it lost.
func TestLaterOfTwoReplacementsIsTheOnlyContent(t *testing.T) {
	points := 0
	for _, batches := range [][2]string{{"a", "b"}, {"a", "a"}} {
		for _, a := range [][]string{{"finish 0"}, {"finish 0", "withdraw 0"}} {
			for _, b := range [][]string{{"finish 1"}, {"finish 1", "withdraw 1"}} {
				for _, publish := range [][]string{nil, {"publish"}} {
					for _, steps := range races(a, b, publish) {
						replaceRace(t, batches, steps)
						points++
					}
				}
			}
		}
	}
	t.Logf("%d orders", points)
}

func replaceRace(t *testing.T, batches [2]string, steps []string) {
	t.Helper()
	name := fmt.Sprintf("%s: %s", batches, strings.Join(steps, ", "))
	store := blob.NewMemory()
	if _, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	old := finishAs(t, store, "old", "before", 9)
	damaged := func(_ int, err error) { t.Fatal(err) }
	settle := func() map[string]string {
		all, err := registry.AllBatches(t.Context(), store, damaged)
		if err == nil {
			err = registry.Settle(t.Context(), store, "v1", all)
		}
		content, readErr := registry.CurrentBatches(t.Context(), store, 1)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		return content
	}
	published := settle()
	digests, alive := [2]string{}, [2]bool{}
	runs := [2]string{"r0", "r1"}
	for i, batch := range batches {
		digests[i] = putRecord(t, store, 1, batch, int64(i))
		if _, err := registry.RegisterIngest(t.Context(), store, 1, batch, runs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range steps {
		verb, actor, _ := strings.Cut(step, " ")
		i := 0
		if actor == "1" {
			i = 1
		}
		batch, other := batches[i], 1-i
		switch verb {
		case "finish":
			alive[i] = true
			out := registry.FinishIngests(t.Context(), store, []registry.Finish{{
				IngestID: registry.IngestID{DatasetID: 1, Batch: batch, Run: runs[i]}, Digest: digests[i], Replace: true,
			}})[0]
			lost := i == 0 && alive[other]
			if out.Err != nil || out.Current == lost || out.Retired != (lost && batches[0] != batches[1]) {
				t.Fatalf("%s: %s: %+v", name, step, out)
			}
		case "withdraw":
			if published[batch] == digests[i] {
				continue // it is too late
			}
			alive[i] = false
			if _, ok, err := registry.WithdrawIngest(t.Context(), store, 1, batch, runs[i], digests[i]); err != nil || !ok {
				t.Fatalf("%s: %s: %v, %v", name, step, ok, err)
			}
			if err := store.Delete(t.Context(), lake.BatchKey(1, batch, digests[i])); err != nil {
				t.Fatal(err)
			}
		case "publish":
			published = settle()
		}
		want := map[string]string{"old": old}
		for i := range alive {
			if alive[i] {
				want = map[string]string{batches[i]: digests[i]}
			}
		}
		have, err := registry.CurrentBatches(t.Context(), store, 1)
		if diff := cmp.Diff(want, have); diff != "" || err != nil {
			t.Fatalf("%s: after %q: %v, %s", name, step, err, diff)
		}
		lost := blob.NewMemory()
		blobtest.Copy(t, store, lost)
		if err := lost.Delete(t.Context(), registry.ShardKey(1)); err != nil {
			t.Fatal(err)
		}
		of := map[string]string{}
		for batch, digest := range published {
			of[batch] = digest
		}
		if _, err := registry.RestoreShard(t.Context(), lost, 1, live(1, of), nil); err != nil {
			t.Fatal(err)
		}
		have, err = registry.CurrentBatches(t.Context(), lost, 1)
		if diff := cmp.Diff(of, have); diff != "" || err != nil { // as the version says
			t.Fatalf("%s: the ledger was lost after %q: %v, %s", name, step, err, diff)
		}
	}
}
