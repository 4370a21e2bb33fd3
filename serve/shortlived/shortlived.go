// Package shortlived opens a lake for a program that asks a few questions and ends, and says where
// copies of index files are kept between such programs.
package shortlived

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// New returns a server of the lake in store, whose URL is url. The lake has to be refreshed. Cache
// is a folder for copies of the mapped index files of an S3 lake. Program is what the lease names.
// Deadline is as in lookup.Options.
func New(store blob.Store, url, cache, program string, deadline time.Duration) (*lookup.Server, error) {
	opt := lookup.Options{
		Log: slog.New(slog.DiscardHandler), Deadline: deadline,
		LeaseTTL: lookup.DefaultLeaseTTL, LeaseAll: true, Program: program,
	}
	if strings.HasPrefix(url, "s3:") {
		opt.CacheDir = CacheOf(cache, url)
		if err := os.MkdirAll(opt.CacheDir, 0o777); err != nil {
			return nil, fmt.Errorf("cache folder: %w", err)
		}
	}
	return lookup.NewServer(store, opt), nil
}

// CacheOf is the folder of a lake in a folder of caches, for lookup.Options.CacheDir. Each lake has
// its own, because a server removes the files that none of its versions needs.
func CacheOf(cache, lakeURL string) string {
	return filepath.Join(cache, fmt.Sprintf("%016x", xxh3.HashString(lakeURL)))
}

// DefaultCache is a folder in the user's cache folder, or in the system's temporary folder if the
// user has none.
func DefaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "urlake")
}
