package many

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

func takenID(i int) catalog.BatchName {
	return catalog.BatchName{DatasetID: uint32(i/365 + 1), Batch: fmt.Sprintf("2026-%03d", i%365)}
}

// What was taken up grows with every batch of every dataset. To remember one more, and to look for
// it, costs no more than a few pieces.
func TestRememberingCostsWhatIsNew(t *testing.T) {
	memory := blob.NewMemory()
	const n = 50_000
	more := map[catalog.BatchName]takenBatch{}
	for i := range n {
		d := lake.Digest(fmt.Append(nil, i))
		more[takenID(i)] = takenBatch{Fingerprint: d, Start: int64(i)}
	}
	if err := remember(t.Context(), memory, more); err != nil {
		t.Fatal(err)
	}
	store := blob.NewCounting(memory)
	one := takenBatch{Fingerprint: "f", Start: 7}
	for _, i := range []int{n / 2, n} { // another one, a new one
		if err := remember(t.Context(), store, map[catalog.BatchName]takenBatch{takenID(i): one}); err != nil {
			t.Fatal(err)
		}
	}
	ids := []catalog.BatchName{takenID(0), takenID(n / 2), takenID(n), takenID(n + 1)}
	found, err := readTaken(t.Context(), store, ids)
	want := map[catalog.BatchName]takenBatch{ids[0]: more[ids[0]], ids[1]: one, ids[2]: one}
	if err != nil || len(found) != len(want) {
		t.Fatalf("%v, %v", found, err)
	}
	for id, w := range want {
		if found[id] != w {
			t.Errorf("%v: %+v, want %+v", id, found[id], w)
		}
	}
	r, w := store.Reads(), store.Writes()
	t.Logf("read %d bytes in %d requests, written %d in %d", r.Bytes, r.Requests, w.Bytes, w.Requests)
	if r.Bytes+w.Bytes > 1<<20 || r.Requests+w.Requests > 60 {
		t.Errorf("read %d bytes in %d requests, written %d in %d", r.Bytes, r.Requests, w.Bytes, w.Requests)
	}
}

// What is damaged is as good as none.
func TestDamagedPiecesOfTaken(t *testing.T) {
	store := blob.NewMemory()
	one := takenBatch{Fingerprint: "f", Start: 7}
	id := catalog.BatchName{DatasetID: 8, Batch: "b"}
	for _, when := range []string{"at first", "after damage"} {
		if found, err := readTaken(t.Context(), store, []catalog.BatchName{id}); err != nil || len(found) != 0 {
			t.Errorf("%s: %v, %v", when, found, err)
		}
		if err := remember(t.Context(), store, map[catalog.BatchName]takenBatch{id: one}); err != nil {
			t.Fatal(err)
		}
		if found, err := readTaken(t.Context(), store, []catalog.BatchName{id}); err != nil || found[id] != one {
			t.Errorf("%s, then remembered: %v, %v", when, found, err)
		}
		for info, err := range store.List(t.Context(), TakenRoot) {
			if err == nil {
				err = store.Delete(t.Context(), info.Key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
