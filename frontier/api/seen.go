package api

import (
	"context"
	"errors"
	"net/http"
	"time"

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
	linesOf(h, w, r, func(_ context.Context, lines []string) ([]seenResult, error) {
		results := make([]seenResult, len(lines))
		queries := make([]frontier.SeenQuery, 0, len(lines))
		places := make([]int, 0, len(lines))
		for i, line := range lines {
			var q seenLine
			if err := q.parse(line); err != nil {
				results[i].Reason = "line: " + reason(err)
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
		forwardLines(h, r, away, lines, results, seenResult{Reason: frontier.Elsewhere})
		return results, nil
	})
}
