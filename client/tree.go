package client

import (
	"context"
	"encoding/json"
	"iter"
)

// TreeOptions say what of a path tree is listed. The zero value lists the children of the node.
type TreeOptions struct {
	Query
	// Path is a host of the domain and a directory, as in "www.example.com/docs/", or a directory
	// of the host that is asked for, as in "/docs/". Empty is that host, or all hosts of a domain.
	Path string
	// Dataset is the ids or names of the only datasets that count, separated by commas.
	Dataset string
	// Depth is the number of levels that are listed, at most 16. 0 means one.
	Depth int
	// MinCount and MinBytes leave out nodes with fewer rows, or a smaller sum of sizes.
	MinCount, MinBytes int64
	// Sort is "name", the default, or "rows" or "size" for the largest first.
	Sort string
	// Top lists so many children of each node, those with the most rows unless Sort says "size".
	Top int
	// PageSize is the number of children of a page, at most 10,000. 0 means the server's default.
	PageSize int
}

// TreeSums are the rows at and below a node of a path tree.
type TreeSums struct {
	Rows       int64 `json:"rows"`
	DirectRows int64 `json:"direct_rows"` // at the node itself
	// Size is the sum of the sizes of the rows, nil if no row has one, or if the sum is too large,
	// which SizeOverflow says.
	Size         *int64 `json:"size"`
	SizeOverflow bool   `json:"size_overflow,omitempty"`
}

// TreePage is a node of a path tree and a page of its children.
type TreePage struct {
	Answered
	// Path is host and directory, with a slash at the end. It is empty for the domain.
	Path string `json:"path"`
	TreeSums
	// TotalChildren counts all children of the node, MatchingChildren those that MinCount and
	// MinBytes leave, on all pages.
	TotalChildren    int64      `json:"total_children"`
	MatchingChildren int64      `json:"matching_children"`
	Children         []TreeNode `json:"children"`
	Explain          *Explain   `json:"explain,omitempty"`
	Page
}

// TreeNode is a host or a directory.
type TreeNode struct {
	// Name is the last part of Path, with its slash.
	Name string `json:"name"`
	Path string `json:"path"`
	TreeSums
	// TotalChildren counts the children of a node whose children are listed.
	TotalChildren int64        `json:"total_children,omitempty"`
	Children      TreeChildren `json:"children"`
}

// TreeChildren are the children of a node: their number on the last level that is listed, else
// nodes.
type TreeChildren struct {
	Number int64
	Nodes  []TreeNode
}

// UnmarshalJSON reads a number or a list.
func (c *TreeChildren) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &c.Nodes)
	}
	return json.Unmarshal(data, &c.Number)
}

// Tree yields what is below a path of a site, a page of children at a time. Text is a domain, a
// host or a URL in any spelling.
func (c *Client) Tree(ctx context.Context, text string, opt TreeOptions) iter.Seq2[*TreePage, error] {
	return pages[TreePage](ctx, c, at("/v1/domain/"+segment(text)+"/tree",
		"path", opt.Path, "dataset", opt.Dataset, "depth", number(opt.Depth), "min_count", number(opt.MinCount),
		"min_bytes", number(opt.MinBytes), "sort", opt.Sort, "top", number(opt.Top), "limit", number(opt.PageSize),
		"version", opt.Version, "cursor", opt.Cursor, "explain", opt.explain()))
}
