package segment

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// filesFrame is how many bytes of text a frame of files.tsv holds. The file is read as a whole.
const filesFrame = 64 << 10

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
	fw := seekable.NewWriter(w, 0)
	var frame []byte
	for i := range files {
		f := &files[i]
		if i > 0 && f.DatasetID < files[i-1].DatasetID {
			return seekable.File{}, fmt.Errorf("files.tsv: dataset %d after %d", f.DatasetID, files[i-1].DatasetID)
		}
		if s := f.DomainPrefix + f.Path + f.Batch; strings.ContainsAny(s, "\t\n") {
			return seekable.File{}, fmt.Errorf("files.tsv: tab or newline in %q", s)
		}
		start := len(frame)
		frame = f.append(frame, i)
		if start > 0 && len(frame) > filesFrame {
			if _, _, err := fw.Frame(nil, frame[:start]); err != nil {
				return seekable.File{}, err
			}
			frame = frame[:copy(frame, frame[start:])]
		}
	}
	if len(frame) > 0 {
		if _, _, err := fw.Frame(nil, frame); err != nil {
			return seekable.File{}, err
		}
	}
	return fw.Finish()
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
	if n := bytes.Count(text, []byte{'\n'}); int64(n) != count || len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, codec.Corrupt(name, "lines", -1, fmt.Sprintf("%d whole lines", count), n)
	}
	f := &Files{name: name, info: make([]FileInfo, 0, count)}
	// The strings of all lines share this copy of the text.
	rest := string(text)
	var again []byte
	for rest != "" {
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		id := len(f.info)
		info, ok := parseFile(line)
		if ok {
			again = info.append(again[:0], id)
		}
		// A line has one form only: it must be what printing its values gives.
		if !ok || string(again[:len(again)-1]) != line {
			const want = "file_id, dataset_id, domain_prefix, path, batch, bytes, rows"
			return nil, codec.Corrupt(name, fmt.Sprintf("line %d", id), -1, want, strconv.Quote(line))
		}
		if id > 0 && info.DatasetID < f.info[id-1].DatasetID {
			want := fmt.Sprintf("dataset %d or later", f.info[id-1].DatasetID)
			return nil, codec.Corrupt(name, fmt.Sprintf("line %d", id), -1, want, info.DatasetID)
		}
		f.info = append(f.info, info)
	}
	return f, nil
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
	if c[3] == "" || lake.CheckBatchName(c[4]) != nil {
		return FileInfo{}, false
	}
	return FileInfo{
		DatasetID: uint32(dataset), DomainPrefix: c[2], Path: c[3], Batch: c[4], Bytes: size, Rows: rows,
	}, true
}
