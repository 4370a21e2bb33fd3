//go:build !linux

package blob

import "os"

// openBeneath is openInRoot.
func openBeneath(dir, key string) (*os.File, error) { return openInRoot(dir, key) }
