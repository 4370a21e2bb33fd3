package client

import (
	"context"
	"iter"
)

// Dataset is a dataset of a version. Title, Source and Licence may be empty.
type Dataset struct {
	ID      uint32 `json:"dataset_id"`
	Name    string `json:"name"`
	Title   string `json:"title"`
	Source  string `json:"source"`
	Licence string `json:"licence"`
	Rows    int64  `json:"rows"`
	Batches int64  `json:"batches"`
	// Parts counts the Parquet files, Bytes is their size.
	Parts int64 `json:"parts"`
	Bytes int64 `json:"bytes"`
}

// DatasetPage is one page of the datasets of a version.
type DatasetPage struct {
	Page
	Version       string `json:"version"`
	TakedownEpoch int64  `json:"takedown_epoch"`
	// Total and Rows count the datasets and the rows of the whole version.
	Total    int64     `json:"total_datasets"`
	Rows     int64     `json:"rows"`
	Datasets []Dataset `json:"datasets"`
}

// DatasetsOptions are the settings of a list of datasets.
type DatasetsOptions struct {
	At
	// Cursor continues a list: the NextCursor of one of its pages.
	Cursor string
}

// Datasets yields the datasets of a version, by id.
func (c *Client) Datasets(ctx context.Context, opt DatasetsOptions) iter.Seq2[Dataset, error] {
	return elements(c.DatasetPages(ctx, opt), func(p *DatasetPage) []Dataset { return p.Datasets })
}

// DatasetPages yields the pages of Datasets.
func (c *Client) DatasetPages(ctx context.Context, opt DatasetsOptions) iter.Seq2[*DatasetPage, error] {
	return pages[DatasetPage](ctx, c, at("/v1/datasets", "version", opt.Version, "cursor", opt.Cursor))
}

// DatasetTop is one dataset of a version, with its largest domains. Title, Source and Licence may
// be empty.
type DatasetTop struct {
	Version       string `json:"version"`
	TakedownEpoch int64  `json:"takedown_epoch"`
	ID            uint32 `json:"dataset_id"`
	Name          string `json:"name"`
	Title         string `json:"title"`
	Source        string `json:"source"`
	Licence       string `json:"licence"`
	Batches       int64  `json:"batches"`
	// Parts counts the Parquet files, Bytes is their size.
	Parts int64 `json:"parts"`
	Bytes int64 `json:"bytes"`
	// Domains counts the domains of which the dataset has rows.
	Domains int64 `json:"total_domains"`
	Totals
	// ByRows and BySize are the largest domains, at most 20 of each. Those without sizes are not in
	// BySize.
	ByRows []DomainSum `json:"top_by_rows"`
	BySize []DomainSum `json:"top_by_size"`
}

// Dataset returns a dataset, which is an id or a name, with its largest domains. A server that does
// not know them yet reads all postings of the version; until it has, it answers 503, which is a
// *Problem of the kind Computing once all attempts are used up.
func (c *Client) Dataset(ctx context.Context, dataset string, of At) (*DatasetTop, error) {
	var d DatasetTop
	if err := c.get(ctx, at("/v1/datasets/"+segment(dataset), "version", of.Version), &d); err != nil {
		return nil, err
	}
	return &d, nil
}
