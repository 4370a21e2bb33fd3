package ingest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/allow"
)

// TestOnlyAllowedInputsAreRead asks for a secret in every way that an input can be named. The error
// is final, names the object and what is allowed, and tells nothing of what the secret holds.
func TestOnlyAllowedInputsAreRead(t *testing.T) {
	bucket := blob.NewMemory()
	for _, key := range []string{"in/a.txt", "in-secret/s.txt", "secret.txt", "lists/m.txt"} {
		text := urls("a.example", 1)
		if key == "lists/m.txt" {
			text = "s3://bucket/secret.txt\n"
		}
		if _, err := bucket.Put(context.Background(), key, []byte(text), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, bucket)
	dir := folder(t, map[string]string{"data/a.txt": urls("a.example", 1), "data/sub/b.txt": urls("b.example", 1),
		"secret/s.txt": urls("secret.example", 1), "linked/a.txt": urls("a.example", 1), "manifests/none": ""})
	for link, target := range map[string]string{"linked/l.txt": "secret/s.txt", "linkeddir": "secret", "data/ok.txt": "data/a.txt"} {
		if err := os.Symlink(filepath.Join(dir, target), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"file.txt":   dir + "/secret/s.txt\n",
		"bucket.txt": "s3://bucket/secret.txt\n",
		"report":     `{"sourceBucket":"b","destinationBucket":"arn:aws:s3:::bucket","fileFormat":"CSV","fileSchema":"Bucket, Key","files":[{"key":"x/secret.txt"}]}`,
	} {
		write(t, filepath.Join(dir, "manifests", name), []byte(text))
	}
	// The data file of the report leads out of what is allowed.
	if err := os.Symlink(filepath.Join(dir, "secret/s.txt"), filepath.Join(dir, "manifests/secret.txt")); err != nil {
		t.Fatal(err)
	}
	allowed, err := allow.Parse([]string{"file://" + dir + "/data", dir + "/linked/", dir + "/manifests", "s3://bucket/in", "s3://bucket/lists/"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := allow.With(context.Background(), allowed)
	plan := func(spec ingest.Spec) error {
		spec.Dataset, spec.Batch = "d", "b"
		_, err := ingest.MakePlan(ctx, blob.NewMemory(), "run", spec)
		return err
	}
	for _, input := range []string{dir + "/data", "file://" + dir + "/data/*/b.txt", dir + "/data/ok.txt", dir + "/linked/a.txt",
		"s3://bucket/in/", "s3://bucket/in", "s3://bucket/in/*.txt"} {
		if err := plan(ingest.Spec{Inputs: []string{input}}); err != nil {
			t.Errorf("%s: %v", input, err)
		}
	}
	for input, object := range map[string]string{
		dir + "/secret/s.txt":          "",
		"file://" + dir + "/secret":    dir + "/secret",
		dir + "/secret/*":              "",
		dir + "/secret/none.txt":       "",
		dir + "/linked":                dir + "/linked/l.txt",
		dir + "/linked/l.txt":          "",
		dir + "/linked/*.txt":          dir + "/linked/l.txt",
		dir + "/linkeddir/s.txt":       "",
		dir + "/*/s.txt":               "",
		dir:                            "",
		"/proc/self/environ":           "",
		"s3://bucket/secret.txt":       "s3://bucket/secret.txt",
		"s3://bucket/none.txt":         "s3://bucket/none.txt",
		"s3://bucket/":                 "s3://bucket/",
		"s3://bucket/i":                "s3://bucket/i",
		"s3://bucket/in*":              "s3://bucket/in*",
		"s3://bucket/in-secret/":       "s3://bucket/in-secret/",
		"s3://bucket/in/../secret.txt": "s3://bucket/in/../secret.txt",
		"s3://other/in/a.txt":          "s3://other/in/a.txt",
	} {
		if object == "" {
			object = strings.ReplaceAll(input, "*", "%2A")
		}
		refused(t, input, plan(ingest.Spec{Inputs: []string{input}}), object)
		refused(t, input, plan(ingest.Spec{Inputs: []string{input}, SkipUnreadable: true}), object)
		refused(t, "manifest "+input, plan(ingest.Spec{Manifests: []string{input}}), object)
	}
	for manifest, object := range map[string]string{
		dir + "/manifests/file.txt": dir + "/secret/s.txt", dir + "/manifests/bucket.txt": "s3://bucket/secret.txt",
		dir + "/manifests/report": dir + "/manifests/secret.txt", "s3://bucket/lists/m.txt": "s3://bucket/secret.txt",
	} {
		refused(t, manifest, plan(ingest.Spec{Manifests: []string{manifest}}), object)
	}
}

// refused checks the error of an input that must not be read.
func refused(t *testing.T, what string, err error, object string) {
	t.Helper()
	var input *ingest.InputError
	switch {
	case !errors.As(err, &input) || !errors.Is(err, allow.ErrRefused):
		t.Errorf("%s: %v, want a refusal", what, err)
	case !strings.Contains(err.Error(), object+": these workers may not read it; they read file://"), !strings.Contains(err.Error(), "s3://bucket/in, "):
		t.Errorf("%s: %v, want %s and what is allowed", what, err, object)
	case strings.Contains(err.Error(), "secret.example"):
		t.Errorf("%s: %v tells the content", what, err)
	}
}

// TestALinkThatChangesAfterThePlanIsRefused swaps a planned file for a link that leads to a file of
// the same size and time.
func TestALinkThatChangesAfterThePlanIsRefused(t *testing.T) {
	dir := folder(t, map[string]string{"data/a.txt": urls("a.example", 1), "secret/s.txt": urls("s.example", 1)})
	allowed, err := allow.Parse([]string{dir + "/data"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := allow.With(context.Background(), allowed)
	store := blob.NewMemory()
	if _, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir + "/data"}}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir + "/data/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(dir+"/data/a.txt"), os.Symlink(dir+"/secret/s.txt", dir+"/data/a.txt"),
		os.Chtimes(dir+"/secret/s.txt", info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	_, err = ingest.NormalizeWithin(ctx, store, "run", 0, ingest.Limits{})
	if !errors.Is(err, allow.ErrRefused) {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err = ingest.NormalizeWithin(context.Background(), store, "run", 0, ingest.Limits{}); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}
