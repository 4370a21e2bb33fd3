package api

import "net/http"

// sameOrigin refuses requests that change something if a page of another site has a browser send
// them: whoever runs the frontier may reach it, and such pages may not. Programs say nothing of an
// origin, and pass.
func (h *Handler) sameOrigin(next http.Handler) http.Handler {
	c := http.NewCrossOriginProtection()
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // the body is not read
		h.problem(w, http.StatusForbidden, "a page of another origin sent this: only programs and pages of the frontier itself may change something")
	}))
	return c.Handler(next)
}
