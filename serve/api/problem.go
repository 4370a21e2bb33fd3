package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/api/openapi"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lookup/filter"
)

// problem is an error answer: a problem document of RFC 9457.
type problem struct {
	status int
	// kind is the last part of the type, and the name of one of openapi.Problems.
	kind, title, detail string
	// members are the additional members of this kind.
	members []member
}

type member struct{ name, value string }

// Misdirected is the problem type of a request for a host that the server does not have. Such a
// request reaches no handler of this package.
const Misdirected = openapi.ProblemPath + "misdirected"

func (p *problem) Error() string { return p.title + ": " + p.detail }

func (p *problem) write(d *document) {
	d.open('{')
	d.text("type", openapi.ProblemPath+p.kind)
	d.text("title", p.title)
	d.number("status", int64(p.status))
	if p.detail != "" {
		d.text("detail", p.detail)
	}
	for _, m := range p.members {
		d.text(m.name, m.value)
	}
	d.close('}')
}

// Connections bounds the connections of a server, see NewConnections.
type Connections = connLimit

// NewConnections returns bounds for a server: the number of connections, and the memory in bytes
// for headers of more than 4 KiB.
func NewConnections(limit int, headers int64) *Connections {
	return newConnLimit(limit, headers, func(status int, kind, title, detail string) []byte {
		var d document
		(&problem{status: status, kind: kind, title: title, detail: detail}).write(&d)
		return d.buf
	})
}

func newProblem(status int, kind, title, detail string, members ...member) *problem {
	return &problem{status: status, kind: kind, title: title, detail: detail, members: members}
}

// badParameter rejects the named parameter. What completes the sentence that begins with the name.
func badParameter(name, what string) *problem {
	return newProblem(http.StatusBadRequest, "bad-parameter", "Invalid parameter", name+" "+what,
		member{"parameter", name})
}

// asProblem maps every error to the answer that clients get. A 5xx answer discloses no path or
// address of the server or its store: its detail is fixed, comes from lookup.Reason, or names the
// damaged object.
func asProblem(err error) *problem {
	var p *problem
	var reject *urlnorm.RejectError
	var notReady *lookup.NotReadyError
	var panicked *lookup.PanicError
	var selection *lookup.SelectionError
	var parts *lookup.TooManyPartsError
	var large *filter.TooLargeError
	var corrupt *codec.CorruptError
	var refused *auth.RefusedError
	var unavailable *auth.UnavailableError
	switch {
	case errors.As(err, &p):
		return p
	case treeProblem(err) != nil:
		return treeProblem(err)
	case errors.As(err, &refused):
		return unauthorized(refused.Reason)
	case errors.As(err, &unavailable):
		return newProblem(http.StatusServiceUnavailable, "not-ready", "The server cannot answer yet",
			"credentials cannot be checked now")
	case errors.As(err, &reject):
		return newProblem(http.StatusBadRequest, "not-a-host", "Not a host or URL", reject.Detail,
			member{"reason", string(reject.Reason)})
	case errors.Is(err, lookup.ErrBadCursor):
		return newProblem(http.StatusBadRequest, "bad-cursor", "The cursor does not belong to this query", err.Error())
	case errors.Is(err, lookup.ErrBadVersion):
		return newProblem(http.StatusBadRequest, "bad-version", "Not a version id", err.Error())
	case errors.Is(err, lookup.ErrRange):
		return newProblem(http.StatusBadRequest, "bad-parameter", "Invalid parameter", err.Error())
	case errors.As(err, &selection):
		return badParameter(selection.Part, selection.What)
	case errors.Is(err, lookup.ErrNotCounted):
		return badParameter("offset",
			"needs a list whose rows are counted: of one host, and without from, to and unique; leave it out and follow next")
	case errors.As(err, &parts):
		return newProblem(http.StatusUnprocessableEntity, "too-many-parts", "Too many parts for a list of distinct URLs",
			err.Error()+"; read the rows without unique and drop those whose url_id was there, or have the dataset compacted")
	case errors.As(err, &large):
		return newProblem(http.StatusUnprocessableEntity, "filter-too-large", "The regular expression is too large for a value",
			err.Error()+"; repeat less in it, or select fewer rows")
	case errors.Is(err, lookup.ErrUnknownDataset):
		return newProblem(http.StatusNotFound, "unknown-dataset", "The version has no such dataset", err.Error())
	case errors.Is(err, catalog.ErrUnknownVersion):
		return newProblem(http.StatusNotFound, "unknown-version", "No such version was published", err.Error())
	case errors.Is(err, lookup.ErrGone):
		return newProblem(http.StatusGone, "version-gone",
			"The version is no longer kept; start again without version and cursor", err.Error())
	case errors.As(err, &notReady):
		return newProblem(http.StatusServiceUnavailable, "not-ready", "The server cannot answer yet",
			lookup.Reason(err))
	case errors.As(err, &panicked):
		return newProblem(http.StatusInternalServerError, "panic", "Internal server error", "")
	case errors.As(err, &corrupt):
		return newProblem(http.StatusInternalServerError, "corrupt", "An object of the lake is damaged",
			lake.Explain("", corrupt), member{"file", corrupt.File}, member{"section", corrupt.Section},
			member{"offset", strconv.FormatInt(corrupt.Offset, 10)})
	case errors.Is(err, lookup.ErrComputing):
		return newProblem(http.StatusServiceUnavailable, "computing", "The answer is being computed",
			"it takes a scan of the version; ask again after the time in Retry-After")
	case errors.Is(err, lookup.ErrDeadline):
		return newProblem(http.StatusGatewayTimeout, "deadline", "The lake was too slow", err.Error())
	case errors.Is(err, context.Canceled):
		return newProblem(statusClientGone, "client-gone", "The client has gone", "")
	default:
		return newProblem(http.StatusBadGateway, "lake", "The lake could not be read", lookup.Reason(err))
	}
}
