package api

import (
	"net/http"
	"slices"
	"strings"
)

// noRoute answers requests that no route is for: with 405 and the methods that there are, or 404.
func (h *Handler) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost} {
		_, pattern := h.mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL})
		if pattern != everything {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 || slices.Contains(allowed, r.Method) {
		h.problem(w, http.StatusNotFound, "there is nothing at this path; /v1/openapi.yaml has what there is")
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	h.problem(w, http.StatusMethodNotAllowed, "this path takes "+strings.Join(allowed, ", "))
}

// everything is the pattern of requests that no other is for.
const everything = "/"
