package s3blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// stallTimeout ends a reply in which no byte arrives; the download is resumed.
	stallTimeout = time.Minute

	// resumeWait is the wait before a download is resumed after a reply without a byte. It doubles.
	resumeWait = 100 * time.Millisecond
)

// openStream opens a stream of n bytes from off, or of the rest if n is negative. The object has
// all of them, and the reply to the first request has begun. Size is the size of the object. So
// many consecutive attempts without a byte end the stream.
func (s *store) openStream(
	ctx context.Context, op string, o object, off, n int64, attempts int,
) (_ *stream, size int64, err error) {
	name, err := s.name(ctx, op, o.key)
	if err != nil {
		return nil, 0, err
	}
	if err := blob.CheckRange(off, n); err != nil {
		return nil, 0, blob.OpError(op, s.url, o.key, err)
	}
	r := &stream{ctx: ctx, s: s, object: o, name: name, attempts: attempts, off: off, end: off + n}
	if n != 0 {
		if n < 0 {
			r.end = -1
		}
		size, err = r.request("")
		if err == nil && r.end > size {
			r.Close()
			return nil, 0, blob.OpError(op, s.url, o.key, blob.RangeError(off, n, size))
		}
		if err == nil {
			if n < 0 {
				r.end = size
			}
			return r, size, nil
		}
		if n > 0 || !hasStatus(err, http.StatusRequestedRangeNotSatisfiable) {
			return nil, 0, s.fail(op, o.key, err)
		}
	}
	// The range is empty. HTTP has no empty ranges.
	info, err := s.stat(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	if off > info.Size {
		return nil, 0, blob.OpError(op, s.url, o.key, blob.RangeError(off, n, info.Size))
	}
	r.end, r.etag = off, info.ETag
	return r, info.Size, nil
}

// stream is a download that resumes after transient failures.
type stream struct {
	ctx      context.Context
	s        *store
	object   object
	name     *string
	off, end int64 // the range that is still to be read; end is -1 if it is not known
	etag     string
	md5      bool // the ETag may be the MD5 of the object

	body     io.ReadCloser // nil between attempts
	cancel   context.CancelFunc
	stall    *time.Timer
	attempts int // the most attempts without a byte
	broken   int // consecutive attempts without a byte
	tried    int // all attempts
	err      error
}

// request requests the range that is still to be read and returns the size of the object. If etag
// is not empty, the object must have that ETag.
func (r *stream) request(etag string) (size int64, err error) {
	in := &s3.GetObjectInput{Bucket: &r.s.bucket, Key: r.name, VersionId: r.object.version}
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
	// What the SDK tries again and what is resumed are attempts of one read.
	out, err := r.s.client.GetObject(ctx, in, func(o *s3.Options) { o.RetryMaxAttempts = r.attempts - r.broken })
	if err != nil {
		cancel()
		return 0, err
	}
	tries := 1
	if all, ok := retry.GetAttemptResults(out.ResultMetadata); ok {
		tries = max(1, len(all.Results))
	}
	r.tried += tries
	r.broken += tries - 1
	reject := func(err error) (int64, error) {
		out.Body.Close()
		cancel()
		return 0, err
	}
	if out.ContentLength == nil {
		return reject(errNoLength)
	}
	size = *out.ContentLength
	if in.Range != nil {
		var first, last int64
		if _, err := fmt.Sscanf(aws.ToString(out.ContentRange), "bytes %d-%d/%d", &first, &last, &size); err != nil || first != r.off {
			return reject(fmt.Errorf("the store answered bytes from %d with range %q", r.off, aws.ToString(out.ContentRange)))
		}
	}
	r.body, r.cancel = out.Body, cancel
	r.etag = unquote(out.ETag)
	// Objects that are encrypted by keys of KMS or of the client have other ETags.
	r.md5 = out.SSECustomerAlgorithm == nil &&
		(out.ServerSideEncryption == "" || out.ServerSideEncryption == types.ServerSideEncryptionAes256)
	r.stall = time.AfterFunc(r.s.stall, cancel)
	r.stall.Stop()
	return size, nil
}

// intact reports whether b can be the whole object: unless its ETag is another MD5.
func (r *stream) intact(b []byte) bool {
	sum, err := hex.DecodeString(r.etag)
	if err != nil || len(sum) != md5.Size {
		r.md5 = false // the ETag of an upload in parts, say
	}
	if !r.md5 {
		return true
	}
	got := md5.Sum(b)
	return bytes.Equal(sum, got[:])
}

func (r *stream) Read(p []byte) (int, error) {
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
				if r.broken++; r.broken >= r.attempts {
					err := fmt.Errorf("broken off %d times at byte %d: %w",
						r.broken, r.off, cmp.Or(noEOF(err), io.ErrUnexpectedEOF))
					r.err = blob.OpError("read", r.s.url, r.object.key, err)
				}
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

// noEOF returns nil for io.EOF, which here is the end of the connection and not of the object.
func noEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// resume requests the rest after a broken reply.
func (r *stream) resume() error {
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
		return blob.OpError("read", r.s.url, r.object.key, blob.ErrChanged)
	}
	return r.s.fail("read", r.object.key, err)
}

// hangUp ends the current reply, if there is one.
func (r *stream) hangUp() {
	if r.body != nil {
		r.stall.Stop()
		r.cancel()
		r.body.Close()
		r.body = nil
	}
}

// Close implements io.Closer.
func (r *stream) Close() error {
	if r.body != nil && r.off == r.end {
		// The connection can be reused after the end of the reply was read.
		_, _ = io.CopyN(io.Discard, r.body, 1)
	}
	r.hangUp()
	if r.err == nil {
		r.err = blob.OpError("read", r.s.url, r.object.key, errors.New("stream is closed"))
	}
	return nil
}
