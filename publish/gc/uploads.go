package gc

import (
	"errors"
	"fmt"
	"time"

	"github.com/urlake/urlake/lake/blob"
)

// uploadAge is the least age, by the store's clock alone, of an upload that is aborted. It is the
// time after which a step gives up unless the operator allows it more, so no writer has the upload
// open any more. Should one have, its object is not completed, its step fails and is repeated: an
// abort never touches an object, and nothing refers to one that was not completed.
const uploadAge = 7 * 24 * time.Hour

// Uploads says what a collection did with the uploads that were begun and never completed, in a
// store that has such.
type Uploads struct {
	// Aborted is how many were aborted, or would be. Waiting are younger than the least age.
	Aborted int64 `json:"aborted"`
	Waiting int64 `json:"waiting"`
	// Denied says which permission is missing for that.
	Denied string `json:"denied,omitempty"`
}

// abortUploads aborts old uploads of objects that a lake can have. Others share the bucket.
func (c *collection) abortUploads() error {
	store, ok := blob.AsUploader(c.store)
	if !ok {
		return nil
	}
	done := Uploads{}
	c.out.Uploads = &done
	denied := func(err error, permission string) error {
		if !errors.Is(err, blob.ErrDenied) || errors.Is(err, blob.ErrCredentials) {
			return err
		}
		done.Denied = fmt.Sprintf("unfinished uploads stay: the role lacks %s", permission)
		return nil
	}
	for u, err := range store.Uploads(c.ctx, "") {
		if err != nil {
			return denied(err, "s3:ListBucketMultipartUploads")
		}
		if _, _, ok := KindOf(u.Key); !ok {
			continue
		}
		if u.Age < max(c.opt.Grace, uploadAge) {
			done.Waiting++
			continue
		}
		if !c.opt.DryRun {
			if err := store.AbortUpload(c.ctx, u); err != nil {
				return denied(err, "s3:AbortMultipartUpload")
			}
		}
		done.Aborted++
	}
	return nil
}
