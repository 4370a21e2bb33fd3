package blob

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// identify returns the folder's file handle (name_to_handle_at(2)). It has the generation of the
// inode beside its number, because NFS servers identify files by it.
func identify(d *os.File) folderIdentity {
	h, mount, err := unix.NameToHandleAt(int(d.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return "" // some file systems have no handles
	}
	return folderIdentity(strconv.Itoa(mount) + " " + strconv.Itoa(int(h.Type())) + " " + string(h.Bytes()))
}
