package registry_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// modelLedger is the ledger as one list of ingests in the order of registration. It keeps every
// ingest.
type modelLedger struct {
	ingests map[registry.BatchID][]registry.Ingest
	settled map[registry.BatchID]string
	last    map[int]int64 // numbers, by shard
}

// next returns the next number of a shard.
func (m *modelLedger) next(dataset uint32) int64 {
	m.last[registry.ShardOf(dataset)]++
	return m.last[registry.ShardOf(dataset)]
}

// replace retires the other batches of a dataset as of the number of an ingest.
func (m *modelLedger) replace(own registry.BatchID, in registry.Ingest) {
	for b := range m.ingests {
		m.replaceOne(b, own, in)
	}
}

func (m *modelLedger) replaceOne(b, own registry.BatchID, in registry.Ingest) {
	all, at := m.ingests[b], 0
	for at < len(all) && all[at].Seq < in.Seq {
		at++
	}
	already := at < len(all) && all[at].Seq == in.Seq
	if b.DatasetID == own.DatasetID && b != own && at > 0 && !all[at-1].Retired && !already {
		m.ingests[b] = slices.Insert(slices.Clone(all), at, registry.Ingest{Seq: in.Seq, Run: in.Run, Retired: true, By: own.Batch})
	}
}

// replaceAgain retires batches that are no longer replaced by an ingest, and are by later ones.
func (m *modelLedger) replaceAgain(dataset uint32, after int64, returned []registry.BatchID) {
	by := map[registry.Ingest]registry.BatchID{}
	for b, all := range m.ingests {
		for _, in := range all {
			switch {
			case b.DatasetID != dataset || in.Seq <= after:
			case in.By != "":
				by[registry.Ingest{Seq: in.Seq, Run: in.Run}] = registry.BatchID{DatasetID: dataset, Batch: in.By}
			case in.Replaces && in.Digest != "":
				by[registry.Ingest{Seq: in.Seq, Run: in.Run}] = b
			}
		}
	}
	inOrder := slices.SortedFunc(maps.Keys(by), func(a, b registry.Ingest) int { return int(a.Seq - b.Seq) })
	for _, b := range returned {
		for _, in := range inOrder {
			m.replaceOne(b, by[in], in)
		}
	}
}

func (m *modelLedger) current(b registry.BatchID) (in registry.Ingest) {
	for _, i := range m.ingests[b] {
		if i.Digest != "" || i.Retired {
			in = i
		}
	}
	return in
}

// state is what a version is to have of a batch: a digest, "retired", or "" for nothing known.
func (m *modelLedger) state(b registry.BatchID) string {
	if in := m.current(b); in.Retired {
		return "retired"
	} else {
		return in.Digest
	}
}

func (m *modelLedger) at(b registry.BatchID, run string) *registry.Ingest {
	for i := range m.ingests[b] {
		if m.ingests[b][i].Run == run && !m.ingests[b][i].Retired {
			return &m.ingests[b][i]
		}
	}
	return nil
}

func (m *modelLedger) pending() map[registry.BatchID]string {
	pending := map[registry.BatchID]string{}
	for b := range m.ingests {
		if d := m.state(b); d != "" && d != m.settled[b] {
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
		m := modelLedger{map[registry.BatchID][]registry.Ingest{}, map[registry.BatchID]string{}, map[int]int64{}}
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
			switch r.IntN(10) {
			case 0, 1:
				_, err = registry.RegisterIngest(ctx, store, b.DatasetID, b.Batch, run)
				if own == nil {
					m.ingests[b] = append(m.ingests[b], registry.Ingest{Seq: m.next(b.DatasetID), Run: run})
				}
			case 2, 3:
				f := registry.Finish{IngestID: registry.IngestID{DatasetID: b.DatasetID, Batch: b.Batch, Run: run}, Digest: digest}
				f.Replace = r.IntN(3) == 0
				out := registry.FinishIngests(ctx, store, []registry.Finish{f})[0]
				var current bool
				current, err = out.Current, out.Err
				if own == nil {
					if !errors.Is(err, registry.ErrUnknownRun) {
						t.Fatalf("seed %d, step %d: %v", seed, step, err)
					}
					err = nil
					break
				}
				if f.Replace && own.Digest == "" {
					own.Replaces = true
					m.replace(b, *own)
				}
				if !own.Is(digest) {
					own.Digest, own.MovedFrom = digest, ""
				}
				if in := m.current(b); current != (in.Run == run && !in.Retired) { // else a later one, or it is retired
					t.Fatalf("seed %d, step %d: current %v, want %+v", seed, step, current, in)
				}
			case 4:
				err = registry.AbandonIngest(ctx, store, b.DatasetID, b.Batch, run)
				m.ingests[b] = slices.DeleteFunc(m.ingests[b], func(i registry.Ingest) bool { return i.Run == run && !i.Finished() })
			case 5:
				var returned []registry.BatchID
				_, _, err = registry.WithdrawIngest(ctx, store, b.DatasetID, b.Batch, run, "")
				if own != nil && own.Digest == m.settled[b] {
					m.settled[b] = ""
				}
				for other, all := range m.ingests {
					if own == nil || !own.Replaces || other.DatasetID != b.DatasetID {
						continue
					}
					rest := slices.DeleteFunc(slices.Clone(all), func(i registry.Ingest) bool { return i.By == b.Batch && i.Run == run })
					if len(rest) < len(all) {
						m.ingests[other], m.settled[other] = rest, ""
						returned = append(returned, other)
					}
				}
				if own != nil {
					after := own.Seq // own is in what is deleted now
					m.ingests[b] = slices.DeleteFunc(m.ingests[b], func(i registry.Ingest) bool { return i.Run == run && !i.Retired })
					m.replaceAgain(b.DatasetID, after, returned)
				}
			case 6:
				in := m.current(b)
				if in.Retired {
					digest = "moved" // which no record of the batch has
				}
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
				waiting := m.pending()
				ids := slices.Collect(maps.Keys(waiting))
				slices.SortFunc(ids, func(a, b registry.BatchID) int { // so that a seed stands for a sequence
					return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
				})
				for _, b := range ids {
					if d := waiting[b]; r.IntN(2) == 0 {
						in := registry.Pending{DatasetID: b.DatasetID, Batch: b.Batch, Digest: d}
						if d == "retired" {
							in.Digest, in.Retired = "", true
						}
						published = append(published, in)
						m.settled[b] = d
					}
				}
				err = registry.Settle(ctx, store, "v1", published)
			case 8:
				before := m.current(b)
				out := registry.RetireBatches(ctx, store, fmt.Sprint("retire", step), []registry.BatchID{b})[0]
				switch {
				case before.Retired:
					if !out.Already || out.Err != nil {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				case before.Digest == "":
					if !errors.Is(out.Err, registry.ErrNoIngest) {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				default:
					m.ingests[b] = append(m.ingests[b], registry.Ingest{
						Seq: m.next(b.DatasetID), Run: fmt.Sprint("retire", step), Retired: true,
					})
					if err = out.Err; out.Ingest.Digest != before.Digest || out.Already {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				}
			case 9:
				retired := m.current(b).Retired
				var rest []registry.Ingest
				for n, in := range m.ingests[b] {
					if !in.Retired || slices.ContainsFunc(m.ingests[b][n:], func(i registry.Ingest) bool { return i.Digest != "" }) {
						rest = append(rest, in)
					}
				}
				out := registry.RestoreBatches(ctx, store, []registry.BatchID{b})[0]
				back := (&modelLedger{ingests: map[registry.BatchID][]registry.Ingest{b: rest}}).current(b)
				switch {
				case back.Digest == "": // what finished was withdrawn
					if !errors.Is(out.Err, registry.ErrNoIngest) {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				case !retired:
					if !errors.Is(out.Err, registry.ErrNotRetired) {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				default:
					m.ingests[b], m.settled[b] = rest, ""
					if err = out.Err; out.Ingest.Digest != back.Digest {
						t.Fatalf("seed %d, step %d: %+v", seed, step, out)
					}
				}
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			// Once a version has an ingest, an earlier entry that retired the batch has no say.
			for b, digest := range m.settled {
				if digest != "" && m.current(b).Digest == digest {
					m.ingests[b] = slices.DeleteFunc(m.ingests[b], func(i registry.Ingest) bool { return i.Retired })
					for i := range m.ingests[b] {
						m.ingests[b][i].Replaces = false
					}
				}
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
		got[registry.BatchID{DatasetID: p.DatasetID, Batch: p.Batch}] = stateOf(p)
	}
	if d := cmp.Diff(m.pending(), got); d != "" {
		t.Errorf("pending: %s", d)
	}
	want := int64(0)
	for _, d := range m.settled {
		if d != "" && d != "retired" {
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
		finished[registry.BatchID{DatasetID: p.DatasetID, Batch: p.Batch}] = stateOf(p)
	}
	wantAll := map[registry.BatchID]string{}
	for b := range m.ingests {
		if d := m.state(b); d != "" {
			wantAll[b] = d
		}
	}
	if d := cmp.Diff(wantAll, finished); d != "" {
		t.Errorf("all: %s", d)
	}
	compareStates(t, store, m)
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
			if len(have)+len(want) > 0 && !slices.Equal(have, want) {
				t.Errorf("%v: %+v, want %+v", b, have, want)
			}
		}
	}
}

func stateOf(p registry.Pending) string {
	if p.Retired {
		return "retired"
	}
	return p.Digest
}

// compareStates compares what the ledger says of the batches of each dataset.
func compareStates(t *testing.T, store blob.Store, m *modelLedger) {
	t.Helper()
	for b, all := range m.ingests {
		states, err := registry.BatchStates(t.Context(), store, b.DatasetID)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(states, func(s registry.BatchState) bool { return s.Batch == b.Batch })
		finished := slices.ContainsFunc(all, func(i registry.Ingest) bool { return i.Digest != "" })
		if finished != (at >= 0) || finished && states[at].Retired != m.current(b).Retired {
			t.Errorf("%v: states %+v, want %+v", b, states, all)
		}
		records, err := registry.CurrentBatches(t.Context(), store, b.DatasetID)
		if err != nil || records[b.Batch] != m.current(b).Digest {
			t.Errorf("%v: record %+v, %v, want %+v", b, records[b.Batch], err, m.current(b))
		}
	}
}
