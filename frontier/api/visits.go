package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

// visitLine is a line of POST /v1/visits. It takes the lines that GET /v1/visited gives, too, where
// the key is called domain.
type visitLine struct {
	URL      string     `json:"url"`
	Crawl    string     `json:"crawl"`
	Key      string     `json:"key"`
	Domain   string     `json:"domain"`
	Time     *time.Time `json:"time"`
	Status   uint16     `json:"status"`
	Error    string     `json:"error"`
	Content  string     `json:"content"`
	Redirect string     `json:"redirect"`
	Depth    uint32     `json:"depth"`
}

// importVisits notes visits that others have made.
func (h *Handler) importVisits(w http.ResponseWriter, r *http.Request) {
	h.lines(w, r, func(ctx context.Context, lines []string, results []lineResult) error {
		visits := make([]frontier.ImportedVisit, 0, len(lines))
		places := make([]int, 0, len(lines))
		for i, line := range lines {
			var v visitLine
			err := json.Unmarshal([]byte(line), &v, json.RejectUnknownMembers(true))
			if err == nil {
				err = checkDepth(v.Depth)
			}
			if err != nil {
				results[i] = lineResult{frontier.Rejected, "line: " + reason(err)}
				continue
			}
			one := frontier.ImportedVisit{
				URL: v.URL, Crawl: v.Crawl, Key: v.Key, Status: v.Status, Error: v.Error, Content: v.Content, Redirect: v.Redirect, Depth: v.Depth,
			}
			if one.Key == "" {
				one.Key = v.Domain
			}
			if v.Time != nil {
				one.Time = *v.Time
			}
			visits, places = append(visits, one), append(places, i)
		}
		imported, err := h.f.Import(ctx, visits)
		if err != nil {
			return err
		}
		away := peers{}
		for i, a := range imported {
			results[places[i]] = lineResult{a.Result, a.Reason}
			if a.Result == frontier.Elsewhere {
				away[a.Reason] = append(away[a.Reason], places[i])
			}
		}
		forwardLines(h, r, away, lines, results, unserved)
		return nil
	})
}
