package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/registry"
)

// listedLake writes a registry as builds before shards and pieces did: dataset n of the list has n
// batches, the last of them without an end.
func listedLake(t *testing.T, store blob.Store, datasets int) {
	t.Helper()
	put := func(key string, doc any) {
		t.Helper()
		data, err := codec.Seal(doc)
		if err == nil {
			_, err = store.Put(t.Context(), key, data, blob.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type entry map[string]any
	var list []entry
	for id := 1; id <= datasets; id++ {
		d := entry{"dataset_id": id, "name": fmt.Sprint("d", id), "title": "old"}
		list = append(list, d)
		put(fmt.Sprintf("registry/datasets/dataset_id=%d.json", id), entry{"format": 1, "dataset": d})
		var ingests []entry
		for n := 1; n <= id; n++ {
			in := entry{"seq": n, "batch": fmt.Sprint("b", n), "run": fmt.Sprint("run", n), "digest": fmt.Sprint("digest", n)}
			if n == id {
				delete(in, "digest")
			}
			ingests = append(ingests, in)
		}
		put(fmt.Sprintf("registry/batches/dataset_id=%d.json", id),
			entry{"format": 1, "dataset_id": id, "next_seq": id + 1, "ingests": ingests})
	}
	put(lake.RegistryKey, entry{"format": 1, "rules": lake.CurrentRules(), "next_id": datasets + 1, "datasets": list})
}

// A lake of an earlier build is read as it is. The first write, wherever its writer dies, turns it
// into shards and pieces, and nothing is forgotten.
func TestListsBecomeShards(t *testing.T) {
	const datasets = 40
	check := func(t *testing.T, store blob.Store, when string) {
		t.Helper()
		all, err := registry.Datasets(t.Context(), store)
		if err != nil || len(all) < datasets {
			t.Fatalf("%s: %d datasets, %v", when, len(all), err)
		}
		for i, d := range all[:datasets] {
			if want := (lake.Dataset{ID: uint32(i + 1), Name: fmt.Sprint("d", i+1), Title: "old"}); d != want {
				t.Errorf("%s: %+v, want %+v", when, d, want)
			}
		}
		pending, settled, err := registry.PendingBatches(t.Context(), store, func(_ int, err error) { t.Error(err) })
		if err != nil || len(pending) != datasets*(datasets-1)/2 || settled != 0 {
			t.Errorf("%s: %d wait, %d are settled, %v", when, len(pending), settled, err)
		}
		got, err := registry.CurrentBatches(t.Context(), store, 4)
		if d := cmp.Diff(map[string]string{"b1": "digest1", "b2": "digest2", "b3": "digest3"}, got); d != "" || err != nil {
			t.Errorf("%s: %v, %s", when, err, d)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	store := blob.NewMemory()
	listedLake(t, store, datasets)
	if ok, err := registry.FinishIngest(t.Context(), store, 7, "b7", "run7", "digest7"); err != nil || !ok {
		t.Errorf("current %v, %v", ok, err)
	}
	if err := store.Delete(t.Context(), registry.ShardKey(7)); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.CurrentBatches(t.Context(), store, 7); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a lost shard: %v", err)
	}
	died := errors.New("the writer dies")
	for puts := 1; ; puts++ {
		inner := blob.NewMemory()
		listedLake(t, inner, datasets)
		check(t, inner, "before")
		// The n-th write of the writer fails, and all after it.
		store := &dying{Store: inner, err: died}
		store.left.Store(int64(puts))
		_, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "new"})
		check(t, inner, fmt.Sprintf("after %d puts", puts))
		d, again := registry.RegisterDataset(t.Context(), inner, lake.Dataset{Name: "new"})
		if again != nil || d.ID != datasets+1 {
			t.Fatalf("after %d puts: %+v, %v", puts, d, again)
		}
		check(t, inner, "afterwards")
		if err != nil {
			continue
		}
		// The ingest that was running goes on.
		if ok, err := registry.FinishIngest(t.Context(), inner, 7, "b7", "run7", "digest7"); err != nil || !ok {
			t.Errorf("current %v, %v", ok, err)
		}
		for info, err := range inner.List(t.Context(), "registry/") {
			if err != nil || strings.Contains(info.Key, "dataset_id=") {
				t.Errorf("%s is left, %v", info.Key, err)
			}
		}
		if puts < registry.Shards {
			t.Errorf("after %d puts no writer died", puts)
		}
		return
	}
}

// dying is a store whose writer can put a number of objects.
type dying struct {
	blob.Store
	left atomic.Int64
	err  error
}

func (d *dying) Put(ctx context.Context, key string, data []byte, c blob.Condition) (blob.Info, error) {
	if d.left.Add(-1) < 0 {
		return blob.Info{}, d.err
	}
	return d.Store.Put(ctx, key, data, c)
}

// A reader that has begun with the lists reads on in the shards if the lists are removed meanwhile.
func TestListsLeaveUnderAReader(t *testing.T) {
	inner := blob.NewMemory()
	listedLake(t, inner, 4)
	store := blobtest.NewFaulty(inner)
	first := registry.ShardKey(registry.ShardOf(4))
	store.Inject(blobtest.Fault{Op: blob.OpGet, Key: func(key string) bool { return key == first }, Nth: 1, After: true, Do: func() {
		if _, err := registry.RegisterDataset(t.Context(), inner, lake.Dataset{Name: "new"}); err != nil {
			t.Error(err)
		}
	}})
	got, err := registry.CurrentBatches(t.Context(), store, 4)
	if d := cmp.Diff(map[string]string{"b1": "digest1", "b2": "digest2", "b3": "digest3"}, got); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	// Between the document of the datasets and a list.
	inner = blob.NewMemory()
	listedLake(t, inner, 4)
	store = blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpGet, Key: func(key string) bool { return key == lake.RegistryKey }, Nth: 1, After: true, Do: func() {
		if _, err := registry.RegisterDataset(t.Context(), inner, lake.Dataset{Name: "new"}); err != nil {
			t.Error(err)
		}
	}})
	got, err = registry.CurrentBatches(t.Context(), store, 4)
	if d := cmp.Diff(map[string]string{"b1": "digest1", "b2": "digest2", "b3": "digest3"}, got); d != "" || err != nil {
		t.Errorf("between: %v, %s", err, d)
	}
}
