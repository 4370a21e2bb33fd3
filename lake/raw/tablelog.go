package raw

import (
	"fmt"
	"strings"
)

// TableFormat is a format of tables whose folder has a log beside the files with rows. Files that
// the log has removed or replaced stay in the folder. So reading all files would read rows that the
// table does not have.
type TableFormat struct {
	name    string
	Log     string // the log's folder inside the table's folder
	Suffix  string // what the name of a file in Log ends with, "" for any
	convert string // the command that writes the rows as Parquet; %s is the table
}

// TableFormats are the formats whose logs are recognised.
var TableFormats = []TableFormat{
	{"a Delta table", "_delta_log", "",
		`duckdb -c "INSTALL delta; LOAD delta; COPY (FROM delta_scan('%s')) TO 'rows.parquet'"`},
	{"an Iceberg table", "metadata", ".metadata.json",
		`duckdb -c "INSTALL iceberg; LOAD iceberg; COPY (FROM iceberg_scan('%s')) TO 'rows.parquet'"`},
	{"a Hudi table", ".hoodie", "",
		`spark-shell -e 'spark.read.format("hudi").load("%s").write.parquet("rows")'`},
}

// TableLog returns the format of the table whose log the file at path belongs to, and the path of
// the table's folder, empty or with a slash at its end; nil for other files.
func TableLog(path string) (f *TableFormat, table string) {
	for at := 0; ; {
		folder, _, ok := strings.Cut(path[at:], "/")
		if !ok {
			return nil, ""
		}
		for i := range TableFormats {
			if f := &TableFormats[i]; folder == f.Log && strings.HasSuffix(path, f.Suffix) {
				return f, path[:at]
			}
		}
		at += len(folder) + 1
	}
}

// Reason returns why the files of the table are not read, and Advice how to write its rows.
func (f *TableFormat) Reason() string {
	return fmt.Sprintf("it is %s (%s), and which of its files still count is in its log, which is not read", f.name, f.Log)
}

// Advice returns how to write the rows of the table at place.
func (f *TableFormat) Advice(place string) string {
	return "write its rows first (" + fmt.Sprintf(f.convert, place) + ")"
}
