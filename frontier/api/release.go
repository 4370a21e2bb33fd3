package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

// leasesRequest is the body of requests about leases.
type leasesRequest struct {
	Leases []string `json:"leases"`
}

// released is the answer to leases:release. Leases whose Released is false had ended.
type released struct {
	Released []bool `json:"released"`
}

// release gives leases back.
func (h *Handler) release(w http.ResponseWriter, r *http.Request) {
	var q leasesRequest
	if !h.body(w, r, &q) {
		return
	}
	results, err := h.f.Release(r.Context(), q.Leases)
	if err != nil {
		h.failed(w, err)
		return
	}
	got := released{make([]bool, len(results))}
	away := peers{}
	for i, res := range results {
		got.Released[i] = res.Result == frontier.Released
		if res.Result == frontier.Elsewhere {
			away[res.Owner] = append(away[res.Owner], i)
		}
	}
	for name, places := range away {
		if name == "" || r.Header.Get(forwarded) != "" {
			h.failed(w, frontier.ErrElsewhere)
			return
		}
		if err := h.releaseAt(r.Context(), name, q.Leases, places, got.Released); err != nil {
			h.failed(w, err)
			return
		}
	}
	answer(w, got)
}

// releaseAt gives leases back to the process that serves them.
func (h *Handler) releaseAt(ctx context.Context, name string, leases []string, places []int, all []bool) error {
	var q leasesRequest
	for _, i := range places {
		q.Leases = append(q.Leases, leases[i])
	}
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	const path = "/v1/leases:release"
	data, err := h.post(ctx, name, path, body)
	if err != nil {
		return fmt.Errorf("%w: %w", frontier.ErrElsewhere, err)
	}
	var got released
	if err := json.Unmarshal(data, &got); err != nil {
		return fmt.Errorf("%s%s: %w", base(name), path, err)
	}
	if len(got.Released) != len(places) {
		return fmt.Errorf("%s%s: %d results for %d leases", base(name), path, len(got.Released), len(places))
	}
	for n, i := range places {
		all[i] = got.Released[n]
	}
	return nil
}
