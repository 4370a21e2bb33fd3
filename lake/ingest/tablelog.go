package ingest

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/lake/raw"
)

// tables are the folders with a table's log that a listing met, by their URLs with a slash.
type tables map[string]*raw.TableFormat

// file notes a table if the file at names below root belongs to its log. root ends with a slash.
func (t tables) file(root string, names []string) {
	if f, table := raw.TableLog(strings.Join(names, "/")); f != nil {
		t[root+table] = f
	}
}

// folder notes the folder name if it has a table's log.
func (t tables) folder(allowed *allow.Inputs, name string) {
	for k := range raw.TableFormats {
		f := &raw.TableFormats[k]
		log := filepath.Join(name, f.Log)
		if info, err := allowed.Stat(log); err != nil || !info.IsDir() {
			continue
		}
		entries, err := []fs.DirEntry(nil), error(nil)
		if f.Suffix != "" {
			entries, err = allowed.ReadDir(log)
		}
		found := f.Suffix == ""
		for _, e := range entries {
			found = found || strings.HasSuffix(e.Name(), f.Suffix)
		}
		if err == nil && found {
			t[strings.TrimSuffix(fileURL(name), "/")+"/"] = f
		}
	}
}

// above notes the folders above a folder that have a table's log: the folder may be one of the
// table's partitions.
func (t tables) above(allowed *allow.Inputs, name string) {
	for dir := filepath.Dir(name); dir != name; name, dir = dir, filepath.Dir(dir) {
		t.folder(allowed, dir)
	}
}

// check returns an *InputError if one of the objects is below a table's folder.
func (t tables) check(objects []object) error {
	if len(t) == 0 {
		return nil
	}
	for _, o := range objects {
		for i := strings.LastIndexByte(o.Name, '/'); i > 0; i = strings.LastIndexByte(o.Name[:i], '/') {
			url := o.Name[:i+1]
			f := t[url]
			if f == nil {
				continue
			}
			place := strings.TrimSuffix(url, "/")
			if name, err := pathOf(place); err == nil && strings.HasPrefix(place, "file:") {
				place = name
			}
			return &InputError{Object: url, Reason: f.Reason() + "; " + f.Advice(place) + ", or name the files to read"}
		}
	}
	return nil
}
