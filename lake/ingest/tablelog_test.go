package ingest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/allow"
)

// TestTablesWithALogAreRefused lists folders, prefixes and globs with a table's log among them.
func TestTablesWithALogAreRefused(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{
		"delta/_delta_log/0.json": "{}", "delta/a.txt": "x", "delta/day=1/b.txt": "x",
		"ice/metadata/v1.metadata.json": "{}", "ice/data/a.txt": "x", "hudi/.hoodie/hoodie.properties": "x", "hudi/a.txt": "x",
		"plain/a.txt": "x", "plain/metadata/notes.txt": "x",
	}
	dir := folder(t, files)
	bucket := blob.NewMemory()
	for key := range files {
		if _, err := bucket.Put(ctx, key, []byte("x"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, bucket)
	for _, root := range []string{dir, "file://" + dir, "s3://bucket"} {
		local := root != "s3://bucket"
		for in, want := range map[string]string{
			"": "delta", "delta": "delta", "delta/": "delta", "delta/*.txt": "delta", "ice": "ice", "hudi": "hudi", "*": "delta",
			"delta/a.txt": "", "ice/data/a.txt": "", "plain": "", "plain/*": "", "delta/day=1": "partition", "ice/data": "partition",
			"delta/day=*/*": "partition", "plain/metadata": "", "plain/metadata/": "",
		} {
			if strings.HasPrefix(root, "file://") && strings.ContainsAny(in, "*=") || !local && in == "*" {
				continue // no globs in file://; a glob of keys matches none in folders
			}
			_, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{root + "/" + in}})
			var input *ingest.InputError
			switch {
			case want == "" && err != nil:
				t.Errorf("%s/%s: %v", root, in, err)
			case want != "" && (!errors.As(err, &input) || !strings.Contains(err.Error(), "log")):
				t.Errorf("%s/%s: got %v, want a refusal", root, in, err)
			}
		}
		names, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{root + "/"}, Exclude: []string{"delta", "ice/", "hudi"}})
		if err != nil || len(names) != 2 {
			t.Errorf("%s without its tables: %q, %v", root, names, err)
		}
	}
	spec := ingest.Spec{Dataset: "d", Inputs: []string{dir + "/ice"}}
	if _, err := ingest.Previews(ctx, spec, func(*ingest.Preview) error { return nil }); err == nil || !strings.Contains(err.Error(), "iceberg_scan('"+dir+"/ice')") {
		t.Errorf("a preview: %v, want the command", err)
	}
	spec.Inputs = []string{testenv.Shared(t, "cases/table-with-a-log/delta")}
	if _, err := ingest.MakePlan(ctx, blob.NewMemory(), "run", spec); err == nil || !strings.Contains(err.Error(), "_delta_log") {
		t.Errorf("a plan: %v, want a refusal", err)
	}
}

// strangeKeys is a bucket that others have written keys into that no Store has.
type strangeKeys struct{ blob.Store }

func (s strangeKeys) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if key := "in/a\x01\n"; strings.HasPrefix(key, prefix) && !yield(blob.Info{Key: key}, blob.CheckKey(key)) {
			return
		}
		s.Store.List(ctx, prefix)(yield)
	}
}

// TestAStrangeKeyIsNamedAndCanBeLeftOut lists a prefix with a key that has control characters.
func TestAStrangeKeyIsNamedAndCanBeLeftOut(t *testing.T) {
	ctx := context.Background()
	bucket := blob.NewMemory()
	if _, err := bucket.Put(ctx, "in/b.txt", []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	ingest.BehindS3(t, strangeKeys{bucket})
	spec := ingest.Spec{Inputs: []string{"s3://bucket/in/"}}
	var input *ingest.InputError
	if _, _, err := ingest.Expand(ctx, spec); !errors.As(err, &input) || !strings.Contains(err.Error(), `"in/a\x01\n"`) || !strings.Contains(err.Error(), "--exclude") {
		t.Errorf("got %v, want an InputError with the key and advice", err)
	}
	spec.Exclude = []string{"a*"}
	if got, _, err := ingest.Expand(ctx, spec); err != nil || !slices.Equal(got, []string{"s3://bucket/in/b.txt"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestFaultsOfTheInputAreFinal plans inputs that no retry can read.
func TestFaultsOfTheInputAreFinal(t *testing.T) {
	dir := folder(t, map[string]string{"in/a.txt": urls("a.example", 1), "b.txt": urls("b.example", 1)})
	for from, to := range map[string]string{"in/x": "y", "in/y": "x", "in/self": "self"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	allowed, err := allow.Parse([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]ingest.Spec{
		"links in a circle":         {Inputs: []string{dir + "/in"}},
		"a link in a circle":        {Inputs: []string{dir + "/in/x"}},
		"a link to itself":          {Inputs: []string{dir + "/in/self"}},
		"below a link in a circle":  {Inputs: []string{dir + "/in/x/a.txt"}},
		"a name that is too long":   {Inputs: []string{dir + "/" + strings.Repeat("a", 300)}},
		"a path that is too long":   {Inputs: []string{dir + strings.Repeat("/aaa", 2000)}},
		"a file as a folder":        {Inputs: []string{dir + "/b.txt/c"}},
		"a name with a zero byte":   {Inputs: []string{dir + "/b\x00.txt"}},
		"a manifest in a circle":    {Manifests: []string{dir + "/in/x"}},
		"a title too long":          {Inputs: []string{dir + "/b.txt"}, Title: strings.Repeat("a", 70_000)},
		"a source too long":         {Inputs: []string{dir + "/b.txt"}, Source: strings.Repeat("a", 70_000)},
		"three long descriptions":   {Inputs: []string{dir + "/b.txt"}, Title: strings.Repeat("a", 30_000), Source: strings.Repeat("a", 30_000), Licence: strings.Repeat("a", 30_000)},
		"a bucket with a zero byte": {Inputs: []string{"s3://b\x00/c"}},
	} {
		for _, ctx := range []context.Context{context.Background(), allow.With(context.Background(), allowed)} {
			spec.Dataset = "d"
			_, err := ingest.MakePlan(ctx, blob.NewMemory(), "run", spec)
			var input *ingest.InputError
			if !errors.As(err, &input) {
				t.Errorf("%s: got %v, want an InputError", name, err)
			}
		}
	}
}
