//go:build !linux

package blob

import (
	"errors"
	"os"
)

func setDirect(*os.File, bool) bool { return false }

func readDirect(*os.File, []byte, int64) (int, error) { return 0, errors.ErrUnsupported }
