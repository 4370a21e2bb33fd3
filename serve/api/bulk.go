package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/serve/bulk"
	"github.com/urlake/urlake/serve/lookup"
)

const (
	// maxBulkLines, maxBulkLine and maxBulkBody bound the list of one request.
	maxBulkLines = 100_000
	maxBulkLine  = 128 << 10
	maxBulkBody  = 16 << 20
	// bulksAtOnce is how many lists are in memory at once. The others wait for bulkWait.
	bulksAtOnce = 2
	bulkWait    = 10 * time.Second

	// bulkReadTime is how long a client may take to send its list.
	bulkReadTime = time.Minute
)

// bulk answers a list of domains. The list is read before the first answer is sent: so each of
// its limits is an error with a status of its own, and a client that sends everything before it
// reads anything does not block.
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
	release, err := h.bulkSlot(r.Context())
	if err != nil {
		return err
	}
	defer release()
	questions, err := r.list(format)
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
	out := &listWriter{r: r, contentType: contentType}
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
	_, err := w.r.begin(w.contentType)
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

// bulkSlot waits until one more list may be in memory.
func (h *handler) bulkSlot(ctx context.Context) (release func(), err error) {
	timer := time.NewTimer(h.bulkWait)
	defer timer.Stop()
	select {
	case h.bulks <- struct{}{}:
		return func() { <-h.bulks }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, newProblem(http.StatusServiceUnavailable, "busy", "Other lists are being answered",
			"ask again after the time in Retry-After")
	}
}

// list reads the body.
func (r *request) list(format bulk.Format) ([]bulk.Question, error) {
	control := http.NewResponseController(r.w)
	// A writer without deadlines is no connection of a server, such as that of a test.
	_ = control.SetReadDeadline(time.Now().Add(bulkReadTime))
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // the length is checked
	_, err := io.Copy(&body, http.MaxBytesReader(r.w, r.Body, maxBulkBody))
	_ = control.SetReadDeadline(time.Time{})
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge("body_bytes", maxBulkBody, fmt.Sprintf("the body has more than %d bytes", maxBulkBody))
	case err != nil && r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, "bad-list", "The list could not be read",
			"the body ended early or came too slowly")
	}
	if format == "" {
		format = bulk.Detect(body.Bytes())
	}
	questions, err := bulk.Parse(body.Bytes(), format, bulk.Limits{Questions: maxBulkLines, LineBytes: maxBulkLine})
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
		if _, ok := snap.Dataset(id); !ok {
			return nil, fmt.Errorf("%w: %d", lookup.ErrUnknownDataset, id)
		}
		if slices.Contains(ids, id) {
			return nil, badParameter("dataset", "names a dataset twice")
		}
		ids = append(ids, id)
	}
	return ids, nil
}
