package blob

import (
	"os"
	"path"
	"sync"
)

// maxDurable is the maximum size of a durableFolders. Then it is emptied, which costs some fsyncs.
const maxDurable = 4096

// durableFolders is a set of folders that have been fsynced together with all folders above them.
// After an object is renamed into such a folder, only the folder itself must be fsynced.
//
// Another process may remove a folder, make it again and not have fsynced it yet. It then has the
// same name, perhaps the same inode number, but another folderIdentity.
type durableFolders struct {
	mu    sync.Mutex
	known map[string]folderIdentity
}

// sync fsyncs a folder and those above it, up to the first that is in the set, or the root.
func (f *durableFolders) sync(root *os.Root, dir string) error {
	synced := map[string]folderIdentity{}
	for {
		d, err := root.Open(dir)
		var id folderIdentity
		if err == nil {
			id = identify(d)
		}
		if err := syncFolder(d, err); err != nil {
			return err
		}
		if f.has(dir, id) {
			break
		}
		synced[dir] = id
		if dir == "." {
			break
		}
		dir = path.Dir(dir)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) > maxDurable {
		f.known = map[string]folderIdentity{}
	}
	for dir, id := range synced {
		f.known[dir] = id
	}
	return nil
}

func (f *durableFolders) has(dir string, id folderIdentity) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return id != "" && f.known[dir] == id
}

// folderIdentity identifies a folder among all that a file system ever has; "" if it is not known.
type folderIdentity string
