package client

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxProblem is how many bytes of an error answer are read.
const maxProblem = 1 << 20

// Kind says what is wrong. It is an error, so that errors.Is(err, client.UnknownDataset) tells
// whether err is or wraps a *Problem of that kind. A later server may have further kinds.
type Kind string

func (k Kind) Error() string { return "urlake: " + string(k) }

// The kinds of problems. Client.ProblemKind returns what each means and what to do about it.
const (
	NotAHost             Kind = "not-a-host"             // not a host or URL
	BadParameter         Kind = "bad-parameter"          // invalid parameter
	BadCursor            Kind = "bad-cursor"             // the cursor does not belong to this query
	BadVersion           Kind = "bad-version"            // not a version id
	BadList              Kind = "bad-list"               // the list could not be read
	BadRequest           Kind = "bad-request"            // malformed request
	Unauthorized         Kind = "unauthorized"           // the credentials are not taken
	Forbidden            Kind = "forbidden"              // explain=1 is for those who may read all datasets
	UnknownDataset       Kind = "unknown-dataset"        // the version has no such dataset
	UnknownVersion       Kind = "unknown-version"        // no such version was published
	NoSuchPath           Kind = "no-such-path"           // no such path
	MethodNotAllowed     Kind = "method-not-allowed"     // the path takes other methods
	NotAcceptable        Kind = "not-acceptable"         // the answer has no such form
	TooSlow              Kind = "too-slow"               // the list came too slowly
	VersionGone          Kind = "version-gone"           // the version is no longer kept; start again without version and cursor
	TooLarge             Kind = "too-large"              // the list is too large
	UnsupportedMediaType Kind = "unsupported-media-type" // the body is of no known form
	Misdirected          Kind = "misdirected"            // the server has no such host
	TooManyParts         Kind = "too-many-parts"         // too many parts for a list of distinct URLs
	FilterTooLarge       Kind = "filter-too-large"       // the regular expression is too large for a value
	TreeTooLarge         Kind = "tree-too-large"         // the tree is too large for one answer
	TooManyRequests      Kind = "too-many-requests"      // this client has too many requests in flight
	Corrupt              Kind = "corrupt"                // an object of the lake is damaged
	Panic                Kind = "panic"                  // internal server error
	Lake                 Kind = "lake"                   // the lake could not be read
	NotReady             Kind = "not-ready"              // the server cannot answer yet
	Overloaded           Kind = "overloaded"             // the server has no room for this request now
	TooManyConnections   Kind = "too-many-connections"   // the server has no room for this connection
	Stopping             Kind = "stopping"               // the server is about to stop
	Computing            Kind = "computing"              // the answer is being computed
	Deadline             Kind = "deadline"               // the lake was too slow
)

// Problem is an error answer of the server: a problem document (RFC 9457). Kinds and what to do
// about each are listed on the server's page /api.
type Problem struct {
	// Type is the URL of the server's explanation, Kind its last part. Both are empty if the answer
	// was no problem document, as one of a proxy.
	Type string
	Kind Kind
	// Status is the HTTP status.
	Status int
	// Title is the same for all problems of a kind, Detail is about the request. It may be empty.
	Title, Detail string
	// Members are further members that are text, such as parameter, reason or file.
	Members map[string]string
	// RequestID is what the server's log has the request under, if it named it.
	RequestID string
	// RetryAfter is how long to wait before another attempt, 0 if the server named no time.
	RetryAfter time.Duration
}

func (p *Problem) Error() string {
	text := "urlake: " + strconv.Itoa(p.Status) + " " + p.Title
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// Is reports whether target is the problem's Kind, so that errors.Is finds it.
func (p *Problem) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && p.Kind != "" && p.Kind == k
}

// problem reads an error answer.
func problem(resp *http.Response, contentType string) error {
	p := &Problem{
		Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode), RetryAfter: retryAfter(resp.Header), RequestID: resp.Header.Get("X-Request-Id"),
	}
	if contentType != "application/problem+json" {
		return p
	}
	var members map[string]any
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&members); err != nil {
		return p // the status is what is known
	}
	for name, value := range members {
		text, ok := value.(string)
		if !ok {
			continue
		}
		switch name {
		case "type":
			p.Type, p.Kind = text, Kind(text[strings.LastIndexByte(text, '/')+1:])
			if u, err := resp.Request.URL.Parse(text); err == nil {
				p.Type = u.String()
			}
		case "title":
			p.Title = text
		case "detail":
			p.Detail = text
		default:
			if p.Members == nil {
				p.Members = map[string]string{}
			}
			p.Members[name] = text
		}
	}
	return p
}

// retryAfter is the time that a server asks to wait: seconds, or the time until a date.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}
