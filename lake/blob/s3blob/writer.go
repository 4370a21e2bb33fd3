package s3blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// maxParts is S3's limit on the parts of an upload.
	maxParts = 10_000

	// basePart is the size of the first parts of an upload, a compromise between requests and
	// memory. S3 requires at least 5 MiB.
	basePart = 8 << 20

	// partStep is the number of parts after which their size doubles. 1,000 parts of 8 MiB, 1,000
	// of 16 MiB and so on make S3's largest object, 5 TiB, in maxParts. Up to 7.8 GiB all parts are
	// equal, which some services require.
	partStep = 1000

	// writerParts and storeParts bound the parts in flight, of one object and of all objects of a
	// store. They take 32 MiB and 128 MiB of memory at the usual part size. Each Writer has at most
	// one more part, which it fills.
	writerParts = 4
	storeParts  = 16

	// minBuffer is the size of the first buffer of a Writer, so that hundreds of small objects can
	// be written at once.
	minBuffer = 64 << 10

	// cleanupTimeout bounds the removal of an aborted upload, which does not end with the context.
	cleanupTimeout = 30 * time.Second

	// uploadMark is the metadata by which a Writer recognises its object after the reply to the
	// completion of an upload was lost.
	uploadMark = "urlake-upload"
)

// Create implements Store.
func (s *store) Create(ctx context.Context, key string) (blob.Writer, error) {
	name, err := s.name(ctx, "create", key)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, key: key, name: name, slots: make(chan struct{}, writerParts)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w, nil
}

// writer fills one part at a time and uploads full parts concurrently.
type writer struct {
	s      *store
	ctx    context.Context // ends with the first failure, which is its cause
	cancel context.CancelCauseFunc
	key    string
	name   *string
	done   bool

	buf    []byte
	size   int64
	mark   string
	upload *string // nil before the first part
	number int32   // number of parts whose upload has started
	slots  chan struct{}

	mu    sync.Mutex
	parts []types.CompletedPart
	wg    sync.WaitGroup
}

// partSize is the size of a part of an upload. The first part has number 1.
func partSize(number int32) int {
	return basePart << ((number - 1) / partStep)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, blob.OpError("write", w.s.url, w.key, blob.ErrWriterDone)
	}
	written := 0
	for len(p) > 0 {
		if w.ctx.Err() != nil {
			return written, context.Cause(w.ctx)
		}
		limit := partSize(w.number + 1)
		if len(w.buf) == limit {
			// There is another byte, so this part is not the last.
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

// grow grows the capacity of the buffer for n more bytes, up to the size of a part, limit.
func (w *writer) grow(n, limit int) {
	need := len(w.buf) + n
	if need <= cap(w.buf) {
		return
	}
	size := min(max(need, 2*cap(w.buf), minBuffer), limit)
	if w.number > 0 {
		size = limit
	}
	w.buf = append(make([]byte, 0, size), w.buf...)
}

// sendPart starts the upload of the buffer. It waits until fewer parts are in flight, not for the
// upload.
func (w *writer) sendPart() error {
	if w.number == maxParts {
		return blob.OpError("write", w.s.url, w.key, fmt.Errorf("more than %d parts", maxParts))
	}
	if w.upload == nil {
		w.mark = rand.Text()
		out, err := w.s.client.CreateMultipartUpload(w.ctx, &s3.CreateMultipartUploadInput{
			Bucket: &w.s.bucket, Key: w.name, Metadata: map[string]string{uploadMark: w.mark},
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

func (w *writer) Finish() (blob.Info, error) {
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
		// Either an earlier attempt has completed the upload and its reply was lost: then the
		// object has the mark. Or the upload was removed.
		head, headErr := w.s.client.HeadObject(w.ctx, &s3.HeadObjectInput{Bucket: &w.s.bucket, Key: w.name})
		if headErr == nil && head.Metadata[uploadMark] == w.mark && aws.ToInt64(head.ContentLength) == w.size {
			err, etag = nil, unquote(head.ETag)
		}
	}
	if err != nil {
		return blob.Info{}, w.s.fail("finish", w.key, err)
	}
	w.upload = nil
	return blob.Info{Key: w.key, Size: w.size, ETag: etag}, nil
}

func (w *writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.cancel(blob.OpError("write", w.s.url, w.key, blob.ErrWriterDone))
	w.wg.Wait()
	w.buf = nil
	if w.upload != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanupTimeout)
		defer cancel()
		// An upload that stays is removed by the bucket's own rule, if it has one.
		_, _ = w.s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket: &w.s.bucket, Key: w.name, UploadId: w.upload,
		})
		w.upload = nil
	}
}
