package client

import (
	"context"
	"fmt"
	"iter"
	"strings"
)

// At selects the version to ask.
type At struct {
	// Version is the id or a tag of a version. Empty means the current one.
	Version string
}

// Query is what all queries have.
type Query struct {
	// Version is the id or a tag of a version. Empty means the one of Cursor, or the current one.
	Version string
	// Cursor continues a list with the same selection: the NextCursor of one of its pages.
	Cursor string
	// Explain asks for the reads of the store, which only those may see who may read all datasets.
	Explain bool
}

// explain is the parameter.
func (q *Query) explain() string { return flag(q.Explain, "1") }

// Explain are the reads of the store for an answer. Accesses to mapped files and caches are none.
type Explain struct {
	Requests int64  `json:"requests"`
	Bytes    int64  `json:"bytes"`
	Reads    []Read `json:"reads"`
}

// Read is a read of the store: so many bytes from an offset of an object.
type Read struct {
	Op     string `json:"op"`
	Object string `json:"object"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Failed bool   `json:"failed,omitempty"`
}

// add adds the reads of a further page.
func (e *Explain) add(more *Explain) *Explain {
	if e == nil || more == nil {
		return e
	}
	e.Requests, e.Bytes, e.Reads = e.Requests+more.Requests, e.Bytes+more.Bytes, append(e.Reads, more.Reads...)
	return e
}

// Totals sum up rows of one domain in one dataset. What no row has is nil.
type Totals struct {
	// Rows is exact. A URL is several rows if it has several times, sizes or batches.
	Rows int64 `json:"url_count_est"`
	// Size is the sum of the column that was named as size at ingest. It is nil too if the sum is
	// 2⁶³−1 or more; SizeOverflow says so.
	Size         *int64 `json:"size"`
	SizeOverflow bool   `json:"size_overflow,omitempty"`
	First        *Time  `json:"first_ts"`
	Last         *Time  `json:"last_ts"`
}

// Answered says which question an answer is about and from which version it is.
type Answered struct {
	// Domain is the domain in canonical form.
	Domain   string `json:"domain"`
	DomainID ID     `json:"domain_id"`
	Version  string `json:"version"`
	// TakedownEpoch grows with each takedown. Answers of one epoch hide the same rows.
	TakedownEpoch int64 `json:"takedown_epoch"`
	// PublicSuffixList and OtherDomains are there if the lake lacks the version's public suffix
	// list: the list's name, and the domains that the host could belong to as well.
	PublicSuffixList string   `json:"public_suffix_list,omitempty"`
	OtherDomains     []string `json:"other_domains,omitempty"`
}

// Page says where a page ends.
type Page struct {
	// Returned is the number of elements of the page.
	Returned int `json:"returned"`
	// Complete is whether the list ends with this page.
	Complete bool `json:"complete"`
	// StoppedBy is the limit of the server that ended the page early, or empty.
	StoppedBy string `json:"stopped_by"`
	// NextCursor and Next lead to the next page. Both are empty on the last one.
	NextCursor string `json:"next_cursor"`
	Next       string `json:"next"`
}

func (p *Page) end() *Page { return p }

// pages yields the pages of a list, from the one at path. P is an answer that has a Page.
func pages[P any, Q interface {
	*P
	end() *Page
}](ctx context.Context, c *Client, path string) iter.Seq2[*P, error] {
	return func(yield func(*P, error) bool) {
		for path := path; path != ""; {
			page := new(P)
			if err := c.get(ctx, path, page); err != nil {
				yield(nil, err)
				return
			}
			next := Q(page).end().Next
			// A link elsewhere must not get the token, and one to the same page would never end.
			if next != "" && (!strings.HasPrefix(next, "/v1/") || next == path) {
				yield(nil, fmt.Errorf("urlake: GET %s has the link %q as its next page", path, next))
				return
			}
			if path = next; !yield(page, nil) {
				return
			}
		}
	}
}

// elements yields the elements of pages.
func elements[P, T any](pages iter.Seq2[*P, error], of func(*P) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range pages {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, element := range of(page) {
				if !yield(element, nil) {
					return
				}
			}
		}
	}
}
