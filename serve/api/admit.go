package api

import (
	"log/slog"
	"net/http"
)

// admit finds out who sends a request and what they may read, and keeps it for the rest of the
// request.
func (h *handler) admit(r *request) error {
	r.partial = true // until it is known
	// An answer belongs to whoever asked. A cache may keep it for them, and has to ask each time
	// whether it still holds: what they may read can change.
	r.header.Add("Vary", "Authorization")
	r.header.Set("Cache-Control", "private, no-cache")
	name, err := h.auth.Principal(r.Request)
	if err != nil {
		return err
	}
	ctx, reader, err := h.server.As(r.Context(), name)
	if err != nil {
		return err
	}
	r.Request, r.partial = r.WithContext(ctx), !reader.All()
	if name != "" {
		r.logged = append(r.logged, slog.String("principal", name))
	}
	return nil
}

// unauthorized is the answer to credentials that are not taken.
func unauthorized(reason string) *problem {
	return newProblem(http.StatusUnauthorized, "unauthorized", "The credentials are not taken", reason)
}
