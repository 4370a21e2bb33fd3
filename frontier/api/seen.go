package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

type seenLine struct {
	URL   string `json:"url"`
	Crawl string `json:"crawl"`
	Key   string `json:"key"`
}

// seenResult is the answer to a line. Reason says why a line has no answer: why the URL has no
// canonical form, or elsewhere.
type seenResult struct {
	Seen    bool      `json:"seen"`
	Settled bool      `json:"settled"`
	Status  uint16    `json:"status,omitzero"`
	Fetched time.Time `json:"fetched,omitzero"`
	Reason  string    `json:"reason,omitzero"`
}

// seenAll says of each line's URL whether it was added, and what became of it.
func (h *Handler) seenAll(w http.ResponseWriter, r *http.Request) {
	linesOf(h, w, r, func(_ context.Context, lines [][]byte) ([]seenResult, error) {
		results := make([]seenResult, len(lines))
		queries := make([]frontier.SeenQuery, 0, len(lines))
		places := make([]int, 0, len(lines))
		for i, line := range lines {
			var q seenLine
			if err := q.parse(line); err != nil {
				results[i].Reason = "line: " + err.Error()
				continue
			}
			queries, places = append(queries, frontier.SeenQuery(q)), append(places, i)
		}
		answers, err := h.f.SeenAll(queries)
		if err != nil {
			return nil, err
		}
		away := peers{}
		for i, a := range answers {
			at := places[i]
			switch {
			case errors.Is(a.Err, frontier.ErrElsewhere):
				away[a.Owner] = append(away[a.Owner], at)
			case a.Err != nil:
				results[at].Reason = a.Err.Error()
			default:
				results[at] = seenResult{a.Seen, a.Settled, a.Status, a.Fetched, ""}
			}
		}
		h.forwardSeen(r, away, lines, results)
		return results, nil
	})
}

// forwardSeen asks the processes that know of lines. Those of a process that does not answer have
// the reason elsewhere.
func (h *Handler) forwardSeen(r *http.Request, away peers, lines [][]byte, results []seenResult) {
	for name, places := range away {
		for _, i := range places {
			results[i].Reason = frontier.Elsewhere
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
			var one seenResult
			if err = json.Unmarshal(got[n], &one); err == nil {
				results[places[n]] = one
			}
		}
		if err != nil && r.Context().Err() == nil {
			h.log.Warn("lines for another process", "error", err)
		}
	}
}
