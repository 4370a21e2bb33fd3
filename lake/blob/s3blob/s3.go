package s3blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/urlake/urlake/lake/blob"
)

const (
	// s3Attempts is how often one request is tried where AWS_MAX_ATTEMPTS does not say. With the
	// SDK's backoff the last try comes some ten seconds after the first.
	s3Attempts = 5

	// s3HeaderTimeout ends an attempt whose answer does not begin, so that it is retried.
	s3HeaderTimeout = time.Minute

	// s3StallTimeout ends a download in which no byte arrives, so that it is resumed.
	s3StallTimeout = time.Minute

	// s3Resumes is how often in a row a download is resumed without getting further.
	s3Resumes = 5

	// s3ResumeWait is the wait before a download is resumed that brought nothing; it doubles.
	s3ResumeWait = 100 * time.Millisecond

	// s3Connections is the number of idle connections kept: as many as a reader
	// may want at once, since a new one costs a handshake.
	s3Connections = 128

	// s3MaxParts is S3's limit on the parts of an upload.
	s3MaxParts = 10_000

	// s3BasePart is the size of the first parts of an upload, a compromise between requests
	// and memory. S3 takes 5 MiB and more.
	s3BasePart = 8 << 20

	// s3PartStep is the number of parts after which their size doubles. 1,000 parts of 8 MiB,
	// 1,000 of 16 MiB and so on hold S3's largest object, 5 TiB, in s3MaxParts; up to 7.8 GiB
	// all parts are equal, which some stores insist on.
	s3PartStep = 1000

	// s3WriterParts and s3StoreParts bound the parts on their way at once, of one object and of
	// all objects of a store: 32 MiB and 128 MiB of memory at the usual part size. Each
	// Writer holds at most one more part that is filling.
	s3WriterParts = 4
	s3StoreParts  = 16

	// s3MinBuffer is what a Writer allocates first, so that hundreds of small objects
	// can be written at once.
	s3MinBuffer = 64 << 10

	// s3LookFirst is the size over which a conditional put first looks whether its condition
	// holds: a refused body is sent in vain, and services that hang up on it cost retries.
	s3LookFirst = 1 << 20

	// s3FolderTries is how often a put is tried that a gateway over files (versitygw) takes for a
	// conflict with a folder: it says so too when a deletion removes the emptied folder just then.
	s3FolderTries = 4

	// s3DeleteBatch is S3's limit on the keys of one DeleteObjects.
	s3DeleteBatch = 1000

	// s3CleanupTimeout bounds the removal of an aborted upload, which happens although
	// the context has ended.
	s3CleanupTimeout = 30 * time.Second

	// s3UploadMark is the metadata by which a Writer recognises its own object after the reply
	// to its completion was lost.
	s3UploadMark = "urlake-upload"
)

// S3 is a Store in a bucket, under a prefix or not, of Amazon S3 or a service that speaks
// its protocol.
//
// # Settings
//
// Everything is taken from where the AWS SDK takes it: AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or any other source of
// credentials, AWS_REGION, AWS_MAX_ATTEMPTS, AWS_CA_BUNDLE, the shared configuration files.
// Where no region is set it is us-east-1. Where an endpoint is set, buckets are addressed by
// path (http://host/bucket/key), since few such services have a name for each bucket.
// Checksums beyond the signed SHA-256 of every uploaded body are sent only where S3 requires
// them, unless AWS_REQUEST_CHECKSUM_CALCULATION or AWS_RESPONSE_CHECKSUM_VALIDATION ask for
// more: not every service knows them.
//
// # Uploads
//
// An object up to one part (8 MiB) is one PutObject, a larger one a multipart upload. An upload
// whose process died stays in the bucket, unseen; a lifecycle rule (AbortIncompleteMultipartUpload)
// removes such.
type S3 struct {
	client *s3.Client
	url    string
	bucket string
	prefix string // "" or ending in a slash

	stall, resumeWait time.Duration

	uploads chan struct{} // a place for each part on its way
}

// errNoLength: without a length a broken answer cannot be told from a whole one.
var errNoLength = errors.New("the store answered without a Content-Length")

func init() {
	blob.Register("s3", func(ctx context.Context, rest string) (blob.Store, error) { return openS3(ctx, rest) })
}

// openS3 opens what follows "s3:" in a URL.
func openS3(ctx context.Context, rest string) (*S3, error) {
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
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = s3Connections, s3Connections
			t.ResponseHeaderTimeout = s3HeaderTimeout
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
	attempts := cmp.Or(cfg.RetryMaxAttempts, s3Attempts)
	s := &S3{url: root, bucket: bucket, prefix: prefix, stall: s3StallTimeout, resumeWait: s3ResumeWait, uploads: make(chan struct{}, s3StoreParts)}
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil
		o.RetryMaxAttempts = attempts
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = attempts
			// Attempts bound the retries of each request. The SDK's budget for all
			// requests of a client would let hundreds of parallel ones fail one another.
			r.RateLimiter = ratelimit.None
			r.Retryables = append(r.Retryables, retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{
				http.StatusTooManyRequests: {},
			}})
		})
	})
	return s, nil
}

// validBucket is looser than Amazon's rule, since other services have older ones.
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
func (s *S3) URL() string { return s.url }

// name is the object's name in the bucket.
func (s *S3) name(ctx context.Context, op, key string) (*string, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if len(s.prefix)+len(key) > blob.MaxKey {
		return nil, fmt.Errorf("%s: %w %.64q...: %d bytes with the store's prefix, at most %d", op, blob.ErrInvalidKey, key, len(s.prefix)+len(key), blob.MaxKey)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return aws.String(s.prefix + key), nil
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, key string) (blob.Info, error) {
	name, err := s.name(ctx, "stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: name})
	if err != nil {
		return blob.Info{}, s.fail("stat", key, err)
	}
	if out.ContentLength == nil {
		return blob.Info{}, s.fail("stat", key, errNoLength)
	}
	return blob.Info{Key: key, Size: *out.ContentLength, ETag: unquote(out.ETag)}, nil
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	r, size, err := s.open(ctx, "get", key, 0, -1)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer r.Close()
	if size > blob.MaxSmall {
		return nil, blob.Info{}, blob.OpError("get", s.url, key, fmt.Errorf("%w: %d bytes, at most %d", blob.ErrTooLarge, size, blob.MaxSmall))
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, blob.Info{}, err
	}
	return b, blob.Info{Key: key, Size: size, ETag: r.etag}, nil
}

// ReadRange implements Store.
func (s *S3) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if n < 0 {
		return nil, blob.OpError("read", s.url, key, fmt.Errorf("%w: %d bytes", blob.ErrRange, n))
	}
	r, _, err := s.open(ctx, "read", key, off, n)
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
func (s *S3) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, _, err := s.open(ctx, "open", key, off, n)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// open starts a stream. Its first request has been answered and holds all the bytes asked for.
// The size is that of the whole object.
func (s *S3) open(ctx context.Context, op, key string, off, n int64) (_ *s3Stream, size int64, err error) {
	name, err := s.name(ctx, op, key)
	if err != nil {
		return nil, 0, err
	}
	if err := blob.CheckRange(off, n); err != nil {
		return nil, 0, blob.OpError(op, s.url, key, err)
	}
	r := &s3Stream{ctx: ctx, s: s, key: key, name: name, off: off, end: off + n}
	if n != 0 {
		if n < 0 {
			r.end = -1
		}
		size, err = r.request("")
		if err == nil && r.end > size {
			r.Close()
			return nil, 0, blob.OpError(op, s.url, key, blob.RangeError(off, n, size))
		}
		if err == nil {
			if n < 0 {
				r.end = size
			}
			return r, size, nil
		}
		if n > 0 || !hasStatus(err, http.StatusRequestedRangeNotSatisfiable) {
			return nil, 0, s.fail(op, key, err)
		}
	}
	// Nothing to read, or nothing behind off: HTTP has no range for that.
	info, err := s.Stat(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	if off > info.Size {
		return nil, 0, blob.OpError(op, s.url, key, blob.RangeError(off, n, info.Size))
	}
	r.end, r.etag = off, info.ETag
	return r, info.Size, nil
}

// s3Stream is a download that resumes.
type s3Stream struct {
	ctx      context.Context
	s        *S3
	key      string
	name     *string
	off, end int64 // what is still to be read
	etag     string

	body   io.ReadCloser // nil between attempts
	cancel context.CancelFunc
	stall  *time.Timer
	broken int // attempts in a row that brought nothing
	err    error
}

// request asks for what is still to be read, of the object with that ETag if one is given,
// and returns the object's size.
func (r *s3Stream) request(etag string) (size int64, err error) {
	in := &s3.GetObjectInput{Bucket: &r.s.bucket, Key: r.name}
	switch {
	case r.end >= 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.off, r.end-1))
	case r.off > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.off))
	}
	if etag != "" {
		in.IfMatch = aws.String(quote(etag))
	}
	ctx, cancel := context.WithCancel(r.ctx)
	out, err := r.s.client.GetObject(ctx, in)
	if err != nil {
		cancel()
		return 0, err
	}
	refuse := func(err error) (int64, error) {
		out.Body.Close()
		cancel()
		return 0, err
	}
	if out.ContentLength == nil {
		return refuse(errNoLength)
	}
	size = *out.ContentLength
	if in.Range != nil {
		var first, last int64
		if _, err := fmt.Sscanf(aws.ToString(out.ContentRange), "bytes %d-%d/%d", &first, &last, &size); err != nil || first != r.off {
			return refuse(fmt.Errorf("the store answered bytes from %d with range %q", r.off, aws.ToString(out.ContentRange)))
		}
	}
	r.body, r.cancel = out.Body, cancel
	r.etag = unquote(out.ETag)
	r.stall = time.AfterFunc(r.s.stall, cancel)
	r.stall.Stop()
	return size, nil
}

func (r *s3Stream) Read(p []byte) (int, error) {
	for {
		switch {
		case r.err != nil:
			return 0, r.err
		case r.off == r.end:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		if r.body == nil {
			if err := r.resume(); err != nil {
				r.err = err
				continue
			}
		}
		r.stall.Reset(r.s.stall)
		n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.off)])
		r.stall.Stop()
		r.off += int64(n)
		if n > 0 {
			r.broken = 0
		}
		if err != nil && r.off < r.end {
			r.hangUp()
			if r.ctx.Err() != nil {
				r.err = r.ctx.Err()
			} else if n == 0 {
				if r.broken++; r.broken > s3Resumes {
					r.err = blob.OpError("read", r.s.url, r.key, fmt.Errorf("broken off %d times at byte %d: %w", r.broken, r.off, cmp.Or(noEOF(err), io.ErrUnexpectedEOF)))
				}
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

// noEOF drops io.EOF, which here is the connection's end and not the object's.
func noEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// resume asks again for what a broken answer left out.
func (r *s3Stream) resume() error {
	if r.broken > 0 {
		wait := time.NewTimer(r.s.resumeWait << (r.broken - 1))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
	_, err := r.request(r.etag)
	if hasStatus(err, http.StatusPreconditionFailed) {
		return blob.OpError("read", r.s.url, r.key, blob.ErrChanged)
	}
	return r.s.fail("read", r.key, err)
}

func (r *s3Stream) hangUp() {
	if r.body != nil {
		r.stall.Stop()
		r.cancel()
		r.body.Close()
		r.body = nil
	}
}

// Close implements io.Closer.
func (r *s3Stream) Close() error {
	if r.body != nil && r.off == r.end {
		// The connection can be used again once the end of the answer was seen.
		io.CopyN(io.Discard, r.body, 1)
	}
	r.hangUp()
	if r.err == nil {
		r.err = blob.OpError("read", r.s.url, r.key, errors.New("stream is closed"))
	}
	return nil
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if err := blob.CheckPut(ctx, key, data); err != nil {
		return blob.Info{}, err
	}
	if cond.IfAbsent && cond.IfMatch != "" {
		return blob.Info{}, blob.OpError("put", s.url, key, blob.ErrPrecondition)
	}
	return s.put(ctx, "put", key, data, cond)
}

func (s *S3) put(ctx context.Context, op, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	name, err := s.name(ctx, op, key)
	if err != nil {
		return blob.Info{}, err
	}
	if cond != (blob.Condition{}) && len(data) > s3LookFirst {
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
	for range s3FolderTries {
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
		// A store that refuses a large body may hang up before it was sent whole, and the refusal
		// is lost. Whether the condition holds now tells the same.
		info, statErr := s.Stat(ctx, key)
		if (statErr == nil || errors.Is(statErr, blob.ErrNotExist)) && !cond.Holds(info.ETag, statErr == nil) {
			return blob.Info{}, blob.OpError(op, s.url, key, fmt.Errorf("%w (and no answer: %w)", blob.ErrPrecondition, brief(err)))
		}
	}
	return blob.Info{}, s.fail(op, key, err)
}

// Create implements Store.
func (s *S3) Create(ctx context.Context, key string) (blob.Writer, error) {
	name, err := s.name(ctx, "create", key)
	if err != nil {
		return nil, err
	}
	w := &s3Writer{s: s, key: key, name: name, slots: make(chan struct{}, s3WriterParts)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w, nil
}

// s3Writer gathers one part at a time and uploads full ones beside.
type s3Writer struct {
	s      *S3
	ctx    context.Context // ends with the first failure, which is its cause
	cancel context.CancelCauseFunc
	key    string
	name   *string
	done   bool

	buf    []byte
	size   int64
	mark   string
	upload *string // nil before the first part
	number int32   // of parts started
	slots  chan struct{}

	mu    sync.Mutex
	parts []types.CompletedPart
	wg    sync.WaitGroup
}

// s3PartSize is the size of an upload's part; the first has number 1.
func s3PartSize(number int32) int {
	return s3BasePart << ((number - 1) / s3PartStep)
}

func (w *s3Writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, blob.OpError("write", w.s.url, w.key, blob.ErrWriterDone)
	}
	written := 0
	for len(p) > 0 {
		if w.ctx.Err() != nil {
			return written, context.Cause(w.ctx)
		}
		limit := s3PartSize(w.number + 1)
		if len(w.buf) == limit {
			// Only now is it certain that this part is not the last.
			if err := w.sendPart(); err != nil {
				w.cancel(err)
				return written, err
			}
			continue
		}
		n := min(len(p), limit-len(w.buf))
		w.grow(n, limit)
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		written += n
		w.size += int64(n)
	}
	return written, nil
}

// grow makes room for n more bytes without ever allocating more than a part.
func (w *s3Writer) grow(n, limit int) {
	need := len(w.buf) + n
	if need <= cap(w.buf) {
		return
	}
	size := min(max(need, 2*cap(w.buf), s3MinBuffer), limit)
	if w.number > 0 {
		size = limit
	}
	w.buf = append(make([]byte, 0, size), w.buf...)
}

// sendPart uploads what is gathered. It waits for room, not for the upload.
func (w *s3Writer) sendPart() error {
	if w.number == s3MaxParts {
		return blob.OpError("write", w.s.url, w.key, fmt.Errorf("more than %d parts", s3MaxParts))
	}
	if w.upload == nil {
		w.mark = rand.Text()
		out, err := w.s.client.CreateMultipartUpload(w.ctx, &s3.CreateMultipartUploadInput{
			Bucket: &w.s.bucket, Key: w.name, Metadata: map[string]string{s3UploadMark: w.mark},
		})
		if err != nil {
			return w.s.fail("create", w.key, err)
		}
		w.upload = out.UploadId
	}
	for _, slots := range []chan struct{}{w.slots, w.s.uploads} {
		select {
		case slots <- struct{}{}:
		case <-w.ctx.Done():
			if slots == w.s.uploads {
				<-w.slots
			}
			return context.Cause(w.ctx)
		}
	}
	w.number++
	number, body := w.number, w.buf
	w.buf = nil
	w.wg.Go(func() {
		defer func() { <-w.s.uploads; <-w.slots }()
		out, err := w.s.client.UploadPart(w.ctx, &s3.UploadPartInput{
			Bucket: &w.s.bucket, Key: w.name, UploadId: w.upload, PartNumber: &number,
			Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		})
		if err != nil {
			w.cancel(w.s.fail("write", w.key, err))
			return
		}
		w.mu.Lock()
		w.parts = append(w.parts, types.CompletedPart{PartNumber: &number, ETag: out.ETag})
		w.mu.Unlock()
	})
	return nil
}

func (w *s3Writer) Finish() (blob.Info, error) {
	if w.done {
		return blob.Info{}, blob.OpError("finish", w.s.url, w.key, blob.ErrWriterDone)
	}
	defer w.Abort()
	if w.ctx.Err() != nil {
		return blob.Info{}, context.Cause(w.ctx)
	}
	if w.upload == nil {
		return w.s.put(w.ctx, "finish", w.key, w.buf, blob.Condition{})
	}
	err := w.sendPart()
	w.wg.Wait()
	if err != nil {
		return blob.Info{}, err
	}
	if w.ctx.Err() != nil {
		return blob.Info{}, context.Cause(w.ctx)
	}
	slices.SortFunc(w.parts, func(a, b types.CompletedPart) int { return cmp.Compare(*a.PartNumber, *b.PartNumber) })
	out, err := w.s.client.CompleteMultipartUpload(w.ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &w.s.bucket, Key: w.name, UploadId: w.upload,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: w.parts},
	})
	etag := ""
	if err == nil {
		etag = unquote(out.ETag)
	} else if code, _ := apiError(err); code == "NoSuchUpload" {
		// An earlier attempt completed the upload and its reply was lost, or somebody removed
		// the upload. The mark tells which.
		head, headErr := w.s.client.HeadObject(w.ctx, &s3.HeadObjectInput{Bucket: &w.s.bucket, Key: w.name})
		if headErr == nil && head.Metadata[s3UploadMark] == w.mark && aws.ToInt64(head.ContentLength) == w.size {
			err, etag = nil, unquote(head.ETag)
		}
	}
	if err != nil {
		return blob.Info{}, w.s.fail("finish", w.key, err)
	}
	w.upload = nil
	return blob.Info{Key: w.key, Size: w.size, ETag: etag}, nil
}

func (w *s3Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.cancel(blob.OpError("write", w.s.url, w.key, blob.ErrWriterDone))
	w.wg.Wait()
	w.buf = nil
	if w.upload != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), s3CleanupTimeout)
		defer cancel()
		w.s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket: &w.s.bucket, Key: w.name, UploadId: w.upload,
		})
		w.upload = nil
	}
}

// List implements Store, in requests of 1,000 keys. A store that does not list in byte order
// (directory buckets of S3 Express) is an error.
func (s *S3) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := blob.CheckPrefix(prefix); err != nil {
			yield(blob.Info{}, fmt.Errorf("list: %w", err))
			return
		}
		last := ""
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
			Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(blob.Info{}, s.fail("list", prefix, err))
				return
			}
			for _, o := range page.Contents {
				key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
				if size := aws.ToInt64(o.Size); size == 0 && (key == "" || strings.HasSuffix(key, "/")) || strings.HasPrefix(key, blob.TmpDir+"/") {
					continue
				}
				err := blob.CheckKey(key)
				switch {
				case !ok || err == nil && key <= last:
					err = blob.OpError("list", s.url, prefix, fmt.Errorf("the store lists out of order: %q after %q", key, last))
				case err != nil:
					err = blob.OpError("list", s.url, prefix, err)
				}
				if err != nil {
					yield(blob.Info{}, err)
					return
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
func (s *S3) Delete(ctx context.Context, keys ...string) error {
	if err := blob.CheckKeys(ctx, keys); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := s.name(ctx, "delete", key); err != nil {
			return err
		}
	}
	var errs []error
	for batch := range slices.Chunk(keys, s3DeleteBatch) {
		ids := make([]types.ObjectIdentifier, len(batch))
		for i, key := range batch {
			ids[i].Key = aws.String(s.prefix + key)
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			return errors.Join(append(errs, s.fail("delete", batch[0]+" and "+strconv.Itoa(len(batch)-1)+" more", err))...)
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

// fail names the operation and the object and turns the service's errors into the
// package's.
func (s *S3) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	switch code, status := apiError(err); {
	case code == "NoSuchKey" || code == "NotFound":
		err = blob.ErrNotExist
	case status == http.StatusRequestedRangeNotSatisfiable:
		err = blob.ErrRange
	case code == "ObjectParentIsFile" || code == "ExistingObjectIsDirectory" ||
		code == "XMinioParentIsObject" || code == "XMinioObjectExistsAsDirectory":
		// How services say it that keep objects as files.
		err = fmt.Errorf("%w: an object and a folder of objects would have one name (%s)", blob.ErrInvalidKey, code)
	case denied[code] || status == http.StatusUnauthorized || status == http.StatusForbidden:
		err = fmt.Errorf("%w: %s", blob.ErrDenied, cmp.Or(code, http.StatusText(status)))
	case strings.Contains(err.Error(), "get credentials"):
		// The SDK has no type for it.
		err = fmt.Errorf("%w: no credentials were found (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, a profile or a role)", blob.ErrDenied)
	default:
		err = brief(err)
	}
	return blob.OpError(op, s.url, key, err)
}

// denied are the service's codes for what only a person can change.
var denied = map[string]bool{
	"NoSuchBucket": true, "AccessDenied": true, "InvalidAccessKeyId": true, "SignatureDoesNotMatch": true,
	"ExpiredToken": true, "InvalidToken": true, "AccountProblem": true, "PermanentRedirect": true,
}

// apiError returns the service's error code and HTTP status, zero where there was no answer.
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

func hasStatus(err error, status int) bool {
	_, got := apiError(err)
	return got == status
}

// briefError says what the SDK's error says once instead of at every layer.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }

func brief(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		_, status := apiError(err)
		text := fmt.Sprintf("%s: %s (HTTP %d)", api.ErrorCode(), api.ErrorMessage(), status)
		var resp interface{ ServiceRequestID() string }
		if errors.As(err, &resp) && resp.ServiceRequestID() != "" {
			text = fmt.Sprintf("%s: %s (HTTP %d, request %s)", api.ErrorCode(), api.ErrorMessage(), status, resp.ServiceRequestID())
		}
		return &briefError{text, err}
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// quote and unquote turn ETags from and to the form they have in HTTP headers (RFC 9110,
// section 8.8.3). Listings and headers of some services differ in it.
func quote(etag string) string {
	if strings.HasPrefix(etag, "W/") {
		return etag
	}
	return `"` + etag + `"`
}

func unquote(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
