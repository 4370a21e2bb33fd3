package s3blob_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/s3blob"
)

// A listing has the uploads below the prefix of the store alone, with their ages. An abort ends
// one; the writer fails then, and no object is lost.
func TestUploads(t *testing.T) {
	testenv.NewS3Server(t)
	root := testenv.S3(t)
	store, outer := openS3Store(t, root+"/lake"), openS3Store(t, root)
	begin := func(s blob.Store, key string) blob.Writer {
		w, err := s.Create(t.Context(), key)
		if err == nil {
			_, err = w.Write(make([]byte, 20<<20))
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if _, err := store.Put(t.Context(), "urls/a", []byte("before"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	open := begin(store, "urls/a")
	defer begin(outer, "elsewhere/b").Abort()
	uploader, ok := blob.AsUploader(blob.NewCounting(store))
	if !ok {
		t.Fatal("the store of S3 is no blob.Uploader")
	}
	list := func() (all []blob.Upload) {
		for u, err := range uploader.Uploads(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		return all
	}
	deadline := time.Now().Add(time.Minute)
	var all []blob.Upload
	for len(all) == 0 && time.Now().Before(deadline) { // parts are sent in the background
		all = list()
	}
	if len(all) != 1 || all[0].Key != "urls/a" || all[0].Age < -time.Second || all[0].Age > time.Minute {
		t.Fatalf("uploads %+v, want one of urls/a that has just begun", all)
	}
	s3blob.WaitForParts(open) // S3 may keep an upload that is aborted while a part arrives
	for range 2 {
		if err := uploader.AbortUpload(t.Context(), all[0]); err != nil {
			t.Fatal(err)
		}
	}
	if all := list(); len(all) > 0 {
		t.Errorf("uploads after the abort: %+v", all)
	}
	if _, err := open.Finish(); err == nil {
		t.Error("a writer whose upload was aborted has finished")
	}
	if data, _, err := store.Get(t.Context(), "urls/a"); err != nil || string(data) != "before" {
		t.Errorf("the object is %q, %v", data, err)
	}
}

// A service without such listings has no uploads to abort; a role that may not list them is told.
func TestUploadsCannotBeListed(t *testing.T) {
	s, network := badNetwork(t)
	uploader, ok := blob.AsUploader(s)
	if !ok {
		t.Fatal("the store of S3 is no blob.Uploader")
	}
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{{http.StatusNotImplemented, "NotImplemented", nil}, {http.StatusForbidden, "AccessDenied", blob.ErrDenied}} {
		network.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(c.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", c.code)
		})
		got := error(nil)
		for u, err := range uploader.Uploads(t.Context(), "") {
			if got = err; err == nil {
				t.Errorf("%s: %+v", c.code, u)
			}
		}
		if !errors.Is(got, c.want) {
			t.Errorf("%s: %v", c.code, got)
		}
	}
}
