package api

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/frontier"
)

// listedURL is a line of a list of URLs.
type listedURL struct {
	URL      string         `json:"url"`
	Found    string         `json:"found,omitzero"`
	Crawl    string         `json:"crawl"`
	Domain   string         `json:"domain"`
	State    string         `json:"state"`
	Priority uint16         `json:"priority"`
	Depth    uint32         `json:"depth"`
	Tries    uint32         `json:"tries"`
	Metadata jsontext.Value `json:"metadata,omitzero"`
	Added    time.Time      `json:"added"`
	// RefetchAfter is when the URL may be fetched at the earliest.
	RefetchAfter time.Time `json:"refetch_after,omitzero"`
	// Fetched and Status are those of the last fetch.
	Fetched time.Time `json:"fetched,omitzero"`
	Status  uint16    `json:"status,omitzero"`
}

// urlsEnd is the last line of a list of URLs. The cursor is empty if no URL follows.
type urlsEnd struct {
	Cursor string `json:"next_cursor"`
}

// deletedAnswer counts the URLs that were deleted.
type deletedAnswer struct {
	Deleted int64 `json:"deleted"`
}

// defaultLimit and maxLimit are of the lines of a list.
const (
	defaultLimit = 10_000
	maxLimit     = 1_000_000
)

// listTime is how long the URLs of a page are looked for. Those that are wanted may be few among
// many, and whoever asks waits for the first only for so long. Tests make it shorter.
var listTime = 5 * time.Second

// limitOf parses the limit of a list.
func limitOf(s string) (int, error) {
	if s == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("limit has to be a number from 1 to %d", maxLimit)
	}
	return n, nil
}

// cursorOf decodes the cursor of a request.
func cursorOf(s string) ([]byte, error) {
	cursor, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		err = frontier.ErrCursor
	}
	return cursor, err
}

var allStates = []string{frontier.StateWaiting, frontier.StateLater, frontier.StateLeased, frontier.StateDone}

// statesOf parses a list of states; without any it is all.
func statesOf(s string) (map[string]bool, error) {
	if s == "" {
		s = strings.Join(allStates, ",")
	}
	states := map[string]bool{}
	for state := range strings.SplitSeq(s, ",") {
		states[state] = true
	}
	known := 0
	for _, state := range allStates {
		if states[state] {
			known++
		}
	}
	if known < len(states) {
		return nil, fmt.Errorf("state has to be of %s, with commas between several", strings.Join(allStates, ", "))
	}
	return states, nil
}

func (h *Handler) crawlURLs(w http.ResponseWriter, r *http.Request) { h.listURLs(w, r, "") }

func (h *Handler) domainURLs(w http.ResponseWriter, r *http.Request) {
	h.listURLs(w, r, r.PathValue("d"))
}

// listURLs streams the URLs of a crawl, or those of a domain, and ends with a line that has the
// cursor of those that follow. It ends after listTime, wherever it has come to. At a shard that
// nobody serves it ends, or is refused if it has nothing yet.
func (h *Handler) listURLs(w http.ResponseWriter, r *http.Request, domain string) {
	q := r.URL.Query()
	limit, errL := limitOf(q.Get("limit"))
	states, errS := statesOf(q.Get("state"))
	from, errC := cursorOf(q.Get("cursor"))
	if err := errors.Join(errL, errS, errC); err != nil {
		h.problem(w, http.StatusBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(w, 64<<10)
	n := 0
	var left error // the client has left, or does not read
	begun := time.Now()
	over := func() bool { return n >= limit || time.Since(begun) >= listTime || r.Context().Err() != nil }
	each := func(u frontier.KnownURL) bool {
		if states[u.State] {
			n++
			left = errors.Join(json.MarshalWrite(out, lineOf(&u)), out.WriteByte('\n'))
		}
		return left == nil && !over()
	}
	cursor := string(from)
	var err error
	for {
		cursor, err = h.f.URLs(q.Get("crawl"), domain, cursor, each)
		if !errors.Is(err, frontier.ErrElsewhere) || left != nil || r.Header.Get(forwarded) != "" {
			break
		}
		var next string
		next, err = h.urlsOfOther(r, domain, cursor, limit, &n, out)
		if err == nil && next == cursor {
			err = frontier.ErrElsewhere
		}
		if err != nil {
			break
		}
		if cursor = next; cursor == "" || over() {
			break
		}
	}
	// The next request begins at the shard that nobody serves.
	if errors.Is(err, frontier.ErrElsewhere) && (n > 0 || r.Header.Get(forwarded) != "") {
		err = nil
	}
	if !h.listed(w, r, n, left, err) {
		return
	}
	_ = json.MarshalWrite(out, urlsEnd{base64.RawURLEncoding.EncodeToString([]byte(cursor))})
	_ = out.WriteByte('\n')
	_ = out.Flush()
}

// listed says whether a list of n lines is to be ended. If it failed before the first one, it
// answers with the problem. After that it breaks the answer off, as it does if the client left.
func (h *Handler) listed(w http.ResponseWriter, r *http.Request, n int, left, err error) bool {
	switch {
	case left != nil || r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case err != nil && n > 0:
		h.log.Error(err.Error())
		panic(http.ErrAbortHandler)
	case errors.Is(err, frontier.ErrCursor):
		h.problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		h.failed(w, err)
	}
	return err == nil
}

func lineOf(u *frontier.KnownURL) listedURL {
	found, metadata := frontier.Found(u.Metadata)
	return listedURL{
		u.URL, found, u.Crawl, u.Key, u.State, u.Priority, frontier.DepthOf(u.Depth), u.Tries, metadata, u.Created, u.Due, u.Fetched, u.Status,
	}
}

// urlsOfOther copies the URLs of the process that serves the shard at which a list goes on, and
// returns the cursor of what follows. It is the same if nobody serves it.
func (h *Handler) urlsOfOther(r *http.Request, domain, cursor string, limit int, n *int, out *bufio.Writer) (next string, err error) {
	owner, err := h.f.ListOwner(domain, cursor)
	if err != nil || owner == "" {
		return cursor, err
	}
	before := *n
	var end urlsEnd
	_, err = h.linesOfOther(r, owner, base64.RawURLEncoding.EncodeToString([]byte(cursor)), limit, n, out, &end)
	if err != nil {
		if *n == before && r.Context().Err() == nil {
			h.warnOfPeer("URLs of another process", err)
			return cursor, nil
		}
		return "", err
	}
	b, err := base64.RawURLEncoding.DecodeString(end.Cursor)
	return string(b), err
}

// deleteURLs forgets all URLs of a domain in a crawl.
func (h *Handler) deleteURLs(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("d")
	n, err := h.f.DeleteQueue(r.Context(), r.URL.Query().Get("crawl"), key)
	switch {
	case errors.Is(err, frontier.ErrElsewhere):
		h.forward(w, r, h.f.Owner(key))
	case err != nil:
		h.failed(w, err)
	default:
		answer(w, deletedAnswer{n})
	}
}
