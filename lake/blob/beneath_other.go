//go:build !linux

package blob

import "os"

func openBeneath(dir, key string) (*os.File, error) { return openInRoot(dir, key) }
