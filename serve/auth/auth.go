// Package auth finds out who sends a request: by a token of the lake (package lake/access), or by a
// JSON Web Token that an identity provider has signed. Package api asks it for every request.
//
// Who says nothing is nobody in particular, which is no error: the name is "". Who says something
// that is not true gets an error, and not what anybody may read, so that a client whose token has
// expired does not take a shorter answer for the whole one.
package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/access"
)

// Authenticator finds out who sends a request. It is safe for concurrent use.
type Authenticator interface {
	// Principal returns the name of the principal, "" for a request without an Authorization
	// header. The error is a *RefusedError if the header is no proof, an *UnavailableError if that
	// cannot be told now, or damage of the lake.
	Principal(r *http.Request) (name string, err error)
}

// RefusedError says why the credentials of a request are not taken. Its text is for the client and
// does not repeat what that sent.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// UnavailableError says that credentials cannot be checked. Err is for the log.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return "credentials cannot be checked: " + e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// maxToken is the longest token, in bytes, that is looked at. JSON Web Tokens with many claims have
// a few thousand.
const maxToken = 16 << 10

// bearer returns the token of a request, "" if it has no Authorization header.
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", &RefusedError{"the request has several Authorization headers; send one"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.Trim(token, " "); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", &RefusedError{"the Authorization header is not of the form: Bearer TOKEN"}
	}
	if len(token) > maxToken {
		return "", &RefusedError{fmt.Sprintf("the token is longer than %d bytes", maxToken)}
	}
	return token, nil
}

// tokens are the tokens of a lake.
type tokens struct {
	follower *access.Follower
	now      func() time.Time
}

// Tokens authenticates by the tokens of a lake, as the follower has read them last. Now is the
// clock by which they expire, time.Now if it is nil.
func Tokens(follower *access.Follower, now func() time.Time) Authenticator {
	if now == nil {
		now = time.Now
	}
	return &tokens{follower, now}
}

// Principal implements Authenticator.
func (t *tokens) Principal(r *http.Request) (string, error) {
	text, err := bearer(r)
	if text == "" || err != nil {
		return "", err
	}
	known, err := t.follower.Tokens()
	if errors.Is(err, access.ErrNotRead) {
		return "", &UnavailableError{err}
	}
	if err != nil {
		return "", err
	}
	tok, err := known.Find(text, t.now())
	if err != nil {
		return "", &RefusedError{err.Error()}
	}
	return tok.Name, nil
}
