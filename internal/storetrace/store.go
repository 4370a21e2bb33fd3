// Package storetrace traces the reads of a server's store: each request to the store for a request
// of a client becomes a span of that (package internal/spans). Other requests, such as those that
// look for a new version, are not traced.
package storetrace

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/blob"
)

// Store returns a store whose reads are traced.
func Store(s blob.Store) blob.Store { return &store{s} }

type store struct{ blob.Store }

// Unwrap returns the store inside.
func (s *store) Unwrap() blob.Store { return s.Store }

func start(ctx context.Context, op blob.Op, key string) (context.Context, spans.Step) {
	ctx, step := spans.Start(ctx, "store "+op.String(), trace.WithSpanKind(trace.SpanKindClient))
	if step.Recording() {
		step.Set(attribute.String("urlake.object", Kind(key)))
	}
	return ctx, step
}

func end(step spans.Step, bytes int64, err error) {
	if step.Recording() {
		step.Set(attribute.Int64("urlake.bytes", bytes))
		if err != nil {
			step.Set(attribute.String("error.type", blob.FailureOf(err).String()))
		}
	}
	step.End(err)
}

// Stat implements blob.Store.
func (s *store) Stat(ctx context.Context, key string) (blob.Info, error) {
	ctx, step := start(ctx, blob.OpStat, key)
	info, err := s.Store.Stat(ctx, key)
	end(step, 0, err)
	return info, err
}

// Get implements blob.Store.
func (s *store) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	ctx, step := start(ctx, blob.OpGet, key)
	data, info, err := s.Store.Get(ctx, key)
	end(step, int64(len(data)), err)
	return data, info, err
}

// ReadRange implements blob.Store.
func (s *store) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	ctx, step := start(ctx, blob.OpReadRange, key)
	if step.Recording() {
		step.Set(attribute.Int64("urlake.offset", off))
	}
	data, err := s.Store.ReadRange(ctx, key, off, n)
	end(step, int64(len(data)), err)
	return data, err
}

// Open implements blob.Store. The span ends when the stream is closed.
func (s *store) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	ctx, step := start(ctx, blob.OpOpen, key)
	r, err := s.Store.Open(ctx, key, off, n)
	if err != nil || !step.Recording() {
		end(step, 0, err)
		return r, err
	}
	step.Set(attribute.Int64("urlake.offset", off))
	return &stream{ReadCloser: r, step: step}, nil
}

type stream struct {
	io.ReadCloser
	step  spans.Step
	bytes atomic.Int64
	once  sync.Once
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.bytes.Add(int64(n))
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	err := s.ReadCloser.Close()
	s.once.Do(func() { end(s.step, s.bytes.Load(), err) })
	return err
}

// folders are the kinds of objects by how their keys begin. Keys have names of datasets and batches
// in them, so traces have the kind alone.
var folders = []struct{ prefix, kind string }{
	{"urls/", "part"},
	{"batches/", "batch"},
	{"rejects/", "rejects"},
	{"registry/", "registry"},
	{"rules/", "public_suffix_list"},
	{"access/", "access"},
	{"index/manifest.json", "manifest"},
	{"index/versions/", "version"},
	{"index/pieces/", "piece"},
	{"index/deletions/", "deletion table"},
	{"index/takedowns/", "takedowns"},
	{"index/leases/", "lease"},
	{"index/segments/", "segment"},
}

// files are the files of a segment, by how their keys go on after the segment's id.
var files = []string{"batches", "domain_to_datasets", "domains", "files", "parts", "postings"}

// Kind is what kind of object a key names, e.g. part or segment.postings. It has nothing else of
// the key.
func Kind(key string) string {
	for _, f := range folders {
		if !strings.HasPrefix(key, f.prefix) {
			continue
		}
		if f.kind == "segment" {
			_, file, _ := strings.Cut(key[len(f.prefix):], "/")
			for _, name := range files {
				if strings.HasPrefix(file, name) {
					return "segment." + name
				}
			}
		}
		return f.kind
	}
	return "other"
}
