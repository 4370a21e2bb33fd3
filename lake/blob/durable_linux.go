package blob

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// identify returns the handle by which the file system's server would name the folder to others: beside the inode's number it
// has its generation (name_to_handle_at(2)).
func identify(d *os.File) folderIdentity {
	h, mount, err := unix.NameToHandleAt(int(d.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return "" // not every file system has handles
	}
	return folderIdentity(strconv.Itoa(mount) + " " + strconv.Itoa(int(h.Type())) + " " + string(h.Bytes()))
}
