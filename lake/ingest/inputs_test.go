package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/row"
)

// TestIncludeAndExcludeChooseFiles puts the same names into a folder and a bucket. The files read,
// and those reported as left out, have to be the same.
func TestIncludeAndExcludeChooseFiles(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{}
	bucket := blob.NewMemory()
	for _, name := range []string{"a.csv", "b.txt", "old/a.csv", "old/deep/c.csv", "new/a.csv", "new/b.txt", "new/old/d.csv",
		".git/x", ".git/y", "_tmp/e.csv", "new/_part.csv", "new/.well-known/u.txt"} {
		files[name] = "http://a.example/\n"
		if _, err := bucket.Put(ctx, "in/"+name, []byte("http://a.example/\n"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	dir := folder(t, files)
	ingest.BehindS3(t, bucket)
	const hid = "not read because of names that begin with . or _ (--include reads those it names): "
	const out = "not read because of --include and --exclude: "
	for _, c := range []struct {
		below            string
		include, exclude []string
		want             string
		notes            []string
	}{
		{"", nil, nil, "a.csv b.txt new/a.csv new/b.txt new/old/d.csv old/a.csv old/deep/c.csv", []string{hid + "IN/.git and 3 more"}},
		{"", []string{"*.csv"}, nil, "a.csv new/a.csv new/old/d.csv old/a.csv old/deep/c.csv", []string{hid + "IN/.git and 3 more", out + "IN/b.txt and 1 more"}},
		{"", []string{"a.*", "b*"}, []string{"*.txt"}, "a.csv new/a.csv old/a.csv", []string{hid + "IN/.git and 3 more", out + "IN/b.txt and 3 more"}},
		{"", nil, []string{"old"}, "a.csv b.txt new/a.csv new/b.txt", []string{hid + "IN/.git and 3 more", out + "IN/new/old and 1 more"}},
		{"", nil, []string{"/old/"}, "a.csv b.txt new/a.csv new/b.txt new/old/d.csv", []string{hid + "IN/.git and 3 more", out + "IN/old"}},
		{"", []string{"old/*"}, nil, "old/a.csv old/deep/c.csv", []string{hid + "IN/.git and 3 more", out + "IN/a.csv and 4 more"}},
		{"", []string{"**/old"}, nil, "new/old/d.csv old/a.csv old/deep/c.csv", []string{hid + "IN/.git and 3 more", out + "IN/a.csv and 3 more"}},
		{"", []string{"**/[ac].csv"}, []string{"**/deep/**"}, "a.csv new/a.csv old/a.csv", []string{hid + "IN/.git and 3 more", out + "IN/b.txt and 3 more"}},
		{"", []string{"_tmp", "*.csv"}, nil, "_tmp/e.csv a.csv new/a.csv new/old/d.csv old/a.csv old/deep/c.csv", []string{hid + "IN/.git and 2 more", out + "IN/b.txt and 1 more"}},
		{"", []string{"new/_*", "new/.well-known/*.txt"}, nil, "new/.well-known/u.txt new/_part.csv", []string{hid + "IN/.git", out + "IN/_tmp/e.csv and 7 more"}},
		{"new/", nil, []string{"*.txt"}, "new/a.csv new/old/d.csv", []string{hid + "IN/new/.well-known and 1 more", out + "IN/new/b.txt"}},
		// The path is the one below the input; for globs and files it is the name.
		{"new/", nil, []string{"new/*"}, "new/a.csv new/b.txt new/old/d.csv", []string{hid + "IN/new/.well-known and 1 more"}},
		{"new/*.*", nil, []string{"b*"}, "new/.well-known/u.txt new/_part.csv new/a.csv", []string{out + "IN/new/b.txt"}},
	} {
		for root, in := range map[string]string{"file://" + dir: dir + "/" + c.below, "s3://bucket/in": "s3://bucket/in/" + c.below} {
			want := c.want
			if strings.HasSuffix(c.below, "*") && root != "file://"+dir {
				// In a bucket a glob finds no folders.
				want = strings.TrimPrefix(want, "new/.well-known/u.txt ")
			}
			got, notes, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{in}, Include: c.include, Exclude: c.exclude})
			if err != nil {
				t.Errorf("%s include %q exclude %q: %v", in, c.include, c.exclude, err)
				continue
			}
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], root+"/")
			}
			for i := range notes {
				notes[i] = strings.ReplaceAll(notes[i], root, "IN")
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s include %q exclude %q: %s", in, c.include, c.exclude, diff)
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Errorf("%s include %q exclude %q: notes: %s", in, c.include, c.exclude, diff)
			}
		}
	}

	var input *ingest.InputError
	for name, spec := range map[string]ingest.Spec{
		"nothing is left": {Inputs: []string{dir}, Include: []string{"*.parquet"}},
		"all is excluded": {Inputs: []string{dir, dir + "/a.csv"}, Exclude: []string{"**"}},
		"hidden names":    {Inputs: []string{dir, folder(t, map[string]string{"_a/x": ""})}},
	} {
		if got, _, err := ingest.Expand(ctx, spec); !errors.As(err, &input) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// One of several inputs, which may come from a shell's glob, may be excluded.
	if got, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{dir + "/a.csv", dir + "/b.txt"}, Exclude: []string{"*.txt"}}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	// Files that are excluded are not opened.
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{dir}}); !errors.As(err, &input) {
		t.Errorf("a link to nothing: %v", err)
	}
	if _, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{dir}, Exclude: []string{"dang*"}}); err != nil {
		t.Errorf("a link to nothing that is excluded: %v", err)
	}
}

func TestBadPatternsAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, bad := range []string{"", "/", "[", "a/[b", "a//b", "./a", "../a", `a\`, "[]a]"} {
		for _, spec := range []ingest.Spec{{Include: []string{"*", bad}}, {Exclude: []string{bad}}} {
			spec.Dataset, spec.Inputs = "d", []string{"/does/not/exist"}
			var input *ingest.InputError
			if err := spec.Check(); !errors.As(err, &input) || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

// TestAllUnreadableFilesAreNamed has batches whose objects are inspected by MakePlan, and larger
// ones whose objects are inspected by their splits.
func TestAllUnreadableFilesAreNamed(t *testing.T) {
	ctx := context.Background()
	for _, good := range []int{5, 1200} {
		files := map[string]string{}
		for i := range good {
			files[fmt.Sprintf("list%04d.txt", i)] = "http://a.example/\n"
		}
		files["one.zip"] = "PK\x03\x04 and so on"
		files["table.csv"] = "a,b\n1,2\n3,4\n"
		spec := ingest.Spec{Dataset: "d", Inputs: []string{folder(t, files)}}
		plan := func() (blob.Store, error) {
			store := blob.NewMemory()
			p, err := ingest.MakePlan(ctx, store, "run", spec)
			if good > 1000 && err == nil {
				_, err = ingest.Normalize(ctx, store, "run", p.Splits-1, nil)
			}
			return store, err
		}
		store, err := plan()
		var input *ingest.InputError
		if !errors.As(err, &input) || input.Object != "" || strings.Count(err.Error(), "\n") != 2 {
			t.Fatalf("%d others: %v", good, err)
		}
		for _, want := range []string{"2 of ", "one.zip: ", "unpack", "table.csv: ", "--url-column", "--exclude"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %v", want, err)
			}
		}
		if good < 1000 {
			for info := range store.List(ctx, "registry/") {
				t.Errorf("%s was written for a batch that cannot be read", info.Key)
			}
		}
		spec.Exclude = []string{"*.zip"}
		if _, err := plan(); !errors.As(err, &input) || !strings.HasSuffix(input.Object, "/table.csv") || !strings.Contains(err.Error(), "--exclude") {
			t.Errorf("%d others, one unreadable: %v", good, err)
		}
		spec.Exclude = []string{"*.zip", "table.csv"}
		if _, err := plan(); err != nil {
			t.Errorf("%d others, all readable: %v", good, err)
		}
	}

	files := map[string]string{}
	for i := range 37 {
		files[fmt.Sprintf("%02d.pdf", i)] = "%PDF-1.7"
	}
	_, err := ingest.MakePlan(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{folder(t, files)}})
	if err == nil || !strings.Contains(err.Error(), "09.pdf") || strings.Contains(err.Error(), "10.pdf") || !strings.HasSuffix(err.Error(), "and 27 more") {
		t.Errorf("37 of 37: %v", err)
	}
	// One among others. Its advice is given once, also if the format's is the same.
	for _, data := range []string{strings.Repeat("\x00\x01\x02x", 100), "\x89PNG\r\n\x1a\n", "%PDF-1.7"} {
		_, err = ingest.MakePlan(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{folder(t, map[string]string{
			"a.txt": "http://a.example/\n", "image.bin": data})}})
		if err == nil || strings.Count(err.Error(), "leave it out") != 1 || !strings.Contains(err.Error(), "--exclude") ||
			!strings.Contains(err.Error(), "--skip-unreadable") || !strings.Contains(err.Error(), "image.bin") {
			t.Errorf("%.4q among others: %v", data, err)
		}
	}
	// An error of a single input.
	_, err = ingest.MakePlan(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{folder(t, map[string]string{"a.pdf": "%PDF-1.7"})}})
	var input *ingest.InputError
	if !errors.As(err, &input) || !strings.HasSuffix(input.Object, "/a.pdf") || strings.Contains(err.Error(), "exclude") {
		t.Errorf("1 of 1: %v", err)
	}
}

// TestURLColumnThatNoRecordHasIsNamed covers formats whose records may have different members.
func TestURLColumnThatNoRecordHasIsNamed(t *testing.T) {
	for name, data := range map[string]string{
		"lines.jsonl": `{"url":"http://a.example/"}` + "\n" + `{"url":"http://b.example/"}` + "\n",
		"one.json":    `{"data":[{"url":"http://a.example/"},{"url":"http://b.example/"}]}`,
	} {
		dir := folder(t, map[string]string{name: data})
		_, err := steps(context.Background(), blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}, URLColumn: "nix"}, ingest.Limits{})
		var input *ingest.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), `"nix"`) || !strings.Contains(err.Error(), "--url-column") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFinishReportsFilesNotRead holds that the notes of the plan are in the result.
func TestFinishReportsFilesNotRead(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "http://a.example/\n", "_SUCCESS": "", "b.bak": "no"})
	f, err := steps(context.Background(), blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}, Exclude: []string{"*.bak"}}, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Notes) != 2 || !strings.Contains(f.Notes[0], "_SUCCESS") || !strings.Contains(f.Notes[1], "b.bak") || f.Rows != 1 {
		t.Errorf("%+v", f)
	}
}

func TestObjectChangedSinceThePlanIsRefused(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	store := blob.NewMemory()
	spec := ingest.Spec{Dataset: "d", Inputs: []string{dir}}
	plan, err := ingest.MakePlan(ctx, store, "run", spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.txt"), []byte("http://b.example/x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var input *ingest.InputError
	if _, err := ingest.Normalize(ctx, store, "run", 0, nil); !errors.As(err, &input) {
		t.Errorf("got %v", err)
	}
	// The plan stays the same.
	if again, err := ingest.MakePlan(ctx, store, "run", spec); err != nil || again != plan {
		t.Errorf("%+v, %v; want %+v", again, err, plan)
	}
	spec.Extras = []string{} // an equal spec
	if again, err := ingest.MakePlan(ctx, store, "run", spec); err != nil || again != plan {
		t.Errorf("%+v, %v; want %+v", again, err, plan)
	}
	spec.KeepRaw = true
	if _, err := ingest.MakePlan(ctx, store, "run", spec); !errors.As(err, &input) {
		t.Errorf("another spec under the same run: %v", err)
	}
	if next, err := ingest.MakePlan(ctx, store, "run2", spec); err != nil || next.Batch == plan.Batch {
		t.Errorf("the changed object gives batch %s as before, %v", next.Batch, err)
	}
}

func TestDeletedObjectIsAnInputError(t *testing.T) {
	ctx := context.Background()
	bucket, store := blob.NewMemory(), blob.NewMemory()
	if _, err := bucket.Put(ctx, "in/a.txt", []byte("http://a.example/\n"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	ingest.BehindS3(t, bucket)
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	for run, in := range map[string]string{"file": dir, "key": "s3://bucket/in/"} {
		if _, err := ingest.MakePlan(ctx, store, run, ingest.Spec{Dataset: "d", Batch: run, Inputs: []string{in}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "x.txt")), bucket.Delete(ctx, "in/a.txt")); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"file", "key"} {
		var input *ingest.InputError
		if _, err := ingest.Normalize(ctx, store, run, 0, nil); !errors.As(err, &input) || input.Object == "" {
			t.Errorf("%s: %v", run, err)
		}
	}
}

func TestInputs(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"b.txt": "1", "a.txt": "22", "sub/c d.txt": "3", "sub/deep/e.csv": "4", ".hidden": "x", "_SUCCESS": "", "sub/.git/f": "x"})
	if err := os.Symlink(filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "deep", "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "a.txt"), filepath.Join(dir, "sub", "link.txt")); err != nil {
		t.Fatal(err)
	}
	bucket := blob.NewMemory()
	for _, key := range []string{"crawl/1/a.gz", "crawl/1/b.gz", "crawl/2/a.gz", "crawl/2/_SUCCESS", "crawl/10.gz", "other"} {
		if _, err := bucket.Put(ctx, key, []byte(key), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, bucket)
	for _, c := range []struct {
		in   []string
		want []string
	}{
		{[]string{dir}, []string{"/a.txt", "/b.txt", "/sub/c%20d.txt", "/sub/deep/e.csv", "/sub/link.txt"}},
		{[]string{dir + "/b.txt", dir + "/a.txt", dir + "/*.txt"}, []string{"/a.txt", "/b.txt"}},
		{[]string{dir + "/s*"}, []string{"/sub/c%20d.txt", "/sub/deep/e.csv", "/sub/link.txt"}},
		{[]string{"file://" + dir + "/sub/c%20d.txt"}, []string{"/sub/c%20d.txt"}},
		{[]string{dir + "/.hidden"}, []string{"/.hidden"}},
		{[]string{"s3://bucket/crawl/1/a.gz"}, []string{"s3://bucket/crawl/1/a.gz"}},
		{[]string{"s3://bucket/crawl/1", "s3://bucket/crawl/2/"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/1/b.gz", "s3://bucket/crawl/2/a.gz"}},
		{[]string{"s3://bucket/crawl/*/a.gz"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/2/a.gz"}},
		{[]string{"s3://bucket"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/1/b.gz", "s3://bucket/crawl/10.gz", "s3://bucket/crawl/2/a.gz", "s3://bucket/other"}},
	} {
		got, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: c.in})
		if err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], "file://"+dir)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.in, diff)
		}
	}
	var input *ingest.InputError
	for _, in := range []string{"s3://bucket/none", "s3://bucket/none/", "s3://bucket/none*", "s3://bucket/["} {
		if got, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{in}}); !errors.As(err, &input) {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
}

func TestBucketIsReadAsPlanned(t *testing.T) {
	ctx := context.Background()
	bucket := blob.NewMemory()
	put := func(key, text string) {
		t.Helper()
		if _, err := bucket.Put(ctx, key, []byte(text), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("in/a.txt", "http://a.example/\n")
	put("in/b.txt", "http://b.example/\n")
	ingest.BehindS3(t, bucket)
	spec := ingest.Spec{Dataset: "d", Inputs: []string{"s3://bucket/in/"}}
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", spec, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := newOracle()
	want.add("http://a.example/", row.Row{}, false)
	want.add("http://b.example/", row.Row{}, false)
	want.check(t, store, f)
	if _, err := ingest.MakePlan(ctx, store, "run2", spec); err != nil {
		t.Fatal(err)
	}
	put("in/b.txt", "http://c.example/\n")
	var input *ingest.InputError
	if _, err := ingest.Normalize(ctx, store, "run2", 0, nil); !errors.As(err, &input) || input.Object != "s3://bucket/in/b.txt" {
		t.Errorf("got %v", err)
	}
}

// sparse is a bucket whose objects claim to have half of maxBytes.
type sparse struct{ blob.Store }

func (s sparse) Stat(ctx context.Context, key string) (blob.Info, error) {
	info, err := s.Store.Stat(ctx, key)
	info.Size = 1 << 59
	return info, err
}

// TestSizesOfInputsDoNotOverflow lists sparse objects whose sizes have no sum of 63 bits.
func TestSizesOfInputsDoNotOverflow(t *testing.T) {
	bucket := sparse{blob.NewMemory()}
	var inputs []string
	for i := range 17 {
		key := fmt.Sprintf("%02d.txt", i)
		if _, err := bucket.Put(t.Context(), key, []byte("http://a.example/\n"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, "s3://bucket/"+key)
	}
	ingest.BehindS3(t, bucket)
	_, _, err := ingest.Expand(t.Context(), ingest.Spec{Inputs: inputs})
	var input *ingest.InputError
	if !errors.As(err, &input) || input.Object != "s3://bucket/02.txt" {
		t.Errorf("error %v, want one that names the object", err)
	}
}

// TestDeniedInputs checks that a lack of permissions ends a plan with a text that says what to do,
// while credentials that the store does not accept, which may be renewed, are not the input's
// fault.
func TestDeniedInputs(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		err   error
		final bool
	}{
		{fmt.Errorf("%w: AccessDenied", blob.ErrDenied), true},
		{fmt.Errorf("%w: NoSuchBucket", blob.ErrDenied), true},
		{fmt.Errorf("%w: ExpiredToken", blob.ErrCredentials), false},
		{errors.New("connection refused"), false},
	} {
		store := blobtest.NewFaulty(blob.NewMemory())
		store.Inject(blobtest.Fault{Op: blob.OpStat, Err: c.err}, blobtest.Fault{Op: blob.OpList, Err: c.err})
		ingest.BehindS3(t, store)
		_, err := ingest.MakePlan(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{"s3://in/list.txt"}})
		var input *ingest.InputError
		if errors.As(err, &input) != c.final || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, want an InputError: %v", c.err, err, c.final)
		}
		if c.final && (!strings.Contains(err.Error(), "s3://in/list.txt") || !strings.Contains(err.Error(), "allow the workers")) {
			t.Errorf("the error does not say what to do: %v", err)
		}
	}
}
