package effect_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/effect"
)

// What is said of each ingest is what a map of the batches says, whatever of it is published.
func TestEffectIsAsItsModel(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		store, dir := blob.NewMemory(), t.TempDir()
		type batch struct {
			rows    int64
			files   []string
			retired bool
		}
		model := map[string]map[string]*batch{"alpha": {}, "beta": {}}
		for i := range 6 { // files of 1, 2, … rows; each is of another size
			text := ""
			for n := range i + 1 {
				text += fmt.Sprintf("https://site.test/%d/%d\n", i, n)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		published := map[string]int64{} // rows by dataset and batch
		publish := func() {
			testlake.Publish(t, store)
			published = map[string]int64{}
			for dataset, batches := range model {
				for name, b := range batches {
					if !b.retired {
						published[dataset+name] = b.rows
					}
				}
			}
		}
		for step := range 80 {
			dataset, name := []string{"alpha", "beta"}[r.IntN(2)], fmt.Sprint("b", r.IntN(4))
			was := model[dataset][name]
			switch r.IntN(6) {
			case 0:
				publish()
				continue
			case 1:
				if was == nil || was.retired {
					continue
				}
				found, err := catalog.DatasetsNamed(t.Context(), store, dataset)
				if err != nil {
					t.Fatal(err)
				}
				id := catalog.BatchName{DatasetID: found[dataset].ID, Batch: name}
				testlake.Retire(t, store, id)
				was.retired = true
				continue
			}
			now := &batch{}
			var inputs []string
			for i := range 6 {
				if r.IntN(3) == 0 || i == 5 && len(inputs) == 0 {
					now.files, now.rows = append(now.files, fmt.Sprint(i)), now.rows+int64(i)+1
					inputs = append(inputs, filepath.Join(dir, fmt.Sprint(i)))
				}
			}
			spec := ingest.Spec{Lake: store.URL(), Dataset: dataset, Batch: name, Inputs: inputs, Replace: r.IntN(4) == 0}
			version := published
			done := testlake.IngestSpec(t, store, spec)
			got := done.Effect
			want := &effect.Effect{}
			if was != nil {
				want.Replaced, want.Returned = !was.retired, was.retired
				if want.Replaced {
					want.ReplacedRows = was.rows
				}
			}
			for _, other := range []string{"b0", "b1", "b2", "b3"} {
				b := model[dataset][other]
				if other == name || b == nil || b.retired {
					continue
				}
				if spec.Replace {
					b.retired = true
					if rows := version[dataset+other]; rows > 0 {
						want.Displaced++
						want.DisplacedRows += rows
					}
					continue
				}
				want.OtherRows += b.rows
				want.OtherBatches++
				same := 0
				for _, f := range b.files {
					if strings.Contains(strings.Join(now.files, ""), f) {
						same++
					}
				}
				if same > 0 {
					want.Shared = append(want.Shared, effect.Shared{Batch: other, Inputs: same})
					want.SharedBatches++
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("seed %d, step %d, %s %s (-want +got):\n%s", seed, step, dataset, name, d)
			}
			model[dataset][name] = now
		}
	}
}

// An ingest that a later one, or a retirement, has overtaken did nothing. Damage of other records
// is not in the way.
func TestEffectOfWhatWasOvertaken(t *testing.T) {
	store := blob.NewMemory()
	one := testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "https://a.test/"}})
	first := testlake.Finished(t, store, 1, "b").Start
	if err := store.Delete(t.Context(), one.BatchKey); err != nil {
		t.Fatal(err)
	}
	two := testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "https://b.test/"}})
	second := testlake.Finished(t, store, 1, "b").Start
	if e, current, err := effect.Of(t.Context(), store, two.BatchKey, first, false); e != nil || current || err != nil {
		t.Errorf("%+v, %v, %v", e, current, err)
	}
	if d := cmp.Diff(&effect.Effect{Replaced: true, ReplacedRows: -1}, two.Effect); d != "" {
		t.Error(d)
	}
	testlake.Retire(t, store, catalog.BatchName{DatasetID: 1, Batch: "b"})
	e, current, err := effect.Of(t.Context(), store, two.BatchKey, second, false)
	if d := cmp.Diff(&effect.Effect{Retired: true}, e); d != "" || current || err != nil {
		t.Errorf("%v, %v, %s", current, err, d)
	}
	other := testlake.Ingest(t, store, "alpha", "c", []testlake.Record{{URL: "https://b.test/"}})
	testlake.Publish(t, store)
	if err := store.Delete(t.Context(), other.BatchKey); err != nil {
		t.Fatal(err)
	}
	last := testlake.Ingest(t, store, "alpha", "d", []testlake.Record{{URL: "https://b.test/"}})
	if d := cmp.Diff(&effect.Effect{OtherRows: 1, OtherBatches: 1, Uncompared: 1}, last.Effect); d != "" {
		t.Error(d)
	}
}

// A small ingest reads little of a dataset, however large its parts and records are.
func TestReadsAreBounded(t *testing.T) {
	const batches, rows, most = 10, 2000, 13 << 20
	store := blob.NewMemory()
	list := func(seed uint64, n int) (all []testlake.Record) {
		random := rand.NewChaCha8([32]byte{byte(seed)})
		path := make([]byte, 900)
		for i := range n {
			_, _ = random.Read(path)
			all = append(all, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%x", i%7, path)})
		}
		return all
	}
	for i := range uint64(batches) {
		testlake.Ingest(t, store, "alpha", fmt.Sprint("b", i), list(i, rows))
	}
	testlake.Publish(t, store)
	done := testlake.Ingest(t, store, "alpha", "new", list(0, 3))
	start := testlake.Finished(t, store, 1, "new").Start
	for info, err := range store.List(t.Context(), fmt.Sprintf("%s1/%019d", catalog.PendingRoot, start)) {
		if err == nil {
			err = store.Delete(t.Context(), info.Key) // as if it had not finished
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	counting := blob.NewCounting(store)
	e, _, err := effect.Of(t.Context(), counting, done.BatchKey, start, false)
	want := &effect.Effect{OtherRows: batches * rows, OtherBatches: batches}
	if d := cmp.Diff(want, e); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	if n := counting.Reads().Bytes; n > 1<<20 {
		t.Errorf("%d bytes were read", n)
	}
	for info, err := range store.List(t.Context(), "batches/dataset_id=1/b") {
		if err == nil {
			_, err = store.Put(t.Context(), info.Key, make([]byte, 4<<20), blob.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	counting = blob.NewCounting(store)
	e, _, err = effect.Of(t.Context(), counting, done.BatchKey, start, false)
	want.Uncompared = batches
	if d := cmp.Diff(want, e); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	if n := counting.Reads().Bytes; n > most {
		t.Errorf("%d bytes of records were read, want at most %d", n, most)
	}
}
