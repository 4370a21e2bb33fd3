package s3blob

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/urlake/urlake/lake/blob"
)

// S3PartSize lets tests add up the parts of the largest upload.
var S3PartSize = s3PartSize

const (
	S3MaxParts    = s3MaxParts
	S3WriterParts = s3WriterParts
	S3StoreParts  = s3StoreParts
)

// SetStallTimeout shortens the wait for a download's next byte.
func SetStallTimeout(s blob.Store, d time.Duration) { s.(*S3).stall = d }

// HurryRetries takes the waiting out of an S3 store's retries and leaves everything else about
// them.
func HurryRetries(s blob.Store) {
	store := s.(*S3)
	store.resumeWait = time.Millisecond
	opts := store.client.Options()
	opts.Retryer = hurried{opts.Retryer.(aws.RetryerV2)}
	store.client = s3.New(opts)
}

type hurried struct{ aws.RetryerV2 }

func (hurried) RetryDelay(int, error) (time.Duration, error) { return time.Millisecond, nil }
