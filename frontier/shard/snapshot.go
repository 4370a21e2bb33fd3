package shard

import (
	"fmt"
	"io/fs"
	"os"
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
// system. What Open finds in a copy of them is what was committed when atOnce was called, which
// Snapshot does after it has waited for files that are being written. The caller sees to it that
// nothing is added, taken or settled while atOnce runs, which calls link.
//
// No file is copied: files of a shard do not change once they are written, or have bytes added at
// their ends, of which the links' sizes say nothing. Files of somebody else's in the folder are
// left out: those whose names begin with one of others.
func (s *Shard) Snapshot(dir string, others []string, atOnce func(link func() error) error) (files []Linked, err error) {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	err = atOnce(func() error {
		if err := s.Commit(); err != nil {
			return err
		}
		files, err = s.link(dir, others)
		return err
	})
	return files, err
}

// link links what the shard's folder has. Between two changes of the files, which hold upkeep, that
// is what the checkpoint names, and the journal after it.
func (s *Shard) link(dir string, others []string) (files []Linked, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	err = filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.dir, path)
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
		if err := os.Link(path, to); err != nil {
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
