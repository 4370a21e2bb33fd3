package allow_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/ingest/allow"
)

// tree makes files, and symbolic links from names to targets, below a new folder.
func tree(t *testing.T, files []string, links map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(filepath.Base(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(strings.ReplaceAll(target, "ROOT", dir), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func parse(t *testing.T, prefixes ...string) *allow.Inputs {
	t.Helper()
	a, err := allow.Parse(prefixes)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFilesAreJudgedByWhatTheirPathsLeadTo(t *testing.T) {
	dir := tree(t, []string{"data/a", "data/sub/b", "more/c", "data-secret/s", "secret/s"}, map[string]string{
		"data/in":     "sub/b",
		"data/round":  "../data/a",
		"data/abs":    "ROOT/data/sub",
		"data/other":  "ROOT/more/c",
		"data/out":    "../secret/s",
		"data/outdir": "ROOT/secret",
		"data/chain":  "out",
		"data/gone":   "nowhere",
		"way":         "data",
		"data/loop":   "loop",
	})
	a := parse(t, "file://"+dir+"/data/", dir+"/more")
	for name, want := range map[string]string{
		"data/a": "a", "data/sub/b": "b", "data/sub/../a": "a", "more/c": "c",
		"data/in": "b", "data/round": "a", "data/abs/b": "b", "data/other": "c",
		"way/a": "a", "data/../secret/../data/a": "a",
		"data/out": "refused", "data/outdir/s": "refused", "data/chain": "refused", "data/outdir": "refused",
		"secret/s": "refused", "data/../secret/s": "refused", "data-secret/s": "refused", "": "refused",
		"data/outdir/../a": "a", // names are cleaned first
		// Whether a file exists is told of allowed folders only.
		"data/none": "none", "data/gone": "none", "data/a/b": "none", "data/loop": "none",
		"none": "refused", "secret/none": "refused", "more-none": "refused",
	} {
		// Not cleaned, as a name that comes from a user.
		got := outcome(a.Open(dir + "/" + name))
		if got != want {
			t.Errorf("open %s: %s, want %s", name, got, want)
		}
		if _, err := a.Stat(dir + "/" + name); errors.Is(err, allow.ErrRefused) != (want == "refused") || (err == nil) != (len(want) == 1) {
			t.Errorf("stat %s: %v, want %s", name, err, want)
		}
	}
	_, err := a.Open(dir + "/secret/s")
	want := "file://" + dir + "/secret/s: these workers may not read it; they read file://" + dir + "/data/, " +
		dir + "/more (worker --allow-input)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// outcome returns a file's text, or "refused", or "none".
func outcome(f *os.File, err error) string {
	switch {
	case errors.Is(err, allow.ErrRefused):
		return "refused"
	case err != nil:
		return "none"
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestGlobsAndFoldersStayInside(t *testing.T) {
	dir := tree(t, []string{"data/a.csv", "data/sub/b.csv", "secret/s.csv"}, nil)
	a := parse(t, dir+"/data")
	for pattern, want := range map[string]string{
		"/data/*.csv": "/data/a.csv", "/data/*/*.csv": "/data/sub/b.csv", "/data/x*/*.csv": "", "/data/s*": "/data/sub",
		"/*/a.csv": "refused", "/secret/*": "refused", "/data/../secret/*": "refused",
	} {
		got, err := a.Glob(dir + pattern)
		text := strings.ReplaceAll(strings.Join(got, " "), dir, "")
		if errors.Is(err, allow.ErrRefused) {
			text = "refused"
		}
		if text != want {
			t.Errorf("%s: %s %v, want %s", pattern, text, err, want)
		}
	}
	// A link to a folder elsewhere is not listed, whatever the glob then looks for.
	if err := os.Symlink(dir+"/secret", dir+"/data/link"); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Glob(dir + "/data/*/*.csv"); !errors.Is(err, allow.ErrRefused) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := a.ReadDir(dir + "/data/link"); !errors.Is(err, allow.ErrRefused) {
		t.Errorf("%v %v", got, err)
	}
	entries, err := a.ReadDir(dir + "/data")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"a.csv", "link", "sub"}, names); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
}

// TestALinkThatChangesMeanwhileOpensNothingOutside swaps files and folders for links to a secret
// while they are opened.
func TestALinkThatChangesMeanwhileOpensNothingOutside(t *testing.T) {
	dir := tree(t, []string{"data/f", "data/d/f", "secret/f"}, nil)
	if err := os.WriteFile(dir+"/secret/f", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := parse(t, dir+"/data")
	swap := func(name, kept, target string) {
		tmp := name + ".link"
		if os.Symlink(target, tmp) != nil || os.Rename(name, kept) != nil || os.Rename(tmp, name) != nil {
			t.Error("cannot swap")
		}
		if os.Remove(name) != nil || os.Rename(kept, name) != nil {
			t.Error("cannot swap back")
		}
	}
	done := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				swap(dir+"/data/f", dir+"/kept", dir+"/secret/f")
				swap(dir+"/data/d", dir+"/kept", dir+"/secret")
			}
		}
	})
	// It goes on until both sides were seen: one core may run the loops in turn.
	seen := map[string]int{}
	end := time.Now().Add(20 * time.Second)
	for i := 0; i < 3000 || (seen["f"] == 0 || seen["refused"] == 0) && time.Now().Before(end); i++ {
		for _, name := range []string{"/data/f", "/data/d/f"} {
			seen[outcome(a.Open(dir+name))]++
		}
	}
	close(done)
	swaps.Wait()
	if seen["secret"] > 0 || seen["f"] == 0 || seen["refused"] == 0 {
		t.Errorf("%v", seen)
	}
}

func TestKeysAreJudgedByWholeNames(t *testing.T) {
	a := parse(t, "s3://b/logs", "s3://c/in/", "s3://d", "s3://e/f.gz")
	for name, want := range map[string]bool{
		"b/logs/x": true, "b/logs": true, "b/logs-secret/x": false, "b/x": false, "b2/logs/x": false,
		"c/in/x": true, "c/in": false, "c/inner": false, "d/anything/at/all": true, "d2/x": false,
		"e/f.gz": true, "e/f.gz.old": false, "b/logs/../x": false, "b/logs/./x": false, "d/../e/x": false,
	} {
		bucket, key, _ := strings.Cut(name, "/")
		if err := a.Key(bucket, key); (err == nil) != want || err != nil && !errors.Is(err, allow.ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for prefix, want := range map[string]bool{
		"b/logs/": true, "b/logs/sub": true, "b/logs": false, "b/": false, "b/lo": false, "c/in/": true, "c/": false,
		"d/": true, "d/x": true, "e/f": false,
	} {
		bucket, key, _ := strings.Cut(prefix, "/")
		if err := a.List(bucket, key); (err == nil) != want {
			t.Errorf("list %s: %v, want %v", prefix, err, want)
		}
	}
	// Prefixes of one kind do not allow the other kind.
	if _, err := a.Open("/etc/hostname"); !errors.Is(err, allow.ErrRefused) {
		t.Error(err)
	}
	if err := parse(t, "/tmp").Key("b", "k"); !errors.Is(err, allow.ErrRefused) {
		t.Error(err)
	}
}

func TestWholeKinds(t *testing.T) {
	dir := tree(t, []string{"a"}, map[string]string{"link": "a"})
	for _, c := range []struct {
		inputs      *allow.Inputs
		files, keys bool
	}{
		{nil, true, true},
		{allow.Buckets(), false, true},
		{parse(t, "s3://"), false, true},
		{parse(t, "file:///"), true, false},
		{parse(t, "/"), true, false},
		{parse(t, "file:///", "s3://"), true, true},
	} {
		if got := outcome(c.inputs.Open(dir + "/link")); (got == "a") != c.files {
			t.Errorf("%s: %s", c.inputs, got)
		}
		if err := c.inputs.Key("b", "k"); (err == nil) != c.keys {
			t.Errorf("%s: %v", c.inputs, err)
		}
	}
	if _, err := (*allow.Inputs)(nil).Open(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestBadPrefixes(t *testing.T) {
	dir := tree(t, []string{"a"}, nil)
	for prefix, want := range map[string]string{
		"": "want a path", "https://x/": "want a path", "s3:///x": "want s3://bucket", "s3://b/*": "no glob", "s3://b/../c": "want s3://bucket",
		"file://host/x": "want file:///", "file://x": "want file:///", dir + "/a": "not a folder", "/data/*": "no glob",
	} {
		if _, err := allow.Parse([]string{"s3://good", prefix}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", prefix, err, want)
		}
	}
	if _, err := allow.Parse(nil); err == nil {
		t.Error("no prefix is no error")
	}
}
