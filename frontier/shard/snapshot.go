package shard

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urlake/urlake/frontier/journal"
)

// Linked is a file of a snapshot. Its name is relative to the shard's folder, with slashes. Of the
// file only the first Size bytes belong to the snapshot: it may grow afterwards.
type Linked struct {
	Name string
	Size int64
}

// Snapshot makes hard links to the shard's files in a folder that does not exist, on the same file
// system. Open finds in a copy of them what it would find had the process died at a moment during
// the call: everything that was certain before the call, and a part of what was done during it.
//
// Others use the shard meanwhile and wait for nothing: the moment is a length of the journal. Only
// files that are being written are waited for. No file is copied: files of a shard do not change
// once they are written, or have bytes added at their ends, of which the links' sizes say nothing.
// Files of somebody else's in the folder are left out: those whose names begin with one of others.
func (s *Shard) Snapshot(dir string, others []string) (files []Linked, err error) {
	// Until upkeep is released the checkpoint, the files that it names and the segments of the
	// journal after it stay the same; only the last segment and the visits grow.
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	if files, err = s.link(dir, others); err != nil {
		return nil, err
	}
	segment, size, err := s.journal.Cut()
	if err != nil {
		return nil, err
	}
	for i := range files {
		if path.Base(files[i].Name) == segment {
			files[i].Size = size
		}
	}
	return files, nil
}

// link links what the shard's folder has.
func (s *Shard) link(dir string, others []string) (files []Linked, err error) {
	err = filepath.WalkDir(s.dir, func(from string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.dir, from)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		switch {
		case e.IsDir():
			return os.MkdirAll(to, 0o777)
		case !e.Type().IsRegular() || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, journal.TornSuffix),
			slices.ContainsFunc(others, func(s string) bool { return strings.HasPrefix(name, s) }):
			return nil
		}
		if err := os.Link(from, to); err != nil {
			return fmt.Errorf("snapshot: %w; the file system of the data needs hard links", err)
		}
		info, err := os.Stat(to)
		if err != nil {
			return err
		}
		files = append(files, Linked{filepath.ToSlash(name), info.Size()})
		return nil
	})
	return files, err
}

// Check opens a copy of a shard's files and closes it: it says whether they can be opened.
func Check(dir string, o Options) error {
	s, _, err := Open(dir, o)
	if err != nil {
		return err
	}
	return s.Close()
}
