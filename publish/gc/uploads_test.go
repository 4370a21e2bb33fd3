package gc_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish/gc"
)

// uploading is a store with uploads, and roles that lack permissions.
type uploading struct {
	blob.Store
	uploads         []blob.Upload
	listErr, endErr error
	aborted         []string
}

func (s *uploading) Uploads(context.Context, string) iter.Seq2[blob.Upload, error] {
	return func(yield func(blob.Upload, error) bool) {
		if s.listErr != nil {
			yield(blob.Upload{}, s.listErr)
			return
		}
		for _, u := range s.uploads {
			if !yield(u, nil) {
				return
			}
		}
	}
}

func (s *uploading) AbortUpload(_ context.Context, u blob.Upload) error {
	if s.endErr == nil {
		s.aborted = append(s.aborted, u.ID)
	}
	return s.endErr
}

func TestOldUploadsAreAborted(t *testing.T) {
	const week = 7 * 24 * time.Hour
	denied := fmt.Errorf("upload: %w", blob.ErrDenied)
	for _, c := range []struct {
		name            string
		opt             gc.Options
		listErr, endErr error
		aborted         []string
		want            gc.Uploads
	}{
		{"at once", gc.Options{}, nil, nil, []string{"old", "older"}, gc.Uploads{Aborted: 2, Waiting: 1}},
		{"grace", gc.Options{Grace: 2 * week}, nil, nil, []string{"older"}, gc.Uploads{Aborted: 1, Waiting: 2}},
		// By the clock of the store, whatever that of the collection says.
		{
			"clock", gc.Options{Now: func() time.Time { return time.Now().Add(10 * week) }}, nil, nil,
			[]string{"old", "older"}, gc.Uploads{Aborted: 2, Waiting: 1},
		},
		{"dry run", gc.Options{DryRun: true}, nil, nil, nil, gc.Uploads{Aborted: 2, Waiting: 1}},
		{"no list", gc.Options{}, denied, nil, nil, gc.Uploads{Denied: "s3:ListBucketMultipartUploads"}},
		{"no abort", gc.Options{}, nil, denied, nil, gc.Uploads{Waiting: 1, Denied: "s3:AbortMultipartUpload"}},
	} {
		store := &uploading{Store: blob.NewMemory(), listErr: c.listErr, endErr: c.endErr, uploads: []blob.Upload{
			{Key: "staging/run/x", ID: "young", Age: week - time.Second},
			{Key: "index/manifest.json", ID: "old", Age: week},
			{Key: "staging/run/x", ID: "older", Age: 2 * week},
			{Key: "backup/elsewhere.tar", ID: "foreign", Age: 9 * week},
		}}
		want := used(t, store)
		c.opt.Keep = 1
		res := collect(t, store, c.opt)
		if !slices.Equal(store.aborted, c.aborted) {
			t.Errorf("%s: aborted %q, want %q", c.name, store.aborted, c.aborted)
		}
		got := *res.Uploads
		if !strings.HasSuffix(got.Denied, c.want.Denied) {
			t.Errorf("%s: %q does not name %s", c.name, got.Denied, c.want.Denied)
		}
		got.Denied = c.want.Denied
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		expect(t, store, want)
	}
}
