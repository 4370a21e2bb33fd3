package blob

import (
	"os"
	"path"
	"sync"
)

// maxDurable bounds a durableFolders: it is emptied then, which costs some fsyncs.
const maxDurable = 4096

// durableFolders are folders of which it is known that they and all above them outlive a loss of power, so that only the folder into which an object was renamed
// is to be fsynced, and not four more. A folder may be removed and made again by another process that has not fsynced it yet: then it has
// the same name, and perhaps the same inode number, but another identity.
type durableFolders struct {
	mu    sync.Mutex
	known map[string]folderIdentity
}

// sync fsyncs a folder, and those above it up to one that was known to be durable, or the root.
func (f *durableFolders) sync(root *os.Root, dir string) error {
	met := map[string]folderIdentity{}
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
		met[dir] = id
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
	for dir, id := range met {
		f.known[dir] = id
	}
	return nil
}

func (f *durableFolders) has(dir string, id folderIdentity) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return id != "" && f.known[dir] == id
}

// folderIdentity differs between all folders that a file system ever has; "" where that is not known.
type folderIdentity string
