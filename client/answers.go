package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
)

// ID is a 64-bit hash of a domain or a URL, written as 16 hex digits.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("id %q is not 16 hex digits", text)
	}
	*id = ID(v)
	return nil
}

// Time is a time in UTC, to the millisecond. Unlike time.Time it decodes the years before 0 and
// after 9999 too, which records of raw data can have.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format(timeLayout))
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	negative := strings.HasPrefix(text, "-")
	digits, rest, _ := strings.Cut(strings.TrimPrefix(text, "-"), "-")
	year, err := strconv.ParseUint(digits, 10, 31)
	if err == nil {
		// The Gregorian calendar repeats after 400 years, so a leap year stays one.
		var within time.Time
		within, err = time.Parse(timeLayout, fmt.Sprintf("%04d-%s", 2000+leap(int(year), negative), rest))
		if err == nil {
			y := int(year)
			if negative {
				y = -y
			}
			*t = Time{time.Date(y, within.Month(), within.Day(), within.Hour(), within.Minute(), within.Second(),
				within.Nanosecond(), time.UTC)}
			return nil
		}
	}
	return fmt.Errorf("time %q is not RFC 3339 in UTC", text)
}

// leap is year modulo 400, not negative.
func leap(year int, negative bool) int {
	if negative {
		year = -year
	}
	return (year%400 + 400) % 400
}

// At selects the version to ask.
type At struct {
	// Version is the id or a tag of a version. Empty means the current one.
	Version string
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
	// Complete is whether the list ends with this page.
	Complete bool `json:"complete"`
	// StoppedBy is the limit of the server that ended the page early, or empty.
	StoppedBy string `json:"stopped_by"`
	// NextCursor and Next lead to the next page. Both are empty on the last one.
	NextCursor string `json:"next_cursor"`
	Next       string `json:"next"`
}

func (p *Page) end() *Page { return p }

// Domain is what the datasets of a version have of a domain.
type Domain struct {
	Answered
	// Datasets are all datasets that contain the domain, by id. There may be none.
	Datasets []Holding `json:"datasets"`
}

// Holding is what one dataset has of a domain.
type Holding struct {
	DatasetID uint32 `json:"dataset_id"`
	Name      string `json:"name"`
	Totals
}

type domainPage struct {
	Domain
	Page
}

// Domain returns which datasets contain a domain. text is a domain, a host or a URL in any
// spelling.
func (c *Client) Domain(ctx context.Context, text string, of At) (*Domain, error) {
	var whole *Domain
	for page, err := range pages[domainPage](ctx, c, at("/v1/domain/"+segment(text), "version", of.Version)) {
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = &page.Domain
		} else {
			whole.Datasets = append(whole.Datasets, page.Datasets...)
		}
	}
	return whole, nil
}

// URLsOptions select rows of a list of URLs. The zero value is the whole list in pages of 100.
type URLsOptions struct {
	At
	// Offset is the number of rows to skip.
	Offset int64
	// PageSize is the number of rows of a page, at most 10,000. 0 means the server's default.
	PageSize int
}

// URL is one row of a list.
type URL struct {
	ID ID `json:"url_id"`
	// URL is canonical.
	URL string `json:"url"`
	// Time is nil if the record had none.
	Time *Time `json:"ts"`
}

// URLPage is one page of a list of URLs.
type URLPage struct {
	Answered
	Page
	DatasetID uint32 `json:"dataset_id"`
	// Total counts the rows of the whole list, Offset those before this page.
	Total  int64 `json:"total_est"`
	Offset int64 `json:"offset"`
	Items  []URL `json:"items"`
}

// URLs yields the URLs of a domain in a dataset, which is an id or a name.
func (c *Client) URLs(ctx context.Context, text, dataset string, opt URLsOptions) iter.Seq2[URL, error] {
	return elements(c.URLPages(ctx, text, dataset, opt), func(p *URLPage) []URL { return p.Items })
}

// URLPages yields the pages of URLs.
func (c *Client) URLPages(ctx context.Context, text, dataset string, opt URLsOptions) iter.Seq2[*URLPage, error] {
	return pages[URLPage](ctx, c, at("/v1/domain/"+segment(text)+"/datasets/"+segment(dataset)+"/urls",
		"version", opt.Version, "offset", number(opt.Offset), "limit", number(int64(opt.PageSize))))
}

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

// Datasets yields the datasets of a version, by id.
func (c *Client) Datasets(ctx context.Context, of At) iter.Seq2[Dataset, error] {
	return elements(c.DatasetPages(ctx, of), func(p *DatasetPage) []Dataset { return p.Datasets })
}

// DatasetPages yields the pages of Datasets.
func (c *Client) DatasetPages(ctx context.Context, of At) iter.Seq2[*DatasetPage, error] {
	return pages[DatasetPage](ctx, c, at("/v1/datasets", "version", of.Version))
}

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

// Versions yields the versions that are kept, newest first.
func (c *Client) Versions(ctx context.Context) iter.Seq2[Version, error] {
	return elements(c.VersionPages(ctx), func(p *VersionPage) []Version { return p.Versions })
}

// VersionPages yields the pages of Versions.
func (c *Client) VersionPages(ctx context.Context) iter.Seq2[*VersionPage, error] {
	return pages[VersionPage](ctx, c, "/v1/versions")
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
}

// Diff yields what changed between two versions, by domain and dataset.
func (c *Client) Diff(ctx context.Context, opt DiffOptions) iter.Seq2[Change, error] {
	return elements(c.DiffPages(ctx, opt), func(p *DiffPage) []Change { return p.Changes })
}

// DiffPages yields the pages of Diff.
func (c *Client) DiffPages(ctx context.Context, opt DiffOptions) iter.Seq2[*DiffPage, error] {
	return pages[DiffPage](ctx, c, at("/v1/diff", "from", opt.From, "to", opt.To, "dataset", opt.Dataset,
		"limit", number(int64(opt.PageSize))))
}

// Ready is what a server serves.
type Ready struct {
	Version          string `json:"version"`
	TakedownEpoch    int64  `json:"takedown_epoch"`
	Rows             int64  `json:"rows"`
	Datasets         int64  `json:"datasets"`
	CanonicalForm    string `json:"canonical_form"`
	PublicSuffixList string `json:"public_suffix_list"`
	// PublicSuffixListMissing means that the lake lacks the list, so that domains are guessed.
	PublicSuffixListMissing bool `json:"public_suffix_list_missing"`

	// The rest is zero for those who may not read all datasets.

	Generation int64 `json:"generation"`
	Segments   int64 `json:"segments"`
	// Err is why a newer version is not served, empty if there is none.
	Err          string `json:"error"`
	OpenVersions int64  `json:"open_versions"`
	FrameCache   Cache  `json:"frame_cache"`
	PageCache    Cache  `json:"page_cache"`
}

// Cache counts uses of a cache of the server.
type Cache struct {
	Hits    int64 `json:"hits"`
	Misses  int64 `json:"misses"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Ready returns what the server serves. As long as it has no version open it answers 503, which is
// a *Problem of the kind not-ready once all attempts are used up.
func (c *Client) Ready(ctx context.Context) (*Ready, error) {
	var r Ready
	if err := c.get(ctx, "/readyz", &r); err != nil {
		return nil, err
	}
	return &r, nil
}

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
