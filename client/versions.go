package client

import (
	"context"
	"iter"
)

// Version is a published version.
type Version struct {
	ID      string `json:"version"`
	Current bool   `json:"current"`
	// Tags are names, which stand for the id wherever a version is asked for.
	Tags    []string `json:"tags"`
	Created Time     `json:"created"`
	BuiltBy string   `json:"built_by"`
	// Parent is the version from which this one was built, empty for the first.
	Parent           string `json:"parent"`
	Commit           string `json:"commit"`
	CanonicalForm    string `json:"canonical_form"`
	PublicSuffixList string `json:"public_suffix_list"`
	// The counts are nil for those who may not read all datasets.
	Datasets   *int64 `json:"datasets"`
	Batches    *int64 `json:"batches"`
	Parts      *int64 `json:"parts"`
	Rows       *int64 `json:"rows"`
	PartBytes  *int64 `json:"part_bytes"`
	Segments   *int64 `json:"segments"`
	IndexBytes *int64 `json:"index_bytes"`
	// DatasetsAdded, BatchesAdded and RowsAdded are the counts less the parent's. They are nil if
	// the parent is no longer kept, too.
	DatasetsAdded *int64 `json:"datasets_added"`
	BatchesAdded  *int64 `json:"batches_added"`
	RowsAdded     *int64 `json:"rows_added"`
}

// VersionPage is one page of the versions of a lake.
type VersionPage struct {
	Page
	Current string `json:"current_version"`
	// Total counts all versions that are kept.
	Total    int64     `json:"total_versions"`
	Versions []Version `json:"versions"`
}

// VersionsOptions are the settings of a list of versions.
type VersionsOptions struct {
	// PageSize is the number of versions of a page, at most 100. 0 means the server's default.
	PageSize int
	// Cursor continues a list: the NextCursor of one of its pages.
	Cursor string
}

// Versions yields the versions that are kept, newest first.
func (c *Client) Versions(ctx context.Context, opt VersionsOptions) iter.Seq2[Version, error] {
	return elements(c.VersionPages(ctx, opt), func(p *VersionPage) []Version { return p.Versions })
}

// VersionPages yields the pages of Versions.
func (c *Client) VersionPages(ctx context.Context, opt VersionsOptions) iter.Seq2[*VersionPage, error] {
	return pages[VersionPage](ctx, c, at("/v1/versions", "limit", number(opt.PageSize), "cursor", opt.Cursor))
}

// DiffOptions select what is compared. The zero value compares the current version with the one
// that it followed.
type DiffOptions struct {
	// From and To are ids or tags of versions.
	From, To string
	// Dataset is the id or name of the only dataset to compare. Empty means all.
	Dataset string
	// PageSize is the number of changes of a page, at most 10,000. 0 means the server's default.
	PageSize int
	// Cursor continues a list: the NextCursor of one of its pages.
	Cursor string
	// Explain asks for the reads of the store, which each page then has.
	Explain bool
}

// Change is a domain of a dataset whose totals differ.
type Change struct {
	// Kind is added, removed or changed.
	Kind      string `json:"change"`
	Domain    string `json:"domain"`
	DomainID  ID     `json:"domain_id"`
	DatasetID uint32 `json:"dataset_id"`
	Name      string `json:"name"`
	// Before is nil if the domain was added to the dataset, After if it was removed from it.
	Before *Totals `json:"before"`
	After  *Totals `json:"after"`
}

// DiffPage is one page of what differs. It may be empty and not the last if the server's deadline
// ended it.
type DiffPage struct {
	Page
	From          string   `json:"from"`
	To            string   `json:"to"`
	TakedownEpoch int64    `json:"takedown_epoch"`
	Changes       []Change `json:"changes"`
	Explain       *Explain `json:"explain,omitempty"`
}

// Diff yields what changed between two versions, by domain and dataset.
func (c *Client) Diff(ctx context.Context, opt DiffOptions) iter.Seq2[Change, error] {
	return elements(c.DiffPages(ctx, opt), func(p *DiffPage) []Change { return p.Changes })
}

// DiffPages yields the pages of Diff.
func (c *Client) DiffPages(ctx context.Context, opt DiffOptions) iter.Seq2[*DiffPage, error] {
	return pages[DiffPage](ctx, c, at("/v1/diff", "from", opt.From, "to", opt.To, "dataset", opt.Dataset,
		"limit", number(opt.PageSize), "cursor", opt.Cursor, "explain", flag(opt.Explain, "1")))
}
