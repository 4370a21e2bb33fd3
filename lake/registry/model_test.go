package registry_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// modelLedger is the ledger as one list of ingests in the order of registration. It keeps every
// ingest.
type modelLedger struct {
	ingests map[registry.BatchID][]registry.Ingest // without numbers
	settled map[registry.BatchID]string
}

func (m *modelLedger) current(b registry.BatchID) (in registry.Ingest) {
	for _, i := range m.ingests[b] {
		if i.Digest != "" {
			in = i
		}
	}
	return in
}

func (m *modelLedger) at(b registry.BatchID, run string) *registry.Ingest {
	for i := range m.ingests[b] {
		if m.ingests[b][i].Run == run {
			return &m.ingests[b][i]
		}
	}
	return nil
}

func (m *modelLedger) pending() map[registry.BatchID]string {
	pending := map[registry.BatchID]string{}
	for b := range m.ingests {
		if d := m.current(b).Digest; d != "" && d != m.settled[b] {
			pending[b] = d
		}
	}
	return pending
}

// The ledger answers as a simple list of all ingests does, whatever happens in whatever order.
func TestLedgerIsAsItsModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		ctx, store := t.Context(), blob.NewMemory()
		if _, err := registry.RegisterDataset(ctx, store, lake.Dataset{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		m := modelLedger{map[registry.BatchID][]registry.Ingest{}, map[registry.BatchID]string{}}
		// Two datasets share a shard. No batch is ingested so often that an ingest is forgotten.
		datasets := []uint32{1, 2, 1 + registry.Shards}
		one := func() (registry.BatchID, string) {
			return registry.BatchID{DatasetID: datasets[r.IntN(3)], Batch: fmt.Sprint("b", r.IntN(5))}, fmt.Sprint("run", r.IntN(8))
		}
		for step := range 400 {
			b, run := one()
			digest := fmt.Sprintf("%s/%d", b.Batch, r.IntN(3))
			own := m.at(b, run)
			var err error
			switch r.IntN(8) {
			case 0, 1:
				_, err = registry.RegisterIngest(ctx, store, b.DatasetID, b.Batch, run)
				if own == nil {
					m.ingests[b] = append(m.ingests[b], registry.Ingest{Run: run})
				}
			case 2, 3:
				var current bool
				current, err = registry.FinishIngest(ctx, store, b.DatasetID, b.Batch, run, digest)
				if own == nil {
					if !errors.Is(err, registry.ErrUnknownRun) {
						t.Fatalf("seed %d, step %d: %v", seed, step, err)
					}
					err = nil
					break
				}
				if !own.Is(digest) {
					own.Digest, own.MovedFrom = digest, ""
				}
				if want := m.current(b).Run == run; current != want {
					t.Fatalf("seed %d, step %d: current %v, want %v", seed, step, current, want)
				}
			case 4:
				err = registry.AbandonIngest(ctx, store, b.DatasetID, b.Batch, run)
				m.ingests[b] = slices.DeleteFunc(m.ingests[b], func(i registry.Ingest) bool { return i.Run == run && i.Digest == "" })
			case 5:
				_, _, err = registry.WithdrawIngest(ctx, store, b.DatasetID, b.Batch, run, "")
				if own != nil && own.Digest == m.settled[b] {
					m.settled[b] = ""
				}
				m.ingests[b] = slices.DeleteFunc(m.ingests[b], func(i registry.Ingest) bool { return i.Run == run })
			case 6:
				in := m.current(b)
				var current bool
				current, err = registry.ReplaceRecord(ctx, store, b.DatasetID, b.Batch, in.Digest, digest)
				if current != (in.Digest != "") {
					t.Fatalf("seed %d, step %d: current %v", seed, step, current)
				}
				if in.Digest != "" && in.Digest != digest {
					e := m.at(b, in.Run)
					if e.MovedFrom == "" {
						e.MovedFrom = e.Digest
					}
					e.Digest = digest
				}
			case 7:
				// A version has what waited a moment ago.
				var published []registry.Pending
				for b, d := range m.pending() {
					if r.IntN(2) == 0 {
						published = append(published, registry.Pending{DatasetID: b.DatasetID, Batch: b.Batch, Digest: d})
						m.settled[b] = d
					}
				}
				err = registry.Settle(ctx, store, "v1", published)
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if step%10 == 0 {
				compareLedger(t, store, &m)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

func compareLedger(t *testing.T, store blob.Store, m *modelLedger) {
	t.Helper()
	pending, settled, err := registry.PendingBatches(t.Context(), store, func(_ int, err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	got := map[registry.BatchID]string{}
	for _, p := range pending {
		got[registry.BatchID{DatasetID: p.DatasetID, Batch: p.Batch}] = p.Digest
	}
	if d := cmp.Diff(m.pending(), got); d != "" {
		t.Errorf("pending: %s", d)
	}
	want := int64(0)
	for _, d := range m.settled {
		if d != "" {
			want++
		}
	}
	if settled != want {
		t.Errorf("%d are settled, want %d", settled, want)
	}
	if sorted := slices.IsSortedFunc(pending, func(a, b registry.Pending) int {
		return slices.Compare([]byte(fmt.Sprintf("%09d%s", a.DatasetID, a.Batch)), []byte(fmt.Sprintf("%09d%s", b.DatasetID, b.Batch)))
	}); !sorted {
		t.Errorf("%v are not sorted", pending)
	}
	all, err := registry.AllBatches(t.Context(), store, func(_ int, err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	finished := map[registry.BatchID]string{}
	for _, p := range all {
		finished[registry.BatchID{DatasetID: p.DatasetID, Batch: p.Batch}] = p.Digest
	}
	wantAll := map[registry.BatchID]string{}
	for b := range m.ingests {
		if d := m.current(b).Digest; d != "" {
			wantAll[b] = d
		}
	}
	if d := cmp.Diff(wantAll, finished); d != "" {
		t.Errorf("all: %s", d)
	}
	ids := slices.Collect(maps.Keys(m.ingests))
	found, err := registry.IngestsOf(t.Context(), store, ids)
	if err != nil {
		t.Fatal(err)
	}
	for b, want := range m.ingests {
		of, err := registry.Ingests(t.Context(), store, b.DatasetID)
		if err != nil {
			t.Fatal(err)
		}
		for _, have := range [][]registry.Ingest{found[b], of[b.Batch]} {
			have = slices.Clone(have)
			for i := range have {
				have[i].Seq = 0
			}
			if len(have)+len(want) > 0 && !slices.Equal(have, want) {
				t.Errorf("%v: %+v, want %+v", b, have, want)
			}
		}
	}
}
