package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/turns"
)

// request is one request and its answer.
type request struct {
	*http.Request
	ctx    context.Context
	header http.Header
	// values are of headers that differ from request to request; see set.
	values headerValues
	query  url.Values
	doc    document
	status int
	// form is the format that Accept chooses, "" if the path or the query does.
	form string
	// coding is the encoding that Accept-Encoding chooses, "" for none.
	coding string
	// etag is the validator of the answer, "" if it has none.
	etag string
	// states are what the answer was made from, nil if it depends on more.
	states []lookup.State
	// key is that of the answer in the cache of answers, if it is made from the states keyed; see
	// keyOf.
	key   string
	keyed []lookup.State
	// answer is from the cache of answers, nil if it was made.
	answer *cachedAnswer
	// hot is the name that is counted as asked for, "" for none.
	hot string
	// stored tells that caches may keep the answer if they ask before each use.
	stored bool
	// brief tells that the document is not what GET would answer, but shorter.
	brief bool
	// principal is who asks, "" for nobody in particular. Private tells that it was asked.
	principal string
	private   bool
	// partial tells that whoever asks may not read all datasets, or that this is not known yet.
	// Then the answer says nothing that depends on datasets that may not be read.
	partial bool
	// due is the time before which the answer must not be sent, so that its time tells nothing.
	due time.Time
	// turn is that of a heavy request at the processors, while its answer is made; nil for others.
	turn *turns.Turn
	// ticket is what the request holds of its gate, nil if it passed none. List is what its list
	// holds of that for lists.
	ticket, list *ticket
	// transfer is what the client sends or receives, nil before the first piece.
	transfer *Transfer
	// stream is set once the header of a stream is sent. From then on an error cuts the connection.
	stream *stream
	w      http.ResponseWriter
	// logged are the attributes that the handler adds to the line of the access log.
	logged []slog.Attr
	// own is where those of the handler begin that answers the route.
	own int
	// traced is the request's trace, which is nil for most.
	traced *traced
}

// Context ends when the client goes or the time for the request is over.
func (r *request) Context() context.Context { return r.ctx }

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

// maxPooled is the largest buffer, in bytes, that is returned to the pool.
const maxPooled = 1 << 20

// retryAfter is the Retry-After of 503 answers, in seconds.
const retryAfter = "2"

// statusClientGone is the status in logs and metrics when the client closed the connection before
// the answer was ready. It is never sent.
const statusClientGone = 499

// serve runs one handler, turns its error or panic into a problem, sends the answer, and logs it.
func (h *handler) serve(w http.ResponseWriter, hr *http.Request, rt *route) {
	started := time.Now()
	buf := buffers.Get().(*[]byte)
	r := &request{
		Request: hr, ctx: hr.Context(), header: w.Header(), w: w, status: http.StatusOK, doc: document{buf: (*buf)[:0]},
		coding: chooseCoding(hr.Header["Accept-Encoding"]),
	}
	if hr.ContentLength != 0 {
		// Otherwise a body that nobody reads and that does not come keeps the connection for ever.
		_ = http.NewResponseController(w).SetReadDeadline(started.Add(h.flow.Grace))
	}
	id := requestID(hr)
	r.set("X-Request-Id", id)
	r.header["Content-Type"] = typeJSON
	r.header["X-Content-Type-Options"] = noSniff
	h.allowOrigin(r)
	defer r.release()
	if h.tracer != nil {
		h.trace(r, rt, id)
	}
	err := h.prepare(r, rt)
	if err == nil {
		err = h.respond(r, rt)
	}
	if err != nil && r.stream == nil {
		r.problem(err)
	}
	name, measured, sent, cut := rt.name, rt.measured, int64(0), false
	switch {
	case r.stream != nil:
		r.stream.release()
		name, measured, sent, cut = rt.name+"_stream", rt.streamed, r.transfer.Sent, err != nil
		if cut {
			_ = r.fail(err) // for the log: no problem document can follow the rows
		}
	case r.status != statusClientGone:
		r.caching()
		r.wait()
		r.step("send")
		sent, err = r.send(h, rt)
		cut = err != nil
	}
	r.traced.end(r, sent, cut)
	took := time.Since(started)
	measured.observe(r.status, took, sent, cut)
	h.access(r, name, id, sent, cut, took)
	if cap(r.doc.buf) <= maxPooled {
		*buf = r.doc.buf
		buffers.Put(buf)
	}
	if r.stream != nil && cut {
		// The client must not take what it has for the whole answer.
		panic(http.ErrAbortHandler)
	}
}

// respond finds the answer or makes it.
func (h *handler) respond(r *request, rt *route) error {
	var now []lookup.State
	if rt.states != nil {
		if states, ok := rt.states(r); ok {
			now = states
		}
	}
	known := h.kept(r, rt, now)
	if known != nil && known.Hot != "" {
		h.server.Asked(known.Hot)
	}
	if r.unchanged(now) {
		r.status = http.StatusNotModified
		return nil
	}
	r.own = len(r.logged)
	var err error
	if known != nil {
		err = h.use(r, known, now)
	} else {
		err = h.run(r, rt)
	}
	if err == nil {
		r.validate()
	}
	return err
}

// run waits at the gate and calls the handler.
func (h *handler) run(r *request, rt *route) error {
	defer func() { r.turn.Give() }()
	if rt.weight != nil {
		if err := h.work(r, rt.weight(r)); err != nil {
			return err
		}
	}
	if rt.streams != nil && rt.streams(r) {
		return rt.run(r)
	}
	// Pages of URLs and diffs end by themselves at the deadline, with the rows that they have.
	ctx, cancel := context.WithTimeoutCause(r.ctx, h.server.Deadline()/4*5, lookup.ErrDeadline)
	defer cancel()
	r.ctx = ctx
	return r.late(rt.run(r))
}

// wait waits until the answer may be sent. Other answers are made meanwhile.
func (r *request) wait() {
	left := time.Until(r.due)
	if left <= 0 {
		return
	}
	if r.ticket != nil {
		r.ticket.made(int64(cap(r.doc.buf)))
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Request.Context().Done(): // the client has gone
	}
}

// release ends what the request holds.
func (r *request) release() {
	for _, t := range []*ticket{r.ticket, r.list} {
		if t != nil {
			t.release()
		}
	}
	r.ticket, r.list = nil, nil
}

// moving returns what the client sends or receives. From now on the gates know how fast it is.
func (h *handler) moving(r *request) *Transfer {
	if r.transfer == nil {
		r.transfer = newTransfer(h.flow, r.w)
	}
	for _, t := range []*ticket{r.ticket, r.list} {
		if t != nil {
			t.moves(r.transfer)
		}
	}
	return r.transfer
}

// late returns lookup.ErrDeadline if err is there because the time of the request is over, and
// otherwise err. Stores have various errors for requests that ended with their context.
func (r *request) late(err error) error {
	if err != nil && errors.Is(context.Cause(r.ctx), lookup.ErrDeadline) && !errors.Is(err, codec.ErrCorrupt) &&
		asProblem(err).status >= statusClientGone {
		return lookup.ErrDeadline
	}
	return err
}

// problem makes the answer that of an error.
func (r *request) problem(err error) {
	p := r.fail(err)
	r.etag = ""
	r.header["Content-Type"] = typeProblem
	r.doc = document{buf: r.doc.buf[:0]}
	p.write(&r.doc)
}

// access writes the line of the access log.
func (h *handler) access(r *request, name, id string, sent int64, cut bool, took time.Duration) {
	level := slog.LevelInfo
	// lookup logs why no version is open, so 503 is no error of the request.
	if r.status >= 500 && r.status != http.StatusServiceUnavailable {
		level = slog.LevelError
	}
	if !h.log.Enabled(r.Request.Context(), level) {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("route", name), slog.Int("status", r.status), slog.String("request_id", id),
	}, r.logged...)
	if cut {
		attrs = append(attrs, slog.Bool("cut", true)) // the client did not take all of it
	}
	if r.traced != nil {
		attrs = append(attrs, slog.String("trace_id", r.traced.TraceID()))
	}
	attrs = append(attrs, slog.Int64("bytes", sent), slog.Int64("us", took.Microseconds()))
	h.log.LogAttrs(r.Request.Context(), level, "request", attrs...)
}

// prepare finds out who asks and checks the parameters.
func (h *handler) prepare(r *request, rt *route) (err error) {
	defer contain(&err)
	if h.auth != nil && !rt.unnamed {
		if err := h.admit(r); err != nil {
			return err
		}
	}
	query := r.URL.RawQuery
	if rt.page {
		query = rt.known(query)
	}
	if query != "" { // otherwise r.query is nil, which has no parameters
		if r.query, err = url.ParseQuery(query); err != nil {
			return badParameter("query", "string is malformed; check its percent-escapes and separators")
		}
		if rt.parameters != nil {
			if err := rt.check(r.query); err != nil {
				return err
			}
		}
	}
	if rt.streams != nil {
		r.vary("Accept") // of an early 304 too
		if !r.query.Has("format") {
			r.form = string(r.wantedForm())
		}
	}
	if r.partial && rt.parameters != nil && r.explains() {
		return newProblem(http.StatusForbidden, "forbidden", "explain=1 is for those who may read all datasets",
			"the reads of the store are of all datasets; leave explain out")
	}
	return nil
}

// contain makes a panic a *lookup.PanicError.
func contain(err *error) {
	if v := recover(); v != nil {
		*err = &lookup.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// run calls the handler. A panic becomes a *lookup.PanicError.
func (rt *route) run(r *request) (err error) {
	defer contain(&err)
	return rt.answer(r)
}

// fail records err as the outcome of the request and returns the problem to send.
func (r *request) fail(err error) *problem {
	p := asProblem(err)
	r.status = p.status
	r.traced.problem(p)
	if p.status >= 500 {
		r.logged = append(r.logged, slog.String("error", lake.Explain("", err)))
	}
	if p := (*lookup.PanicError)(nil); errors.As(err, &p) {
		r.logged = append(r.logged, slog.String("stack", string(p.Stack)))
	}
	switch {
	case p.kind == "overloaded" || p.status == http.StatusTooManyRequests:
		r.header.Set("Retry-After", connRetryAfter())
	case p.status == http.StatusServiceUnavailable:
		r.header.Set("Retry-After", retryAfter)
	case p.status == http.StatusUnauthorized:
		r.header.Set("WWW-Authenticate", `Bearer realm="urlake", error="invalid_token", error_description=`+strconv.Quote(p.detail))
	}
	if r.partial && p.status >= 500 && p.kind != "overloaded" {
		p = &problem{status: p.status, kind: p.kind, title: p.title} // the rest can name objects
	}
	return p
}

// send sends the document, compressed if that is wanted, within the time that a client has for it.
// The gate counts its memory until then.
func (r *request) send(h *handler, rt *route) (sent int64, err error) {
	body := r.doc.buf
	head := r.Method == http.MethodHead
	packed := "" // by this encoding
	if len(body) >= compressFrom {
		packed = r.coding
	}
	switch {
	case r.status == http.StatusNotModified:
		body = nil
		delete(r.header, "Content-Type")
	case r.status == http.StatusNoContent:
	case head:
		if packed == "" && !r.brief { // otherwise the length of what GET sends is not known
			r.set("Content-Length", strconv.Itoa(len(body)))
		}
		body = nil
	case r.answer != nil:
		if body = r.answer.Body; r.answer.Coding != "" {
			r.set("Content-Encoding", r.answer.Coding)
		}
		r.set("Content-Length", strconv.Itoa(len(body)))
	case packed != "":
		r.set("Content-Encoding", packed)
		body = r.compress(packed)
		r.doc.buf = nil // is not needed while the client reads
		fallthrough
	default:
		h.keep(r, rt, body)
		r.set("Content-Length", strconv.Itoa(len(body)))
	}
	if r.ticket != nil {
		r.ticket.made(int64(cap(body)))
	}
	if r.etag != "" {
		r.set("Etag", r.tag())
	}
	r.w.WriteHeader(r.status)
	if len(body) == 0 {
		return 0, nil
	}
	if len(body) <= piece { // one write, within the time that the server allows to all
		n, err := r.w.Write(body)
		return int64(n), err
	}
	x := h.moving(r)
	err = x.WriteAll(body, r.w.Write, func(rest []byte) []byte {
		if r.ticket == nil {
			return rest
		}
		rest = bytes.Clone(rest)
		r.doc.buf = nil
		r.ticket.made(int64(cap(rest)))
		return rest
	})
	return x.Sent, err
}

// requestID is the id that the client or a proxy has given the request, or a new one.
func requestID(hr *http.Request) string {
	if given := hr.Header["X-Request-Id"]; len(given) == 1 && saneID(given[0]) {
		return given[0]
	}
	var raw [8]byte
	var id [2 * len(raw)]byte
	binary.LittleEndian.PutUint64(raw[:], rand.Uint64())
	hex.Encode(id[:], raw[:])
	return string(id[:])
}

// saneID reports whether an id may go into headers and logs as it is: it is short, and has no
// characters that a log or a URL could need.
func saneID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
