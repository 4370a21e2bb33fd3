package blob

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openBeneath is openInRoot in two system calls, instead of two for each folder of the key. It
// matters because a server answers a request by a few short reads.
func openBeneath(dir, key string) (*os.File, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return openInRoot(dir, key)
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, key, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), filepath.Join(dir, key)), nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, err
	default:
		// An old kernel, a filter of system calls, an interruption, or an error that package os
		// describes better.
		return openInRoot(dir, key)
	}
}
