package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// SetVersioning makes the bucket of a store keep older versions of objects, or suspends that. The
// gateway keeps the state as an attribute of the bucket's folder.
func (s *S3Server) SetVersioning(tb testing.TB, rawURL string, on bool) {
	tb.Helper()
	bucket, _, _ := strings.Cut(strings.TrimPrefix(rawURL, "s3://"), "/")
	value := []byte{0}
	if on {
		value[0] = 1
	}
	err := syscall.Setxattr(filepath.Join(s.data, bucket), "user.versioning", value, 0)
	if s.meta != "" {
		folder := filepath.Join(s.meta, bucket, "meta")
		if err = os.MkdirAll(folder, 0o777); err == nil {
			err = os.WriteFile(filepath.Join(folder, "versioning"), value, 0o666)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
}
