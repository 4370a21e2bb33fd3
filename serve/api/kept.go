package api

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"

	"github.com/urlake/urlake/serve/lookup"
)

// DefaultAnswerCache is the size of the cache of answers without AnswerCache, in bytes.
const DefaultAnswerCache = 1 << 20

// AnswerCache sets the memory for answers that are asked for again and again. With 0 or less none
// are kept.
func AnswerCache(n int64) Option { return func(h *handler) { h.answers = newAnswers(n) } }

// keyOf is the key of the request's answer in the cache, if it is made from these states: its
// encoding, and what its bytes depend on besides (inputs). It is the text itself and no digest of
// it: nobody can make two requests with the same key.
func (r *request) keyOf(states []lookup.State) string {
	if r.key != "" && slices.Equal(r.keyed, states) {
		return r.key
	}
	text := make([]byte, 0, 512)
	// Each part ends with a byte that no part has, except the list of states, which ends with an
	// empty one.
	part := func(s string) { text = append(append(text, s...), 0) }
	part(r.coding)
	part(build())
	for _, s := range states {
		part(s.Version)
		part(strconv.FormatUint(s.TakedownEpoch, 10))
		part(s.Audience)
	}
	part(r.URL.EscapedPath())
	part(r.URL.RawQuery)
	part(r.form) // by Accept
	r.key, r.keyed = string(text), states
	return r.key
}

// inputs is what the bytes of an answer from these states depend on besides its encoding: the
// program, the states, and the request.
func (r *request) inputs(states []lookup.State) string { return r.keyOf(states)[len(r.coding)+1:] }

// kept takes the answer from the cache, nil if it is not there. States are what it would be made
// from now, so nobody gets an answer of another version, from before a takedown, or of a principal
// who may read something else.
func (h *handler) kept(r *request, rt *route, states []lookup.State) *cachedAnswer {
	if !rt.kept || states == nil || h.answers == nil || r.Method != http.MethodGet || r.explains() {
		return nil
	}
	return h.answers.Get(r.keyOf(states))
}

// use makes a kept answer that of the request. It waits at the gate of small answers.
func (h *handler) use(r *request, a *cachedAnswer, states []lookup.State) (err error) {
	// The body is shared, but it stays in memory until the client has it.
	if r.ticket, err = h.gates.light.acquire(r.Context(), h.client(r), int64(len(a.Body))); err != nil {
		return err
	}
	h.turns.Light()
	for _, state := range states {
		r.serves(state.Version)
	}
	r.answer, r.etag, r.stored = a, a.ETag, true
	if a.Link != nil {
		r.header["Link"] = slices.Clone(a.Link)
	}
	if len(r.logged) == 0 {
		r.logged = slices.Clip(a.Logged) // who appends gets a copy
	} else {
		r.logged = append(r.logged, a.Logged...)
	}
	return nil
}

// keep puts an answer into the cache as it is sent, if it is asked for again and again.
func (h *handler) keep(r *request, rt *route, body []byte) {
	if !rt.kept || r.states == nil || r.answer != nil || r.status != http.StatusOK || !r.stored || r.etag == "" ||
		r.Method != http.MethodGet || r.header["Content-Type"][0] != "application/json" {
		return
	}
	key := r.keyOf(r.states)
	if !h.answers.Wants(key, len(body)) {
		return
	}
	coding := ""
	if list := r.header["Content-Encoding"]; len(list) > 0 {
		coding = list[0]
	}
	h.answers.Add(key, &cachedAnswer{
		Body: bytes.Clone(body), Coding: coding, ETag: r.etag, Link: slices.Clone(r.header["Link"]),
		Logged: slices.Clone(r.logged[r.own:]), Hot: r.hot,
	})
}
