package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// URL is a URL to be added.
type URL struct {
	// URL is in any spelling.
	URL string `json:"url"`
	// Crawl and Key are DEFAULT and the registrable domain if they are empty.
	Crawl    string `json:"crawl,omitzero"`
	Key      string `json:"key,omitzero"`
	Priority uint16 `json:"priority,omitzero"`
	Depth    uint32 `json:"depth,omitzero"`
	// Metadata is a JSON value that comes with each claim.
	Metadata jsontext.Value `json:"metadata,omitzero"`
	// RefetchAfter is the time before which the URL is not handed out.
	RefetchAfter time.Time `json:"refetch_after,omitzero"`
	// Update schedules a URL that is known again, in the place of what waits of it.
	Update bool `json:"update,omitzero"`
}

// Add adds URLs, and returns for each Added, Known, Updated, or Rejected with a reason. After an
// error some may have been added; adding them again is harmless.
func (c *Client) Add(ctx context.Context, urls []URL) ([]Result, error) {
	lines, err := encode(urls)
	if err != nil {
		return nil, err
	}
	return c.lines(ctx, "/v1/urls", lines)
}

func encode[T any](all []T) (lines [][]byte, err error) {
	lines = make([][]byte, len(all))
	for i := range all {
		if lines[i], err = json.Marshal(&all[i]); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return lines, nil
}

// Visit is a fetch that somebody made, and what came of it.
type Visit struct {
	URL string `json:"url"`
	// Crawl is DEFAULT if it is empty.
	Crawl string `json:"crawl,omitzero"`
	// Domain is the queue of the URL. The frontier calls it key where it takes one.
	Domain string    `json:"domain,omitzero"`
	Time   time.Time `json:"time"`
	// Status is the HTTP status, 0 if there was no answer.
	Status   uint16 `json:"status,omitzero"`
	Error    string `json:"error,omitzero"`
	Content  string `json:"content,omitzero"`
	Redirect string `json:"redirect,omitzero"`
	Depth    uint32 `json:"depth,omitzero"`
}

// maxPage bounds the bytes of a page of visits. A page that is larger is asked for again with fewer
// visits, since a page counts only as a whole. Tests make it smaller.
var maxPage = 64 << 20

// errPage means that a page is larger than maxPage.
var errPage = errors.New("the page is too large")

// VisitPage is a page of visits: lines of JSON, each with its line feed, and the cursor of what
// follows them.
type VisitPage struct {
	Lines  []byte
	Visits int
	Next   string
}

// Visited returns up to limit visits after a cursor, in the order in which the frontier got them.
// With an empty cursor it begins with the first since a time, which may be zero. A page without
// visits is the last one for now; its cursor continues later.
func (c *Client) Visited(ctx context.Context, since time.Time, cursor string, limit int) (page VisitPage, err error) {
	for {
		q := url.Values{"limit": {strconv.Itoa(limit)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		if !since.IsZero() {
			q.Set("since", since.UTC().Format(time.RFC3339))
		}
		err := c.again(ctx, func() (bool, error) {
			page, err = c.visitPage(ctx, "/v1/visited?"+q.Encode())
			return err == nil, err
		})
		if errors.Is(err, errPage) && limit > 1 {
			limit = max(1, limit/10)
			continue
		}
		return page, err
	}
}

func (c *Client) visitPage(ctx context.Context, path string) (page VisitPage, err error) {
	page.Lines, page.Visits, page.Next, err = c.listPage(ctx, path)
	if err == nil && page.Next == "" {
		err = c.noEnd(path, nil)
	}
	return page, err
}

// listPage returns the lines of a page of a list, each with its line feed, and the cursor of what
// follows them.
func (c *Client) listPage(ctx context.Context, path string) (lines []byte, n int, next string, err error) {
	res, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, 0, "", err
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	in.Buffer(nil, maxLine)
	var last []byte
	for in.Scan() {
		if last != nil {
			lines = append(append(lines, last...), '\n')
			n++
		}
		if len(lines) > maxPage {
			return nil, 0, "", errPage
		}
		last = append(last[:0], in.Bytes()...)
	}
	var end struct {
		Next *string `json:"next_cursor"`
	}
	if in.Err() != nil || json.Unmarshal(last, &end) != nil || end.Next == nil {
		return nil, 0, "", c.noEnd(path, in.Err())
	}
	return lines, n, *end.Next, nil
}

// noEnd is the error of a list that was cut off.
func (c *Client) noEnd(path string, err error) error {
	path, _, _ = strings.Cut(path, "?")
	return &busyError{err: fmt.Errorf("GET %s%s: the list has no end: %w", c.base, path, errors.Join(err, io.ErrUnexpectedEOF))}
}

// ListedURL is a URL of a list, as far as this package needs it.
type ListedURL struct {
	URL      string `json:"url"`
	State    string `json:"state"`
	Priority uint16 `json:"priority"`
	Depth    uint32 `json:"depth"`
}

// List returns up to limit URLs of a crawl, DEFAULT if it is empty, that wait, are due later or are
// leased, after a cursor; with an empty cursor it begins with the first. The next cursor is empty
// after the last URL. A page may have no URLs, and a cursor.
func (c *Client) List(ctx context.Context, crawl, cursor string, limit int) (urls []ListedURL, next string, err error) {
	var lines []byte
	for {
		q := url.Values{"limit": {strconv.Itoa(limit)}, "state": {"waiting,later,leased"}, "crawl": {crawl}, "cursor": {cursor}}
		err = c.again(ctx, func() (bool, error) {
			lines, _, next, err = c.listPage(ctx, "/v1/urls?"+q.Encode())
			return err == nil, err
		})
		if !errors.Is(err, errPage) || limit == 1 {
			break
		}
		limit = max(1, limit/10)
	}
	if err != nil {
		return nil, "", err
	}
	for line := range bytes.Lines(lines) {
		var u ListedURL
		if err := json.Unmarshal(line, &u); err != nil {
			return nil, "", fmt.Errorf("GET %s/v1/urls: %w", c.base, err)
		}
		urls = append(urls, u)
	}
	return urls, next, nil
}

// Stats counts what the process that was asked serves.
type Stats struct {
	Shards  int   `json:"shards"`
	Domains int64 `json:"domains"`
	Waiting int64 `json:"waiting"`
	Later   int64 `json:"later"`
	Leased  int64 `json:"leased"`
	Visited int64 `json:"visited"`
}

// Stats returns the counts of the process that answers.
func (c *Client) Stats(ctx context.Context) (s Stats, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/stats", nil, &s)
	return s, err
}
