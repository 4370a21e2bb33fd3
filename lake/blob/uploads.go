package blob

import (
	"context"
	"iter"
	"time"
)

// Upload is an upload of an object in parts that was begun and not completed. Its parts are stored,
// and no listing of objects shows them.
type Upload struct {
	Key, ID string
	// Age is how long ago the upload began. Both times are by the clock of the store.
	Age time.Duration
}

// Uploader is a store whose writers upload in parts. A writer that dies leaves its upload.
type Uploader interface {
	// Uploads lists the uploads below prefix.
	Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error]
	// AbortUpload deletes the parts of an upload. One that is completed or aborted is left as it
	// is, and so is every object. A writer that is still uploading fails then.
	AbortUpload(ctx context.Context, u Upload) error
}

// AsUploader returns s, or the first store inside it, that is an Uploader, as AsLocalFiler does.
func AsUploader(s Store) (Uploader, bool) { return as[Uploader](s) }
