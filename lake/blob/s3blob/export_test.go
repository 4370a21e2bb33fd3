package s3blob

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/urlake/urlake/lake/blob"
)

const (
	MaxParts    = maxParts
	WriterParts = writerParts
	StoreParts  = storeParts
)

// PartSize is partSize.
func PartSize(number int32) int { return partSize(number) }

// WaitForParts waits until no part of a writer is on its way.
func WaitForParts(w blob.Writer) { w.(*writer).wg.Wait() }

// SetStallTimeout sets the maximum wait for the next byte of a download.
func SetStallTimeout(s blob.Store, d time.Duration) { s.(*store).stall = d }

// HurryReplies sets the maximum wait for the begin of a reply.
func HurryReplies(s blob.Store, d time.Duration) {
	st := s.(*store)
	opts := st.client.Options()
	opts.HTTPClient = opts.HTTPClient.(*awshttp.BuildableClient).WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = d
	})
	st.client = s3.New(opts)
}

// HurryRetries removes the waits between the retries of a store and changes nothing else.
func HurryRetries(s blob.Store) {
	st := s.(*store)
	st.resumeWait = time.Millisecond
	opts := st.client.Options()
	opts.Retryer = hurried{opts.Retryer.(aws.RetryerV2)}
	st.client = s3.New(opts)
}

type hurried struct{ aws.RetryerV2 }

func (hurried) RetryDelay(int, error) (time.Duration, error) { return time.Millisecond, nil }
