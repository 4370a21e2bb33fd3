package storetrace

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/blob"
)

// TestReadsAreSpans holds that each read of a traced request is a span without the object's key,
// and that other reads are none.
func TestReadsAreSpans(t *testing.T) {
	const key = "urls/dataset_id=7/domain_prefix=ab/part-s3cret-0.parquet"
	inner := blob.NewMemory()
	if _, err := inner.Put(t.Context(), key, []byte("0123456789"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	sent := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent))
	s := Store(inner)
	read := func(ctx context.Context) {
		t.Helper()
		if info, err := s.Stat(ctx, key); err != nil || info.Size != 10 {
			t.Fatal(info, err)
		}
		if data, _, err := s.Get(ctx, key); err != nil || string(data) != "0123456789" {
			t.Fatal(data, err)
		}
		if data, err := s.ReadRange(ctx, key, 2, 3); err != nil || string(data) != "234" {
			t.Fatal(data, err)
		}
		r, err := s.Open(ctx, key, 4, 6)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(r); err != nil || string(data) != "456789" {
			t.Fatal(data, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Get(ctx, "access/s3cret"); err == nil {
			t.Fatal("an object that is not there")
		}
	}
	read(t.Context())
	if n := len(sent.GetSpans()); n != 0 {
		t.Fatalf("%d spans without a request", n)
	}
	ctx, request := spans.Begin(t.Context(), provider.Tracer("test"), "request")
	read(ctx)
	request.End(false)
	want := []string{
		"store stat part 0", "store get part 10", "store read part 2 3", "store open part 4 6", "store get access 0 absent",
	}
	all := sent.GetSpans()
	if len(all) != len(want)+1 {
		t.Fatalf("%d spans: %v", len(all), all)
	}
	for i, w := range want {
		s := &all[i]
		text := s.Name
		for _, key := range []string{"urlake.object", "urlake.offset", "urlake.bytes", "error.type"} {
			for _, a := range s.Attributes {
				if string(a.Key) == key {
					text += " " + a.Value.String()
				}
			}
		}
		if text != w || s.Parent.SpanID() != all[len(want)].SpanContext.SpanID() || (s.Status.Code == codes.Error) != strings.HasSuffix(w, "absent") {
			t.Errorf("%q, want %q", text, w)
		}
		if strings.Contains(fmt.Sprintf("%+v", s), "s3cret") {
			t.Errorf("%+v has the key", s)
		}
	}
}

// TestSpansOfARequestAreBounded holds that a request with very many reads has a bounded trace,
// which says how many are missing.
func TestSpansOfARequestAreBounded(t *testing.T) {
	inner := blob.NewMemory()
	sent := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent))
	ctx, request := spans.Begin(t.Context(), provider.Tracer("test"), "request")
	const reads = 1000
	for range reads {
		_, _ = Store(inner).Stat(ctx, "none")
	}
	request.End(false)
	all := sent.GetSpans()
	dropped := ""
	for _, a := range all[len(all)-1].Attributes {
		if a.Key == "urlake.spans_dropped" {
			dropped = a.Value.String()
		}
	}
	if len(all) >= reads/2 || dropped != fmt.Sprint(reads+1-len(all)) {
		t.Errorf("%d spans, %s dropped, of %d", len(all), dropped, reads+1)
	}
}

func TestKinds(t *testing.T) {
	for key, want := range map[string]string{
		"urls/dataset_id=1/domain_prefix=any/part-x.parquet": "part",
		"batches/dataset_id=1/b/0.json":                      "batch",
		"index/manifest.json":                                "manifest",
		"index/segments/s1/postings/0.idx":                   "segment.postings",
		"index/segments/s1/parts.idx.zst":                    "segment.parts",
		"index/segments/s1/segment.json":                     "segment",
		"index/segments/parts":                               "segment",
		"index/deletions/parts":                              "deletion table",
		"":                                                   "other",
		"common.com":                                         "other",
	} {
		if got := Kind(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}
