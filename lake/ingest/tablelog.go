package ingest

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/blob"
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

// isLog reports whether a table's log may have a name.
func isLog(name string) bool {
	return slices.ContainsFunc(raw.TableFormats, func(f raw.TableFormat) bool { return f.Log == name })
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

// maxLogKeys is how many keys of a folder that may be a log are looked at.
const maxLogKeys = 1000

// aboveKeys is above for a prefix in a bucket. It makes a request for each folder above and each
// format. What may not be listed is left out.
func (t tables) aboveKeys(ctx context.Context, store blob.Store, bucket, prefix string) error {
	for dir := prefix; dir != ""; {
		dir = dir[:strings.LastIndexByte(strings.TrimSuffix(dir, "/"), '/')+1]
		for k := range raw.TableFormats {
			f := &raw.TableFormats[k]
			log, n := dir+f.Log+"/", 0
			if allow.Of(ctx).List(bucket, log) != nil {
				continue
			}
			for info, err := range store.List(ctx, log) {
				if errors.Is(err, blob.ErrDenied) {
					break
				}
				if err != nil && info.Key == "" {
					return err
				}
				if strings.HasSuffix(info.Key, f.Suffix) {
					t["s3://"+bucket+"/"+dir] = f
					break
				}
				if n++; n == maxLogKeys {
					break
				}
			}
		}
	}
	return nil
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
