// Package find looks up what the user names. A name that the lake does not have is an error that
// says which one may be meant.
package find

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// Dataset returns the dataset of an id or a name.
func Dataset(ctx context.Context, store blob.Store, name string) (lake.Dataset, error) {
	if id, ok := lake.DatasetID(name); ok {
		found, err := catalog.FindDatasets(ctx, store, []uint32{id})
		if err != nil {
			return lake.Dataset{}, err
		}
		if d, ok := found[id]; ok {
			return d, nil
		}
		return lake.Dataset{}, fmt.Errorf("the lake has no dataset of the id %s; %s lists them", name, cli.Typed("starter datasets"))
	}
	found, err := catalog.DatasetsNamed(ctx, store, name)
	if err != nil {
		return lake.Dataset{}, err
	}
	if d, ok := found[name]; ok {
		return d, nil
	}
	all, err := catalog.Datasets(ctx, store)
	if err != nil {
		return lake.Dataset{}, err
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	if meant, ok := cli.Nearest(name, names); ok {
		return lake.Dataset{}, fmt.Errorf("the lake has no dataset %q; did you mean %q?", name, meant)
	}
	return lake.Dataset{}, fmt.Errorf("the lake has no dataset %q; %s lists them", name, cli.Typed("starter datasets"))
}
