package many_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/registry"
)

// More datasets than the ledger keeps ingests of are refused before anything is registered.
func TestTooManyDatasetsAreRefused(t *testing.T) {
	// Hard links of one file are made faster than files; a file may have some ten thousand.
	dir := t.TempDir()
	var inputs []string
	const links = 25_000
	for n := 0; n <= registry.MaxRunning; n++ {
		if n%links == 0 {
			inputs = append(inputs, filepath.Join(dir, fmt.Sprint("in", len(inputs))))
			writeList(t, filepath.Join(inputs[len(inputs)-1], fmt.Sprintf("%d.txt", n)), "https://a.test/\n")
			continue
		}
		in := inputs[len(inputs)-1]
		if err := os.Link(filepath.Join(in, fmt.Sprintf("%d.txt", n/links*links)), filepath.Join(in, fmt.Sprintf("%d.txt", n))); err != nil {
			t.Fatal(err)
		}
	}
	store := blob.NewMemory()
	_, err := many.Plan(t.Context(), store, testlake.Run(), specOf(store, many.FromFiles, inputs...))
	var input *ingest.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), fmt.Sprint(registry.MaxRunning+1)) {
		t.Errorf("%v", err)
	}
	if all, err := registry.Datasets(t.Context(), store); err != nil || len(all) > 0 {
		t.Errorf("%d datasets, %v", len(all), err)
	}
}

// An attempt of a group that was given up writes what it has done after another attempt has done
// all. What that has done stays.
func TestLateAttemptForgetsNothing(t *testing.T) {
	files := map[string]string{}
	const lists = 6
	for n := range lists {
		// Too large to be read beside others.
		files[fmt.Sprintf("%d.txt", n)] = strings.Repeat(fmt.Sprintf("https://a%d.test/%s\n", n, strings.Repeat("x", 100)), 12_000)
	}
	inner := blob.NewMemory()
	run := testlake.Run()
	plan, err := many.Plan(t.Context(), inner, run, specOf(inner, many.FromFiles, writeLists(t, files)))
	if err != nil || plan.Groups != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	attempt := func(ctx context.Context, store blob.Store, report func(many.Progress)) error {
		r, err := many.Open(t.Context(), store, run)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Group(ctx, store, 0, options(t), report)
		return err
	}
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.Contains(key, "/groups/") }, Nth: 1, Do: func() {
		if err := attempt(t.Context(), inner, func(many.Progress) {}); err != nil {
			t.Error(err)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := attempt(ctx, store, func(p many.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, o := range finish(t, inner, run) {
		if o.Error != "" {
			t.Errorf("%s: %s", o.Dataset, o.Error)
		}
	}
}
