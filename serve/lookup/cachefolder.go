package lookup

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
)

// CacheOf is the folder of a lake in a folder of caches, for Options.CacheDir. Each lake has its
// own, because a server removes the files that none of its versions needs.
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
