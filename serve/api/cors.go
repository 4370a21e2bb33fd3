package api

import (
	"net/http"
	"slices"
)

// exposed are the headers of an answer that scripts of other origins may read.
const exposed = "Content-Length, ETag, Link, Retry-After, Urlake-Total, Urlake-Version, X-Request-Id"

// allowOrigin lets scripts of allowed origins read the answer.
func (h *handler) allowOrigin(r *request) {
	if len(h.origins) == 0 {
		return
	}
	all := slices.Contains(h.origins, "*")
	if !all {
		r.vary("Origin")
	}
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return
	case all:
		origin = "*"
	case !slices.Contains(h.origins, origin):
		return
	}
	r.header["Access-Control-Allow-Origin"] = []string{origin}
	r.header["Access-Control-Expose-Headers"] = []string{exposed}
}

// preflight answers what a browser asks before a request of another origin that is not simple.
func (h *handler) preflight(r *request) {
	r.status = http.StatusNoContent
	delete(r.header, "Content-Type")
	if r.header["Access-Control-Allow-Origin"] == nil {
		return // the browser refuses the request
	}
	r.header["Access-Control-Allow-Methods"] = []string{"GET, HEAD, POST"}
	r.header["Access-Control-Allow-Headers"] = []string{"Accept, Authorization, Content-Type, If-None-Match, X-Request-Id"}
	r.header["Access-Control-Max-Age"] = []string{"86400"}
}
