// Package s3blob is the store in Amazon S3, or in a service that speaks its protocol. Importing it
// registers the scheme "s3" for blob.Open; it exports nothing. It is the only package that imports
// the AWS SDK. The programs import it in a file s3.go, which the build tag nos3 leaves out.
//
// # Settings
//
// All settings come from the environment and the files of the AWS SDK: AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or another source of credentials,
// AWS_REGION, AWS_MAX_ATTEMPTS, AWS_CA_BUNDLE, the shared configuration files. Without a region it
// is us-east-1. With an endpoint, buckets are addressed by path (http://host/bucket/key), because
// most such services have no host name for each bucket.
//
// Every uploaded body has a signed SHA-256. Other checksums are sent only if S3 requires them,
// because some services do not know them; AWS_REQUEST_CHECKSUM_CALCULATION and
// AWS_RESPONSE_CHECKSUM_VALIDATION ask for more.
//
// # Retries and limits
//
// A request is tried up to AWS_MAX_ATTEMPTS times, or 5, with the SDK's backoff. Timeouts,
// throttling (429, 503), other 5xx, broken connections, replies that cannot be parsed and bodies
// that arrive damaged are retried. An attempt fails if the reply does not begin within a minute. A
// download resumes if it breaks off or no byte arrives for a minute. As many consecutive attempts
// without a byte end it, whether they failed before the body or in it. No other layer of a program
// retries but net/http, which sends a read once more that a kept connection has not answered;
// Temporal repeats whole steps.
//
// # Damage on the way
//
// S3 refuses an upload whose SHA-256 is not the signed one; it is sent again. A download of a whole
// object by Get is compared with the ETag, if that is an MD5, and read again if the two differ,
// within the same number of attempts. Ranges and streams, listings and headers have no checksum of
// S3's: over https TLS protects them, and what the lake keeps has checksums that its readers check.
//
// An object of up to one part (8 MiB) is one PutObject, a larger one a multipart upload of at most
// 10,000 parts and 5 TiB. Up to 4 parts of an object and 16 of a store are in flight, which takes
// up to 32 and 128 MiB of memory while parts are 8 MiB. An upload whose process has died stays in
// the bucket, invisible, until a garbage collection or a lifecycle rule aborts it.
//
// # Conditional puts
//
// Conditions are If-None-Match and If-Match of PutObject. The service must honour them;
// blob.ProbeConditional finds out whether it does.
package s3blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// defaultAttempts is the number of attempts of a request if AWS_MAX_ATTEMPTS is not set. With
	// the SDK's backoff the last attempt starts some ten seconds after the first.
	defaultAttempts = 5

	// headerTimeout ends an attempt whose reply does not begin; it is retried.
	headerTimeout = time.Minute

	// idleConnections is the number of idle connections kept. It is as many as a reader uses at
	// once, because a new connection costs a handshake.
	idleConnections = 128

	// statFirst is the size over which a conditional put first checks its condition by a Stat. A
	// body that is rejected is sent for nothing, and services that close the connection then cause
	// retries.
	statFirst = 1 << 20

	// folderAttempts is the number of attempts of a put that a gateway to a file system (versitygw)
	// reports as a conflict with a folder. It reports that too while a deletion removes the empty
	// folder.
	folderAttempts = 4

	// deleteBatch is S3's limit on the keys of one DeleteObjects.
	deleteBatch = 1000
)

// store is a Store in a bucket, with or without a prefix.
type store struct {
	client   *s3.Client
	url      string
	bucket   string
	prefix   string      // "" or ending in a slash
	attempts int         // of a request
	md5      atomic.Bool // the ETag of an object was its MD5

	stall, resumeWait time.Duration

	uploads chan struct{} // one element for each part in flight
}

// errNoLength: without a length, a reply that is broken off looks like a complete one.
var errNoLength = errors.New("the store answered without a Content-Length")

func init() {
	blob.Register("s3", func(ctx context.Context, rest string) (blob.Store, error) { return open(ctx, rest) })
}

// open opens the store at "s3:" + rest.
func open(ctx context.Context, rest string) (*store, error) {
	name, ok := strings.CutPrefix(rest, "//")
	if strings.Contains(rest, "@") {
		return nil, errors.New("open store: credentials do not belong into an s3:// URL but into the AWS environment")
	}
	name = strings.TrimRight(name, "/")
	bucket, prefix, _ := strings.Cut(name, "/")
	root := "s3://" + name
	if !ok || !validBucket(bucket) {
		return nil, fmt.Errorf("open store %q: want s3://bucket/prefix", "s3:"+rest)
	}
	if prefix != "" {
		if err := blob.CheckKey(prefix); err != nil {
			return nil, fmt.Errorf("open store %q: prefix: %w", root, err)
		}
		prefix += "/"
	}

	opts := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), // what fails is returned
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
			t.ResponseHeaderTimeout = headerTimeout
		})),
	}
	if os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
		opts = append(opts, config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired))
	}
	if os.Getenv("AWS_RESPONSE_CHECKSUM_VALIDATION") == "" {
		opts = append(opts, config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("open store %q: AWS configuration: %w", root, err)
	}
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	attempts := cmp.Or(cfg.RetryMaxAttempts, defaultAttempts)
	s := &store{
		url: root, bucket: bucket, prefix: prefix, attempts: attempts,
		stall: stallTimeout, resumeWait: resumeWait, uploads: make(chan struct{}, storeParts),
	}
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil
		o.RetryMaxAttempts = attempts
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = attempts
			// Retries are bounded for each request. The SDK's budget for all requests of a client
			// would make hundreds of concurrent requests fail one another.
			r.RateLimiter = ratelimit.None
			r.Retryables = append(r.Retryables,
				retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusTooManyRequests: {}}},
				retry.RetryableErrorCode{Codes: damagedBody},
				retry.IsErrorRetryableFunc(brokenReply))
		})
	})
	return s, nil
}

// damagedBody are the codes of uploads whose body did not arrive as it was sent.
var damagedBody = map[string]struct{}{
	"BadDigest": {}, "IncompleteBody": {}, "XAmzContentSHA256Mismatch": {}, "XAmzContentChecksumMismatch": {},
}

// brokenReply makes the SDK retry a request whose reply cannot be parsed, which it does not by
// itself: the connection broke within a listing, say.
func brokenReply(err error) aws.Ternary {
	var broken *smithy.DeserializationError
	if _, status := apiError(err); errors.As(err, &broken) && status/100 == 2 {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// validBucket reports whether a bucket can have that name. It accepts more names than Amazon does,
// because other services do.
func validBucket(name string) bool {
	if name == "" || len(name) > 255 || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// URL implements Store.
func (s *store) URL() string { return s.url }

// object is the current version of an object, or an older one.
type object struct {
	key     string
	version *string // nil for the current one
}

// name returns the name of an object in the bucket. It fails if the key is invalid or the context
// has ended. Op is the operation, for errors.
func (s *store) name(ctx context.Context, op, key string) (*string, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if len(s.prefix)+len(key) > blob.MaxKey {
		return nil, fmt.Errorf("%s: %w %.64q...: %d bytes with the store's prefix, at most %d",
			op, blob.ErrInvalidKey, key, len(s.prefix)+len(key), blob.MaxKey)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return aws.String(s.prefix + key), nil
}

// Stat implements Store.
func (s *store) Stat(ctx context.Context, key string) (blob.Info, error) {
	return s.stat(ctx, object{key: key})
}

func (s *store) stat(ctx context.Context, o object) (blob.Info, error) {
	name, err := s.name(ctx, "stat", o.key)
	if err != nil {
		return blob.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: name, VersionId: o.version})
	if err != nil {
		return blob.Info{}, s.fail("stat", o.key, s.headError(ctx, name, o.version, err))
	}
	if out.ContentLength == nil {
		return blob.Info{}, s.fail("stat", o.key, errNoLength)
	}
	return blob.Info{Key: o.key, Size: *out.ContentLength, ETag: unquote(out.ETag)}, nil
}

// headError returns the reason of a refused HEAD. A reply to HEAD has no body, and so no code that
// tells expired credentials from a lack of permissions; the reply to a GET has.
func (s *store) headError(ctx context.Context, name, version *string, err error) error {
	_, status := apiError(err)
	if status != http.StatusForbidden && status != http.StatusBadRequest {
		return err
	}
	got, getErr := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: name, VersionId: version, Range: aws.String("bytes=0-0"),
	})
	if getErr == nil {
		got.Body.Close()
		return err
	}
	if code, _ := apiError(getErr); credentials[code] || denied[code] {
		return getErr
	}
	return err
}

// Get implements Store.
func (s *store) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	return s.getWhole(ctx, object{key: key})
}

func (s *store) getWhole(ctx context.Context, o object) ([]byte, blob.Info, error) {
	var before []byte
	for left := s.attempts; ; {
		b, r, err := s.get(ctx, o, left)
		if r != nil {
			left -= r.tried
		}
		if errors.Is(err, blob.ErrChanged) && left > 0 {
			before = nil // its reply broke off, and the rest would be that of the new object
			continue
		}
		if err != nil {
			return nil, blob.Info{}, err
		}
		intact := r.intact(b)
		if intact && r.md5 {
			s.md5.Store(true)
		}
		// In a store where no ETag was an MD5 so far, equal bytes twice are the object. Without an
		// attempt left the bytes are the caller's, who checks them too.
		if intact || left <= 0 || !s.md5.Load() && before != nil && bytes.Equal(b, before) {
			return b, blob.Info{Key: o.key, Size: int64(len(b)), ETag: r.etag}, nil
		}
		before = b
	}
}

// get reads a whole object in one stream of at most so many attempts without a byte. The stream is
// nil if it could not be opened.
func (s *store) get(ctx context.Context, o object, attempts int) ([]byte, *stream, error) {
	r, size, err := s.openStream(ctx, "get", o, 0, -1, attempts)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if size > blob.MaxSmall {
		err := fmt.Errorf("%w: %d bytes, at most %d", blob.ErrTooLarge, size, blob.MaxSmall)
		return nil, r, blob.OpError("get", s.url, o.key, err)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, r, err
	}
	return b, r, nil
}

// ReadRange implements Store.
func (s *store) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return s.readRange(ctx, object{key: key}, off, n)
}

func (s *store) readRange(ctx context.Context, o object, off, n int64) ([]byte, error) {
	if n < 0 {
		return nil, blob.OpError("read", s.url, o.key, fmt.Errorf("%w: %d bytes", blob.ErrRange, n))
	}
	r, _, err := s.openStream(ctx, "read", o, off, n, s.attempts)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Open implements Store.
func (s *store) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return s.open(ctx, object{key: key}, off, n)
}

func (s *store) open(ctx context.Context, o object, off, n int64) (io.ReadCloser, error) {
	r, _, err := s.openStream(ctx, "open", o, off, n, s.attempts)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Put implements Store.
func (s *store) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if err := blob.CheckPut(ctx, key, data); err != nil {
		return blob.Info{}, err
	}
	if cond.IfAbsent && cond.IfMatch != "" {
		return blob.Info{}, blob.OpError("put", s.url, key, blob.ErrPrecondition)
	}
	return s.put(ctx, "put", key, data, cond)
}

// put is Put for the operation op. Arguments have been checked.
func (s *store) put(ctx context.Context, op, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	name, err := s.name(ctx, op, key)
	if err != nil {
		return blob.Info{}, err
	}
	if cond != (blob.Condition{}) && len(data) > statFirst {
		info, err := s.Stat(ctx, key)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return blob.Info{}, err
		}
		if !cond.Holds(info.ETag, err == nil) {
			return blob.Info{}, blob.OpError(op, s.url, key, blob.ErrPrecondition)
		}
	}
	in := &s3.PutObjectInput{
		Bucket: &s.bucket, Key: name,
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
	}
	if cond.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	if cond.IfMatch != "" {
		in.IfMatch = aws.String(quote(cond.IfMatch))
	}
	var out *s3.PutObjectOutput
	for range folderAttempts {
		out, err = s.client.PutObject(ctx, in)
		if code, _ := apiError(err); code != "ExistingObjectIsDirectory" {
			break
		}
		in.Body = bytes.NewReader(data)
	}
	if err == nil {
		return blob.Info{Key: key, Size: int64(len(data)), ETag: unquote(out.ETag)}, nil
	}
	if cond == (blob.Condition{}) {
		return blob.Info{}, s.fail(op, key, err)
	}
	switch code, status := apiError(err); {
	case status == http.StatusPreconditionFailed,
		code == "ConditionalRequestConflict",
		cond.IfMatch != "" && code == "NoSuchKey":
		return blob.Info{}, blob.OpError(op, s.url, key, blob.ErrPrecondition)
	case status == 0 && ctx.Err() == nil:
		// A service that rejects a large body may close the connection before all of it is sent,
		// and its reply is lost. If the condition does not hold now, that was the reason.
		info, statErr := s.Stat(ctx, key)
		if (statErr == nil || errors.Is(statErr, blob.ErrNotExist)) && !cond.Holds(info.ETag, statErr == nil) {
			return blob.Info{}, blob.OpError(op, s.url, key, fmt.Errorf("%w (and no answer: %w)", blob.ErrPrecondition, brief(err)))
		}
	}
	return blob.Info{}, s.fail(op, key, err)
}

// List implements Store, in requests of 1,000 keys. It fails if the service does not list in byte
// order, as directory buckets of S3 Express do. Keys come URL-encoded: XML has no form for most
// control characters.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := blob.CheckPrefix(prefix); err != nil {
			yield(blob.Info{}, fmt.Errorf("list: %w", err))
			return
		}
		last := ""
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
			Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix), EncodingType: types.EncodingTypeUrl,
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(blob.Info{}, s.fail("list", prefix, err))
				return
			}
			for _, o := range page.Contents {
				name := aws.ToString(o.Key)
				if page.EncodingType == types.EncodingTypeUrl { // not every service knows it
					if name, err = url.QueryUnescape(name); err != nil {
						yield(blob.Info{}, s.fail("list", prefix, err))
						return
					}
				}
				key, ok := strings.CutPrefix(name, s.prefix)
				marker := aws.ToInt64(o.Size) == 0 && (key == "" || strings.HasSuffix(key, "/"))
				if marker || strings.HasPrefix(key, blob.TmpDir+"/") {
					continue
				}
				err := blob.CheckKey(key)
				switch {
				case !ok || err == nil && key <= last:
					err = fmt.Errorf("the store lists out of order: %q after %q", key, last)
					yield(blob.Info{}, blob.OpError("list", s.url, prefix, err))
					return
				case err != nil:
					if !yield(blob.Info{Key: key}, blob.OpError("list", s.url, prefix, err)) {
						return
					}
					continue
				}
				last = key
				if !yield(blob.Info{Key: key, Size: aws.ToInt64(o.Size), ETag: unquote(o.ETag)}, nil) {
					return
				}
			}
		}
	}
}

// Delete implements Store, in requests of 1,000 keys.
func (s *store) Delete(ctx context.Context, keys ...string) error {
	if err := blob.CheckKeys(ctx, keys); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := s.name(ctx, "delete", key); err != nil {
			return err
		}
	}
	var errs []error
	for batch := range slices.Chunk(keys, deleteBatch) {
		ids := make([]types.ObjectIdentifier, len(batch))
		for i, key := range batch {
			ids[i].Key = aws.String(s.prefix + key)
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			what := batch[0]
			if more := len(batch) - 1; more > 0 {
				what += " and " + strconv.Itoa(more) + " more"
			}
			return errors.Join(append(errs, s.fail("delete", what, err))...)
		}
		for _, e := range out.Errors {
			if code := aws.ToString(e.Code); code != "NoSuchKey" {
				key := strings.TrimPrefix(aws.ToString(e.Key), s.prefix)
				errs = append(errs, blob.OpError("delete", s.url, key, fmt.Errorf("%s: %s", code, aws.ToString(e.Message))))
			}
		}
	}
	return errors.Join(errs...)
}
