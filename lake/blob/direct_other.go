//go:build !linux

package blob

import (
	"errors"
	"os"
)

// setDirect reports that direct reads and writes are not supported.
func setDirect(*os.File, bool) bool { return false }

// readDirect is never called.
func readDirect(*os.File, []byte, int64) (int, error) { return 0, errors.ErrUnsupported }
