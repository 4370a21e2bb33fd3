package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

const (
	// filesVersion is the version of files.tsv.
	filesVersion = 1

	// filesFrame is how many bytes of text a frame of files.tsv holds.
	filesFrame = 16 << 10

	// filesFence is the width of a fence of files.tsv: file_id and dataset of its first line, each
	// big-endian.
	filesFence = 8
)

// FileInfo is a line of files.tsv: a part of the lake. Its file_id is the number of the line.
type FileInfo struct {
	DatasetID    uint32
	DomainPrefix string
	Path         string // key in the lake
	Batch        string
	Bytes        int64
	Rows         int64
}

func (f *FileInfo) append(out []byte, id int) []byte {
	out = strconv.AppendInt(out, int64(id), 10)
	out = append(out, '\t')
	out = strconv.AppendUint(out, uint64(f.DatasetID), 10)
	out = append(out, '\t')
	out = append(out, f.DomainPrefix...)
	out = append(out, '\t')
	out = append(out, f.Path...)
	out = append(out, '\t')
	out = append(out, f.Batch...)
	out = append(out, '\t')
	out = strconv.AppendInt(out, f.Bytes, 10)
	out = append(out, '\t')
	out = strconv.AppendInt(out, f.Rows, 10)
	return append(out, '\n')
}

// WriteFiles writes files.tsv.zst. File ids count from 0, and datasets must ascend.
func WriteFiles(w io.Writer, files []FileInfo) (seekable.File, error) {
	for i := range files {
		f := &files[i]
		if i > 0 && f.DatasetID < files[i-1].DatasetID {
			return seekable.File{}, fmt.Errorf("files.tsv: dataset %d after %d", f.DatasetID, files[i-1].DatasetID)
		}
		if s := f.DomainPrefix + f.Path + f.Batch; strings.ContainsAny(s, "\t\n") {
			return seekable.File{}, fmt.Errorf("files.tsv: tab or newline in %q", s)
		}
	}
	return writeLines(w, filesFence, filesFrame, len(files), func(line int) []byte {
		fence := binary.BigEndian.AppendUint32(nil, uint32(line))
		return binary.BigEndian.AppendUint32(fence, files[line].DatasetID)
	}, func(i int, out []byte) []byte { return files[i].append(out, i) })
}

// Files is the content of files.tsv: the parts that a segment indexes.
type Files struct {
	name string
	info []FileInfo
}

// Len returns the number of files.
func (f *Files) Len() int { return len(f.info) }

// Info returns the file with that id, which must be below Len.
func (f *Files) Info(id uint32) FileInfo { return f.info[id] }

// parseFiles reads the text of files.tsv.
func parseFiles(text []byte, name string, count int64) (*Files, error) {
	info, err := parseLines(text, name, 0, count)
	return &Files{name: name, info: info}, err
}

// parseLines reads count lines of files.tsv, of which the first has the id first.
func parseLines(text []byte, name string, first, count int64) ([]FileInfo, error) {
	if n := bytes.Count(text, []byte{'\n'}); int64(n) != count || len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, codec.Corrupt(name, "lines", -1, fmt.Sprintf("%d whole lines", count), n)
	}
	all := make([]FileInfo, 0, count)
	// The strings of all lines share this copy of the text.
	rest := string(text)
	var again []byte
	for rest != "" {
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		id := int(first) + len(all)
		info, ok := parseFile(line)
		if ok {
			again = info.append(again[:0], id)
		}
		// A line has one form only: it must be what printing its values gives.
		if !ok || string(again[:len(again)-1]) != line {
			const want = "file_id, dataset_id, domain_prefix, path, batch, bytes, rows"
			return nil, codec.Corrupt(name, fmt.Sprintf("line %d", id), -1, want, strconv.Quote(line))
		}
		if n := len(all); n > 0 && info.DatasetID < all[n-1].DatasetID {
			want := fmt.Sprintf("dataset %d or later", all[n-1].DatasetID)
			return nil, codec.Corrupt(name, fmt.Sprintf("line %d", id), -1, want, info.DatasetID)
		}
		all = append(all, info)
	}
	return all, nil
}

func parseFile(line string) (FileInfo, bool) {
	c := strings.Split(line, "\t")
	if len(c) != 7 {
		return FileInfo{}, false
	}
	dataset, err1 := strconv.ParseUint(c[1], 10, 32)
	size, err2 := strconv.ParseInt(c[5], 10, 64)
	rows, err3 := strconv.ParseInt(c[6], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || size < 0 || rows < 0 {
		return FileInfo{}, false
	}
	if c[3] == "" || lake.CheckStoredName(c[4]) != nil {
		return FileInfo{}, false
	}
	return FileInfo{
		DatasetID: uint32(dataset), DomainPrefix: c[2], Path: c[3], Batch: c[4], Bytes: size, Rows: rows,
	}, true
}

// owners says which datasets files belong to. Runs of files are known by their first file and its
// dataset.
type owners struct {
	count    int64 // of all files
	starts   []uint32
	datasets []uint32
	// exact: all files of a run belong to its dataset. Otherwise those after the first may belong
	// to any dataset up to that of the next run.
	exact bool
}

// ownersOf returns the exact owners.
func ownersOf(files []FileInfo) *owners {
	o := &owners{count: int64(len(files)), exact: true}
	for id := range files {
		if n := len(o.datasets); n == 0 || o.datasets[n-1] != files[id].DatasetID {
			o.starts = append(o.starts, uint32(id))
			o.datasets = append(o.datasets, files[id].DatasetID)
		}
	}
	return o
}

// fencedOwners returns the owners as far as the fences of files.tsv tell. They must be those of
// count files.
func fencedOwners(f *frames, count int64) (*owners, error) {
	o := &owners{count: count}
	for i := range f.Len() {
		start, dataset := binary.BigEndian.Uint32(f.Fence(i)), binary.BigEndian.Uint32(f.Fence(i)[4:])
		if i == 0 && start != 0 || int64(start) >= count || i > 0 && dataset < o.datasets[i-1] {
			want := fmt.Sprintf("file ids below %d from 0 on, and datasets in order", count)
			return nil, codec.Corrupt(f.key, "fences", -1, want, fmt.Sprintf("file %d of dataset %d", start, dataset))
		}
		o.starts, o.datasets = append(o.starts, start), append(o.datasets, dataset)
	}
	if f.Len() == 0 && count > 0 {
		return nil, codec.Corrupt(f.key, "fences", -1, fmt.Sprintf("%d files", count), "none")
	}
	return o, nil
}

// may returns the datasets, both included, to which a file may belong. There must be such a file.
func (o *owners) may(file uint32) (first, last uint32) {
	at := sort.Search(len(o.starts), func(i int) bool { return o.starts[i] > file }) - 1
	first = o.datasets[at]
	switch {
	case o.exact || o.starts[at] == file:
		return first, first
	case at+1 < len(o.starts):
		return first, o.datasets[at+1]
	}
	return first, math.MaxUint32
}
