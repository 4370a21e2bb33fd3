package api

import (
	"encoding/hex"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/serve/lookup"
)

// build is what answers depend on besides the lake and the request: the program that makes them.
var build = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			text += " " + s.Value
		}
	}
	return text
})

// of says from what the answer is made: its versions and the epoch of their takedowns. With the
// request and the program they determine each byte, so they are its validator.
func (r *request) of(epoch uint64, snaps ...*lookup.Snapshot) {
	states := make([]lookup.State, len(snaps))
	for i, s := range snaps {
		states[i] = lookup.State{Version: s.Version().ID, TakedownEpoch: epoch, Audience: s.Audience()}
	}
	r.etag, r.stored, r.states = r.validator(states), true, states
	r.step("encode") // all is found
}

// validator is an ETag without quotes and without the suffix for the encoding.
func (r *request) validator(states []lookup.State) string {
	return validatorOf(xxh3.HashString128(r.inputs(states)))
}

// validatorOf writes the sum of what a validator is of.
func validatorOf(sum xxh3.Uint128) string {
	raw := sum.Bytes()
	var text [2 * len(raw)]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// ofHost is of for an answer that depends on which domain a host is of, or whether it is a public
// suffix. If the lake lacks the list that says so, the answer is a guess. The list may come, and
// another program guesses by another list, so nobody may use the answer again.
func (r *request) ofHost(epoch uint64, snap *lookup.Snapshot) {
	if r.of(epoch, snap); snap.LacksSuffixes() {
		r.once()
	}
}

// once tells that the answer depends on more: on the clock, or on what caches hold. So nobody may
// use it again.
func (r *request) once() { r.etag, r.stored, r.states = "", false, nil }

// unchanged reports whether the client has the answer that it would get, without making it: its
// versions and takedowns are known, and the client names the validator.
func (r *request) unchanged(states []lookup.State) bool {
	if states == nil || len(r.Header["If-None-Match"]) == 0 {
		return false
	}
	etag := r.validator(states)
	if !r.matches(etag, false) {
		return false
	}
	r.etag, r.stored = etag, true
	for _, s := range states {
		r.serves(s.Version)
	}
	return true
}

// validate compares the validator of an answer that was made.
func (r *request) validate() {
	if r.etag != "" && r.status == http.StatusOK && r.stream == nil && r.matches(r.etag, true) {
		r.status = http.StatusNotModified
	}
}

// matches reports whether If-None-Match names the validator, in any encoding; made tells that there
// is an answer, which * matches too.
func (r *request) matches(etag string, made bool) bool {
	for _, line := range r.Header["If-None-Match"] {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" && made {
				return true
			}
			tag = strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
			if own, _, _ := strings.Cut(tag, "-"); own == etag {
				return true
			}
		}
	}
	return false
}

// tag is the ETag of the answer as it is sent. Each encoding has its own, because its bytes differ.
func (r *request) tag() string {
	if coding := r.header["Content-Encoding"]; len(coding) > 0 {
		return `"` + r.etag + "-" + coding[0] + `"`
	}
	return `"` + r.etag + `"`
}

// caching says what caches may do. They may keep answers about the lake, but have to ask before
// they use one: a takedown changes the answers of all versions, and what a principal may read can
// change too.
func (r *request) caching() {
	switch {
	case !r.stored || r.status >= 400:
		r.header["Cache-Control"] = noStore
		return
	case r.private:
		r.header["Cache-Control"] = privateNoCache
	default:
		r.header["Cache-Control"] = noCache
	}
	if r.header["Vary"] == nil {
		r.header["Vary"] = varyEncoding
		return
	}
	r.vary("Accept-Encoding")
}

// vary names a header of the request that the answer depends on.
func (r *request) vary(name string) { r.header["Vary"] = append(r.header["Vary"], name) }

// oneVersion is the version that a request will be answered from, as far as the server knows
// without looking.
func (h *handler) oneVersion(r *request) ([]lookup.State, bool) {
	version, err := r.versionOrCursor("version")
	if err != nil {
		return nil, false
	}
	state, ok := h.server.Identify(r.Context(), version)
	return []lookup.State{state}, ok
}

// twoVersions is oneVersion for a diff that names both.
func (h *handler) twoVersions(r *request) ([]lookup.State, bool) {
	to, err := r.versionOrCursor("to")
	if err != nil || r.query.Get("from") == "" {
		return nil, false
	}
	before, ok := h.server.Identify(r.Context(), r.query.Get("from"))
	if !ok {
		return nil, false
	}
	after, ok := h.server.Identify(r.Context(), to)
	return []lookup.State{before, after}, ok
}

// versionOrCursor is the version that a parameter names, or else the cursor.
func (r *request) versionOrCursor(name string) (string, error) {
	version := r.query.Get(name)
	if c := r.query.Get("cursor"); c != "" && version == "" {
		return lookup.CursorVersion(c)
	}
	return version, nil
}

// ofContent takes the document itself as what the validator is of, for answers that are made from
// more than versions.
func (r *request) ofContent() {
	r.etag, r.stored = validatorOf(xxh3.Hash128(r.doc.buf)), true
}

// shorten returns how many rows to look up for a page of n. Who asks for the headers alone gets
// them from one row: errors are the same, and so is the validator.
func (r *request) shorten(n int64) int {
	if r.Method == http.MethodHead && n > 1 {
		r.brief = true
		return 1
	}
	return int(n)
}
