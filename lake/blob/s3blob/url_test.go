package s3blob_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

func TestOpenURLs(t *testing.T) {
	for _, test := range []struct {
		url, want string // want is URL(), "" for an error
	}{
		{"s3://bucket", "s3://bucket"},
		{"s3://bucket/", "s3://bucket"},
		{"s3://bucket/a/b", "s3://bucket/a/b"},
		{"s3://bucket/a/b/", "s3://bucket/a/b"},
		{"s3://bucket/dir=1/a b%20c", "s3://bucket/dir=1/a b%20c"},
		{"s3:bucket", ""},
		{"s3://", ""},
		{"s3:///prefix", ""},
		{"s3://bucket//x", ""},
		{"s3://bucket/../x", ""},
		{"s3://buck?et", ""},
		{"s3://AKIAKEY:pw@bucket/x", ""},
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
