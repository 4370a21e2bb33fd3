package many_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// BenchmarkGroups ingests lists of ten URLs, without Temporal and without a publish.
func BenchmarkGroups(b *testing.B) {
	ctx := context.Background()
	dir := b.TempDir()
	lists := filepath.Join(dir, "lists")
	if err := os.Mkdir(lists, 0o777); err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		var text []byte
		for j := range 10 {
			text = fmt.Appendf(text, "https://www.site%d.example/page/%d\n", (i*7+j*13)%3000, i*10+j)
		}
		if err := os.WriteFile(filepath.Join(lists, fmt.Sprintf("list-%06d.txt", i)), text, 0o666); err != nil {
			b.Fatal(err)
		}
	}
	store, err := blob.Open(ctx, filepath.Join(dir, "lake"))
	if err != nil {
		b.Fatal(err)
	}
	spec := many.Spec{Spec: ingest.Spec{Lake: store.URL(), Inputs: []string{lists}}, DatasetsFrom: many.FromFiles}
	plan, err := many.Plan(ctx, store, "run", spec)
	if err != nil {
		b.Fatal(err)
	}
	r, err := many.Open(ctx, store, "run")
	if err != nil {
		b.Fatal(err)
	}
	opt := many.GroupOptions{TempDir: dir, InMemory: postings.CollectInMemory, Collect: postings.Collect(dir)}
	b.ResetTimer()
	for group := range plan.Groups {
		if _, err := r.Group(ctx, group, opt, func(many.Progress) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if done, _, err := many.Finish(ctx, store, "run", true, ""); err != nil || done.Ingested != b.N {
		b.Fatalf("finished %+v, %v; want %d lists", done, err, b.N)
	}
}
