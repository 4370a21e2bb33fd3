package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// maxKeyword is the longest value of a search attribute that every store of Temporal takes.
const maxKeyword = 255

// setAttributes sets search attributes of the workflow, given as name, value, name, value, …. Plans
// say whether they may be set.
func setAttributes(ctx workflow.Context, searchable bool, attributes ...string) error {
	if !searchable {
		return nil
	}
	var updates []temporal.SearchAttributeUpdate
	for i := 0; i < len(attributes); i += 2 {
		if name, value := attributes[i], attributes[i+1]; value != "" && len(value) <= maxKeyword {
			updates = append(updates, temporal.NewSearchAttributeKeyKeyword(name).ValueSet(value))
		}
	}
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// planned sets the attributes of an ingest whose plan is made.
func (f *ingestFlow) planned(ctx workflow.Context) error {
	return setAttributes(ctx, f.Plan.Searchable, activities.AttributeLake, f.Lake,
		activities.AttributeDataset, f.Dataset, activities.AttributeBatch, f.Plan.Batch)
}
