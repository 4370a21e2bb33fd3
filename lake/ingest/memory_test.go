package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// endless is a store whose listing never ends.
type endless struct {
	blob.Store
	listed *int
}

func (e endless) Stat(context.Context, string) (blob.Info, error) {
	return blob.Info{}, blob.ErrNotExist
}

func (e endless) List(_ context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for {
			*e.listed++
			if !yield(blob.Info{Key: fmt.Sprintf("%s%09d.txt", prefix, *e.listed), Size: 1, ETag: "x"}, nil) {
				return
			}
		}
	}
}

// TestListingEndsAtTheMostObjects lists far more objects than a batch may have.
func TestListingEndsAtTheMostObjects(t *testing.T) {
	const most = 100
	for _, input := range []string{"s3://bucket/in/", "s3://bucket/in/*.txt"} {
		listed := 0
		ingest.BehindS3(t, endless{blob.NewMemory(), &listed})
		spec := ingest.Spec{Dataset: "d", Inputs: []string{input}}
		_, err := ingest.MakePlanWithin(t.Context(), blob.NewMemory(), "run", spec, ingest.Limits{Objects: most})
		var bad *ingest.InputError
		if !errors.As(err, &bad) || bad.Object != input || !strings.Contains(bad.Reason, "more than 100 objects") {
			t.Errorf("%s: error %v", input, err)
		}
		if listed > most+1 {
			t.Errorf("%s: %d objects were listed, want at most %d", input, listed, most+1)
		}
	}
	files := map[string]string{}
	for i := range most + 1 {
		files[fmt.Sprintf("%03d.txt", i)] = "http://a.example/\n"
	}
	dir := folder(t, files)
	for limit, ok := range map[int]bool{most: false, most + 1: true} {
		spec := ingest.Spec{Dataset: "d", Inputs: []string{dir}}
		_, err := ingest.MakePlanWithin(t.Context(), blob.NewMemory(), "run", spec, ingest.Limits{Objects: limit})
		if (err == nil) != ok {
			t.Errorf("%d files, at most %d: %v", most+1, limit, err)
		}
	}
}

// largeWindows is a store of objects that are compressed with a window of 128 MiB. It counts how
// many are being read beyond their headers: their decoders have the window then.
type largeWindows struct {
	blob.Store
	inside, most atomic.Int64
}

func (l *largeWindows) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := l.Store.Open(ctx, key, off, n)
	return &windowStream{ReadCloser: r, store: l}, err
}

type windowStream struct {
	io.ReadCloser
	store *largeWindows
	reads int
}

func (s *windowStream) Read(p []byte) (int, error) {
	s.reads++
	if s.reads == 2 {
		inside := s.store.inside.Add(1)
		for range 1000 {
			runtime.Gosched() // others come here, if they can
			inside = max(inside, s.store.inside.Load())
		}
		for most := s.store.most.Load(); inside > most && !s.store.most.CompareAndSwap(most,
			inside); most = s.store.most.Load() {
		}
	}
	return s.ReadCloser.Read(p[:min(len(p), 64)])
}

func (s *windowStream) Close() error {
	if s.reads > 1 {
		s.store.inside.Add(-1)
	}
	return s.ReadCloser.Close()
}

// TestLargeWindowsAreReadOneByOne plans objects whose decompressors take 128 MiB each.
func TestLargeWindowsAreReadOneByOne(t *testing.T) {
	var data bytes.Buffer
	w, err := zstd.NewWriter(&data, zstd.WithWindowSize(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		fmt.Fprintf(w, "http://a.example/%d/%x\n", i, i*2654435761)
		if err := w.Flush(); err != nil { // so that the length is not known
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	store := &largeWindows{Store: blob.NewMemory()}
	for i := range 12 {
		if _, err := store.Put(t.Context(), fmt.Sprintf("in/%02d.zst", i), data.Bytes(), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, store)
	spec := ingest.Spec{Dataset: "d", Inputs: []string{"s3://bucket/in/"}}
	plan, err := ingest.MakePlanWithin(t.Context(), blob.NewMemory(), "run", spec, ingest.Limits{})
	if err != nil || plan.Objects != 12 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if n := store.most.Load(); n != 1 {
		t.Errorf("%d objects at once in large memory, want 1", n)
	}
}
