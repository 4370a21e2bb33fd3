package registry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

func TestRegistryIsAsItsPageShows(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, d := range []lake.Dataset{
		{Name: "eot-2024", Title: "End of Term 2024 seeds", Source: "https://github.com/end-of-term/eot2024", Licence: "Apache-2.0"},
		{Name: "smallweb"},
	} {
		if _, err := registry.RegisterDataset(ctx, store, d); err != nil {
			t.Fatal(err)
		}
	}
	for i, finish := range []bool{true, true, false} {
		run := fmt.Sprintf("run-%d", i+1)
		if _, err := registry.RegisterIngest(ctx, store, 1, "2024-11", run); err != nil {
			t.Fatal(err)
		}
		if finish {
			if _, err := registry.FinishIngest(ctx, store, 1, "2024-11", run, lake.Digest([]byte(run))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for info, key := range map[string]string{"json datasets": lake.RegistryKey, "json ingests": registry.ShardKey(registry.ShardOf(1))} {
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Shows(t, "registry.md", info, string(data))
	}
}
