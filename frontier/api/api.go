// Package api serves a frontier over HTTP: URLs, claims and results as JSON and NDJSON.
package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/urlake/urlake/frontier"
)

const (
	// maxLine bounds a line of a request: a URL and its metadata.
	maxLine = 256 << 10
	// maxBody bounds the body of a request that is no stream of lines.
	maxBody = 1 << 20
	// batchLines and batchBytes bound the lines that are handled at once.
	batchLines = 10_000
	batchBytes = 8 << 20
	// linesAtOnce is how much memory for lines is taken at once.
	linesAtOnce = 64 << 10
	// maxClaims bounds the URLs of an answer, maxWait how long a claim waits for the first.
	maxClaims = 10_000
	maxWait   = time.Minute
)

// Handler serves a frontier. What concerns a shard of another process it asks of that.
type Handler struct {
	f       *frontier.Frontier
	log     *slog.Logger
	mux     *http.ServeMux
	client  *http.Client
	streams *http.Client // for answers that take as long as a client reads them
	// silent has the names of other processes that do not answer; asking are the questions whether
	// they do.
	silent  sync.Map
	asking  singleflight.Group
	metrics *metrics
	rates   rates
	timed   http.Handler
	// stopping ends the waits of claims.
	stopping context.Context
	stop     context.CancelFunc
}

// New returns the handler of a frontier.
func New(f *frontier.Frontier, log *slog.Logger) *Handler {
	h := &Handler{f: f, log: log, mux: http.NewServeMux(), client: &http.Client{Timeout: peerTimeout}, streams: streams(), metrics: newMetrics(f)}
	h.timed = h.metrics.timed(h.sameOrigin(h.mux))
	h.stopping, h.stop = context.WithCancel(context.Background())
	h.mux.HandleFunc("POST /v1/urls", h.urls)
	h.mux.HandleFunc("GET /v1/urls", h.crawlURLs)
	h.mux.HandleFunc("POST /v1/claims", h.claims)
	h.mux.HandleFunc("POST /v1/results", h.results)
	h.mux.HandleFunc("POST /v1/leases:extend", h.extend)
	h.mux.HandleFunc("POST /v1/leases:release", h.release)
	h.mux.HandleFunc("GET /v1/seen", h.seen)
	h.mux.HandleFunc("POST /v1/seen", h.seenAll)
	h.mux.HandleFunc("GET /v1/visited", h.visited)
	h.mux.HandleFunc("POST /v1/visits", h.importVisits)
	h.mux.HandleFunc("GET /v1/domains/{d}", h.ofKey(h.domain))
	h.mux.HandleFunc("PATCH /v1/domains/{d}", h.ofKey(h.changeDomain))
	h.mux.HandleFunc("GET /v1/domains/{d}/robots", h.ofKey(h.robots))
	h.mux.HandleFunc("GET /v1/domains/{d}/urls", h.ofKey(h.domainURLs))
	h.mux.HandleFunc("DELETE /v1/domains/{d}/urls", h.ofKey(h.deleteURLs))
	h.mux.HandleFunc("GET /v1/stats", h.stats)
	h.mux.HandleFunc("GET /v1/openapi.yaml", h.openAPI)
	h.mux.HandleFunc("GET /{$}", h.status)
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	h.mux.Handle("GET /metrics", h.metrics.handler())
	h.mux.HandleFunc(everything, h.noRoute)
	h.snapshotRoutes()
	return h
}

// Stop ends the waits of claims, now and from now on, so that the server can end.
func (h *Handler) Stop() { h.stop() }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	r.Body = &movingBody{r.Body, control, moveTime}
	h.rates.note(h.metrics)
	h.timed.ServeHTTP(&movingWriter{w, control, moveTime}, r)
}

type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// problem answers with a problem document (RFC 9457).
func (h *Handler) problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, problem{http.StatusText(status), status, detail})
	_, _ = io.WriteString(w, "\n")
}

func (h *Handler) failed(w http.ResponseWriter, err error) {
	if errors.Is(err, frontier.ErrElsewhere) {
		if err.Error() != frontier.ErrElsewhere.Error() {
			h.warnOfPeer("a request for another process", err)
		}
		h.problem(w, http.StatusServiceUnavailable, frontier.ErrElsewhere.Error()+", or none does at the moment: try again")
		return
	}
	h.log.Error(err.Error())
	h.problem(w, http.StatusServiceUnavailable, "the frontier cannot do this now; its log says why")
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, v)
	_, _ = io.WriteString(w, "\n")
}

// urlLine is a line of POST /v1/urls.
type urlLine struct {
	URL          string         `json:"url"`
	Crawl        string         `json:"crawl"`
	Key          string         `json:"key"`
	Priority     uint16         `json:"priority"`
	Depth        uint32         `json:"depth"`
	Metadata     jsontext.Value `json:"metadata"`
	RefetchAfter *time.Time     `json:"refetch_after"`
	Update       bool           `json:"update"`
	Done         bool           `json:"done"`
}

// lineResult is a line of the answer to urls and results.
type lineResult struct {
	Result string `json:"result"`
	Reason string `json:"reason,omitzero"`
}

// The rooms of lists whose texts are those of lines, or of nothing else that stays.
var (
	linesRoom    room[string]
	placesRoom   room[int]
	resultsRoom  room[lineResult]
	urlsRoom     room[frontier.URL]
	outcomesRoom room[frontier.Outcome]
	claimsRoom   room[claim]
	claimedRoom  room[frontier.Claim]
)

// lines is linesOf for lines that become something, which is counted. Do sets a result for each.
func (h *Handler) lines(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, lines []string, results []lineResult) error) {
	list := resultsRoom.get()
	defer resultsRoom.put(list)
	linesOf(h, w, r, func(ctx context.Context, lines []string) ([]lineResult, error) {
		clear(*list)
		*list = slices.Grow((*list)[:0], len(lines))[:len(lines)]
		err := do(ctx, lines, *list)
		if err == nil {
			h.metrics.count(r, *list)
		}
		return *list, err
	})
}

// writers are buffers of answers, which are large for most, and readers those of requests.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}
	readers = sync.Pool{New: func() any { return new([linesAtOnce]byte) }}
)

// linesOf calls do with batches of the request's lines, and writes a result for each line. An error
// of the first batch is a problem; after that the answer is cut off, which is seen as a line that
// does not end the stream.
func linesOf[R answerLine](h *Handler, w http.ResponseWriter, r *http.Request, do func(ctx context.Context, lines []string) ([]R, error)) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	// Hundreds of workers have a request each, and most of these wait for do. They have no buffers
	// meanwhile, unless the request is long.
	var out *bufio.Writer // nil until the answer has begun
	defer func() {
		if out != nil {
			out.Reset(nil)
			writers.Put(out)
		}
	}()
	atOnce := linesAtOnce
	if r.ContentLength >= 0 {
		atOnce = int(min(r.ContentLength+1, linesAtOnce))
	}
	buffer := readers.Get().(*[linesAtOnce]byte)
	in := bufio.NewScanner(r.Body)
	in.Buffer(buffer[:0], maxLine)
	list := linesRoom.get()
	batch := *list
	defer func() {
		*list = batch
		linesRoom.put(list)
	}()
	var lines strings.Builder // of which those of the batch are parts
	size := 0
	flush := func() bool {
		results, err := do(r.Context(), batch)
		clear(batch)
		batch, size = batch[:0], 0
		if err != nil {
			if out == nil {
				w.Header().Set("Connection", "close") // the rest of the body is not read
				h.failed(w, err)
				return false
			}
			h.log.Error(err.Error())
			panic(http.ErrAbortHandler)
		}
		if out == nil {
			w.Header().Set("Content-Type", "application/x-ndjson")
			out = writers.Get().(*bufio.Writer)
			out.Reset(w)
		}
		for _, res := range results {
			_, _ = out.Write(res.appendTo(out.AvailableBuffer()))
		}
		return true
	}
	for in.Scan() {
		if line := bytes.TrimSpace(in.Bytes()); len(line) > 0 {
			if len(line) > lines.Cap()-lines.Len() {
				lines.Reset()
				lines.Grow(max(len(line), atOnce))
			}
			lines.Write(line)
			batch = append(batch, lines.String()[lines.Len()-len(line):])
			size += len(line)
		}
		if (len(batch) >= batchLines || size >= batchBytes) && !flush() {
			return
		}
	}
	readers.Put(buffer)
	if err := in.Err(); err != nil {
		detail := err.Error()
		if errors.Is(err, bufio.ErrTooLong) {
			detail = fmt.Sprintf("a line is longer than %d bytes", maxLine)
		}
		if out != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Connection", "close") // the rest of the body is not read
		h.problem(w, http.StatusBadRequest, detail+"; nothing of this request was done")
		return
	}
	if flush() {
		_ = out.Flush()
	}
}

func (h *Handler) urls(w http.ResponseWriter, r *http.Request) {
	h.lines(w, r, func(ctx context.Context, lines []string, results []lineResult) error {
		urls, places := urlsRoom.get(), placesRoom.get()
		defer urlsRoom.put(urls)
		defer placesRoom.put(places)
		h.f.Bulk(len(lines), func() {
			var u urlLine
			for i, line := range lines {
				u = urlLine{}
				err := u.parse(line)
				if err == nil {
					err = checkDepth(u.Depth)
				}
				if err != nil {
					results[i] = lineResult{frontier.Rejected, "line: " + reason(err)}
					continue
				}
				add := frontier.URL{
					URL: u.URL, Crawl: u.Crawl, Key: u.Key, Priority: u.Priority, Depth: u.Depth, Metadata: u.Metadata,
					Update: u.Update, Done: u.Done,
				}
				if u.RefetchAfter != nil {
					add.Due = *u.RefetchAfter
				}
				*urls, *places = append(*urls, add), append(*places, i)
			}
		})
		added, err := h.f.Add(ctx, *urls)
		if err != nil {
			return err
		}
		away := peers{}
		for n, a := range added {
			i := (*places)[n]
			results[i] = lineResult{a.Result, a.Reason}
			if a.Result == frontier.Elsewhere {
				away[a.Reason] = append(away[a.Reason], i)
			}
		}
		forwardLines(h, r, away, lines, results, unserved)
		return nil
	})
}

type claimRequest struct {
	Max       int    `json:"max"`
	PerDomain int    `json:"per_domain"`
	WaitMS    int64  `json:"wait_ms"`
	Worker    string `json:"worker"`
	Crawl     string `json:"crawl"`
}

type claim struct {
	Lease    string         `json:"lease"`
	URL      string         `json:"url"`
	Found    string         `json:"found,omitzero"`
	Domain   string         `json:"domain"`
	Crawl    string         `json:"crawl"`
	Depth    uint32         `json:"depth"`
	Priority uint16         `json:"priority"`
	Tries    uint32         `json:"tries"`
	Metadata jsontext.Value `json:"metadata,omitzero"`
	Expires  time.Time      `json:"expires"`
	// RobotsUntil is until when the frontier has the robots.txt of the URL's host.
	RobotsUntil time.Time `json:"robots_until,omitzero"`
}

// body reads the JSON of a request. It is false if it has answered with a problem.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, v any) bool {
	return h.bodyUpTo(w, r, maxBody, v)
}

func (h *Handler) bodyUpTo(w http.ResponseWriter, r *http.Request, limit int64, v any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		err = json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	}
	if err != nil {
		h.problem(w, http.StatusBadRequest, "the body: "+reason(err))
	}
	return err == nil
}

func (h *Handler) claims(w http.ResponseWriter, r *http.Request) {
	var q claimRequest
	if !h.body(w, r, &q) {
		return
	}
	if q.Max < 0 || q.Max > maxClaims || q.PerDomain < 0 || q.WaitMS < 0 {
		h.problem(w, http.StatusBadRequest, fmt.Sprintf("max has to be 1 to %d, per_domain and wait_ms not negative", maxClaims))
		return
	}
	q.Max = max(q.Max, 1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	unhook := context.AfterFunc(h.stopping, cancel)
	defer unhook()
	list, own := claimsRoom.get(), claimedRoom.get()
	defer claimsRoom.put(list)
	defer claimedRoom.put(own)
	end := time.Now().Add(min(time.Duration(q.WaitMS)*time.Millisecond, maxWait))
	for {
		wait := time.Until(end)
		others := h.others(r)
		// Each process comes first equally often. Otherwise the domains of others would get nothing
		// while this one has enough.
		rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		if len(others) > 0 {
			wait = min(wait, peerInterval)
		}
		all := claimsAnswer{*list}
		if len(others) > 0 && rand.IntN(len(others)+1) > 0 {
			all.Claims = append(all.Claims, h.claimsOf(r, others[0], q, q.Max)...)
			others = others[1:]
		}
		if n := q.Max - len(all.Claims); n > 0 {
			if n < q.Max {
				wait = 0
			}
			got, err := h.f.AppendClaims(ctx, *own, frontier.ClaimRequest{Crawl: q.Crawl, Max: n, PerQueue: q.PerDomain, Wait: wait})
			if err != nil && n == q.Max {
				h.failed(w, err)
				return
			}
			if err != nil {
				h.log.Error(err.Error())
			}
			*own = got
			for i := range got {
				c := &got[i]
				found, metadata := frontier.Found(c.Metadata)
				all.Claims = append(all.Claims,
					claim{c.Lease, c.URL, found, c.Key, c.Crawl, c.Depth, c.Priority, c.Tries, metadata, c.Expires, c.Robots})
			}
		}
		for _, other := range others {
			if len(all.Claims) < q.Max {
				all.Claims = append(all.Claims, h.claimsOf(r, other, q, q.Max-len(all.Claims))...)
			}
		}
		if len(all.Claims) > 0 || !time.Now().Before(end) || ctx.Err() != nil {
			h.metrics.claimed(r, len(all.Claims))
			*list = all.Claims
			answerClaims(w, r, all)
			return
		}
	}
}

type claimsAnswer struct {
	Claims []claim `json:"claims"`
}

type resultLine struct {
	Lease    string `json:"lease"`
	Status   uint16 `json:"status"`
	Content  string `json:"content"`
	Error    string `json:"error"`
	Redirect string `json:"redirect"`
	// RetryAfter is in seconds, as in HTTP.
	RetryAfter float64 `json:"retry_after"`
	Final      bool    `json:"final"`
	// RefetchAfter is when a settled URL waits again.
	RefetchAfter time.Time `json:"refetch_after"`
}

func (h *Handler) results(w http.ResponseWriter, r *http.Request) {
	h.lines(w, r, func(ctx context.Context, lines []string, results []lineResult) error {
		outcomes, places := outcomesRoom.get(), placesRoom.get()
		defer outcomesRoom.put(outcomes)
		defer placesRoom.put(places)
		var o resultLine
		for i, line := range lines {
			o = resultLine{}
			if err := o.parse(line); err != nil {
				results[i] = lineResult{frontier.Rejected, "line: " + reason(err)}
				continue
			}
			*outcomes = append(*outcomes, frontier.Outcome{
				Lease: o.Lease, Status: o.Status, Error: o.Error, Content: o.Content, Redirect: o.Redirect,
				RetryAfter: upToMaxSeconds(o.RetryAfter), Final: o.Final, Refetch: o.RefetchAfter,
			})
			*places = append(*places, i)
		}
		settled, err := h.f.Settle(ctx, *outcomes)
		if err != nil {
			return err
		}
		away := peers{}
		for n, s := range settled {
			i := (*places)[n]
			results[i].Result = s.Result
			if s.Result == frontier.Elsewhere {
				away[s.Owner] = append(away[s.Owner], i)
			}
		}
		forwardLines(h, r, away, lines, results, unserved)
		return nil
	})
}

func (h *Handler) extend(w http.ResponseWriter, r *http.Request) {
	var q leasesRequest
	if !h.body(w, r, &q) {
		return
	}
	results, until, err := h.f.Extend(r.Context(), q.Leases)
	if err != nil {
		h.failed(w, err)
		return
	}
	got := extended{make([]bool, len(results)), until}
	away := peers{}
	for i, res := range results {
		got.Extended[i] = res.Result == frontier.Extended
		if res.Result == frontier.Elsewhere {
			away[res.Owner] = append(away[res.Owner], i)
		}
	}
	if err := h.forwardLeases(r, away, q.Leases, &got); err != nil {
		h.failed(w, err)
		return
	}
	answer(w, got)
}

// extended is the answer to leases:extend. Leases whose Extended is false have ended.
type extended struct {
	Extended []bool    `json:"extended"`
	Expires  time.Time `json:"expires"`
}

func (h *Handler) seen(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s, err := h.f.Seen(q.Get("crawl"), q.Get("key"), q.Get("url"))
	switch {
	case errors.Is(err, frontier.ErrElsewhere):
		h.forward(w, r, s.Owner)
	case errors.Is(err, frontier.ErrURL):
		h.problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		h.failed(w, err)
	default:
		answer(w, seenAnswer{s.URL, s.Seen, s.Settled, s.Status, s.Fetched})
	}
}

type seenAnswer struct {
	URL     string    `json:"url"`
	Seen    bool      `json:"seen"`
	Settled bool      `json:"settled"`
	Status  uint16    `json:"status,omitzero"`
	Fetched time.Time `json:"fetched,omitzero"`
}

type visit struct {
	URL      string    `json:"url"`
	Crawl    string    `json:"crawl"`
	Domain   string    `json:"domain"`
	Time     time.Time `json:"time"`
	Status   uint16    `json:"status"`
	Error    string    `json:"error,omitzero"`
	Content  string    `json:"content,omitzero"`
	Redirect string    `json:"redirect,omitzero"`
	Depth    uint32    `json:"depth"`
}

// visited streams visits, and ends with a line that has the cursor of those that follow. A list
// that ends for want of visits says of which shards it has none because nobody serves them; one
// that has nothing else is refused.
func (h *Handler) visited(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	since, errS := timeOf("since", q.Get("since"))
	until, errU := timeOf("until", q.Get("until"))
	limit, errL := limitOf(q.Get("limit"))
	cursor, errC := cursorOf(q.Get("cursor"))
	if err := errors.Join(errL, errS, errU, errC); err != nil {
		h.problem(w, http.StatusBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(w, 64<<10)
	n := 0
	var left error // the client has left, or does not read
	next, shards, err := h.f.Visited(since, until, string(cursor), limit, func(v frontier.Visit) bool {
		n++
		line := visit{v.URL, v.Crawl, v.Key, v.Time, v.Status, v.Error, v.Content, v.Redirect, v.Depth}
		left = errors.Join(json.MarshalWrite(out, line), out.WriteByte('\n'))
		return left == nil
	})
	end := visitsEnd{Cursor: base64.RawURLEncoding.EncodeToString([]byte(next))}
	if err == nil && left == nil {
		var others []int
		others, err = h.visitsOfOthers(r, &end.Cursor, limit, &n, out)
		shards = append(shards, others...)
	}
	if errors.Is(err, frontier.ErrCursor) && n > 0 { // another process refuses it: the next request, too
		err = nil
	} else if err == nil && n < limit && r.Header.Get(forwarded) == "" {
		end.Unserved = h.unserved(shards)
	}
	if !h.listed(w, r, n, left, err) {
		return
	}
	if len(end.Unserved) > 0 && n == 0 {
		h.problem(w, http.StatusServiceUnavailable, fmt.Sprintf("no process serves the visits of shards %v at the moment: try again", end.Unserved))
		return
	}
	_ = json.MarshalWrite(out, end)
	_ = out.WriteByte('\n')
	if r.Header.Get(forwarded) != "" {
		setShards(w, shards)
	}
	_ = out.Flush()
}

// unserved are the shards that are not among those that were served.
func (h *Handler) unserved(served []int) (numbers []int) {
	for number := range h.f.NumShards() {
		if !slices.Contains(served, number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// visitsEnd is the last line of a list of visits.
type visitsEnd struct {
	Cursor string `json:"next_cursor"`
	// Unserved are the shards whose visits are not in the list, since nobody serves them. They come
	// with the cursor.
	Unserved []int `json:"unserved,omitempty"`
}

func timeOf(name, s string) (t time.Time, err error) {
	if s == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339, s); err != nil {
		err = fmt.Errorf("%s has to be %s", name, wantedTime)
	}
	return t, err
}

func (h *Handler) stats(w http.ResponseWriter, _ *http.Request) { answer(w, h.statsOf()) }

func (h *Handler) statsOf() statsAnswer {
	s := h.f.Stats()
	return statsAnswer{s.Shards, s.Queues, s.Pending, s.Later, s.Leased, s.Done, s.Visits, h.largest()}
}

type statsAnswer struct {
	Shards  int   `json:"shards"`
	Domains int64 `json:"domains"`
	Waiting int64 `json:"waiting"`
	Later   int64 `json:"later"`
	Leased  int64 `json:"leased"`
	Settled int64 `json:"settled"`
	Visited int64 `json:"visited"`
	// Largest are the queues in which the most URLs wait.
	Largest []sizeAnswer `json:"largest"`
}
