package blob_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

func TestOpenURLs(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	file := filepath.Join(dir, "a file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		url, want string // want is URL(), "" for an error
	}{
		{dir, dir},
		{dir + "/", dir},
		{"relative/dir", "relative/dir"},
		{"with:colon", "with:colon"},
		{"/", "/"},
		{"file:///", "file:///"},
		{"file://" + dir, "file://" + dir},
		{"file://" + dir + "//", "file://" + dir},
		{"file://localhost" + dir, "file://localhost" + dir},
		{"FILE://" + dir, "FILE://" + dir},
		{"file://" + dir + "/with%20space", "file://" + dir + "/with%20space"},
		{"", ""},
		{file, ""},
		{"file://" + dir + "/a%20file", ""},
		{"file://host/dir", ""},
		{"file:relative", ""},
		{"file://user:pw@/dir", ""},
		{"file:///dir?x=y", ""},
		{"file:///dir#x", ""},
		{"file:///%zz", ""},
		{"s3://bucket", ""}, // not linked
		{"mem:", ""},
		{"mem://x", ""},
		{"https://example.com/x", ""},
		{"gs://bucket", ""},
		{"https://user:pw@example.com/x", ""},
	} {
		s, err := blob.Open(t.Context(), test.url)
		switch {
		case test.want == "" && err == nil:
			t.Errorf("Open(%q) gave %s", test.url, s.URL())
		case test.want != "" && err != nil:
			t.Errorf("Open(%q): %v", test.url, err)
		case err == nil && s.URL() != test.want:
			t.Errorf("Open(%q).URL() = %q, want %q", test.url, s.URL(), test.want)
		case err != nil && (strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), "AKIAKEY")):
			t.Errorf("Open(%q) shows credentials: %v", test.url, err)
		}
	}
}

// This test does not import s3blob, like a program that is built with the tag nos3.
func TestOpenNamesTheTagIfS3IsNotLinked(t *testing.T) {
	_, err := blob.Open(t.Context(), "s3://bucket/prefix")
	if err == nil || !strings.Contains(err.Error(), "s3://bucket/prefix") || !strings.Contains(err.Error(), "nos3") {
		t.Errorf("got %v", err)
	}
}

func TestFileURLAndPathAreOneStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with space")
	byPath, byURL := openStore(t, dir), openStore(t, "file://"+strings.ReplaceAll(dir, " ", "%20"))
	if _, err := byPath.Put(t.Context(), "k", []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if b, _, err := byURL.Get(t.Context(), "k"); err != nil || string(b) != "x" {
		t.Errorf("Get = %q, %v", b, err)
	}
}

func TestErrorsNameOperationAndObjectOnce(t *testing.T) {
	for name, s := range map[string]blob.Store{"memory": blob.NewMemory(), "local": openStore(t, t.TempDir())} {
		_, err := s.Stat(t.Context(), "dir/k")
		if !errors.Is(err, blob.ErrNotExist) || strings.Count(err.Error(), "stat") != 1 || strings.Count(err.Error(), "dir/k") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLocalFilerIsFoundBehindWrappers(t *testing.T) {
	dir := t.TempDir()
	l, ok := blob.AsLocalFiler(blob.NewCounting(blobtest.NewFaulty(openStore(t, dir))))
	if !ok {
		t.Fatal("no LocalFiler in a wrapped local store")
	}
	if p, err := l.LocalPath("a/b"); err != nil || p != filepath.Join(dir, "a", "b") {
		t.Errorf("LocalPath = %q, %v", p, err)
	}
	if _, ok := blob.AsLocalFiler(blob.NewCounting(blob.NewMemory())); ok {
		t.Error("a LocalFiler in a memory store")
	}
}

// validKey is the rule for keys, implemented without the code of CheckKey.
func validKey(key string) bool {
	if key == "" || len(key) > 1024 || !utf8.ValidString(key) || path.Clean("/"+key) != "/"+key || !filepath.IsLocal(key) {
		return false
	}
	for _, r := range key {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	elems := strings.Split(key, "/")
	for _, e := range elems {
		if len(e) > 255 {
			return false
		}
	}
	return elems[0] != ".tmp"
}

func FuzzKey(f *testing.F) {
	for _, key := range []string{
		"", "a", "a/b", "/", "a/", "a//b", "..", "a/..", "../a", ".", "./a", ".tmp", ".tmp/a", "a/.tmp", "...", "\x00", "a\nb", "\xff", "é",
		"C:\\x", "NUL", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("ab/", 341) + "a", strings.Repeat("ab/", 342),
	} {
		f.Add(key)
	}
	dir := f.TempDir()
	root := filepath.Join(dir, "root")
	local, err := blob.NewLocal(root)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := blob.CheckKey(key)
		if (err == nil) != validKey(key) {
			t.Fatalf("CheckKey(%q) = %v", key, err)
		}
		if err != nil && !errors.Is(err, blob.ErrInvalidKey) {
			t.Fatalf("CheckKey(%q) = %v, not an ErrInvalidKey", key, err)
		}
		// Whatever the key, the store writes only below its root and reads what it wrote.
		_, putErr := local.Put(t.Context(), key, []byte(key), blob.Condition{})
		if err != nil && !errors.Is(putErr, blob.ErrInvalidKey) {
			t.Fatalf("Put(%q) = %v", key, putErr)
		}
		if err == nil {
			if putErr != nil {
				t.Fatalf("Put(%q) = %v", key, putErr)
			}
			if b, _, err := local.Get(t.Context(), key); err != nil || string(b) != key {
				t.Fatalf("Get(%q) = %q, %v", key, b, err)
			}
			var listed []string
			for info, err := range local.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, info.Key)
			}
			if fmt.Sprint(listed) != fmt.Sprint([]string{key}) {
				t.Fatalf("after Put(%q) the store lists %q", key, listed)
			}
			if err := local.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "root" {
			t.Fatalf("Put(%q) wrote beside the root: %v", key, entries)
		}
	})
}
