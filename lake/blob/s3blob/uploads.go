package s3blob

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/urlake/urlake/lake/blob"
)

var errNoDate = errors.New("the store answered without a Date, or with an upload without one")

// Uploads implements blob.Uploader. It needs the permission s3:ListBucketMultipartUploads.
func (s *store) Uploads(ctx context.Context, prefix string) iter.Seq2[blob.Upload, error] {
	return func(yield func(blob.Upload, error) bool) {
		if err := blob.CheckPrefix(prefix); err != nil {
			yield(blob.Upload{}, err)
			return
		}
		pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{
			Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if code, _ := apiError(err); code == "NotImplemented" {
				return // the service cannot list uploads
			}
			if err != nil {
				yield(blob.Upload{}, s.fail("list uploads", prefix, err))
				return
			}
			now, ok := awsmiddleware.GetServerTime(page.ResultMetadata)
			for _, u := range page.Uploads {
				key, below := strings.CutPrefix(aws.ToString(u.Key), s.prefix+prefix)
				if !below {
					continue
				}
				if !ok || u.Initiated == nil {
					yield(blob.Upload{}, s.fail("list uploads", prefix, errNoDate))
					return
				}
				up := blob.Upload{Key: prefix + key, ID: aws.ToString(u.UploadId), Age: now.Sub(*u.Initiated)}
				if !yield(up, nil) {
					return
				}
			}
		}
	}
}

// AbortUpload implements blob.Uploader. It needs the permission s3:AbortMultipartUpload, which
// writers have.
func (s *store) AbortUpload(ctx context.Context, u blob.Upload) error {
	name, err := s.name(ctx, "abort upload", u.Key)
	if err != nil {
		return err
	}
	_, err = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: name, UploadId: &u.ID})
	if code, _ := apiError(err); err == nil || code == "NoSuchUpload" {
		return nil
	}
	return s.fail("abort upload", u.Key, err)
}
