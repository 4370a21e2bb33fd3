package s3blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/urlake/urlake/lake/blob"
)

// fail translates an error of the service to one of package blob and adds the operation and the
// object.
func (s *store) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	switch code, status := apiError(err); {
	case code == "NoSuchKey" || code == "NotFound" || code == "NoSuchVersion":
		err = blob.ErrNotExist
	case status == http.StatusRequestedRangeNotSatisfiable:
		err = blob.ErrRange
	case code == "ObjectParentIsFile" || code == "ExistingObjectIsDirectory" ||
		code == "XMinioParentIsObject" || code == "XMinioObjectExistsAsDirectory":
		// Codes of services that store objects as files.
		err = fmt.Errorf("%w: an object and a folder of objects would have one name (%s)", blob.ErrInvalidKey, code)
	case credentials[code] || status == http.StatusUnauthorized:
		err = fmt.Errorf("%w: %s", blob.ErrCredentials, cmp.Or(code, http.StatusText(status)))
	case denied[code] || status == http.StatusForbidden:
		err = fmt.Errorf("%w: %s", blob.ErrDenied, cmp.Or(code, http.StatusText(status)))
	case strings.Contains(err.Error(), "get credentials"):
		// The SDK has no type for this error.
		err = fmt.Errorf("%w: none were found (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, a profile or a role)",
			blob.ErrCredentials)
	default:
		err = brief(err)
	}
	return blob.OpError(op, s.url, key, err)
}

// denied are the codes of failures that a person must remove.
var denied = map[string]bool{
	"NoSuchBucket": true, "AccessDenied": true, "AllAccessDisabled": true, "AccountProblem": true,
	"PermanentRedirect": true, "InvalidBucketName": true, "InvalidObjectState": true,
}

// credentials are the codes of requests whose signer the service does not accept.
var credentials = map[string]bool{
	"InvalidAccessKeyId": true, "SignatureDoesNotMatch": true, "ExpiredToken": true, "InvalidToken": true,
	"TokenRefreshRequired": true, "RequestTimeTooSkewed": true, "RequestExpired": true, "InvalidSecurity": true,
	"ExpiredTokenException": true, "AuthFailure": true, "InvalidClientTokenId": true, "NotSignedUp": true,
}

// apiError returns the service's error code and the HTTP status; both are zero if there was no
// reply.
func apiError(err error) (code string, status int) {
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var resp interface{ HTTPStatusCode() int }
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	return code, status
}

// hasStatus reports whether err is a reply with that HTTP status.
func hasStatus(err error, status int) bool {
	_, got := apiError(err)
	return got == status
}

// briefError is an error of the SDK with a shorter text, without what each layer adds.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }

// brief shortens an error of the SDK.
func brief(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	_, status := apiError(err)
	reply := fmt.Sprintf("HTTP %d", status)
	var resp interface{ ServiceRequestID() string }
	if errors.As(err, &resp) && resp.ServiceRequestID() != "" {
		reply += ", request " + resp.ServiceRequestID()
	}
	tries := ""
	var spent *retry.MaxAttemptsError
	if errors.As(err, &spent) {
		tries = fmt.Sprintf(", tried %d times", spent.Attempt)
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return &briefError{fmt.Sprintf("%s: %s (%s%s)", api.ErrorCode(), api.ErrorMessage(), reply, tries), err}
	}
	var request *url.Error
	if errors.As(err, &request) {
		host := request.URL
		if u, parseErr := url.Parse(request.URL); parseErr == nil {
			host = u.Host
		}
		return &briefError{fmt.Sprintf("no reply from %s%s: %v", host, tries, request.Err), err}
	}
	var broken *smithy.DeserializationError
	if errors.As(err, &broken) {
		return &briefError{fmt.Sprintf("the reply cannot be read (%s%s): %v", reply, tries, broken.Err), err}
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// quote returns an ETag in the form of HTTP headers (RFC 9110, section 8.8.3).
func quote(etag string) string {
	if strings.HasPrefix(etag, "W/") {
		return etag
	}
	return `"` + etag + `"`
}

// unquote is the inverse of quote. In the listings of some services ETags are not quoted.
func unquote(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
