package many_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
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
