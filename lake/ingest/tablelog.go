package ingest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/urlake/urlake/lake/ingest/allow"
)

// tableFormat is a format of tables whose folder has a log beside the files with rows. Files that
// the log has removed or replaced stay in the folder. So reading all files would read rows that the
// table does not have.
type tableFormat struct {
	name    string
	log     string // the log's folder inside the table's folder
	suffix  string // what the name of a file in log ends with, "" for any
	convert string // the command that writes the rows as Parquet; %s is the table
}

var tableFormats = []tableFormat{
	{"a Delta table", "_delta_log", "",
		`duckdb -c "INSTALL delta; LOAD delta; COPY (FROM delta_scan('%s')) TO 'rows.parquet'"`},
	{"an Iceberg table", "metadata", ".metadata.json",
		`duckdb -c "INSTALL iceberg; LOAD iceberg; COPY (FROM iceberg_scan('%s')) TO 'rows.parquet'"`},
	{"a Hudi table", ".hoodie", "",
		`spark-shell -e 'spark.read.format("hudi").load("%s").write.parquet("rows")'`},
}

// tables are the folders with a table's log that a listing met, by their URLs with a slash.
type tables map[string]*tableFormat

// file notes a table if the file at names below root belongs to its log. root ends with a slash.
func (t tables) file(root string, names []string) {
	for i := 0; i < len(names)-1; i++ {
		for k := range tableFormats {
			f := &tableFormats[k]
			if names[i] == f.log && strings.HasSuffix(names[len(names)-1], f.suffix) {
				t[root+strings.Join(append(names[:i:i], ""), "/")] = f
			}
		}
	}
}

// folder notes the folder name if it has a table's log.
func (t tables) folder(allowed *allow.Inputs, name string) {
	for k := range tableFormats {
		f := &tableFormats[k]
		log := filepath.Join(name, f.log)
		if info, err := allowed.Stat(log); err != nil || !info.IsDir() {
			continue
		}
		entries, err := []fs.DirEntry(nil), error(nil)
		if f.suffix != "" {
			entries, err = allowed.ReadDir(log)
		}
		found := f.suffix == ""
		for _, e := range entries {
			found = found || strings.HasSuffix(e.Name(), f.suffix)
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
			return &InputError{Object: url, Reason: fmt.Sprintf(
				"it is %s (%s), and which of its files still count is in its log, which is not read; write its rows first (%s), "+
					"or name the files to read", f.name, f.log, fmt.Sprintf(f.convert, place))}
		}
	}
	return nil
}
