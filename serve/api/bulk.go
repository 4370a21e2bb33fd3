package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/urlake/urlake/serve/bulk"
	"github.com/urlake/urlake/serve/lookup"
)

const (
	// maxBulkLines, maxBulkLine and maxBulkBody bound the list of one request.
	maxBulkLines = 100_000
	maxBulkLine  = 128 << 10
	maxBulkBody  = 16 << 20
	// questionBytes is the memory of a line besides its text.
	questionBytes = int64(unsafe.Sizeof(bulk.Question{}))
	// bulkRows is what a list that is answered has in memory, in rows of a list of URLs: the lines
	// that are looked up together.
	bulkRows = 4096
)

// bulk answers a list of domains. The list is read before the first answer is sent: so each of
// its limits is an error with a status of its own, and a client that sends everything before it
// reads anything does not block. It is read before there is room for work on it, so that others
// work while it comes.
func (h *handler) bulk(r *request) error {
	q, err := r.bulkQuery()
	if err != nil {
		return err
	}
	format, err := r.listFormat()
	if err != nil {
		return err
	}
	if r.ContentLength > maxBulkBody {
		return tooLarge("body_bytes", maxBulkBody, fmt.Sprintf("the body has %d bytes", r.ContentLength))
	}
	g := h.gates.lists
	// A list takes three quarters at most, so that a small one finds room beside a large one.
	if r.list, err = g.acquire(r.Context(), h.client(r), min(listBytes(r.ContentLength), g.budget/4*3)); err != nil {
		return err
	}
	body, err := h.receive(r)
	if err != nil {
		return err
	}
	if err := h.work(r, bulkRows); err != nil {
		return err
	}
	if err := r.turn.Take(r.Context()); err != nil {
		return err
	}
	questions, err := parseList(body, format)
	if err != nil {
		return err
	}
	snap, err := h.pin(r.Context(), r)
	if err != nil {
		return err
	}
	defer snap.Release()
	if r.query.Has("dataset") {
		if q.Datasets, err = datasetIDs(snap, r.query.Get("dataset")); err != nil {
			return err
		}
	}
	r.header.Set("Urlake-Version", snap.Version().ID)
	contentType := "application/x-ndjson"
	if q.Form == bulk.CSV {
		contentType = "text/csv; charset=utf-8"
	}
	out := &listWriter{h: h, r: r, contentType: contentType}
	sums, err := bulk.Answers(r.Context(), snap, questions, q, out)
	if err == nil {
		err = out.end(int64(len(questions)))
	}
	r.logged = append(r.logged, slog.Int("questions", len(questions)), slog.Int("found", sums.Found), slog.Int("invalid", sums.Invalid))
	var wide *bulk.TooWideError
	if errors.As(err, &wide) {
		return badParameter("matrix", "is too wide: "+wide.Error()+" with dataset=")
	}
	return err
}

// listWriter sends the answers to a list. An error before its first piece is full is a problem like
// any other.
type listWriter struct {
	h           *handler
	r           *request
	contentType string
	buf         []byte
}

// Write implements io.Writer. It fails when the client has gone.
func (w *listWriter) Write(p []byte) (int, error) {
	if w.buf = append(w.buf, p...); len(w.buf) < streamPiece {
		return len(p), nil
	}
	if err := w.begin(); err != nil {
		return 0, err
	}
	err := w.r.stream.write(w.buf)
	w.buf = w.buf[:0]
	return len(p), err
}

func (w *listWriter) begin() error {
	if w.r.stream != nil {
		return nil
	}
	_, err := w.h.begin(w.r, w.contentType)
	return err
}

// end sends what is left.
func (w *listWriter) end(answers int64) error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.r.stream.end(w.buf, answers)
}

// bulkQuery reads the parameters but the datasets, which depend on the version.
func (r *request) bulkQuery() (q bulk.Query, err error) {
	totals, err := r.flag("totals", true)
	if err != nil {
		return q, err
	}
	q.Presence = !totals
	if q.Matrix, err = r.flag("matrix", false); err != nil {
		return q, err
	}
	q.Form, err = r.bulkForm()
	return q, err
}

// flag returns a parameter that is 1 or 0.
func (r *request) flag(name string, def bool) (bool, error) {
	if !r.query.Has(name) {
		return def, nil
	}
	switch r.query.Get(name) {
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, badParameter(name, "must be 1 or 0")
}

// bulkForms are the media types of the forms of an answer.
var bulkForms = []struct {
	mediaType string
	form      bulk.Format
}{
	{"application/x-ndjson", bulk.NDJSON}, {"text/csv", bulk.CSV},
	{"application/ndjson", bulk.NDJSON}, {"application/jsonl", bulk.NDJSON}, {"application/json", bulk.NDJSON},
	{"*/*", bulk.NDJSON}, {"application/*", bulk.NDJSON}, {"text/*", bulk.CSV},
}

// bulkForm chooses the form of the answer: format=, or what Accept prefers.
func (r *request) bulkForm() (bulk.Format, error) {
	if r.query.Has("format") {
		switch f := bulk.Format(r.query.Get("format")); f {
		case bulk.NDJSON, bulk.CSV:
			return f, nil
		}
		return "", badParameter("format", "must be ndjson or csv")
	}
	accept := strings.Join(r.Header["Accept"], ",")
	if strings.TrimSpace(accept) == "" {
		return bulk.NDJSON, nil
	}
	best, form := 0.0, bulk.Format("")
	for item := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		weight := 1.0
		if v, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(v, 64); err != nil {
				continue
			}
		}
		for _, f := range bulkForms {
			if f.mediaType == name && weight > best {
				best, form = weight, f.form
			}
		}
	}
	if form == "" {
		return "", newProblem(http.StatusNotAcceptable, "not-acceptable", "The answer has no such form",
			"accept application/x-ndjson or text/csv")
	}
	return form, nil
}

// listFormat returns the format that Content-Type names, "" if the list has to tell.
func (r *request) listFormat() (bulk.Format, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return "", unsupported("send the list without Content-Encoding")
	}
	text := r.Header.Get("Content-Type")
	if text == "" {
		return "", nil
	}
	name, _, err := mime.ParseMediaType(text)
	if err != nil {
		return "", unsupported("Content-Type is malformed")
	}
	switch name {
	case "text/plain":
		return bulk.Lines, nil
	case "text/csv":
		return bulk.CSV, nil
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/json":
		return bulk.NDJSON, nil
	case "application/x-www-form-urlencoded", "application/octet-stream": // what curl says of any body
		return "", nil
	}
	return "", unsupported("send text/plain, text/csv or application/x-ndjson, as with curl --data-binary @LIST")
}

func unsupported(detail string) *problem {
	return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is of no known form", detail)
}

// tooLarge is the problem of a list that is over a limit.
func tooLarge(limit string, most int64, detail string) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too-large", "The list is too large",
		fmt.Sprintf("%s; at most %d are allowed in a request: cut the list", detail, most),
		member{"limit", limit}, member{"maximum", strconv.FormatInt(most, 10)})
}

// listBytes is the memory that a list takes whose body has that many bytes, or -1 if that is not
// known: its body, its lines, and their texts where these are not as in the body.
func listBytes(body int64) int64 {
	if body < 0 {
		body = maxBulkBody
	}
	return 2*body + min(body/2+1, maxBulkLines)*questionBytes
}

// receive reads the body, which is a list.
func (h *handler) receive(r *request) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // the length is checked
	x := h.moving(r)
	_, err := io.Copy(&body, reader{Transfer: x, Body: http.MaxBytesReader(r.w, r.Body, maxBulkBody)})
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge("body_bytes", maxBulkBody, fmt.Sprintf("the body has more than %d bytes", maxBulkBody))
	case isSlow(err):
		r.header.Set("Connection", "close") // the answer must not wait for the rest
		return nil, newProblem(http.StatusRequestTimeout, "too-slow", "The list came too slowly",
			fmt.Sprintf("send %d KiB a second or more, or %d if others wait for room", h.flow.Rate>>10, h.flow.Fair>>10))
	case err != nil && r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, "bad-list", "The list could not be read", "the body ended early")
	}
	x.Received()
	return body.Bytes(), nil
}

// parseList reads the questions of a list.
func parseList(body []byte, format bulk.Format) ([]bulk.Question, error) {
	if format == "" {
		format = bulk.Detect(body)
	}
	questions, err := bulk.Parse(body, format, bulk.Limits{Questions: maxBulkLines, LineBytes: maxBulkLine})
	var limit *bulk.LimitError
	switch {
	case errors.As(err, &limit):
		return nil, tooLarge(limit.Limit, int64(limit.Max), limit.Error())
	case err != nil:
		return nil, err
	case len(questions) == 0:
		return nil, newProblem(http.StatusBadRequest, "bad-list", "The list could not be read",
			"the body has no domains; send one domain, host or URL a line")
	}
	return questions, nil
}

// datasetIDs returns the ids of datasets that text names, separated by commas.
func datasetIDs(snap *lookup.Snapshot, text string) ([]uint32, error) {
	var ids []uint32
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			return nil, badParameter("dataset", "has an empty name; separate ids or names by single commas")
		}
		id, err := datasetID(snap, name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(ids, id) {
			return nil, badParameter("dataset", "names a dataset twice")
		}
		ids = append(ids, id)
	}
	return ids, nil
}
