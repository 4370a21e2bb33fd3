package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

const (
	// forwarded is the header of a request that another process of the frontier has sent. It is not
	// sent on once more.
	forwarded = "Urlake-Forwarded"
	// peerTimeout bounds a request to another process.
	peerTimeout = 30 * time.Second
	// peerInterval is how often a claim that waits asks the other processes.
	peerInterval = 200 * time.Millisecond
)

// peers maps the names of other processes to the positions of what concerns them.
type peers map[string][]int

// base returns the URL of a process, from its name: its address, a number sign and what makes it
// unique.
func base(name string) string {
	address, _, _ := strings.Cut(name, "#")
	return "http://" + address
}

// others are the processes that have other shards, none if one of them asks.
func (h *Handler) others(r *http.Request) []string {
	if r.Header.Get(forwarded) != "" {
		return nil
	}
	return h.f.Others()
}

// post sends a body to another process and returns its answer.
func (h *Handler) post(ctx context.Context, name, path string, body []byte) ([]byte, error) {
	return h.ask(ctx, name, http.MethodPost, path, body)
}

// get returns what another process answers.
func (h *Handler) get(ctx context.Context, name, path string) ([]byte, error) {
	return h.ask(ctx, name, http.MethodGet, path, nil)
}

func (h *Handler) ask(ctx context.Context, name, method, path string, body []byte) ([]byte, error) {
	ctx, done, err := h.toPeer(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, method, base(name)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set(forwarded, "1")
	res, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s: %s: %s", base(name), path, res.Status, bytes.TrimSpace(data))
	}
	return data, err
}

// unserved is the result of a line that no process answers.
var unserved = lineResult{frontier.Elsewhere, "no process serves this now: send the line again"}

// forwardLines sends lines to the processes that serve them, and puts their results in place. Those
// of a process that does not answer are elsewhere.
func forwardLines[R any](h *Handler, r *http.Request, away peers, lines []string, results []R, elsewhere R) {
	for name, places := range away {
		for _, i := range places {
			results[i] = elsewhere
		}
		if name == "" || r.Header.Get(forwarded) != "" {
			continue
		}
		var body []byte
		for _, i := range places {
			body = append(append(body, lines[i]...), '\n')
		}
		data, err := h.post(r.Context(), name, r.URL.Path, body)
		got := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
		if err == nil && len(got) != len(places) {
			err = fmt.Errorf("%s%s: %d results for %d lines", base(name), r.URL.Path, len(got), len(places))
		}
		for n := 0; err == nil && n < len(places); n++ {
			var one R
			if err = json.Unmarshal(got[n], &one); err == nil {
				results[places[n]] = one
			}
		}
		if err != nil && r.Context().Err() == nil {
			h.warnOfPeer("lines for another process", err)
		}
	}
}

// forwardLeases prolongs leases at the processes that serve them.
func (h *Handler) forwardLeases(r *http.Request, away peers, leases []string, all *extended) error {
	for name, places := range away {
		if name == "" || r.Header.Get(forwarded) != "" {
			return frontier.ErrElsewhere
		}
		var q leasesRequest
		for _, i := range places {
			q.Leases = append(q.Leases, leases[i])
		}
		body, err := json.Marshal(q)
		if err != nil {
			return err
		}
		data, err := h.post(r.Context(), name, r.URL.Path, body)
		if err != nil {
			return errors.Join(frontier.ErrElsewhere, err)
		}
		var got extended
		if err := json.Unmarshal(data, &got); err != nil || len(got.Extended) != len(places) {
			return fmt.Errorf("%s%s: %d results for %d leases: %w", base(name), r.URL.Path, len(got.Extended), len(places), err)
		}
		for n, i := range places {
			all.Extended[i] = got.Extended[n]
		}
		if got.Expires.Before(all.Expires) {
			all.Expires = got.Expires
		}
	}
	return nil
}

// claimsOf claims up to n URLs of another process. One that does not answer has none.
func (h *Handler) claimsOf(r *http.Request, name string, q claimRequest, n int) []claim {
	q.Max, q.WaitMS = n, 0
	body, err := json.Marshal(q)
	if err != nil {
		return nil
	}
	data, err := h.post(r.Context(), name, r.URL.Path, body)
	var got claimsAnswer
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil && r.Context().Err() == nil {
		h.warnOfPeer("claims of another process", err)
	}
	return got.Claims
}

// visitsOfOthers copies visits of the other processes until there are limit, and returns of which
// shards they have listed all. A process that does not answer has listed none.
func (h *Handler) visitsOfOthers(r *http.Request, cursor *string, limit int, n *int, out *bufio.Writer) (shards []int, err error) {
	for _, other := range h.others(r) {
		if *n >= limit {
			break
		}
		before := *n
		var end visitsEnd
		trailer, err := h.linesOfOther(r, other, *cursor, limit, n, out, &end)
		switch {
		case err == nil:
			*cursor = end.Cursor
			shards = append(shards, shardsIn(trailer)...)
		case errors.Is(err, frontier.ErrCursor), *n > before, r.Context().Err() != nil:
			return nil, err
		default:
			h.warnOfPeer("visits of another process", err)
		}
	}
	return shards, nil
}

// shardsTrailer is the trailer of a list for another process: the numbers of the shards of which it
// has everything.
const shardsTrailer = "Urlake-Shards"

func setShards(w http.ResponseWriter, shards []int) {
	numbers := make([]string, len(shards))
	for i, n := range shards {
		numbers[i] = strconv.Itoa(n)
	}
	w.Header().Set(http.TrailerPrefix+shardsTrailer, strings.Join(numbers, ","))
}

func shardsIn(trailer http.Header) (shards []int) {
	for number := range strings.SplitSeq(trailer.Get(shardsTrailer), ",") {
		if n, err := strconv.Atoi(number); err == nil {
			shards = append(shards, n)
		}
	}
	return shards
}

// linesOfOther copies the lines of a list of another process, up to those that are left until there
// are limit, and decodes the last one, which has the cursor of what follows. ErrCursor means that
// the process refuses the cursor.
func (h *Handler) linesOfOther(r *http.Request, name, cursor string, limit int, n *int, out *bufio.Writer, end any) (trailer http.Header, err error) {
	q := r.URL.Query()
	q.Set("cursor", cursor)
	q.Set("limit", strconv.Itoa(limit-*n))
	where := base(name) + r.URL.EscapedPath()
	ctx, done, err := h.toPeer(r.Context(), name)
	if err != nil {
		return nil, err
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(forwarded, "1")
	res, err := h.streams.Do(req)
	if err != nil {
		return nil, errors.Join(frontier.ErrElsewhere, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest: // all but the cursor was looked at here
		return nil, frontier.ErrCursor
	default:
		return nil, fmt.Errorf("%s: %s", where, res.Status)
	}
	in := bufio.NewScanner(res.Body)
	in.Buffer(nil, maxVisitLine)
	for in.Scan() {
		if bytes.HasPrefix(in.Bytes(), []byte(`{"next_cursor":`)) {
			if err := json.Unmarshal(in.Bytes(), end); err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			in.Scan() // the trailer comes with the end
			return res.Trailer, in.Err()
		}
		*n++
		_, _ = out.Write(in.Bytes())
		if err := out.WriteByte('\n'); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(fmt.Errorf("%s: the list has no end", where), in.Err())
}

// forward lets another process answer a request.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, name string) {
	if name == "" || r.Header.Get(forwarded) != "" {
		h.failed(w, frontier.ErrElsewhere)
		return
	}
	to, err := url.Parse(base(name))
	if err != nil {
		h.failed(w, err)
		return
	}
	ctx, done, err := h.toPeer(r.Context(), name)
	if err != nil {
		h.failed(w, err)
		return
	}
	defer done()
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Header.Set(forwarded, "1")
			p.Out.Header.Del("Origin") // it was looked at here, and is another's there
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			h.failed(w, errors.Join(frontier.ErrElsewhere, err))
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}
