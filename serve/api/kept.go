package api

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"

	"github.com/urlake/urlake/serve/answers"
	"github.com/urlake/urlake/serve/coding"
	"github.com/urlake/urlake/serve/lookup"
)

// DefaultAnswerCache is the size of the cache of answers without AnswerCache, in bytes.
const DefaultAnswerCache = 1 << 20

// AnswerCache sets the memory for answers that are asked for again and again. With 0 or less none
// are kept.
func AnswerCache(n int64) Option { return func(h *handler) { h.answers = answers.New(n) } }

// appendInputs appends what the bytes of an answer depend on: the program, the states that it is
// made from, and the request. Each part ends with a byte that no part has, except the list of
// states, which ends with an empty one.
func (r *request) appendInputs(text []byte, states []lookup.State) []byte {
	part := func(s string) { text = append(append(text, s...), 0) }
	part(build())
	for _, s := range states {
		part(s.Version)
		part(strconv.FormatUint(s.TakedownEpoch, 10))
		part(s.Audience)
	}
	part(r.URL.EscapedPath())
	part(r.URL.RawQuery)
	part(r.form) // by Accept
	return text
}

// keyOf is the key of the request's answer in the cache. It is the text itself and no digest of it:
// nobody can make two requests with the same key.
func (r *request) keyOf(states []lookup.State) []byte {
	key := append(append(make([]byte, 0, 256), coding.Of(r.Header["Accept-Encoding"])...), 0)
	return r.appendInputs(key, states)
}

// kept takes the answer from the cache, if it is there. States are what it would be made from now,
// so nobody gets an answer of another version, from before a takedown, or of a principal who may
// read something else. Whoever sends it waits at the gate of small answers.
func (h *handler) kept(r *request, rt *route, states []lookup.State) (ok bool, err error) {
	if !rt.kept || states == nil || h.answers == nil || r.Method != http.MethodGet || r.explains() {
		return false, nil
	}
	a := h.answers.Get(r.keyOf(states))
	if a == nil {
		return false, nil
	}
	// The body is shared, but it stays in memory until the client has it.
	if r.ticket, err = h.gates.light.acquire(r.Context(), h.client(r), int64(len(a.Body))); err != nil {
		return false, err
	}
	h.turns.Light()
	for _, state := range states {
		r.serves(state.Version)
	}
	r.answer, r.etag, r.stored = a, a.ETag, true
	if a.Link != nil {
		r.header["Link"] = slices.Clone(a.Link)
	}
	r.logged = append(r.logged, a.Logged...)
	return true, nil
}

// keep puts an answer into the cache as it is sent, if it is asked for again and again.
func (h *handler) keep(r *request, rt *route, body []byte, coding string) {
	if !rt.kept || r.states == nil || r.answer != nil || r.status != http.StatusOK || !r.stored || r.etag == "" ||
		r.Method != http.MethodGet || r.header["Content-Type"][0] != "application/json" {
		return
	}
	key := r.keyOf(r.states)
	if !h.answers.Wants(key, len(body)) {
		return
	}
	h.answers.Add(key, &answers.Answer{
		Body: bytes.Clone(body), Coding: coding, ETag: r.etag, Link: slices.Clone(r.header["Link"]),
		Logged: slices.Clone(r.logged[r.own:]),
	})
}
