package catalog_test

import (
	"context"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

func TestRegistryIsAsItsPageShows(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, d := range []lake.Dataset{
		{Name: "eot-2024", Title: "End of Term 2024 seeds", Source: "https://github.com/end-of-term/eot2024", Licence: "Apache-2.0"},
		{Name: "smallweb"},
	} {
		if _, err := catalog.RegisterDataset(ctx, store, d); err != nil {
			t.Fatal(err)
		}
	}
	for info, key := range map[string]string{"json datasets": lake.RegistryKey} {
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Shows(t, "registry.md", info, string(data))
	}
}
